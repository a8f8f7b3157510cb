"""The computation of a functional window, step by step over columns; later functions can use the values of earlier ones (SPEC A25).

    given fields ─► properties `#name` ─► functions in order ─► fields of the event ──┐
                                            └─► per loop: elements ─► its properties and functions ─► fields of an event each

`$name` is a field of the input. If the input has no field of that name, it is the value of an earlier function. In a loop, the name
of the loop's data is the current element, and values of the loop's functions hide the event's values. Text is parsed once for all
steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from hotspare.base.errors import Mistake, ProjectError
from hotspare.expressions.checking import COUNTER_FIELD, EVENT_NUMBER_FIELD, POSITION_FIELD, SYSTEM_TIME_FIELD
from hotspare.expressions.compiled import EVENT_FIELDS, CompiledExpression, compile_over
from hotspare.expressions.documents import JSON_FUNCTIONS, XML_FUNCTIONS
from hotspare.expressions.frame import Failures
from hotspare.expressions.tree import Call, Literal, Tree, TypedCall, ValueType, walk_typed
from hotspare.model.function_contexts import (
    EventLoop,
    FunctionContext,
    FunctionProgram,
    LoopKind,
    PropertyKind,
    to_functional_dialect,
)
from hotspare.model.names import EXPRESSION_LENGTH_MAX, first_unprintable
from hotspare.model.project import Expression
from hotspare.model.types import Field, Schema

DOCUMENT_ROWS_MAX = 1024
"""The maximum number of rows per run of all steps if some step parses documents: a parsed document takes many times the memory of
its text.
"""
Columns = Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True)
class FunctionStep:
    """A step of a program: an expression, and the `name` by which later steps refer to its value."""

    name: str
    expression: CompiledExpression


@dataclass(frozen=True)
class FunctionSteps:
    """The steps of a context, the event or a loop. `property_steps` compute properties and run first, `output_steps` compute
    fields.
    """

    property_steps: tuple[FunctionStep, ...]
    output_steps: tuple[FunctionStep, ...]

    @property
    def all_steps(self) -> tuple[FunctionStep, ...]:
        return (*self.property_steps, *self.output_steps)

    @cached_property
    def required_names(self) -> tuple[str, ...]:
        """The names that the steps read but no earlier step computes, in order of first use. The caller of `run` supplies them."""
        made: set[str] = set()
        needed: dict[str, None] = {}
        for step in self.all_steps:
            needed |= dict.fromkeys(name for name in step.expression.fields if name not in made)
            made.add(step.name)
        return tuple(needed)

    def run(
        self, columns: dict[str, pa.Array], length: int, memo: dict[Any, Any], given: frozenset[str]
    ) -> Iterator[tuple[FunctionStep, pa.Array, Failures]]:
        """Yields each step with its values and failures. Adds the values to `columns` under the step's name, unless `given` has
        that name.
        """
        for step in self.all_steps:
            values, failures = step.expression.evaluate(columns, length, memo)
            if step.name not in given:
                columns[step.name] = values
            yield step, values, failures


@dataclass(frozen=True)
class LoopSteps:
    """The steps of a loop. `items` computes, for each event, the list of elements. `data` is the name of the current element; "":
    none.
    """

    items: CompiledExpression
    data: str
    steps: FunctionSteps


@dataclass(frozen=True)
class CompiledProgram:
    """A compiled program. `own_steps` compute the event itself, `loops` further events. `input_names`: fields of the input, whose
    values no step hides. `generate` and `opcode` see the values of `own_steps`.
    """

    own_steps: FunctionSteps
    loops: tuple[LoopSteps, ...]
    generate: CompiledExpression | None
    opcode: CompiledExpression | None
    input_names: frozenset[str]

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The columns that the program reads of an event: fields of the input, opcode and flags, counters, and the system time."""
        asked = list(self.own_steps.required_names)
        asked += [name for each in (self.generate, self.opcode) if each is not None for name in each.fields]
        for loop in self.loops:
            asked += [*loop.items.fields, *loop.steps.required_names]
        of_event = (*EVENT_FIELDS, COUNTER_FIELD, POSITION_FIELD, SYSTEM_TIME_FIELD)
        return tuple(dict.fromkeys(name for name in asked if name in self.input_names or name in of_event))


