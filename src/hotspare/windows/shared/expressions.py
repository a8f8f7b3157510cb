"""Compiles the expressions of a window, without any engine state: shared by the operators and by the head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from hotspare.base.errors import Mistake, ProjectError
from hotspare.expressions.aggregates import AggregateReader
from hotspare.expressions.compiled import CompiledExpression, compile_assignment, compile_condition, compile_slot, compile_value
from hotspare.expressions.function_programs import CompiledProgram, FunctionStep, ProgramCompiler
from hotspare.expressions.prelude import NO_PRELUDE, Prelude, Variable, compile_prelude
from hotspare.expressions.tree import TypedField, ValueType, fields_used
from hotspare.model.names import EXPRESSION_LENGTH_MAX, first_unprintable
from hotspare.model.project import NO_INITIALIZATION, Expression, Initialization, Window, WindowId
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.types import Field, Schema
from hotspare.model.window_type import Counting, ExpressionUse, WindowExpression, WindowInput, type_of


@dataclass(frozen=True, slots=True)
class Assignments:
    """An expression for each field of a window's schema, in its order; a field taken from the input has an expression that reads
    it. `text_bytes_max`: limit on the bytes of a computed string, which is cut there; 0: no limit.
    """

    outputs: tuple[CompiledExpression, ...]
    text_bytes_max: int = 0
    state: tuple[Variable, ...] = ()
    """Variables whose values the window keeps from event to event."""
    prepared: tuple[FunctionStep, ...] = ()
    """Values to compute before the outputs, under names that the expressions may read."""
    order: tuple[int, ...] = ()
    """Numbers of computed outputs, in the order of evaluation, if later expressions read the values of earlier ones; else empty."""


def compile_assignments(
    window: ResolvedWindow,
    given: Schema,
    computed: Iterable[tuple[Field, Expression | None]],
    counting: Counting = Counting.REFUSED,
    initialization: Initialization = NO_INITIALIZATION,
) -> Assignments:
    """Compiles the expression of each field. Without an expression (None) a field has the value of the input field of its name.
    Raises ProjectError with all mistakes.
    """
    computed = tuple(computed)
    prelude = prelude_for(window.id, initialization, [expression for _, expression in computed if expression is not None])
    outputs: list[CompiledExpression] = []
    mistakes: list[Mistake] = []
    for field, expression in computed:
        try:
            if expression is None:
                outputs.append(_taken(window, given, field))
            else:
                outputs.append(compile_assignment(expression, given, field, str(window.id), counting, prelude))
        except ProjectError as error:
            mistakes += error.mistakes
    if mistakes:
        raise ProjectError(str(window.id), mistakes)
    return Assignments(tuple(outputs), window.window.text_bytes_max, prelude.state)


def assignments_of(window: ResolvedWindow, given: Schema, program: CompiledProgram) -> Assignments:
    """Returns the assignments of a program whose functions read each other's values. Fields without a function have the value of
    the input field of their name. Raises ProjectError with all mistakes.
    """
    steps = {step.name: step.expression for step in program.own_steps.output_steps}
    order = {name: place for place, name in enumerate(steps)}
    outputs: list[CompiledExpression] = []
    mistakes: list[Mistake] = []
    for field in window.schema.fields:
        if field.name not in steps:
            try:
                outputs.append(_taken(window, given, field))
            except ProjectError as error:
                mistakes += error.mistakes
            continue
        later = [step.expression for step in program.own_steps.output_steps[order[field.name] + 1 :]]
        is_seen = field.name not in given.index and any(field.name in each.fields for each in later)
        outputs.append(replace(steps[field.name], passed_field="") if is_seen else steps[field.name])
    if mistakes:
        raise ProjectError(str(window.id), mistakes)
    places = sorted((order[field.name], i) for i, field in enumerate(window.schema.fields) if field.name in order)
    return Assignments(
        tuple(outputs), window.window.text_bytes_max, prepared=program.own_steps.property_steps, order=tuple(i for _, i in places)
    )


def expression_mistakes(window_id: WindowId, window: Window, given: Sequence[WindowInput]) -> tuple[Mistake, ...]:
    """Returns every mistake in the expressions of a window whose other parts may be invalid, too (`projects.load.ExpressionCheck`).

    An expression for an unknown field, or for none, is only parsed. Empty, overlong and unprintable texts are left to the model's
    checks.
    """
    compiling: list[tuple[Expression, Callable[[], CompiledExpression]]] = []
    visible = type_of(window).visible(window, given)
    mistakes: list[Mistake] = []
    if visible is not None:
        program = type_of(window).program(window)
        if program is not None and window.schema is not None:
            for each in given:
                if each.schema is not None:
                    of_program = ProgramCompiler(each.schema, window.schema, str(window_id), each.name or "input")
                    of_program.compile_functions(program)
                    mistakes += of_program.mistakes
        else:
            expressions = tuple(type_of(window).window_expressions(window))
            compiling += [(each.expression, partial(_compiled, each, visible, window_id, expressions)) for each in expressions]
    made = type_of(window).schema(window, given)
    if window.splitter is not None and made is not None:
        compiling.append((window.splitter, partial(splitter_of, window_id, window, made)))
    for expression, compiled in compiling:
        text = expression.text
        if not text.strip() or len(text) > EXPRESSION_LENGTH_MAX or first_unprintable(text):
            continue
        try:
            compiled()
        except ProjectError as error:
            mistakes += error.mistakes
    return tuple(dict.fromkeys(mistakes))


def prelude_for(window_id: WindowId, initialization: Initialization, expressions: Iterable[Expression]) -> Prelude:
    """Compiles the variables and functions that the window's code defines, for these expressions. Other expressions do not see
    them.
    """
    if initialization == NO_INITIALIZATION:
        return NO_PRELUDE
    return compile_prelude(initialization, tuple(expressions), f"window {window_id}")


def splitter_of(window_id: WindowId, window: Window, schema: Schema) -> CompiledExpression:
    """Compiles the window's expression for the slot of an emitted event, over `schema`. Raises ProjectError with its mistakes."""
    assert window.splitter is not None
    prelude = prelude_for(window_id, window.splitter_initialization, [window.splitter])
    return compile_slot(window.splitter, schema, str(window_id), prelude)


