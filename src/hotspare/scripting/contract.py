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

from hotspare.base.call_board import CallSlot
from hotspare.model.code import Module, ModuleUse, Script
from hotspare.model.events import Opcode
from hotspare.model.types import Schema
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.chunk import NO_BOARD, Bools, Int64s, UInt8s
from hotspare.rows.refusals import BAD_TEXT_LENGTH_MAX
from hotspare.scripting.fields import ColumnBuilder, Unfit, column_values, describe_kind

Value: TypeAlias = Any
"""None, bool, int, float, str, bytes, and lists and dicts of these."""

UInt64s: TypeAlias = npt.NDArray[np.uint64]

OPCODE_KEY = "_opcode"
"""The key of the opcode in an event that code returns. A field cannot have this name."""

OPCODE_NAMES: dict[str, Opcode] = {
    "insert": Opcode.INSERT,
    "update": Opcode.UPDATE,
    "upsert": Opcode.UPSERT,
    "delete": Opcode.DELETE,
    "safedelete": Opcode.SAFE_DELETE,
}
"""The words that code may write as the opcode of an event, each with its opcode."""

OPCODE_TEXT = {int(value): name for name, value in OPCODE_NAMES.items()} | {int(Opcode.UPDATE_BLOCK): "update"}
"""The words by which code reads the opcode of an event, by number."""

DEPTH_MAX = 100
"""The maximum nesting of lists and dicts in a value that is passed to the code or returned by it."""

NO_OPCODE = 0
"""The opcode of an output event for which the code defined none."""


@dataclass(frozen=True, slots=True)
class TimeAndSeed:
    """The time and the random seed of a call, the only facts that code may use besides its arguments and variables. `seed` is
    derived from the event's position and from the number of events that the window received before it.
    """

    time_us: int
    seed: int


class SharedCode(ABC):
    """The state that pieces of code of a project share (`scripting.shared`): properties and snippets. The methods raise CodeFailure
    if the calling code must fail.
    """

    @abstractmethod
    def get(self, name: str) -> tuple[Value, int]:
        """Returns the value of a property, None if the property does not exist, and its size in bytes."""

    @abstractmethod
    def set(self, name: str, value: Value) -> int:
        """Sets a property to `value`. Returns its new size in bytes."""

    @abstractmethod
    def poll_property(self, listener: str, name: str, *, wants_first: object) -> tuple[bool, Value]:
        """Returns (True, value) if the property has a value that `listener` has not received, else (False, None). If `wants_first`
        is true, values from before the first event count too.
        """

    @abstractmethod
    def call(self, snippet: str, function: str, arguments: Sequence[Value], moment: TimeAndSeed) -> tuple[Value, int]:
        """Calls a function of a snippet. Returns its value and the number of steps that it took."""


class CodeFailure(Exception):
    """Raised if the code fails on an event, which becomes a bad event. `reason`: `code` or `code-limit`. `line` counts from 1 in
    the compiled text; 0 is unknown.
    """

    def __init__(self, text: str, *, reason: BadReason = BadReason.CODE, line: int = 0) -> None:
        super().__init__(text)
        self.text = text[:BAD_TEXT_LENGTH_MAX].encode(errors="replace").decode()
        self.reason = reason
        self.line = line


@dataclass(frozen=True, slots=True)
class FailedEvent:
    """A failed event: its row number, and the reason and the message of the bad event."""

    row: int
    reason: BadReason
    message: str


@dataclass(frozen=True, slots=True)
class InputEvents:
    """Events for code, in order. The deletes of update blocks are omitted.

    `input`: the name of the window that emitted the events. `schema`: the fields that the code sees; `columns`: an Arrow array of
    `ARROW_TYPE` for each. `opcode`, `time_us`, `seeds`: the opcode, the time and the random seed of each event. `rank`: the row of
    the batch that caused each event; `slot`: where calls for it are shown.
    """

    input: str
    schema: Schema
    columns: Sequence[pa.Array]
    opcode: UInt8s
    time_us: Int64s
    seeds: UInt64s
    rank: Int64s
    slot: CallSlot = NO_BOARD

    def __len__(self) -> int:
        return len(self.opcode)

    def slice(self, begin: int, end: int) -> InputEvents:
        """Returns the events from number `begin` to before number `end`."""
        columns, of = [column.slice(begin, end - begin) for column in self.columns], slice(begin, end)
        opcode, time_us, seeds, rank = self.opcode[of], self.time_us[of], self.seeds[of], self.rank[of]
        return InputEvents(self.input, self.schema, columns, opcode, time_us, seeds, rank, self.slot)

    def begin_loop(self) -> None:
        """Shows the first of the calls for these events, at most LOOP_MAX of them. Before each call the caller writes the event's
        number to ROW of `slot`."""
        if len(self):
            self.slot.begin_loop(np.ascontiguousarray(self.rank).data.cast("B").cast("q"))

    def time_and_seed(self, row: int) -> TimeAndSeed:
        return TimeAndSeed(int(self.time_us[row]), int(self.seeds[row]))