@dataclass
class ProgramCompiler:
    """Compiles the expressions of one window's program and collects their errors in `mistakes`."""

    input_schema: Schema
    schema: Schema
    window: str
    input_name: str
    mistakes: list[Mistake] = field(default_factory=list)

    def compile_functions(self, program: FunctionProgram) -> CompiledProgram | None:
        """Returns the compiled program, or None if `mistakes` is not empty afterwards."""
        names = {f.name: ValueType.from_field_type(f.type) for f in self.input_schema.fields}
        names |= {name: ValueType.STRING for name in EVENT_FIELDS if name not in names}
        names |= dict.fromkeys((COUNTER_FIELD, POSITION_FIELD, EVENT_NUMBER_FIELD), ValueType.INT64)
        names[SYSTEM_TIME_FIELD] = ValueType.STAMP
        patterns = dict(program.context.patterns)
        own = self._context(program.context, names, patterns, frozenset(self.input_schema.names), "")
        generate = self._expression(program.generate, names, patterns, "generate", self._truth) if program.generate else None
        opcode = self._expression(program.opcode, names, patterns, "opcode", self._text) if program.opcode else None
        loops = [self._loop(loop, dict(names), patterns) for loop in program.loops]
        if self.mistakes:
            return None
        return CompiledProgram(own, tuple(each for each in loops if each), generate, opcode, frozenset(self.input_schema.names))

    def _context(
        self, context: FunctionContext, names: dict[str, ValueType], patterns: Mapping[str, str], kept: frozenset[str], where: str
    ) -> FunctionSteps:
        """Returns the compiled steps of a context. Adds their names and types to `names`; a name in `kept` retains its type. Errors
        are added to `mistakes`.
        """
        prepared: list[FunctionStep] = []
        for each in context.properties:
            wrap, type_ = _MADE[each.kind](each.outer, each.inner)
            made = self._expression(each.value, names, patterns, f"{where}property {each.name}", self._typed(type_), wrap)
            names[f"#{each.name}"] = type_
            if made is not None:
                prepared.append(FunctionStep(f"#{each.name}", made))
        outputs: list[FunctionStep] = []
        for name, written in context.functions:
            at = self.schema.index.get(name)
            if at is None:
                self._expression(written, names, patterns, f"{where}field {name}", lambda _, value: value)
                continue
            target = self.schema.fields[at]
            made = self._expression(written, names, patterns, f"{where}field {name}", self._assigned(target))
            if name not in kept:
                names[name] = ValueType.from_field_type(target.type)
            if made is not None:
                outputs.append(FunctionStep(name, made))
        return FunctionSteps(tuple(prepared), tuple(outputs))

    def _loop(self, loop: EventLoop, names: dict[str, ValueType], outer: Mapping[str, str]) -> LoopSteps | None:
        patterns = {**outer, **dict(loop.context.patterns)}
        where = f"loop {loop.name}, "
        items = self._expression(
            loop.text, names, patterns, f"{where}text", self._typed(ValueType.LIST), lambda tree: _loop_items_call(loop, tree)
        )
        if loop.data:
            names[loop.data] = ValueType.STRING
        steps = self._context(loop.context, names, patterns, frozenset({*self.input_schema.names, loop.data}), where)
        return None if items is None else LoopSteps(items, loop.data, steps)

    def _expression(
        self,
        written: Expression,
        names: Mapping[str, ValueType],
        patterns: Mapping[str, str],
        what: str,
        fitted: Any,
        wrap: Callable[[Tree], Tree] | None = None,
    ) -> CompiledExpression | None:
        label = f"window {self.window}, {what}"
        if not written.text.strip() or len(written.text) > EXPRESSION_LENGTH_MAX or first_unprintable(written.text):
            return None  # the model reports it
        try:
            return compile_over(
                to_functional_dialect(written), names, self.input_schema, label, fitted, patterns, self.input_name, wrap
            )
        except ProjectError as error:
            self.mistakes += error.mistakes
            return None

    def _assigned(self, target: Field) -> Any:
        return lambda checker, value: checker.as_assigned_value(
            value, ValueType.from_field_type(target.type), f"field {target.name}"
        )

    def _typed(self, type_: ValueType) -> Any:
        return lambda checker, value: checker.as_assigned_value(value, type_, "property")

    def _truth(self, checker: Any, value: Any) -> Any:
        return checker.as_condition(value)

    def _text(self, checker: Any, value: Any) -> Any:
        return checker.as_assigned_value(value, ValueType.STRING, "opcode")


