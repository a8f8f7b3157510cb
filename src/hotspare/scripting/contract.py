"""What people's own code is to the engine: a program, compiled once, and instances of it that remember.

    text ── compile_* ──► Program ── open() ──► Instance ── make_events, select, call ──► values, or CodeFailure
                                                │    ▲
                                                save  load      canonical bytes: what snapshots and digests take

Code is a deterministic function of the events that it was given and of what its variables hold. So each language of people's code

- replaces clock and randomness by those of the event (`Moment`), and has no network, no files and no threads;
- gives every table, set and hash an order that is the same in every process, and after a restore;
- counts steps (instructions of a virtual machine, or turns of loops and calls), never time: where one engine finds a limit
  exceeded, all do;
- keeps what the variables of the program hold, as a tree of plain values. Two names for one container are two names for one
  container after a restore, and order is kept. What holds another kind of value is refused with the name of the variable.

What an event changed before its code failed stays changed, or is taken back, as the language says: every engine fails at the same
step.
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
from hotspare.scripting.fields import ColumnBuilder, Unfit, kind_of, plain_values

Value: TypeAlias = Any
"""None, bool, int, float, str, bytes, and lists and dicts of these."""

UInt64s: TypeAlias = npt.NDArray[np.uint64]

OPCODE_KEY = "_opcode"
"""In an event that code makes: what it does. No field can have the name."""

OPCODE_NAMES: dict[str, Opcode] = {
    "insert": Opcode.INSERT,
    "update": Opcode.UPDATE,
    "upsert": Opcode.UPSERT,
    "delete": Opcode.DELETE,
    "safedelete": Opcode.SAFE_DELETE,
}
"""What code may write there."""

OPCODE_TEXT = {int(value): name for name, value in OPCODE_NAMES.items()} | {int(Opcode.UPDATE_BLOCK): "update"}
"""What the code is told of the event that it is given."""

DEPTH_MAX = 100
"""Of lists and dicts within each other that go in or out as values."""

NO_OPCODE = 0
"""The code says none."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What the code may know beside its arguments. `seed`: of its random numbers, made of the event's position and of how many
    events the window was given before it."""

    time_us: int
    seed: int


class SharedCode(ABC):
    """The state that pieces of code of a project share (`scripting.shared`). CodeFailure if something fails."""

    @abstractmethod
    def get(self, name: str) -> tuple[Value, int]:
        """A property, None where there is none; and how many bytes it holds."""

    @abstractmethod
    def set(self, name: str, value: Value) -> int:
        """How many bytes it holds now."""

    @abstractmethod
    def news(self, listener: str, name: str, *, wants_first: object) -> tuple[bool, Value]:
        """Whether there is something of a property that this listener was not told; and what it is now."""

    @abstractmethod
    def call(self, snippet: str, function: str, arguments: Sequence[Value], moment: Moment) -> tuple[Value, int]:
        """What a function of a snippet returns, and how many steps it took."""


class CodeFailure(Exception):
    """The code fails on an event, which becomes a bad event for `reason`: `code`, or `code-limit`. `line` counts from 1 in the text
    that was compiled; 0 is not known."""

    def __init__(self, text: str, *, reason: BadReason = BadReason.CODE, line: int = 0) -> None:
        super().__init__(text)
        self.text = text[:BAD_TEXT_LENGTH_MAX].encode(errors="replace").decode()
        self.reason = reason
        self.line = line


@dataclass(frozen=True, slots=True)
class Failed:
    """Row number of the events that were given, and why it failed."""

    row: int
    reason: BadReason
    message: str


@dataclass(frozen=True, slots=True)
class GivenEvents:
    """Events for code, in order. `schema` is what the code sees of them, `columns` one Arrow array of `ARROW_TYPE` for each of its
    fields. The deletes of update blocks are not among them. `input`: the name of the window that they come from."""

    input: str
    schema: Schema
    columns: Sequence[pa.Array]
    opcode: UInt8s
    time_us: Int64s
    seeds: UInt64s

    def __len__(self) -> int:
        return len(self.opcode)

    def slice(self, begin: int, end: int) -> GivenEvents:
        """Those from number `begin` to before number `end`."""
        columns = [column.slice(begin, end - begin) for column in self.columns]
        return GivenEvents(self.input, self.schema, columns, self.opcode[begin:end], self.time_us[begin:end], self.seeds[begin:end])

    def moment(self, row: int) -> Moment:
        return Moment(int(self.time_us[row]), int(self.seeds[row]))


@dataclass(frozen=True, slots=True)
class MadeEvents:
    """Events that code made.

    row      int64[n]   number of the event that caused each; never falls
    opcode   uint8[n]   `Opcode`, or NO_OPCODE
    columns             per field of the schema that was asked for an Arrow array of n values; null where the code gives none
    failed              rising by row; none of these events made any
    done                how many of the events that were given the code has seen
    """

    row: Int64s
    opcode: UInt8s
    columns: Sequence[pa.Array]
    failed: Sequence[Failed]
    done: int


class Calls(Enum):
    """The arguments of a program's functions."""

    WITH_EVENTS = "events"
    WITH_COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class ProgramText:
    """The source of a program. `name` of the window; `modules` are loaded before its own code, in order, each under its name; a
    snippet is called by its name instead. `owner` is the name for messages.

    `empties_count`: an empty table that the code returns is an event, not an empty list. `settings`: what the function `init` is
    given, if the code defines one; None where code is packaged otherwise. `calls`: the arguments of its functions.
    """

    name: str
    script: Script
    modules: tuple[Module, ...] = ()
    empties_count: bool = False
    settings: Mapping[str, str] | None = None
    calls: Calls = Calls.WITH_EVENTS

    @property
    def owner(self) -> str:
        return self.name if self.name.startswith(f"{ModuleUse.SNIPPET.value} ") else f"window {self.name}"

    @property
    def init(self) -> str:
        """The function that is called once, before any event; "" for none. One that takes settings may be absent."""
        return self.script.init if self.settings is None else "init"


