"""The contract between a window type and the engine: a function from input changelogs and time to an output changelog, over a page.

An operator is built once from the resolved window and the schemas of its inputs, and is immutable afterwards; all that changes is
in the page. It is deterministic and independent of how the input is cut. `process_chunks` on a batch, or on its pieces one after
another, results in an equal page and equal outputs (law Cut). It is called for every batch, even if it has no input row, because
time advances. It never raises because of an event: an event that it cannot process becomes one of `BadEvents`.

Several inputs are processed in the order (rank, input, row). If one event arrives by two edges, the project's order of inputs
decides, and the two rows of an update block stay together. A chunk may hold fewer rows of its last rank than will arrive. All rows
of earlier inputs are present by then, so an operator that follows the order needs no further check.

One event or tick may cause millions of rows, so an operator returns them in parts. One call makes at most three rows for each input
row plus `timeline.extra_rows_max`. If rows remain, `OperatorResult.until` is set, and `process_chunks` is called again, with empty
inputs, before any new input.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from importlib import import_module

from hotspare.model.resolved import ResolvedWindow
from hotspare.model.types import Schema
from hotspare.rows.bad_reasons import BadReason as BadReason
from hotspare.rows.changelog import Changelog
from hotspare.rows.chunk import Chunk, Int64s, Timeline
from hotspare.rows.refusals import NO_BAD_EVENTS, BadEvents
from hotspare.table.pages import Page
from hotspare.table.strings import StringTable
from hotspare.windows.shared.stateless import Admission, RowFunction

SHARD_BITS = 48
"""Bits of the event numbers within a shard; the shard's own number is in the bits above them."""


@dataclass(slots=True)
class OperatorResult:
    """The result of one call of `Operator.process_chunks`. `bad` is ordered by rank.

    `until`: outputs of this rank and of higher ones remain; None: none remain.
    `slots`: the output slot of each row if the window has several; None: each row takes every edge.
    """

    chunk: Chunk
    bad: BadEvents = NO_BAD_EVENTS
    until: int | None = None
    slots: Int64s | None = None


@dataclass(frozen=True, slots=True)
class OperatorInput:
    """An edge into a window: the schema of its events, the changelog that they form, the role of the edge, and the name of the
    window upstream ("" if that is the window itself)."""

    schema: Schema
    changelog: Changelog
    role: str = ""
    name: str = ""


class Clock(Enum):
    """How the passing of time makes a window act."""

    NONE = "none"
    """Not at all: it is only called when rows arrive."""
    EVENT_TIME = "event time"
    """At rows, which carry the time: results of a key depend on the newest row of any key. It is also called at the end of an
    input."""
    TICKS = "ticks"
    """At heartbeats: it is called at every one, with or without rows."""
    EVENT_TIME_AND_TICKS = "event time and ticks"
    """Both: event time advances at rows, and at heartbeats if the sources are idle."""

    @property
    def has_event_time(self) -> bool:
        return self in (Clock.EVENT_TIME, Clock.EVENT_TIME_AND_TICKS)

    @property
    def has_ticks(self) -> bool:
        return self in (Clock.TICKS, Clock.EVENT_TIME_AND_TICKS)


class Operator(ABC):
    """The running form of a window. `schema` is the schema of its output, `output_changelog` the kind of changelog that it
    emits."""

    output_changelog: Changelog
    clock: Clock = Clock.NONE
    needs_rows: bool = False
    """Whether it cannot start empty if upstream windows already hold rows. It keeps no rows of its own, and a change of one of
    those would subtract a value that was never added."""
    non_row_parts: frozenset[str] = frozenset()
    """Parts of the page that hold no rows of the window or its inputs: the state that `WindowType.state_horizons` accounts for."""
    table_inputs: tuple[int, ...] = ()
    """Inputs in which it looks up the row of a key, so that a row that retention evicts is missed."""
    keeps_only_tables: bool = False
    """Whether it keeps rows of `table_inputs` and no others."""
    pairs_evictions: bool = False
    """Whether it processes the delete of an evicted row together with the row after it, so the two must arrive in one chunk."""

    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        """Subclasses compile here. Raises ProjectError with all mistakes that only compiling shows."""
        self.id = window.id
        self.schema = window.schema
        self.inputs = tuple(inputs)

    @property
    def head_function(self) -> RowFunction | Admission | None:
        """The work that the head does instead, if each event is processed by itself and nothing is remembered; else None."""
        return None

    def open(self) -> Page:
        """Returns a fresh page. Windows with state override it; `load` of each part restores one."""
        return Page()

    def initialize_shard(self, page: Page, shard: int) -> None:
        """Turns a fresh page into that of a shard, so that windows that generate keys generate different ones in each shard. For
        shard 0 the page stays as `open` made it."""
        return

    def emitted_rows(self, page: Page, strings: StringTable) -> Chunk | None:
        """Returns the rows that it emitted and has not retracted, as inserts; also called for a fresh page. Returns None if its
        page holds them as the part `flow.snapshot_content.ROWS`."""
        return None

    @abstractmethod
    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        """Processes one chunk per input (for a source window: the events of its topic), in the order of the resolved inputs, and
        the heartbeats of `timeline`. Inputs hold all rows that precede the last of these.

        Input chunks are not written to; the output may share their arrays.
        """


def build_operator(window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> Operator:
    """Returns the operator of a window: for `NameWindow` the class `NameOperator` in `operator.py` of the folder of its type.
    Raises ProjectError with the mistakes that only compiling shows."""
    declared = type(window.window)
    module = import_module(f"{declared.__module__.rpartition('.')[0]}.operator")
    operator: type[Operator] = getattr(module, f"{declared.__name__.removesuffix('Window')}Operator")
    return operator(window, inputs)