def _string_property(_outer: str, _inner: str) -> tuple[Callable[[Tree], Tree] | None, ValueType]:
    return None, ValueType.STRING


def _list(outer: str, _inner: str) -> tuple[Callable[[Tree], Tree], ValueType]:
    return lambda tree: Call("list_of", "list", (tree, Literal(outer, ValueType.STRING)), 1), ValueType.LIST


def _map(outer: str, inner: str) -> tuple[Callable[[Tree], Tree], ValueType]:
    texts = (Literal(outer, ValueType.STRING), Literal(inner, ValueType.STRING))
    return lambda tree: Call("map_of", "map", (tree, *texts), 1), ValueType.MAP


_MADE: Mapping[PropertyKind, Callable[[str, str], tuple[Callable[[Tree], Tree] | None, ValueType]]] = {
    **dict.fromkeys((PropertyKind.STRING, PropertyKind.XML, PropertyKind.JSON), _string_property),
    **dict.fromkeys((PropertyKind.LIST, PropertyKind.SET), _list),
    PropertyKind.MAP: _map,
}
"""For each kind of property, a function of its outer and inner separator. It returns the conversion of the property's text, None
for no conversion, and the type. XML and JSON stay texts.
"""


def _loop_items_call(loop: EventLoop, text: Tree) -> Tree:
    path = Literal(loop.path, ValueType.STRING, 1)
    if loop.kind is LoopKind.REGEX:
        return Call("rgx_matches", "regex", (text, path, Literal(loop.group, ValueType.INT32)), 1)
    return Call("xml_items" if loop.kind is LoopKind.XML else "json_items", loop.kind.value, (text, path), 1)


def has_document_functions(steps: Iterable[FunctionStep]) -> bool:
    """Whether any of the steps calls a function that parses JSON or XML."""
    trees = [each for step in steps for each in walk_typed(step.expression.tree)]
    return any(isinstance(each, TypedCall) and each.function in (*JSON_FUNCTIONS, *XML_FUNCTIONS) for each in trees)


def compile_function_program(
    program: FunctionProgram, given: Schema, schema: Schema, window: str, input_name: str
) -> CompiledProgram:
    """Returns the compiled program of `window`. Raises ProjectError with the mistakes of all expressions."""
    compiling = ProgramCompiler(given, schema, window, input_name)
    compiled = compiling.compile_functions(program)
    if compiled is None:
        raise ProjectError(f"window {window}", compiling.mistakes)
    return compiled


@dataclass(frozen=True, slots=True)
class ComputedEvents:
    """Events that rows produce. `row`: the row of each event, ascending. `number`: the index of the event among those of its row, 0
    for the event itself. `values`: a column per field; missing values are null.
    """

    row: Any
    number: Any
    values: Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """The result of a program. `opcode`: the opcode's text for each row, None if the program does not define opcodes. `failed`: the
    failures in the order of evaluation.
    """

    computed_events: ComputedEvents
    opcode: pa.Array | None
    failed: Sequence[Failures]


