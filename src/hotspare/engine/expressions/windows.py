"""What the expressions of a window compile to, without any engine state: shared by the operators and by the head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from hotspare.engine.expressions.compiled import (
    CompiledExpression,
    compile_assignment,
    compile_condition,
    compile_slot,
    compile_value,
)
from hotspare.engine.expressions.tree import TypedField, ValueType, fields_used
from hotspare.errors import Mistake, ProjectError
from hotspare.model.names import EXPRESSION_LENGTH_MAX, unprintable
from hotspare.model.project import Expression, Window, WindowId
from hotspare.model.resolve import ResolvedWindow
from hotspare.model.types import Field, Schema
from hotspare.model.windows.contract import Computed, Counting, Given, Use
from hotspare.model.windows.registry import type_of


@dataclass(frozen=True, slots=True)
class Assignments:
    """One expression per field of a window's schema, in its order; fields taken from the input are expressions too.

    `text_bytes_max`: so much is kept of a computed string; 0: all.
    """

    outputs: tuple[CompiledExpression, ...]
    text_bytes_max: int = 0


def compile_assignments(
    window: ResolvedWindow,
    given: Schema,
    computed: Iterable[tuple[Field, Expression | None]],
    counting: Counting = Counting.REFUSED,
) -> Assignments:
    """Every field with its expression, or None where it is the input field of its name. ProjectError with all mistakes."""
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
    return Assignments(tuple(outputs), window.window.text_bytes_max)


def expression_mistakes(window_id: WindowId, window: Window, given: Sequence[Given]) -> tuple[Mistake, ...]:
    """Every mistake in the expressions of a window, whose other parts may be mistaken too (`model.load.ExpressionCheck`).

    An expression that is for no field, or nobody knows for which, is only read. One that no expression can be is left to the model.
    """
    compiling: list[tuple[Expression, Callable[[], CompiledExpression]]] = []
    visible = type_of(window).visible(window, given)
    if visible is not None:
        compiling += [(each.expression, _compiling(each, visible, str(window_id))) for each in type_of(window).computed(window)]
    made = type_of(window).schema(window, given)
    if window.splitter is not None and made is not None:
        compiling.append((window.splitter, partial(compile_slot, window.splitter, made, str(window_id))))
    mistakes: list[Mistake] = []
    for expression, compiled in compiling:
        text = expression.text
        if not text.strip() or len(text) > EXPRESSION_LENGTH_MAX or unprintable(text):
            continue
        try:
            compiled()
        except ProjectError as error:
            mistakes += error.mistakes
    return tuple(mistakes)


def _compiling(computed: Computed, visible: Schema, label: str) -> Callable[[], CompiledExpression]:
    if computed.use is Use.CONDITION:
        return partial(compile_condition, computed.expression, visible, label)
    if computed.field is None:
        return partial(compile_value, computed.expression, visible, label, computed.counting)
    return partial(compile_assignment, computed.expression, visible, computed.field, label, computed.counting)


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
