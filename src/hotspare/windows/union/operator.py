"""Union window (SPEC A29): the events of all inputs, resolved against one index.

Strict, the index refuses an insert of an existing key, from whichever input, as a bad event, and an update or a delete of an
unknown one. Loose, only a null key is refused: inserts and updates are upserts, deletes are safe deletes.

With index pi_EMPTY events pass unchanged; loose ones with these opcodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from hotspare.model.events import Opcode
from hotspare.model.project import IndexType
from hotspare.model.resolved import ResolvedWindow
from hotspare.rows.changelog import PUBLISHED, UPSERTS, Changelog, Keys, Opcodes
from hotspare.rows.chunk import Chunk, Timeline
from hotspare.table.pages import Page
from hotspare.table.relation import Relation
from hotspare.table.strings import StringTable
from hotspare.windows.shared.contract import Operator, OperatorInput, OperatorResult
from hotspare.windows.shared.keyed import refusals, relation_of
from hotspare.windows.shared.merging import merge_chunks
from hotspare.windows.union.declaration import Merging, UnionWindow

ROWS = "rows"

_LOOSE = np.arange(len(Opcode) + 1, dtype=np.uint8)
"""Opcodes of a loose union, by the opcodes of its input."""
_LOOSE[[Opcode.INSERT, Opcode.UPDATE, Opcode.DELETE]] = Opcode.UPSERT, Opcode.UPSERT, Opcode.SAFE_DELETE


class UnionOperator(Operator):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        super().__init__(window, inputs)
        declared = cast(UnionWindow, window.window)
        self._is_loose = declared.merging is Merging.LOOSE
        self._keeps = declared.index is not IndexType.EMPTY
        given = _mixed([each.changelog for each in self.inputs], declared.merging)
        self.output_changelog = given.indexed() if self._keeps else given

    def open(self) -> Page:
        return Page({ROWS: relation_of(self.schema)} if self._keeps else {})

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        chunk = merge_chunks(inputs)
        if self._is_loose:
            chunk = Chunk(chunk.rank, _loosened(chunk), chunk.flags, chunk.lanes, chunk.valid)
        if not self._keeps:
            return OperatorResult(chunk)
        if not self._is_loose:
            chunk = _without_old_rows(chunk)
        change = cast(Relation, page.parts[ROWS]).change(chunk, timeline)
        return OperatorResult(change.chunk, refusals(change, chunk, self.schema, strings))


def _mixed(given: Sequence[Changelog], merging: Merging) -> Changelog:
    """Returns the kind of changelog that the inputs form together."""
    opcodes = [each.opcodes for each in given]
    if merging is Merging.LOOSE or Opcodes.PUBLISHED in opcodes:
        return UPSERTS if all(each.is_whole for each in given) else PUBLISHED
    return Changelog(Opcodes.RESOLVED if Opcodes.RESOLVED in opcodes else Opcodes.INSERTS, Keys.ANY)


def _without_old_rows(chunk: Chunk) -> Chunk:
    """Returns the chunk with each update block as an update of its new row. The index refuses such an update for an unknown key."""
    blocks = np.flatnonzero(chunk.opcode == Opcode.UPDATE_BLOCK)
    if not len(blocks):
        return chunk
    opcode, is_kept = chunk.opcode.copy(), np.ones(len(chunk), np.bool_)
    opcode[blocks], is_kept[blocks + 1] = Opcode.UPDATE, False
    return Chunk(chunk.rank, opcode, chunk.flags, chunk.lanes, chunk.valid).copied_rows(np.flatnonzero(is_kept))


def _loosened(chunk: Chunk) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Returns the opcodes of a loose union for a chunk. The old row of an update block remains a delete."""
    opcode = _LOOSE[chunk.opcode]
    opcode[np.flatnonzero(chunk.opcode == Opcode.UPDATE_BLOCK) + 1] = Opcode.DELETE
    return opcode
