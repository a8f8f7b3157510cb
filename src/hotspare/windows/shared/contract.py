"""What a window type is to the engine: a function from input changelogs and time to an output changelog, over a page.

An operator is built once from the resolved window and the schemas of its inputs, and is immutable afterwards; all that changes is
in the page. It is deterministic, and it does not see where the input was cut: `apply` on a batch, or on its pieces one after
another, leaves an equal page and gives equal outputs (law Cut). `apply` is called for every batch, also when no input row came,
because time moves. It never raises because of an event: an event that it cannot take is one of `BadEvents`.

Several inputs are taken in the order (rank, input, row): where one event comes by two ways, as the project names them, and the two
rows of an update block stay together. A chunk may hold fewer rows of its last rank than will come, but those of inputs before it
are all there then, so an operator that goes by that order needs to know nothing of it.

What one event or tick causes may be millions of rows, so an operator gives them in parts. One call makes at most three rows for
each input row and `timeline.extra_rows_max` more. Where that is not all, `Applied.until` says so, and `apply` is called again, with
empty inputs, before anything new comes.
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
from hotspare.windows.shared.stateless import Admission, Work

SHARD_BITS = 48
"""A shard numbers so many events with as many bits; above them stands its own number."""


@dataclass(slots=True)
class Applied:
    """What came of a batch. `bad` rises by rank.

    `until`: outputs of this rank and of higher ones are still to come; None: nothing is.
    `slots`: for each row the output slot that it leaves by, where the window has several; None: by every edge.
    """

    chunk: Chunk
    bad: BadEvents = NO_BAD_EVENTS
    until: int | None = None
    slots: Int64s | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """What comes to a window by one edge: events of a schema, what is known of them, the role of the edge, and the name of the
    window that it comes from, "" where that is the window itself."""

    schema: Schema
    changelog: Changelog
    role: str = ""
    name: str = ""


class Clock(Enum):
    """What a window does because time passes."""

    NONE = "none"
    """Nothing: it is only called when rows come."""
    EVENT_TIME = "event time"
    """Something, at rows: they bring the time. What comes of a key depends on the newest row of any key. It is also called at the
    end of an input."""
    TICKS = "ticks"
    """Something, at heartbeats: it is called at every one, with or without rows."""
    EVENT_TIME_AND_TICKS = "event time and ticks"
    """Both: event time advances at rows, and at heartbeats if the sources are idle."""

    @property
    def has_event_time(self) -> bool:
        return self in (Clock.EVENT_TIME, Clock.EVENT_TIME_AND_TICKS)

    @property
    def has_ticks(self) -> bool:
        return self in (Clock.TICKS, Clock.EVENT_TIME_AND_TICKS)


class Operator(ABC):
    """A window at work. `schema` is that of its output, and `leaving` what is known of it."""

    leaving: Changelog
    clock: Clock = Clock.NONE
    needs_rows: bool = False
    """Whether it cannot begin empty where rows stand ahead of it: it keeps none of its own, and a change of one of these would take
    back what was never added."""
    other_memory: frozenset[str] = frozenset()
    """Parts of the page that hold no rows of the window or its inputs: what `WindowType.remembered` accounts for."""
    pairs_evictions: bool = False
    """Whether it takes the delete of an evicted row together with the row behind it, so the two must come in one chunk."""

    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input]) -> None:
        """Subclasses compile here; ProjectError with all mistakes that only show now, such as that the window cannot be right."""
        self.id = window.id
        self.schema = window.schema
        self.inputs = tuple(inputs)

    @property
    def in_head(self) -> Work | Admission | None:
        """What the head does in its stead, where each event is worked on by itself and nothing is remembered; else None."""
        return None

    def open(self) -> Page:
        """A fresh page. Override where the window has state; `load` of a part of it restores."""
        return Page()

    def divide(self, page: Page, shard: int) -> None:
        """Make a fresh page that of a shard: where the window makes keys, those of no two shards are equal. Of shard 0 it stays
        as `open` made it."""
        return

    def standing(self, page: Page, strings: StringTable) -> Chunk | None:
        """The rows that it put out and did not take back, as inserts, where its page tells them otherwise than as the part
        `flow.inside.ROWS`; else None. Also asked of a fresh page."""
        return None

    @abstractmethod
    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        """Take one chunk per input (for a source window: the events of its topic), in the order of the resolved inputs, and the
        heartbeats of `timeline`: inputs hold all rows that come before the last of these.

        Input chunks are not written to; the output may share their arrays.
        """


def build_operator(window: ResolvedWindow, inputs: Sequence[Input]) -> Operator:
    """Returns the operator of a window: of `NameWindow` the class `NameOperator` in `operator.py` of the folder of its type.
    ProjectError with the mistakes that only compiling shows."""
    declared = type(window.window)
    module = import_module(f"{declared.__module__.rpartition('.')[0]}.operator")
    operator: type[Operator] = getattr(module, f"{declared.__name__.removesuffix('Window')}Operator")
    return operator(window, inputs)
