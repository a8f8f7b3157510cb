"""Why a row of a message is none, and why an event is refused by a window, in head and core alike.

What is said of an event is put out with it: engines of two versions that say it in other words differ."""

from __future__ import annotations

from enum import StrEnum


class RowReason(StrEnum):
    """Why a row could not be decoded. The values are stable: scripts match on them."""

    UTF8 = "utf8"
    QUOTE = "quote"
    COLUMN_COUNT = "column-count"
    OPCODE = "opcode"
    FLAG = "flag"
    FIELD_TYPE = "field-type"
    FORMAT = "format"
    """A message of a format that is not known, or damaged."""
    LOST = "lost"
    """The notice of a publisher that went on behind messages which an external topic no longer holds (MessageFormat.LOST)."""


class BadReason(StrEnum):
    """Why an event is refused. The values are stable: scripts match on them."""

    NOT_INSERT = "not-insert"
    """Another opcode at an insert-only window (A15)."""
    OPCODE = "opcode"
    """An opcode that only leaves windows: update block."""
    REQUIRED = "required"
    """A field is null that its source window requires."""
    NULL_KEY = "null-key"
    NULL_TIME = "null-time"
    """The time field of a retention."""
    NULL_GROUP = "null-group"
    """A field by which a retention counts."""
    NULL_PATTERN_TIME = "null-pattern-time"
    KEY_EXISTS = "key-exists"
    """Insert of a key that is there."""
    KEY_UNKNOWN = "key-unknown"
    """Update or delete of a key that is not there."""
    GEOMETRY = "geometry"
    """A row that is to say where something is, and does not."""
    NUMBER_RANGE = "number-range"
    """A computed number does not fit its field."""
    EXPRESSION = "expression"
    """An expression failed on this event, as ANSI semantics want."""
    MISROUTED = "misrouted"
    """Of a project that is divided: the event stands in another partition than its key belongs in."""
    CODE = "code"
    """People's code fails on the event, or makes of it what is no event."""
    CODE_LIMIT = "code-limit"
    """People's code takes more steps for the event than it may, or its variables hold too much, or what cannot be kept."""
    POISON = "poison"
    """The engine itself fails on the event: a mistake of hotspare."""

    @property
    def sentence(self) -> str:
        """What is said of the event; "" where it depends on the expression."""
        return _SENTENCE.get(self, "")


_SENTENCE: dict[BadReason, str] = {
    BadReason.NOT_INSERT: "the window takes inserts only",
    BadReason.OPCODE: "an update block cannot be published",
    BadReason.NULL_KEY: "a key field is null",
    BadReason.NULL_TIME: "the field that retention takes its time from is null",
    BadReason.NULL_GROUP: "a field that retention groups rows by is null",
    BadReason.NULL_PATTERN_TIME: "the field that the pattern takes its time from is null",
    BadReason.GEOMETRY: "the row is no geometry: a circle has a place and a radius, a polygon at least three corners",
    BadReason.KEY_EXISTS: "the key to insert exists",
    BadReason.MISROUTED: "the event belongs in another partition of its topic",
    BadReason.KEY_UNKNOWN: "the key to update or delete does not exist",
}