def run_program(program: CompiledProgram, columns: Columns, length: int, schema: Schema) -> ProgramRun:
    """Runs the program over `length` rows and returns their events. `columns`: the columns that `CompiledProgram.fields` names, and
    the input fields that `schema` also has, which are copied.
    """
    memo: dict[Any, Any] = {}
    seen = dict(columns)
    seen[EVENT_NUMBER_FIELD] = pa.array(np.zeros(length, np.int64))
    failed: list[Failures] = []
    own = dict(columns)
    for step, values, failures in program.own_steps.run(seen, length, memo, program.input_names):
        failed.append(failures)
        if not step.name.startswith("#"):
            own[step.name] = values
    generated = np.ones(length, np.bool_)
    if program.generate is not None:
        values, failures = program.generate.evaluate(seen, length, memo)
        failed.append(failures)
        generated = values.fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003
    opcode = None
    if program.opcode is not None:
        opcode, failures = program.opcode.evaluate(seen, length, memo)
        failed.append(failures)
    rows = np.flatnonzero(generated)
    taken = pa.array(rows)
    parts = [
        ComputedEvents(
            rows, np.zeros(len(rows), np.int64), {f.name: own[f.name].take(taken) for f in schema.fields if f.name in own}
        )
    ]
    before = np.zeros(length, np.int64)
    for loop in program.loops:
        part, failures_of_loop = _run_loop(program, loop, seen, columns, length, before, memo)
        parts.append(part)
        failed += failures_of_loop
    return ProgramRun(_merged(parts, schema), opcode, failed)


def _run_loop(
    program: CompiledProgram,
    loop: LoopSteps,
    seen: Columns,
    columns: Columns,
    length: int,
    before: Any,
    memo: dict[Any, Any],
) -> tuple[ComputedEvents, list[Failures]]:
    """Returns the events of one loop and the failures. `before`: the number of loop events of each row so far, which the function
    increases in place.
    """
    lists, failures = loop.items.evaluate(seen, length, memo)
    failed = [failures]
    lengths = lists.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    rows = np.repeat(np.arange(length), lengths)
    number = 1 + before[rows] + np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    before += lengths
    taken = pa.array(rows)
    names = {*loop.steps.required_names} & {*seen}
    inner: dict[str, pa.Array] = {name: seen[name].take(taken) for name in sorted(names)}
    inner[EVENT_NUMBER_FIELD] = pa.array(number)
    if POSITION_FIELD in inner:
        inner[POSITION_FIELD] = _loop_positions(inner[POSITION_FIELD], number)
    if loop.data:
        inner[loop.data] = lists.flatten()
    values = {name: column.take(taken) for name, column in columns.items()}
    for step, made, failures in loop.steps.run(inner, len(rows), memo, program.input_names | {loop.data}):
        failed.append(Failures(rows[failures.rows], failures.cause_index, failures.causes))
        if not step.name.startswith("#"):
            values[step.name] = made
    return ComputedEvents(rows, number, values), failed


def _loop_positions(position: pa.Array, number: Any) -> pa.Array:
    """Returns the random position of each loop event, far from the positions of other events. `position`: that of the row.
    `number`: that of the loop event.
    """
    with np.errstate(over="ignore"):
        moved = position.fill_null(0).to_numpy() + number * np.int64(_POSITION_STRIDE)
    return pa.array(moved, mask=position.is_null().to_numpy(zero_copy_only=False))


_POSITION_STRIDE = 0x1E3779B97F4A7C15


def _merged(parts: Sequence[ComputedEvents], schema: Schema) -> ComputedEvents:
    """Returns the events of all `parts`, ordered by row, and within a row by number."""
    row, number = (np.concatenate([getattr(part, name) for part in parts]) for name in ("row", "number"))
    order = np.lexsort((number, row))
    taken = pa.array(order)
    values: dict[str, pa.Array] = {}
    for each in schema.fields:
        type_ = ValueType.from_field_type(each.type).arrow
        columns = [part.values[each.name] if each.name in part.values else pa.nulls(len(part.row), type_) for part in parts]
        values[each.name] = pa.concat_arrays(columns).take(taken)
    return ComputedEvents(row[order], number[order], values)
