"""What a window type is to the engine: a function from input changelogs and time to an output changelog, over a page.

An operator is built once from the resolved window and the schemas of its inputs, and is immutable afterwards; all that changes is
in the page. It is deterministic, and it does not see where the input was cut: `apply` on a batch, or on its pieces one after
another, leaves an equal page and gives equal outputs (law Cut). `apply` is called for every batch, also when no input row came,
because time moves. It never raises because of an event: an event that it cannot take is a `BadEvent`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from hotspare.engine.chunk import Chunk, Timeline
from hotspare.engine.pages import Page
from hotspare.engine.strings import StringTable
from hotspare.model.resolve import ResolvedWindow
from hotspare.model.types import Schema


class BadReason(StrEnum):
    """Why an event was refused. The values are stable: scripts match on them."""

    NOT_INSERT = "not-insert"
    """Another opcode at an insert-only window (A15)."""
    OPCODE = "opcode"
    """An opcode that only leaves windows: update block."""
    NULL_KEY = "null-key"
    NULL_TIME = "null-time"
    """The field that retention takes its time from is null."""
    KEY_EXISTS = "key-exists"
    """Insert of a key that is there."""
    KEY_UNKNOWN = "key-unknown"
    """Update or delete of a key that is not there."""
    NUMBER_RANGE = "number-range"
    """A computed number does not fit its field."""
    EXPRESSION = "expression"
    """An expression failed on this event, as ANSI semantics want."""


@dataclass(frozen=True, slots=True)
class BadEvent:
    """`rank`: row of the batch; `reason`: a BadReason, or a codec's own word; `message`: a sentence; `text`: the event as text."""

    rank: int
    reason: str
    message: str
    text: str


@dataclass(slots=True)
class Applied:
    """What came of a batch. `bad` rises by rank."""

    chunk: Chunk
    bad: list[BadEvent] = field(default_factory=list)


class Inserts(Enum):
    """What is known of the inserts that come to a window; its index may use it."""

    ANY = "any"
    NEW_KEYS = "new-keys"
    """Never a key that is there: the input is a keyed relation, or generates its keys."""


class Operator(ABC):
    """A window at work. `schema` is that of its output; `inserts` is set by whoever builds it, before `open`."""

    inserts: Inserts = Inserts.ANY

    def __init__(self, window: ResolvedWindow, inputs: Sequence[Schema]) -> None:
        """Subclasses compile here; ProjectError with all mistakes that only show now."""
        self.id = window.id
        self.schema = window.schema
        self.inputs = tuple(inputs)

    @property
    def can_drop(self) -> bool:
        """Whether a row that comes may fail to come out."""
        return False

    def open(self) -> Page:
        """A fresh page. Override where the window has state; `load` of a part of it restores."""
        return Page()

    @abstractmethod
    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        """Take one chunk per input (for a source window: the events of its topic), in the order of the resolved inputs.

        Input chunks are not written to; the output may share their arrays.
        """
