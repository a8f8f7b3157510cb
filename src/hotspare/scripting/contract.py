"""The contract of user code with the engine: a program, compiled once, and instances of it with variables.

    text ── compile_* ──► Program ── open() ──► Instance ── make_events, select, call ──► values, or CodeFailure
                                                │    ▲
                                                save  load      canonical bytes: the content of snapshots and digests

Code is a deterministic function of its events and of its variables. So each language of user code

- replaces clock and randomness by those of the event (`TimeAndSeed`), and has no network, no files and no threads;
- gives every table, set and hash an order that is the same in every process, and after a restore;
- counts steps (instructions of a virtual machine, or turns of loops and calls), never time: all engines find a limit exceeded
  at the same step;
- keeps the variables of the program as a tree of plain values. Aliases of a container remain aliases after a restore, and order is
  kept. A variable that holds another kind of value is refused by name.

Changes that an event made before its code failed stay, or are undone, as the language defines: every engine fails at the same step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.model.code import Module, ModuleUse, Script
from hotspare.model.events import Opcode
from hotspare.model.types import Schema
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.rows.refusals import BAD_TEXT_LENGTH_MAX
from hotspare.scripting.fields import ColumnBuilder, Unfit, column_values, describe_kind

Value: TypeAlias = Any
"""None, bool, int, float, str, bytes, and lists and dicts of these."""

UInt64s: TypeAlias = npt.NDArray[np.uint64]

OPCODE_KEY = "_opcode"
"""The key of the opcode in an event that code makes. No field can have the name."""

OPCODE_NAMES: dict[str, Opcode] = {
    "insert": Opcode.INSERT,
    "update": Opcode.UPDATE,
    "upsert": Opcode.UPSERT,
    "delete": Opcode.DELETE,
    "safedelete": Opcode.SAFE_DELETE,
}
"""The values that code may write there."""

OPCODE_TEXT = {int(value): name for name, value in OPCODE_NAMES.items()} | {int(Opcode.UPDATE_BLOCK): "update"}
"""The opcodes of events as code sees them."""

DEPTH_MAX = 100
"""The limit on nesting of lists and dicts that enter or leave the code as values."""

NO_OPCODE = 0
"""The code gives no opcode."""


@dataclass(frozen=True, slots=True)
class TimeAndSeed:
    """The facts that code may use besides its arguments. `seed`: of its random numbers, derived from the event's position and from
    the number of events that the window received before it.
    """

    time_us: int
    seed: int


class SharedCode(ABC):
    """The state that pieces of code of a project share (`scripting.shared`). CodeFailure if something fails."""

    @abstractmethod
    def get(self, name: str) -> tuple[Value, int]:
        """Returns a property, None if it does not exist, and its size in bytes."""

    @abstractmethod
    def set(self, name: str, value: Value) -> int:
        """Sets a property; returns its new size in bytes."""

    @abstractmethod
    def poll_property(self, listener: str, name: str, *, wants_first: object) -> tuple[bool, Value]:
        """Returns whether a property has a value that this listener has not received, and its current value."""

    @abstractmethod
    def call(self, snippet: str, function: str, arguments: Sequence[Value], moment: TimeAndSeed) -> tuple[Value, int]:
        """Returns the value of a snippet's function, and the steps that it took."""


class CodeFailure(Exception):
    """The code fails on an event, which becomes a bad event for `reason`: `code`, or `code-limit`. `line` counts from 1 in the
    compiled text; 0 is unknown.
    """

    def __init__(self, text: str, *, reason: BadReason = BadReason.CODE, line: int = 0) -> None:
        super().__init__(text)
        self.text = text[:BAD_TEXT_LENGTH_MAX].encode(errors="replace").decode()
        self.reason = reason
        self.line = line


@dataclass(frozen=True, slots=True)
class FailedEvent:
    """The row number of a failed event, and the reason."""

    row: int
    reason: BadReason
    message: str


@dataclass(frozen=True, slots=True)
class InputEvents:
    """Events for code, in order. `schema` has the fields that the code sees, `columns` one Arrow array of `ARROW_TYPE` for each of
    them. The deletes of update blocks are not included. `input`: the name of the window that emitted them.
    """

    input: str
    schema: Schema
    columns: Sequence[pa.Array]
    opcode: UInt8s
    time_us: Int64s
    seeds: UInt64s

    def __len__(self) -> int:
        return len(self.opcode)

    def slice(self, begin: int, end: int) -> InputEvents:
        """Returns the events from number `begin` to before number `end`."""
        columns = [column.slice(begin, end - begin) for column in self.columns]
        return InputEvents(self.input, self.schema, columns, self.opcode[begin:end], self.time_us[begin:end], self.seeds[begin:end])

    def time_and_seed(self, row: int) -> TimeAndSeed:
        return TimeAndSeed(int(self.time_us[row]), int(self.seeds[row]))


