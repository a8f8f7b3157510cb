"""The contract between a window type and the engine: a function from input changelogs and time to an output changelog, over a page.

An operator is built once from the resolved window and the schemas of its inputs, and is immutable afterwards; all that changes is
in the page. An operator is deterministic, and independent of how the input is cut. `process_chunks` on a batch, or on its pieces
one after another, results in an equal page and equal outputs (law Cut). An operator is called for every batch, even if the batch
has no input row, because time advances. It never raises because of an event: an event that it cannot process becomes one of
`BadEvents`.

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
"""Bits of the event numbers within a shard; the bits above them hold the number of the shard."""


@dataclass(slots=True)
class OperatorResult:
    """The result of one call of `Operator.process_chunks`. `bad` is ordered by rank.

    `until`: outputs of this rank and of higher ranks remain to be returned; None: none remain.
    `slots`: the output slot of each row if the window has several; None: each row is sent along every edge.
    """

    chunk: Chunk
    bad: BadEvents = NO_BAD_EVENTS
    until: int | None = None
    slots: Int64s | None = None


@dataclass(frozen=True, slots=True)
class OperatorInput:
    """An edge into a window: the schema of its events, the changelog that they form, and the role of the edge. `name`: the window
    upstream; "" if the events are those of the window's own topic.
    """

    schema: Schema
    changelog: Changelog
    role: str = ""
    name: str = ""


class Clock(Enum):
    """The points at which the passing of time makes a window act."""

    NONE = "none"
    """Time has no effect: the window acts only when rows arrive."""
    EVENT_TIME = "event time"
    """The window acts at rows, which carry the time: results of a key depend on the newest row of any key. It is also called at the
    end of an input.
    """
    TICKS = "ticks"
    """The window acts at every heartbeat, with or without rows."""
    EVENT_TIME_AND_TICKS = "event time and ticks"
    """The window acts at rows and at heartbeats: event time also advances at heartbeats if the sources are idle."""

    @property
    def has_event_time(self) -> bool:
        return self in (Clock.EVENT_TIME, Clock.EVENT_TIME_AND_TICKS)

    @property
    def has_ticks(self) -> bool:
        return self in (Clock.TICKS, Clock.EVENT_TIME_AND_TICKS)


class Operator(ABC):
    """The running form of a window. `schema`: the schema of its output; `output_changelog`: the kind of changelog that it emits;
    `clock`: when time makes it act.
    """

    output_changelog: Changelog
    clock: Clock = Clock.NONE
    needs_rows: bool = False
    """Whether the operator cannot start empty if upstream windows already hold rows. Such an operator keeps no rows of its own, so
    the change of an old row would subtract a value that was never added.
    """
    non_row_parts: frozenset[str] = frozenset()
    """Parts of the page that hold no rows of the window or of its inputs, but state that `WindowType.state_horizons` accounts for.
    """
    table_inputs: tuple[int, ...] = ()
    """Numbers of the inputs in which the operator looks up rows by key. If retention evicts such a row, a later lookup does not
    find it.
    """
    keeps_only_tables: bool = False
    """Whether the operator keeps rows of `table_inputs` and of no other inputs."""
    pairs_evictions: bool = False
    """Whether the operator processes the delete of an evicted row together with the row after it, so that both must arrive in one
    chunk.
    """

    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        """Stores the window's schema and its inputs. Subclasses compile here, and raise ProjectError with all mistakes that only
        compiling shows.
        """
        self.id = window.id
        self.schema = window.schema
        self.inputs = tuple(inputs)

    @property
    def head_function(self) -> RowFunction | Admission | None:
        """The work that the head does instead of this operator; None unless each event is processed by itself, without state."""
        return None

    def open(self) -> Page:
        """Returns a fresh page. Windows with state override it; `load` of each part restores that part."""
        return Page()

    def initialize_shard(self, page: Page, shard: int) -> None:
        """Turns a fresh page into that of shard `shard`, so that windows that generate keys generate different ones in each shard.
        For shard 0 the page remains as `open` returned it.
        """
        return

    def emitted_rows(self, page: Page, strings: StringTable) -> Chunk | None:
        """Returns the rows that the window emitted and has not retracted, as inserts; for a fresh page, none. Returns None if the
        page holds these rows as the part `flow.snapshot_content.ROWS`.
        """
        return None

    @abstractmethod
    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        """Processes one chunk per input (for a source window: the events of its topic), in the order of the resolved inputs, and
        the heartbeats of `timeline`. Inputs hold all rows that precede the last heartbeat.

        Input chunks are not written to; the output may share their arrays.
        """


def build_operator(window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> Operator:
    """Returns the operator of a window: for a declaration `NameWindow`, the class `NameOperator` of `operator.py` in the folder of
    its type. Raises ProjectError with the mistakes that only compiling shows.
    """
    declared = type(window.window)
    module = import_module(f"{declared.__module__.rpartition('.')[0]}.operator")
    operator: type[Operator] = getattr(module, f"{declared.__name__.removesuffix('Window')}Operator")
    return operator(window, inputs)
