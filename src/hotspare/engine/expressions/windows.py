"""What the expressions of a window compile to, without any engine state: shared by the operators and by the head."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import cast

from hotspare.engine.expressions.compiled import (
    CompiledExpression,
    Counting,
    compile_assignment,
    compile_condition,
    compile_value,
)
from hotspare.engine.expressions.tree import TypedField, ValueType, fields_used
from hotspare.errors import Mistake, ProjectError
from hotspare.model.names import EXPRESSION_LENGTH_MAX, unprintable
from hotspare.model.project import ComputeWindow, Expression, FilterWindow, FunctionalWindow, Window, WindowId
from hotspare.model.resolve import ResolvedWindow
from hotspare.model.types import Field, Schema


@dataclass(frozen=True, slots=True)
class Assignments:
    """One expression per field of a window's schema, in its order; fields taken from the input are expressions too."""

    outputs: tuple[CompiledExpression, ...]


def compile_compute(window: ResolvedWindow, given: Schema) -> Assignments:
    """Keys by name, the other fields by the expressions in their order (A24). ProjectError with all mistakes."""
    declared = cast(ComputeWindow, window.window)
    expressions = iter(declared.outputs)
    computed = [(f, None if f.is_key else next(expressions)) for f in window.schema.fields]
    return _compiled(window, given, computed, Counting.REFUSED)


def compile_functional(window: ResolvedWindow, given: Schema) -> Assignments:
    """Fields with a function by it, the others from the input by name (A25). ProjectError with all mistakes."""
    declared = cast(FunctionalWindow, window.window)
    functions = dict(declared.functions)
    return _compiled(window, given, [(f, functions.get(f.name)) for f in window.schema.fields], Counting.ALLOWED)


def compile_filter(window: ResolvedWindow, given: Schema) -> CompiledExpression:
    """The condition (A26). ProjectError with its mistake."""
    return compile_condition(cast(FilterWindow, window.window).condition, given, str(window.id))


def expression_mistakes(window_id: WindowId, window: Window, given: Schema) -> tuple[Mistake, ...]:
    """Every mistake in the expressions of a window, whose other parts may be mistaken too (`model.load.ExpressionCheck`).

    An expression that is for no field, or nobody knows for which, is only read. One that no expression can be is left to the model.
    """
    mistakes: list[Mistake] = []
    for expression, compiled in _expressions(window_id, window, given):
        if not expression.text.strip() or len(expression.text) > EXPRESSION_LENGTH_MAX or unprintable(expression.text):
            continue
        try:
            compiled()
        except ProjectError as error:
            mistakes += error.mistakes
    return tuple(mistakes)


def _expressions(window_id: WindowId, window: Window, given: Schema) -> Iterator[tuple[Expression, Callable[[], object]]]:
    """Each expression with what compiles it."""
    label = str(window_id)
    if isinstance(window, FilterWindow):
        yield window.condition, partial(compile_condition, window.condition, given, label)
        return
    targets: list[tuple[Expression, Field | None]] = []
    counting = Counting.REFUSED
    fields = {f.name: f for f in window.schema.fields if not f.is_key} if window.schema is not None else {}
    if isinstance(window, ComputeWindow):
        known = list(fields.values()) if len(fields) == len(window.outputs) else [None] * len(window.outputs)
        targets = list(zip(window.outputs, known, strict=True))
    elif isinstance(window, FunctionalWindow):
        targets, counting = [(expression, fields.get(name)) for name, expression in window.functions], Counting.ALLOWED
    for expression, field in targets:
        if field is None:
            yield expression, partial(compile_value, expression, given, label, counting)
        else:
            yield expression, partial(compile_assignment, expression, given, field, label, counting)


def _compiled(
    window: ResolvedWindow, given: Schema, computed: list[tuple[Field, Expression | None]], counting: Counting
) -> Assignments:
    outputs: list[CompiledExpression] = []
    mistakes: list[Mistake] = []
    for field, expression in computed:
        try:
            if expression is None:
                outputs.append(_taken(window, given, field))
            else:
                outputs.append(compile_assignment(expression, given, field, str(window.id), counting))
        except ProjectError as error:
            mistakes += error.mistakes
    if mistakes:
        raise ProjectError(str(window.id), mistakes)
    return Assignments(tuple(outputs))


def _taken(window: ResolvedWindow, given: Schema, field: Field) -> CompiledExpression:
    """The input field of the same name and type."""
    place = given.index.get(field.name)
    label = f"window {window.id}, field {field.name}"
    if place is None or given.fields[place].type is not field.type:
        found = "does not exist" if place is None else f"is {given.fields[place].type.value}"
        message = f"{label}: it has no expression, and the input field {field.name} {found}"
        hint = f"its input has {given}"
        raise ProjectError(label, [Mistake(window.window.place, message, hint)])
    tree = TypedField(field.name, ValueType.of(field.type))
    return CompiledExpression(field.name, label, tree, fields_used(tree), field.name)