class Program(Protocol):
    """Code, compiled: immutable, and the same for every instance."""

    def open(self) -> Instance:
        """A fresh instance: its variables are what loading the program made of them. ProjectError where loading it fails."""

    def defines(self, function: str) -> bool:
        """Whether there is a function of that name to be called."""


class Instance(ABC):
    """A program with its variables. What is said per event here, a language may do for many at once."""

    @property
    def steps(self) -> int:
        """What the last `call` took, where the language tells."""
        return 0

    @property
    def memory_bytes(self) -> int:
        """About how much memory its variables take, told without looking at them."""
        return 0

    def share(self, shared: SharedCode | None) -> None:  # noqa: B027
        """From now on let the code share that; a language may have nothing to share."""

    @abstractmethod
    def call(self, function: str, arguments: Sequence[Value], moment: Moment) -> Value:
        """What the function returns, of several values the first. CodeFailure where it fails, exceeds a limit, or returns what is
        no plain value."""

    def call_for_two(self, function: str, arguments: Sequence[Value], moment: Moment) -> tuple[Value, Value]:
        """The first two values that the function returns, None for those that it does not."""
        returned = self.call(function, arguments, moment)
        return (returned[0], returned[1]) if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)

    def seen_event(self, fields: Mapping[str, Value]) -> Value:
        """An event as an argument of `call`; nulls are not among `fields`."""
        return dict(fields)

    @abstractmethod
    def variable(self, name: str) -> Value:
        """What a variable of the program holds, None where there is none. CodeFailure where that is no plain value."""

    @abstractmethod
    def save(self) -> bytes:
        """What its variables hold: equal for equal histories, in every process. CodeFailure, with the name of the variable, where
        one holds what cannot be kept."""

    def freeze(self) -> Callable[[], bytes]:
        """What `save` would return now, told later, from any thread, while the instance goes on. CodeFailure as `save`. A language
        whose variables write down their changes shares them until then."""
        saved = self.save()
        return lambda: saved

    @abstractmethod
    def load(self, data: bytes) -> None:
        """Take over what `save` returned, on a fresh instance of an equal program. SnapshotDamaged where that cannot be."""

    def make_events(self, function: str, events: GivenEvents, schema: Schema, made_max: int) -> MadeEvents:
        """Call `function(event, context)` for one event after another, until `made_max` are made or more. It returns an event of
        `schema`, a list of events, or nothing; names that are no field of the schema are left out."""
        return _made(self, function, events, schema, made_max)

    def select(self, function: str, events: GivenEvents) -> tuple[Bools, Sequence[Failed]]:
        """Which events pass: those for which `function(event, context)` returns true. Those that fail do not."""
        return _selected(self, function, events)


def context_of(events: GivenEvents, row: int) -> dict[str, Value]:
    """The second argument: what the code may know of an event beside its fields."""
    return {"opcode": OPCODE_TEXT[int(events.opcode[row])], "input": events.input}