@dataclass(frozen=True, slots=True)
class OutputEvents:
    """Events that code made.

    row      int64[n]   number of the event that caused each; never decreases
    opcode   uint8[n]   `Opcode`, or NO_OPCODE
    columns             for each field of the requested schema an Arrow array of n values; null if the code gives none
    failed              ascending by row; none of these events made any
    seen_count          how many of the given events the code has seen
    """

    row: Int64s
    opcode: UInt8s
    columns: Sequence[pa.Array]
    failed: Sequence[FailedEvent]
    seen_count: int


class CallingConvention(Enum):
    """The arguments of a program's functions."""

    WITH_EVENTS = "events"
    WITH_COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class ProgramText:
    """The source of a program. `name`: the window, or "snippet NAME". `modules` are loaded before its own code, in order, each
    under its name; a snippet among them is called by its name instead. `display_name` is the name for messages.

    `is_empty_table_event`: an empty table that the code returns is an event, not an empty list. `settings`: the argument of the
    function `init`, if the code defines one; None if code is packaged otherwise. `calling_convention`: the arguments of its
    functions."""

    name: str
    script: Script
    modules: tuple[Module, ...] = ()
    is_empty_table_event: bool = False
    settings: Mapping[str, str] | None = None
    calling_convention: CallingConvention = CallingConvention.WITH_EVENTS

    @property
    def display_name(self) -> str:
        return self.name if self.name.startswith(f"{ModuleUse.SNIPPET.value} ") else f"window {self.name}"

    @property
    def init(self) -> str:
        """The function that is called once, before any event; "" for none. One that takes settings may be absent."""
        return self.script.init if self.settings is None else "init"


class Program(Protocol):
    """Compiled code: immutable, and the same for every instance."""

    def open(self) -> Instance:
        """Returns a new instance with the variables of the loaded program. ProjectError if loading fails."""

    def has_function(self, function: str) -> bool:
        """Whether the program has a function of that name."""


class Instance(ABC):
    """A program with its variables. A language may process many events at once in the methods that this class defines per event."""

    @property
    def steps(self) -> int:
        """The steps of the last `call`, if the language counts them."""
        return 0

    @property
    def memory_bytes(self) -> int:
        """The approximate memory of its variables in bytes, computed without reading them."""
        return 0

    def attach_shared_code(self, shared: SharedCode | None) -> None:  # noqa: B027
        """Lets the code share that state from now on; a language may have nothing to share."""

    @abstractmethod
    def call(self, function: str, arguments: Sequence[Value], moment: TimeAndSeed) -> Value:
        """Returns the function's value, the first if there are several. CodeFailure if it fails, exceeds a limit, or returns a
        value that is not plain.
        """

    def call_for_two(self, function: str, arguments: Sequence[Value], moment: TimeAndSeed) -> tuple[Value, Value]:
        """Returns the first two values that the function returns, None for missing ones."""
        returned = self.call(function, arguments, moment)
        return (returned[0], returned[1]) if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)

    def as_event_argument(self, fields: Mapping[str, Value]) -> Value:
        """Returns an event as an argument of `call`; nulls are not among `fields`."""
        return dict(fields)

    @abstractmethod
    def variable(self, name: str) -> Value:
        """Returns the value of a variable, None if it does not exist. CodeFailure if the value is not plain."""

    @abstractmethod
    def save(self) -> bytes:
        """Returns the variables as bytes, equal for equal histories in every process. CodeFailure with the name of a variable that
        cannot be kept.
        """

    def freeze(self) -> Callable[[], bytes]:
        """Returns a function that gives the present result of `save`. It may be called later, in any thread, while the instance
        continues. CodeFailure as `save`. A language whose variables record their changes shares them until then.
        """
        saved = self.save()
        return lambda: saved

    @abstractmethod
    def load(self, data: bytes) -> None:
        """Loads the result of `save` into a new instance of an equal program. SnapshotDamaged if that is impossible."""

    def make_events(self, function: str, events: InputEvents, schema: Schema, made_max: int) -> OutputEvents:
        """Calls `function(event, context)` for each event in turn, until `made_max` events or more are made. The function returns
        an event of `schema`, a list of events, or nothing; names that are not fields of the schema are ignored.
        """
        return _make_one_by_one(self, function, events, schema, made_max)

    def select(self, function: str, events: InputEvents) -> tuple[Bools, Sequence[FailedEvent]]:
        """Returns which events pass: those for which `function(event, context)` returns true. Failed events do not pass."""
        return _select_one_by_one(self, function, events)


def event_context(events: InputEvents, row: int) -> dict[str, Value]:
    """Returns the second argument: the facts of an event that the code may use besides its fields."""
    return {"opcode": OPCODE_TEXT[int(events.opcode[row])], "input": events.input}


