"""Merges rows of several inputs into one stream: for unions, and for source windows to which other windows forward (SPEC A37)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hotspare.model.events import Opcode
from hotspare.rows.changelog import PUBLISHED, Changelog
from hotspare.rows.chunk import Chunk, Timeline
from hotspare.table.loops.ordering import order_by_number
from hotspare.table.pages import Page
from hotspare.table.strings import StringTable
from hotspare.windows.shared.contract import Operator, OperatorResult


class EntryOperator(Operator):
    """Passes the decoded events of a source window's topic, before forwarded events are merged in."""

    output_changelog: Changelog = PUBLISHED

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        return OperatorResult(inputs[0])


class ForwardedOperator(Operator):
    """Merges the input of a source window: at equal ranks, events of its topic first, then those of each window that forwards to
    it. Forwarded events are treated as published ones: an update becomes an upsert without its old values.
    """

    output_changelog: Changelog = PUBLISHED

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        return OperatorResult(merge_chunks([inputs[0], *map(to_published_events, inputs[1:])]))


def to_published_events(chunk: Chunk) -> Chunk:
    """Returns the outputs of a window as a publisher would send them: each update block becomes an upsert of the new values."""
    blocks = np.flatnonzero(chunk.opcode == Opcode.UPDATE_BLOCK)
    if not len(blocks):
        return chunk
    opcode, kept = chunk.opcode.copy(), np.ones(len(chunk), np.bool_)
    opcode[blocks] = Opcode.UPSERT
    kept[blocks + 1] = False
    return Chunk(chunk.rank, opcode, chunk.flags, chunk.lanes, chunk.valid).copied_rows(np.flatnonzero(kept))


def merge_chunks(chunks: Sequence[Chunk]) -> Chunk:
    """Returns all rows of the chunks, which have one schema, ordered by rank, then by chunk, then by their order in the chunk."""
    filled = [chunk for chunk in chunks if len(chunk)]
    if len(filled) < 2:
        return filled[0] if filled else chunks[0]
    rank = np.concatenate([chunk.rank for chunk in filled])
    low = min(int(chunk.rank[0]) for chunk in filled)
    high = max(int(chunk.rank[-1]) for chunk in filled)
    order = np.empty(len(rank), np.int64)
    order_by_number(rank - low, np.zeros(high - low + 1, np.int64), order)
    names = ("opcode", "flags", "lanes", "valid")
    columns = (np.concatenate([getattr(chunk, name) for chunk in filled]) for name in names)
    opcode, flags, lanes, valid = (column.take(order, axis=0) for column in columns)
    return Chunk(rank.take(order), opcode, flags, lanes, valid)