def event_values(schema: Schema, columns: Sequence[pa.Array], count: int) -> list[dict[str, Value]]:
    """One dict per event; a null is not in it."""
    lists = [plain_values(column, field.type) for column, field in zip(columns, schema.fields, strict=True)]
    if not lists:
        return [{} for _ in range(count)]
    return [
        {name: value for name, value in zip(schema.names, row, strict=True) if value is not None}
        for row in zip(*lists, strict=True)
    ]


def _made(instance: Instance, function: str, events: GivenEvents, schema: Schema, made_max: int) -> MadeEvents:
    builder, done = EventBuilder(schema), 0
    for row, event in enumerate(event_values(events.schema, events.columns, len(events))):
        if builder.count >= made_max:
            break
        done = row + 1
        try:
            returned = instance.call(function, (event, context_of(events, row)), events.moment(row))
            builder.add(row, returned)
        except CodeFailure as failure:
            builder.refuse(row, failure)
    return builder.made(done)


def _selected(instance: Instance, function: str, events: GivenEvents) -> tuple[Bools, Sequence[Failed]]:
    passes, failed = np.zeros(len(events), np.bool_), []
    for row, event in enumerate(event_values(events.schema, events.columns, len(events))):
        try:
            passes[row] = truth(instance.call(function, (event, context_of(events, row)), events.moment(row)))
        except CodeFailure as failure:
            failed.append(Failed(row, failure.reason, failure.text))
    return passes, failed


def truth(returned: Value) -> bool:
    """What a filter says; CodeFailure where it is neither true nor false. Nothing counts as false, as a null condition does."""
    if returned is None or isinstance(returned, bool):
        return returned is True
    raise CodeFailure(f"returns {kind_of(returned)}, not true or false")


class EventBuilder:
    """Puts together what code returns for one event after another."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._columns = [ColumnBuilder(field.type) for field in schema.fields]
        self._row: list[int] = []
        self._opcode: list[int] = []
        self._failed: list[Failed] = []

    def add(self, row: int, returned: Value) -> None:
        """What the code returned for event `row`; CodeFailure, and nothing is added, where it is no event, list of events or
        nothing, which False is, too."""
        events = returned if isinstance(returned, list) else [] if returned is None or returned is False else [returned]
        made = [self._event(event) for event in events]
        for opcode, values in made:
            self._row.append(row)
            self._opcode.append(opcode)
            for column, value in zip(self._columns, values, strict=True):
                column.append(value)

    def refuse(self, row: int, failure: CodeFailure) -> None:
        self._failed.append(Failed(row, failure.reason, failure.text))

    @property
    def count(self) -> int:
        return len(self._row)

    def made(self, done: int) -> MadeEvents:
        """All of them; `done`: how many events the code has seen."""
        return MadeEvents(
            np.array(self._row, np.int64),
            np.array(self._opcode, np.uint8),
            [column.array() for column in self._columns],
            self._failed,
            done,
        )

    def _event(self, event: Value) -> tuple[int, list[Value]]:
        if not isinstance(event, dict):
            raise CodeFailure(f"returns {kind_of(event)}, not an event, a list of events, or nothing")
        values = []
        for field, column in zip(self._schema.fields, self._columns, strict=True):
            try:
                values.append(column.fitted(event.get(field.name)))
            except Unfit as unfit:
                raise CodeFailure(f"field {field.name}: {unfit}", reason=unfit.reason) from unfit
        return opcode_of(event.get(OPCODE_KEY)), values


def plain(value: Value, depth: int = 0) -> Value:
    """A copy of what code gave, of plain lists and dicts alone. CodeFailure where it is nested too deep."""
    if depth > DEPTH_MAX:
        raise CodeFailure(f"a value is nested more than {DEPTH_MAX} deep")
    if isinstance(value, dict):
        return {key: plain(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner, depth + 1) for inner in value]
    return value


def opcode_of(written: Value) -> int:
    """The opcode that code wrote into an event; CodeFailure where it is none."""
    if written is None:
        return NO_OPCODE
    found = OPCODE_NAMES.get(written.lower()) if isinstance(written, str) else None
    if found is None:
        raise CodeFailure(f"{OPCODE_KEY} is {shown(written)}, not one of {', '.join(OPCODE_NAMES)}")
    return int(found)


def shown(value: Value) -> str:
    """A short text or number as it is, of others what they are; for people."""
    if isinstance(value, str):
        return repr(value[:100])
    return str(value) if isinstance(value, bool | float) else kind_of(value)
