"""What a source window takes a row for that states neither an opcode nor a key: a file with a title line has such rows."""

from __future__ import annotations

from dataclasses import dataclass

from hotspare.model.events import Opcode
from hotspare.model.project import KeyOrigin


@dataclass(frozen=True, slots=True)
class RowDefaults:
    """`opcode` is that of a row without one: UPSERT if the window is a table, where a row replaces the one of its key, else
    INSERT. `keys`: whether rows have the key, or the window generates it."""

    opcode: Opcode = Opcode.INSERT
    keys: KeyOrigin = KeyOrigin.GIVEN
