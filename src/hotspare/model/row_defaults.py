"""The defaults of a source window for rows without an opcode or a key, as files with a title line have them."""

from __future__ import annotations

from dataclasses import dataclass

from hotspare.model.events import Opcode
from hotspare.model.project import KeyOrigin


@dataclass(frozen=True, slots=True)
class RowDefaults:
    """The defaults for rows without an opcode or a key. `opcode`: UPSERT if the window is a table, in which a row replaces the row
    with the same key; else INSERT. `keys`: whether rows contain the key, or the window generates it.
    """

    opcode: Opcode = Opcode.INSERT
    keys: KeyOrigin = KeyOrigin.GIVEN
