"""The reasons for which a row cannot be decoded or a window refuses an event, in head and core alike.

The sentence about an event is part of the output: engines of two versions with different sentences diverge.
"""

from __future__ import annotations

from enum import StrEnum


class RowReason(StrEnum):
    """The reasons for which a row could not be decoded. The values are stable: scripts match on them."""

    UTF8 = "utf8"
    QUOTE = "quote"
    COLUMN_COUNT = "column-count"
    OPCODE = "opcode"
    FLAG = "flag"
    FIELD_TYPE = "field-type"
    FORMAT = "format"
    """A message of an unknown format, or a damaged one."""
    LOST = "lost"
    """The notice of a publisher that continued after messages which an external topic no longer holds (MessageFormat.LOST)."""


class BadReason(StrEnum):
    """The reasons for which an event is refused. The values are stable: scripts match on them."""

    NOT_INSERT = "not-insert"
    """An opcode other than insert at an insert-only window (A15)."""
    OPCODE = "opcode"
    """An opcode that only windows emit: update block."""
    REQUIRED = "required"
    """A field is null that its source window requires."""
    NULL_KEY = "null-key"
    NULL_TIME = "null-time"
    """The time field of a retention is null."""
    NULL_GROUP = "null-group"
    """A field by which retention groups rows is null."""
    NULL_PATTERN_TIME = "null-pattern-time"
    KEY_EXISTS = "key-exists"
    """Insert of a key that is stored."""
    KEY_UNKNOWN = "key-unknown"
    """Update or delete of a key that is not stored."""
    GEOMETRY = "geometry"
    """A row that should define a geometry and does not."""
    NUMBER_RANGE = "number-range"
    """A computed number does not fit its field."""
    EXPRESSION = "expression"
    """An expression failed on this event, as ANSI semantics require."""
    MISROUTED = "misrouted"
    """The event of a sharded project is in a partition other than the one in which it belongs."""
    CODE = "code"
    """User code fails on the event, or returns an invalid event for it."""
    CODE_LIMIT = "code-limit"
    """User code takes too many steps for the event, or its variables hold too many bytes, or hold values that cannot be stored."""
    CODE_DEADLINE = "code-deadline"
    """User code does not end for the event: the group decided that the window refuses it."""
    CODE_MEMORY = "code-memory"
    """User code takes more memory for the event than an engine allows: the group decided that the window refuses it."""
    CODE_CRASH = "code-crash"
    """User code ends its process on the event: the group decided that the window refuses it."""
    CODE_QUARANTINED = "code-quarantined"
    """The group refused three events of the window, and so all that follow."""
    POISON = "poison"
    """The engine itself fails on the event: a defect of hotspare."""

    @property
    def sentence(self) -> str:
        """The sentence about a refused event; "" if the sentence depends on the event, as for a failed expression."""
        return _SENTENCE.get(self, "")


_SENTENCE: dict[BadReason, str] = {
    BadReason.NOT_INSERT: "the window takes inserts only",
    BadReason.OPCODE: "an update block cannot be published",
    BadReason.NULL_KEY: "a key field is null",
    BadReason.NULL_TIME: "the field that retention takes its time from is null",
    BadReason.NULL_GROUP: "a field that retention groups rows by is null",
    BadReason.NULL_PATTERN_TIME: "the field that the pattern takes its time from is null",
    BadReason.GEOMETRY: "the row is not a geometry: a circle has a place and a radius, a polygon at least three corners",
    BadReason.KEY_EXISTS: "the key to insert exists",
    BadReason.MISROUTED: "the event belongs in another partition of its topic",
    BadReason.KEY_UNKNOWN: "the key to update or delete does not exist",
    BadReason.CODE_DEADLINE: "the code of the window does not end for this event",
    BadReason.CODE_MEMORY: "the code of the window takes too much memory for this event",
    BadReason.CODE_CRASH: "the engine crashed in the code of the window on this event",
    BadReason.POISON: "the engine itself fails on this event: a defect of hotspare",
    BadReason.CODE_QUARANTINED: "the window takes no more events, because three were refused on which its code did not end",
}