@dataclass(frozen=True, slots=True)
class OutputEvents:
    """The events that code made from input events.

    row      int64[n]   the number of the input event that caused each event; never decreases
    opcode   uint8[n]   `Opcode`, or NO_OPCODE
    columns             for each field of the requested schema an Arrow array of n values; null if the code omitted the field
    failed              the failed input events, ascending by row; they have no output events
    seen_count          the number of input events for which the code was called
    """

    row: Int64s
    opcode: UInt8s
    columns: Sequence[pa.Array]
    failed: Sequence[FailedEvent]
    seen_count: int


class CallingConvention(Enum):
    """The kind of arguments that the engine passes to a program's functions: single events, or columns of a batch."""

    WITH_EVENTS = "events"
    WITH_COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class ProgramText:
    """The source of a program. `name`: the window, or "snippet NAME". `display_name`: the name in messages. `modules` are loaded in
    order before the code, each under its name; code calls a snippet among them by its name.

    `is_empty_table_event`: whether an empty table that the code returns is an event; if not, it is an empty list. `settings`: the
    argument of the function `init`; None for code that takes no settings. `calling_convention`: the kind of arguments of its
    functions.
    """

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
        """The name of the function that is called once, before any event; "" for none. With `settings` the function is `init`, and
        the code may lack it.
        """
        return self.script.init if self.settings is None else "init"


class Program(Protocol):
    """Compiled code. A program is immutable, and all its instances share it."""

    def open(self) -> Instance:
        """Returns a new instance, whose variables are those that loading the code sets. Raises ProjectError if loading fails."""

    def has_function(self, function: str) -> bool:
        """Whether the program defines a function of that name."""


class Instance(ABC):
    """A program with its own variables. The methods implemented here process one event at a time; a language may override them to
    process many events at once.
    """

    @property
    def steps(self) -> int:
        """The number of steps of the last `call`, if the language counts steps."""
        return 0

    @property
    def memory_bytes(self) -> int:
        """The approximate memory of the variables in bytes, computed without reading them; 0 if the language does not count it."""
        return 0

    def attach_shared_code(self, shared: SharedCode | None) -> None:  # noqa: B027
        """Sets the state that the code shares with other code from now on; None for no such state. A language without shared state
        ignores it.
        """

    @abstractmethod
    def call(self, function: str, arguments: Sequence[Value], moment: TimeAndSeed) -> Value:
        """Calls `function` and returns its value, the first one if it returns several. Raises CodeFailure if the function fails,
        exceeds a limit, or returns a value that is not plain.
        """

    def call_for_two(self, function: str, arguments: Sequence[Value], moment: TimeAndSeed) -> tuple[Value, Value]:
        """Calls `function` as `call` does. Returns the first two values that it returns; a missing one is None."""
        returned = self.call(function, arguments, moment)
        return (returned[0], returned[1]) if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)

    def as_event_argument(self, fields: Mapping[str, Value]) -> Value:
        """Returns an event in the form in which `call` passes it to code. `fields` omits the null fields."""
        return dict(fields)

    @abstractmethod
    def variable(self, name: str) -> Value:
        """Returns the value of a variable, None if the variable does not exist. Raises CodeFailure if the value is not plain."""

    @abstractmethod
    def save(self) -> bytes:
        """Returns the variables as bytes, which are equal for equal histories in every process. Raises CodeFailure with the name of
        a variable whose value cannot be saved.
        """

    def freeze(self) -> Callable[[], bytes]:
        """Returns a function that returns the bytes that `save` would return now. Any thread may call it later, while the instance
        continues.

        Raises CodeFailure as `save`. A language whose variables record their changes copies a variable only when it changes before
        that call.
        """
        saved = self.save()
        return lambda: saved

    @abstractmethod
    def load(self, data: bytes) -> None:
        """Loads the bytes of `save` into this instance, which must be new and of an equal program. Raises SnapshotDamaged if the
        bytes do not fit.
        """

    def make_events(self, function: str, events: InputEvents, schema: Schema, made_max: int) -> OutputEvents:
        """Calls `function(event, context)` for each event in turn, and returns the events that it makes. Stops once `made_max` or
        more are made.

        The function returns an event of `schema`, a list of events, or nothing. Names that are not fields of the schema are
        ignored.
        """
        return _make_one_by_one(self, function, events, schema, made_max)

    def select(self, function: str, events: InputEvents) -> tuple[Bools, Sequence[FailedEvent]]:
        """Calls `function(event, context)` for each event. Returns whether each event passes, which means that the function
        returned true, and the failed events, which do not pass.
        """
        return _select_one_by_one(self, function, events)


