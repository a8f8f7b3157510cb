"""Functions that see each other (SPEC A25): the computation of a functional window, step by step over columns.

    given fields ─► properties `#name` ─► functions in order ─► fields of the event ──┐
                                            └─► per loop: elements ─► its properties and functions ─► fields of an event each

`$name` is a field of the input; if it has none of that name, the value of an earlier function. In a loop the name of its data is
the element, and its own functions' values hide the event's values. Text is parsed once for all steps.
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
"""The rows that go through all steps at once if documents are parsed: these take many times the memory of their text."""
Columns = Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True)
class FunctionStep:
    """A step of a program. `name`: by which later steps see its value."""

    name: str
    expression: CompiledExpression


@dataclass(frozen=True)
class FunctionSteps:
    """The steps of a context: `property_steps` compute properties, `output_steps` fields."""

    property_steps: tuple[FunctionStep, ...]
    output_steps: tuple[FunctionStep, ...]

    @property
    def all_steps(self) -> tuple[FunctionStep, ...]:
        return (*self.property_steps, *self.output_steps)

    @cached_property
    def required_names(self) -> tuple[str, ...]:
        """The names that must exist before."""
        made: set[str] = set()
        needed: dict[str, None] = {}
        for step in self.all_steps:
            needed |= dict.fromkeys(name for name in step.expression.fields if name not in made)
            made.add(step.name)
        return tuple(needed)

    def run(
        self, columns: dict[str, pa.Array], length: int, memo: dict[Any, Any], given: frozenset[str]
    ) -> Iterator[tuple[FunctionStep, pa.Array, Failures]]:
        """Yields each step with its values and failures, and adds the values to `columns`, except for the names that
        are `given`.
        """
        for step in self.all_steps:
            values, failures = step.expression.evaluate(columns, length, memo)
            if step.name not in given:
                columns[step.name] = values
            yield step, values, failures


@dataclass(frozen=True)
class LoopSteps:
    """The steps of a loop. `items`: for each event the list of its elements, which are called `data`."""

    items: CompiledExpression
    data: str
    steps: FunctionSteps


@dataclass(frozen=True)
class CompiledProgram:
    """A compiled program. `input_names`: names of the input's fields, which steps do not hide. `generate` and `opcode` see the
    values of the event's own steps.
    """

    own_steps: FunctionSteps
    loops: tuple[LoopSteps, ...]
    generate: CompiledExpression | None
    opcode: CompiledExpression | None
    input_names: frozenset[str]

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The columns that it reads of an event: fields of the input, opcode and flags, the count of events, and the time."""
        asked = list(self.own_steps.required_names)
        asked += [name for each in (self.generate, self.opcode) if each is not None for name in each.fields]
        for loop in self.loops:
            asked += [*loop.items.fields, *loop.steps.required_names]
        of_event = (*EVENT_FIELDS, COUNTER_FIELD, POSITION_FIELD, SYSTEM_TIME_FIELD)
        return tuple(dict.fromkeys(name for name in asked if name in self.input_names or name in of_event))


@dataclass
class ProgramCompiler:
    """The compiler of one window's expressions; it collects their mistakes."""

    input_schema: Schema
    schema: Schema
    window: str
    input_name: str
    mistakes: list[Mistake] = field(default_factory=list)

    def compile_functions(self, program: FunctionProgram) -> CompiledProgram | None:
        """Returns the compiled program; None if there are mistakes."""
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
        """Returns the steps of a context; adds their names to `names`, except for those that are `kept`."""
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
"""The conversion of a property's text, and its type. XML and JSON stay texts, parsed when a function reads them."""


def _loop_items_call(loop: EventLoop, text: Tree) -> Tree:
    path = Literal(loop.path, ValueType.STRING, 1)
    if loop.kind is LoopKind.REGEX:
        return Call("rgx_matches", "regex", (text, path, Literal(loop.group, ValueType.INT32)), 1)
    return Call("xml_items" if loop.kind is LoopKind.XML else "json_items", loop.kind.value, (text, path), 1)


def has_document_functions(steps: Iterable[FunctionStep]) -> bool:
    """Whether any of the steps parses documents."""
    trees = [each for step in steps for each in walk_typed(step.expression.tree)]
    return any(isinstance(each, TypedCall) and each.function in (*JSON_FUNCTIONS, *XML_FUNCTIONS) for each in trees)


def compile_function_program(
    program: FunctionProgram, given: Schema, schema: Schema, window: str, input_name: str
) -> CompiledProgram:
    """Returns the compiled program; ProjectError with all mistakes of its expressions."""
    compiling = ProgramCompiler(given, schema, window, input_name)
    compiled = compiling.compile_functions(program)
    if compiled is None:
        raise ProjectError(f"window {window}", compiling.mistakes)
    return compiled


@dataclass(frozen=True, slots=True)
class ComputedEvents:
    """Events that rows produce. `row` of each, ascending, and its index among those of its row as `number` (the event itself is 0).
    Values by field, null if neither a function nor the input gives one.
    """

    row: Any
    number: Any
    values: Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """The result of a program. `opcode`: the text for each row; None if not defined. `failed`: in the order of evaluation."""

    computed_events: ComputedEvents
    opcode: pa.Array | None
    failed: Sequence[Failures]


def run_program(program: CompiledProgram, columns: Columns, length: int, schema: Schema) -> ProgramRun:
    """Returns all events of the rows. `columns`: those of `CompiledProgram.fields` and the fields that pass by their name."""
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
    """Returns the events of one loop; `before`: the number of loop events of each row so far, which is increased."""
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
    """Returns a position for each event of a loop, far from those of other events."""
    with np.errstate(over="ignore"):
        moved = position.fill_null(0).to_numpy() + number * np.int64(_POSITION_STRIDE)
    return pa.array(moved, mask=position.is_null().to_numpy(zero_copy_only=False))


_POSITION_STRIDE = 0x1E3779B97F4A7C15


def _merged(parts: Sequence[ComputedEvents], schema: Schema) -> ComputedEvents:
    """Returns all events by row, and within a row by number."""
    row, number = (np.concatenate([getattr(part, name) for part in parts]) for name in ("row", "number"))
    order = np.lexsort((number, row))
    taken = pa.array(order)
    values: dict[str, pa.Array] = {}
    for each in schema.fields:
        type_ = ValueType.from_field_type(each.type).arrow
        columns = [part.values[each.name] if each.name in part.values else pa.nulls(len(part.row), type_) for part in parts]
        values[each.name] = pa.concat_arrays(columns).take(taken)
    return ComputedEvents(row[order], number[order], values)