def _compiled(
    computed: WindowExpression, visible: Schema, window_id: WindowId, siblings: Sequence[WindowExpression]
) -> CompiledExpression:
    """Compiles one expression of a window by its use. `visible`: the fields that it sees; `siblings`: all expressions of the
    window. Raises ProjectError with its mistakes.
    """
    of_same = [each.expression for each in siblings if each.initialization == computed.initialization]
    prelude, label = prelude_for(window_id, computed.initialization, of_same), str(window_id)
    if computed.use is ExpressionUse.CONDITION:
        return compile_condition(computed.expression, visible, label, prelude, computed.counting)
    if computed.use is ExpressionUse.AGGREGATE:
        of_field = f"window {label}" + ("" if computed.field is None else f", field {computed.field.name}")
        return AggregateReader(visible, computed.groups, prelude).compile_field(computed.expression, computed.field, of_field)
    if computed.field is None:
        return compile_value(computed.expression, visible, label, computed.counting, prelude)
    return compile_assignment(computed.expression, visible, computed.field, label, computed.counting, prelude)


def _taken(window: ResolvedWindow, given: Schema, field: Field) -> CompiledExpression:
    """Returns an expression that reads the input field with the name and type of `field`. Raises ProjectError if there is none."""
    place = given.index.get(field.name)
    label = f"window {window.id}, field {field.name}"
    if place is None or given.fields[place].type is not field.type:
        found = "does not exist" if place is None else f"is {given.fields[place].type.value}"
        message = f"{label}: it has no expression, and the input field {field.name} {found}"
        hint = f"its input has {given}"
        raise ProjectError(label, [Mistake(window.window.place, message, hint)])
    tree = TypedField(field.name, ValueType.from_field_type(field.type))
    return CompiledExpression(field.name, label, tree, fields_used(tree), field.name)
