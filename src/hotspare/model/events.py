"""The parts of an event outside of any engine: its opcode and its flags (SPEC A8, A9, A11)."""

from __future__ import annotations

from enum import Enum, IntEnum, IntFlag


class Opcode(IntEnum):
    """The effect of an event on the window that it enters. The values are part of the snapshot and message formats."""

    INSERT = 1
    UPDATE = 2
    UPSERT = 3
    DELETE = 4
    SAFE_DELETE = 5
    """A delete of an unknown key that is not an error."""
    UPDATE_BLOCK = 6
    """An update as a window emits it: the new values; the next event is a DELETE with the old ones (A11)."""


class Flag(IntFlag):
    """The origin of an event; combined as bits."""

    NORMAL = 1
    PARTIAL = 2
    """Null fields of an update keep the stored value."""
    RETENTION = 4
    """The event was caused by the window's own eviction."""


class UpdateBlocks(Enum):
    """The form of updates for a reader of outputs."""

    PAIRS = "pairs"
    """The form in which the window emits them: the new values, then a delete with the old ones (A11)."""
    COLLAPSED = "collapsed"
    """One update with the new values, so that the output can be published again (I14)."""


class RetentionDeletes(Enum):
    KEPT = "kept"
    DROPPED = "dropped"
    """The stream has no deletes that retention caused (I15)."""


OPCODE_LETTER: dict[Opcode, str] = {
    Opcode.INSERT: "I",
    Opcode.UPDATE: "U",
    Opcode.UPSERT: "P",
    Opcode.DELETE: "D",
    Opcode.SAFE_DELETE: "SD",
    Opcode.UPDATE_BLOCK: "UB",
}
"""The text of an opcode in CSV. The sources show I, U, P, D; SD and UB are hotspare's own (SPEC A8: unverified)."""

OPCODE_WORDS: dict[str, Opcode] = {letter.lower(): opcode for opcode, letter in OPCODE_LETTER.items()} | {
    opcode.name.lower().replace("_", ""): opcode for opcode in Opcode
}
"""The opcodes by letter and by name, in lower case."""

FLAG_LETTER: dict[Flag, str] = {Flag.NORMAL: "N", Flag.PARTIAL: "P", Flag.RETENTION: "R"}
