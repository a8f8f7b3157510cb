"""Patterns as arrays for kernels: checks and outputs, their places in the row of a match, and the columns of events that they read.

Rows of all patterns of a window are in the same pages, so places are shared. Whole numbers and codes of text have separate places,
because all columns of codes have to be known.

    pattern, awaited events │ partition: numbers, codes, whether null │ states │ deadlines, counts, values, outputs │ codes
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import cast

import numpy as np

from hotspare.base.errors import Mistake, ProjectError
from hotspare.expressions.compiled import CompiledExpression, compile_assignment
from hotspare.expressions.tree import Typed, TypedField, ValueType, fields_used
from hotspare.model.project import Dialect, Expression
from hotspare.model.types import FieldType, Schema
from hotspare.table.lanes import CODED
from hotspare.table.relation import Shape
from hotspare.windows.pattern.conditions import COMPARED, Conditions, EventCondition, compile_conditions, field_type
from hotspare.windows.pattern.logic import Event, Logic, LogicOperator, Operation, events_in, is_strict
from hotspare.windows.pattern.loops import pattern_logic as k
from hotspare.windows.pattern.patterns import AfterMatch, WindowPattern

_KIND = {
    LogicOperator.IS: k.IS,
    LogicOperator.SEEN: k.SEEN,
    LogicOperator.NOTOCCUR: k.NOTOCCUR,
    LogicOperator.NOT: k.NOT,
    LogicOperator.AND: k.AND,
    LogicOperator.OR: k.OR,
    LogicOperator.FBY: k.FBY,
}
_OP = dict(zip(COMPARED, (k.EQUAL, k.NOT_EQUAL, k.LESS, k.LESS_EQUAL, k.GREATER, k.GREATER_EQUAL), strict=True))
_NONE = -1


class ColumnForm(Enum):
    """The form in which a column has the values of events."""

    LANE = "lane"
    ORDERED = "ordered"
    """Doubles become whole numbers that order as the doubles do."""
    IS_NULL = "is null"
    """1 for null, else 0; the value itself is not in the column."""


@dataclass(frozen=True, slots=True)
class EventColumn:
    """The plan of a column with a value of events of input `number`, of type `type` and in the form `form`.

    The value is the field `place`. If that is _NONE, it is `expression`, evaluated for events that may be event of interest `bit`
    of pattern `pattern` by themselves.
    """

    column: int
    number: int
    type: FieldType
    expression: CompiledExpression
    place: int = _NONE
    pattern: int = 0
    bit: int = 0
    form: ColumnForm = ColumnForm.LANE


@dataclass(frozen=True, slots=True)
class ResidualCondition:
    """A condition to evaluate for an event and each open match: that of event of interest `bit` of pattern `pattern`. `expression`
    reads fields of input `number`, and `variables`: name, place in the row of a match, and type of each.
    """

    pattern: int
    bit: int
    number: int
    expression: CompiledExpression
    variables: tuple[tuple[str, int, FieldType], ...]


@dataclass(slots=True)
class _Places:
    """Counts the places that are allocated in the rows of one pattern: plain ones, and ones for codes of strings."""

    plain: int = 0
    coded: int = 0

    def allocate_place(self, type_: FieldType | None = None) -> tuple[int, int]:
        """Allocates a place for a value of this type, None for a whole number. Returns its kind (0 plain, 1 coded) and number."""
        if type_ in CODED:
            self.coded += 1
            return 1, self.coded - 1
        self.plain += 1
        return 0, self.plain - 1


@dataclass(slots=True)
class _Compiled:
    """A compiled pattern, whose places do not have column numbers yet. `outputs`: field, event of interest, expression and type of
    each. `keys`: type, and expression by input, of each value of the partition.
    """

    pattern: WindowPattern
    conditions: Conditions
    logic: Logic
    outputs: list[tuple[int, int, CompiledExpression, FieldType]]
    keys: list[tuple[FieldType, dict[int, CompiledExpression]]]
    places: _Places = field(default_factory=_Places)

    @property
    def bits(self) -> dict[str, int]:
        return {event.name: bit for bit, event in enumerate(self.conditions.events)}


@dataclass(frozen=True, slots=True)
class PatternPlan:
    """The compiled patterns of a window. `program`: their arrays for the kernels; `shape`: the columns of a row of a match.
    `column_plans`: how the columns of events are computed, of which there are `width`.
    """

    program: k.PatternProgram
    shape: Shape
    conditions: tuple[Conditions, ...]
    column_plans: tuple[EventColumn, ...]
    residuals: tuple[ResidualCondition, ...]
    width: int


def compile_patterns(
    label: str, patterns: Sequence[WindowPattern], inputs: Sequence[tuple[str, Schema]], schema: Schema, by_event: int
) -> PatternPlan:
    """Compiles the patterns of a window. `schema` is its own; `by_event` is 1 for event time, 0 for system time. Raises
    ProjectError with all mistakes.
    """
    compiled: list[_Compiled] = []
    mistakes: list[Mistake] = []
    for pattern in patterns:
        try:
            compiled.append(_compiled(pattern, f"window {label}, pattern {pattern.name}", inputs, schema))
        except ProjectError as error:
            mistakes += error.mistakes
    if mistakes:
        raise ProjectError(label, mistakes)
    return _Builder(compiled, schema, by_event).plan()


def _compiled(pattern: WindowPattern, label: str, inputs: Sequence[tuple[str, Schema]], schema: Schema) -> _Compiled:
    logic = pattern.parsed
    pattern = _with_events(pattern, set(events_in(logic)))
    schemas = dict(inputs)
    events = {event.name: (bit, schemas[event.source]) for bit, event in enumerate(pattern.events)}
    outputs: list[tuple[int, int, CompiledExpression, FieldType]] = []
    mistakes: list[Mistake] = []
    for each in pattern.outputs:
        at = schema.index[each.target]
        if each.event not in events:
            message = f"{label}, output {each.target}: event {each.event} is not in the logic"
            mistakes.append(Mistake(each.place, message, "emit a field of an event that is in the logic"))
            continue
        bit, given = events[each.event]
        written = each.expression or Expression(f"${each.field_name}", Dialect.ESP, each.place)
        try:
            made = compile_assignment(written, given, schema.fields[at], label)
            outputs.append((at, bit, made, schema.fields[at].type))
        except ProjectError as error:
            mistakes += error.mistakes
    try:
        conditions = compile_conditions(pattern, label, inputs)
    except ProjectError as error:
        raise ProjectError(label, [*mistakes, *error.mistakes]) from None
    if mistakes:
        raise ProjectError(label, mistakes)
    return _Compiled(pattern, conditions, logic, outputs, _keys(pattern, conditions, logic))


def _with_events(pattern: WindowPattern, used: set[str]) -> WindowPattern:
    events = tuple(event for event in pattern.events if event.name in used)
    return replace(pattern, events=events)


def _keys(pattern: WindowPattern, conditions: Conditions, logic: Logic) -> list[tuple[FieldType, dict[int, CompiledExpression]]]:
    """Returns the values that partition matches: type, and expression by input. These are the fields of the pattern's index and,
    unless the very next event matters, the variables that every event binds to a field.
    """
    events = conditions.events
    found: list[tuple[FieldType, dict[int, CompiledExpression]]] = []
    for name in pattern.partition:
        of_input = {}
        for event in events:
            at = event.schema.fields[event.schema.index[name]]
            of_input[event.number] = event.compiled(TypedField(name, ValueType.from_field_type(at.type)))
        found.append((at.type, of_input))
    if is_strict(logic):
        return found
    for name, type_ in conditions.variables.items():
        values: dict[int, CompiledExpression] = {}
        for event in events:
            value = event.bindings.get(name)
            if value is None or not value.passed_field or values.setdefault(event.number, value).tree != value.tree:
                break
        else:
            found.append((field_type(type_), values))
    return [each for i, each in enumerate(found) if each not in found[:i]]


class _Builder:
    def __init__(self, compiled: Sequence[_Compiled], schema: Schema, by_event: int) -> None:
        self._compiled, self._schema, self._by_event = compiled, schema, by_event
        self._columns: dict[object, int] = {}
        self._taken: list[EventColumn] = []
        plain_keys = [sum(type_ not in CODED for type_, _ in each.keys) for each in compiled]
        coded_keys = [sum(type_ in CODED for type_, _ in each.keys) for each in compiled]
        self._plain_keys, self._coded_keys = max(plain_keys, default=0), max(coded_keys, default=0)
        self._keys = 2 * (self._plain_keys + self._coded_keys)
        self._words = -(-max((_size(each.logic) for each in compiled), default=1) // k.NODES_PER_WORD)
        self._nodes: list[list[int]] = []
        self._events: list[list[int]] = []
        self._checks: list[list[object]] = []
        self._caught: list[list[object]] = []
        self._places: list[tuple[int, str, object]] = []

    def plan(self) -> PatternPlan:
        patterns: list[list[object]] = []
        keys, outputs, asked = [], [], []
        for p, each in enumerate(self._compiled):
            variables = {name: each.places.allocate_place(field_type(type_)) for name, type_ in each.conditions.variables.items()}
            fields = {at: each.places.allocate_place(type_) for at, _, _, type_ in each.outputs}
            first, first_event = len(self._nodes), len(self._events)
            self._add_nodes(each, each.logic, _NONE, 0)
            asks = self._add_events(p, each, variables, fields)
            asked += asks
            patterns.append(self._pattern(each, first, first_event, asks))
            keys.append(self._key_columns(p, each))
            outputs.append([fields.get(at, _NONE) for at in range(len(self._schema))])
        plain_at = k.KEYS + self._keys + self._words
        coded_at = plain_at + max((each.places.plain for each in self._compiled), default=0)
        width = coded_at + max((each.places.coded for each in self._compiled), default=0)
        starts = (plain_at, coded_at)

        def place(given: object) -> int:
            return given if isinstance(given, int) else starts[cast(tuple[int, int], given)[0]] + cast(tuple[int, int], given)[1]

        def numbers(rows: Sequence[Sequence[object]], columns: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
            return np.array([[place(value) for value in row] for row in rows], np.int64).reshape(len(rows), columns)

        program = k.PatternProgram(
            patterns=numbers(patterns, k.PATTERN_WIDTH),
            nodes=numbers(self._nodes, k.NODE_WIDTH),
            events=numbers(self._events, 4),
            checks=numbers(self._checks, 3),
            captures=numbers(self._caught, 2),
            keys=numbers(keys, self._keys),
            outputs=numbers(outputs, len(self._schema)),
            states=np.array([k.KEYS + self._keys, self._words], np.int64),
            by_event=self._by_event,
        )
        text_keys = range(k.KEYS + self._plain_keys, k.KEYS + self._plain_keys + self._coded_keys)
        codes, partition = (*text_keys, *range(coded_at, width)), range(k.KEYS, k.KEYS + self._keys)
        shape = Shape(
            width, (k.PATTERN,), codes, (k.PATTERN, k.WAITS_FOR, *partition), unloaded_lookup_fields=(k.PATTERN, *partition)
        )
        found = tuple(
            ResidualCondition(a.pattern, a.bit, a.number, a.expression, tuple((n, place(at), t) for n, at, t in a.variables))
            for a in asked
        )
        conditions = tuple(each.conditions for each in self._compiled)
        return PatternPlan(program, shape, conditions, tuple(self._taken), found, max(1, len(self._columns)))

    def _pattern(self, each: _Compiled, first: int, first_event: int, asked: Sequence[ResidualCondition]) -> list[object]:
        begins, any_begins = 0, 0
        for kind, name, below_not in _first_leaves(each.logic, 0):
            begins |= 1 << each.bits[name]
            any_begins |= kind == k.NOT_EVENT or (kind == k.IS and below_not)
        strict, manifold = int(is_strict(each.logic)), int(_waits(each.logic) > k.CLASSES_MAX)
        asks, of_code = sum(1 << a.bit for a in asked), cast(object, _NONE)
        if each.pattern.script is not None:
            asks, of_code = (1 << len(each.conditions.events)) - 1, each.places.allocate_place(FieldType.BLOB)
        skips = int(each.pattern.after_match is AfterMatch.SKIP_PAST_LAST)
        return [first, len(self._nodes), first_event, begins, int(any_begins), strict, asks, manifold, of_code, skips]

    def _add_nodes(self, each: _Compiled, logic: Logic, nearest: int, below_not: int) -> None:
        at, row = len(self._nodes), [0] * k.NODE_WIDTH
        self._nodes.append(row)
        kind, inner = _node(logic)
        row[k.KIND], row[k.COUNT], row[k.BELOW_NOT] = int(kind), 1, below_not
        row[k.DEADLINE] = row[k.COUNTER] = _NONE
        if isinstance(logic, Operation):
            row[k.COUNT], row[k.LIMIT] = logic.count, logic.limit_us
            if logic.limit_us:
                row[k.DEADLINE] = cast(int, each.places.allocate_place())
                nearest = at
            if logic.operator in (LogicOperator.IS, LogicOperator.SEEN):
                row[k.COUNTER] = cast(int, each.places.allocate_place())
        row[k.NEAREST] = nearest
        if isinstance(inner, str):
            row[k.BIT] = each.bits[inner]
        else:
            for operand in inner:
                self._add_nodes(each, operand, nearest, 1 if below_not or kind == k.NOT else 0)
        row[k.END] = len(self._nodes)

    def _add_events(
        self, p: int, each: _Compiled, variables: Mapping[str, object], fields: Mapping[int, object]
    ) -> list[ResidualCondition]:
        asked: list[ResidualCondition] = []
        derived: dict[Typed, object] = {}
        for condition in each.conditions.events:
            for compare in condition.compares:
                if not isinstance(compare.variables, TypedField):
                    derived.setdefault(compare.variables, each.places.allocate_place(field_type(compare.variables.type)))
        for bit, condition in enumerate(each.conditions.events):
            checks, caught = len(self._checks), len(self._caught)
            for name, value in condition.bindings.items():
                self._checks.append([int(k.BIND), variables[name], self._ordered(p, bit, condition, value)])
            for compare in condition.compares:
                tree = compare.variables
                place = variables[tree.name] if isinstance(tree, TypedField) else derived[tree]
                self._checks.append([int(_OP[compare.function]), place, self._ordered(p, bit, condition, compare.fields)])
            for tree, place in derived.items():
                if set(fields_used(tree)) <= condition.bindings.keys():
                    value = each.conditions.derived(condition, tree)
                    self._caught.append([self._ordered(p, bit, condition, value), place])
            for at, of_bit, made, type_ in each.outputs:
                if of_bit == bit:
                    self._caught.append([self._column(p, bit, condition, made, type_), fields[at]])
            self._events.append([checks, len(self._checks), caught, len(self._caught)])
            if condition.residual is not None:
                names = [name for name in condition.residual.fields if name in variables and name not in condition.schema.index]
                known = tuple((name, variables[name], field_type(each.conditions.variables[name])) for name in names)
                asked.append(
                    ResidualCondition(
                        p, bit, condition.number, condition.residual, cast(tuple[tuple[str, int, FieldType], ...], known)
                    )
                )
        return asked

    def _key_columns(self, p: int, each: _Compiled) -> list[int]:
        columns = [_NONE] * self._keys
        half, given = self._keys // 2, [0, self._plain_keys]
        for number, (type_, values) in enumerate(each.keys):
            at = given[type_ in CODED]
            given[type_ in CODED] += 1
            columns[at], columns[half + at] = self._new((p, number, "key")), self._new((p, number, "null"))
            for of_input, value in values.items():
                place = _place_in(value, each, of_input)
                self._taken.append(EventColumn(columns[at], of_input, type_, value, place, p, 0, _ordered_form(type_)))
                self._taken.append(EventColumn(columns[half + at], of_input, type_, value, place, p, 0, ColumnForm.IS_NULL))
        return columns

    def _ordered(self, p: int, bit: int, condition: EventCondition, value: CompiledExpression) -> int:
        type_ = field_type(value.tree.type)
        return self._column(p, bit, condition, value, type_, _ordered_form(type_))

    def _column(
        self,
        p: int,
        bit: int,
        condition: EventCondition,
        value: CompiledExpression,
        type_: FieldType,
        form: ColumnForm = ColumnForm.LANE,
    ) -> int:
        """Returns the number of the column with a value of events of interest, and plans the column if it is new. Columns of fields
        are shared.
        """
        place = condition.schema.index[value.passed_field] if value.passed_field else _NONE
        what: object = place if place >= 0 else (value.tree, p, bit)
        name = (condition.number, what, type_, form)
        if name not in self._columns:
            column = self._new(name)
            self._taken.append(EventColumn(column, condition.number, type_, value, place, p, bit, form))
        return self._columns[name]

    def _new(self, name: object) -> int:
        return self._columns.setdefault(name, len(self._columns))


def _ordered_form(type_: FieldType) -> ColumnForm:
    return ColumnForm.ORDERED if type_ is FieldType.DOUBLE else ColumnForm.LANE


def _place_in(value: CompiledExpression, each: _Compiled, number: int) -> int:
    schema = next(event.schema for event in each.conditions.events if event.number == number)
    return schema.index[value.passed_field]


def _node(logic: Logic) -> tuple[int, str | tuple[Logic, ...]]:
    """Returns the kind of the kernel's node for a logic; and the name of its event, or its operands."""
    if isinstance(logic, Event):
        return int(k.LEAF), logic.name
    inner = logic.operands[0]
    if logic.operator is LogicOperator.NOT and isinstance(inner, Event):
        return int(k.NOT_EVENT), inner.name
    kind = int(_KIND[logic.operator])
    return (kind, inner.name) if kind <= k.NOTOCCUR and isinstance(inner, Event) else (kind, logic.operands)


def _first_leaves(logic: Logic, below_not: int) -> Iterator[tuple[int, str, int]]:
    """Yields the leaves of the logic that the first event of a match reaches: kind of node, name of event, and 1 inside a not."""
    kind, inner = _node(logic)
    if isinstance(inner, str):
        yield kind, inner, below_not
    else:
        for operand in inner[:1] if kind == k.FBY else inner:
            yield from _first_leaves(operand, 1 if below_not or kind == k.NOT else 0)


def _size(logic: Logic) -> int:
    inner = _node(logic)[1]
    return 1 if isinstance(inner, str) else 1 + sum(map(_size, inner))


def _waits(logic: Logic) -> int:
    """Returns an upper bound on the number of different sets of events that a match may wait for."""
    kind, inner = _node(logic)
    if isinstance(inner, str):
        return 1
    several = [_waits(operand) for operand in inner]
    if kind == k.FBY:
        return sum(several)
    product = 1
    for each in several:
        product = min(product * (each + 1), 1 << 20)
    return product