def event_context(events: InputEvents, row: int) -> dict[str, Value]:
    """Returns the context, the second argument of a function for event `row`: its opcode, and the name of the window that emitted
    it.
    """
    return {"opcode": OPCODE_TEXT[int(events.opcode[row])], "input": events.input}


def event_dicts(schema: Schema, columns: Sequence[pa.Array], count: int) -> list[dict[str, Value]]:
    """Returns one dict per event, with its fields by name; null fields are omitted."""
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
        events.slot.begin_call(int(events.rank[row]))
        try:
            returned = instance.call(function, (event, event_context(events, row)), events.time_and_seed(row))
            builder.add(row, returned)
        except CodeFailure as failure:
            builder.add_failure(row, failure)
    events.slot.end_window()
    return builder.build_events(done)


def _select_one_by_one(instance: Instance, function: str, events: InputEvents) -> tuple[Bools, Sequence[FailedEvent]]:
    passes, failed = np.zeros(len(events), np.bool_), []
    for row, event in enumerate(event_dicts(events.schema, events.columns, len(events))):
        events.slot.begin_call(int(events.rank[row]))
        try:
            passes[row] = expect_boolean(instance.call(function, (event, event_context(events, row)), events.time_and_seed(row)))
        except CodeFailure as failure:
            failed.append(FailedEvent(row, failure.reason, failure.text))
    events.slot.end_window()
    return passes, failed


def expect_boolean(returned: Value) -> bool:
    """Returns the result of a filter as a boolean; None counts as false, as a null condition does. Raises CodeFailure for any other
    value.
    """
    if returned is None or isinstance(returned, bool):
        return returned is True
    raise CodeFailure(f"returns {describe_kind(returned)}, not true or false")


class EventBuilder:
    """Collects the events that code returns for one input event after another, and builds their columns."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._columns = [ColumnBuilder(field.type) for field in schema.fields]
        self._row: list[int] = []
        self._opcode: list[int] = []
        self._failed: list[FailedEvent] = []

    def add(self, row: int, returned: Value) -> None:
        """Adds the events that the code returned for event `row`. Raises CodeFailure, and adds nothing, unless `returned` is an
        event, a list of events, or nothing (None or False).
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
        """Returns all collected events and failures. `done`: the number of input events that the code has seen."""
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
    """Returns a copy of a value from code that consists of plain lists and dicts. Raises CodeFailure if the value is nested too
    deeply.
    """
    if depth > DEPTH_MAX:
        raise CodeFailure(f"a value is nested more than {DEPTH_MAX} deep")
    if isinstance(value, dict):
        return {key: plain_copy(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_copy(inner, depth + 1) for inner in value]
    return value


def parse_opcode(written: Value) -> int:
    """Returns the opcode for the word that code wrote into an event. Raises CodeFailure if the word is invalid."""
    if written is None:
        return NO_OPCODE
    found = OPCODE_NAMES.get(written.lower()) if isinstance(written, str) else None
    if found is None:
        raise CodeFailure(f"{OPCODE_KEY} is {describe_value(written)}, not one of {', '.join(OPCODE_NAMES)}")
    return int(found)


def describe_value(value: Value) -> str:
    """Returns a text for messages: a number, boolean or the first characters of a text; for any other value its kind."""
    if isinstance(value, str):
        return repr(value[:100])
    return str(value) if isinstance(value, bool | float) else describe_kind(value)