def event_dicts(schema: Schema, columns: Sequence[pa.Array], count: int) -> list[dict[str, Value]]:
    """Returns one dict per event, without nulls."""
    lists = [column_values(column, field.type) for column, field in zip(columns, schema.fields, strict=True)]
    if not lists:
        return [{} for _ in range(count)]
    return [
        {name: value for name, value in zip(schema.names, row, strict=True) if value is not None}
        for row in zip(*lists, strict=True)
    ]


def _make_one_by_one(instance: Instance, function: str, events: InputEvents, schema: Schema, made_max: int) -> OutputEvents:
    builder, done = EventBuilder(schema), 0
    for row, event in enumerate(event_dicts(events.schema, events.columns, len(events))):
        if builder.count >= made_max:
            break
        done = row + 1
        try:
            returned = instance.call(function, (event, event_context(events, row)), events.time_and_seed(row))
            builder.add(row, returned)
        except CodeFailure as failure:
            builder.add_failure(row, failure)
    return builder.build_events(done)


def _select_one_by_one(instance: Instance, function: str, events: InputEvents) -> tuple[Bools, Sequence[FailedEvent]]:
    passes, failed = np.zeros(len(events), np.bool_), []
    for row, event in enumerate(event_dicts(events.schema, events.columns, len(events))):
        try:
            passes[row] = expect_boolean(instance.call(function, (event, event_context(events, row)), events.time_and_seed(row)))
        except CodeFailure as failure:
            failed.append(FailedEvent(row, failure.reason, failure.text))
    return passes, failed


def expect_boolean(returned: Value) -> bool:
    """Returns the result of a filter; CodeFailure if it is not a boolean. None counts as false, as a null condition does."""
    if returned is None or isinstance(returned, bool):
        return returned is True
    raise CodeFailure(f"returns {describe_kind(returned)}, not true or false")


class EventBuilder:
    """Collects the events that code returns, event after event."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._columns = [ColumnBuilder(field.type) for field in schema.fields]
        self._row: list[int] = []
        self._opcode: list[int] = []
        self._failed: list[FailedEvent] = []

    def add(self, row: int, returned: Value) -> None:
        """Adds the events that the code returned for event `row`. CodeFailure, and nothing is added, unless it is an event, a list
        of events, or nothing (None or False).
        """
        events = returned if isinstance(returned, list) else [] if returned is None or returned is False else [returned]
        made = [self._event(event) for event in events]
        for opcode, values in made:
            self._row.append(row)
            self._opcode.append(opcode)
            for column, value in zip(self._columns, values, strict=True):
                column.append(value)

    def add_failure(self, row: int, failure: CodeFailure) -> None:
        self._failed.append(FailedEvent(row, failure.reason, failure.text))

    @property
    def count(self) -> int:
        return len(self._row)

    def build_events(self, done: int) -> OutputEvents:
        """Returns all events; `done`: the number of events that the code has seen."""
        return OutputEvents(
            np.array(self._row, np.int64),
            np.array(self._opcode, np.uint8),
            [column.array() for column in self._columns],
            self._failed,
            done,
        )

    def _event(self, event: Value) -> tuple[int, list[Value]]:
        if not isinstance(event, dict):
            raise CodeFailure(f"returns {describe_kind(event)}, not an event, a list of events, or nothing")
        values = []
        for field, column in zip(self._schema.fields, self._columns, strict=True):
            try:
                values.append(column.fitted(event.get(field.name)))
            except Unfit as unfit:
                raise CodeFailure(f"field {field.name}: {unfit}", reason=unfit.reason) from unfit
        return parse_opcode(event.get(OPCODE_KEY)), values


def plain_copy(value: Value, depth: int = 0) -> Value:
    """Returns a copy of a value from code, of plain lists and dicts alone. CodeFailure if it is nested too deeply."""
    if depth > DEPTH_MAX:
        raise CodeFailure(f"a value is nested more than {DEPTH_MAX} deep")
    if isinstance(value, dict):
        return {key: plain_copy(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_copy(inner, depth + 1) for inner in value]
    return value


def parse_opcode(written: Value) -> int:
    """Returns the opcode that code wrote into an event; CodeFailure if it is invalid."""
    if written is None:
        return NO_OPCODE
    found = OPCODE_NAMES.get(written.lower()) if isinstance(written, str) else None
    if found is None:
        raise CodeFailure(f"{OPCODE_KEY} is {describe_value(written)}, not one of {', '.join(OPCODE_NAMES)}")
    return int(found)


def describe_value(value: Value) -> str:
    """Returns a short text or number itself, else the kind of the value; for messages."""
    if isinstance(value, str):
        return repr(value[:100])
    return str(value) if isinstance(value, bool | float) else describe_kind(value)
