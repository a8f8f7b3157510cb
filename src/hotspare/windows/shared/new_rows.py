"""The rows that a window with `emit: new` emits (docs/alerts.md): for each key, the first new event with which the key is in the
results.

A new event is an insert or update that retention did not cause. A key that enters the results with a new event is emitted at once.
A key that enters because retention evicted rows is not emitted, since no event happened. The key is recorded as unseen, and emitted
with its first update by a new event if it is still in the results. So no alert is lost, and none is emitted without an event.
"""

from __future__ import annotations

import numpy as np

from hotspare.model.events import Flag, Opcode
from hotspare.model.types import FieldType, Schema
from hotspare.rows.chunk import Bools, Chunk, Timeline, UInt8s, by_retention
from hotspare.table.relation import Relation
from hotspare.windows.shared.keyed import relation_of

_IGNORED = 0
"""The opcode of rows that do not change the index of unseen keys."""


class NewRows:
    """Chooses the rows to emit from the changes of a table of the schema `schema`."""

    def __init__(self, schema: Schema) -> None:
        self._keys = list(schema.key_indexes)
        self._key_schema = Schema(tuple(schema.fields[at] for at in self._keys))
        self._doubles = tuple(at for at, field in enumerate(self._key_schema.fields) if field.type is FieldType.DOUBLE)

    def create_unseen_index(self) -> Relation:
        """Returns an empty index of unseen keys: those that are in the results and were not emitted."""
        return relation_of(self._key_schema)

    def select_new_rows(self, unseen: Relation, chunk: Chunk, timeline: Timeline) -> Chunk:
        """Returns the inserts that follow from a chunk of resolved events. Updates `unseen`, the index of unseen keys, with these
        events.
        """
        of_retention = by_retention(chunk)
        blocks = np.flatnonzero(chunk.opcode == Opcode.UPDATE_BLOCK)
        lanes, valid = chunk.lanes[:, self._keys], chunk.valid[:, self._keys]
        keys = Chunk(chunk.rank, chunk.opcode, chunk.flags, lanes, valid).with_plain_doubles(self._doubles)
        stays = np.zeros(len(chunk), np.bool_)
        stays[blocks] = (keys.lanes[blocks] == keys.lanes[blocks + 1]).all(axis=1)
        old = np.zeros(len(chunk), np.bool_)
        old[blocks[stays[blocks]] + 1] = True
        leaves = (chunk.opcode == Opcode.DELETE) & ~old
        enters = ~leaves & ~old & ~stays
        is_new = enters & ~of_retention
        if unseen.live or (enters & of_retention).any():
            asked = np.full(len(chunk), _IGNORED, np.uint8)
            asked[leaves | is_new] = Opcode.SAFE_DELETE
            asked[enters & of_retention] = Opcode.UPSERT
            asked[stays & ~of_retention] = Opcode.DELETE
            is_new |= self._was_unseen(unseen, keys, asked, timeline) & stays
        return inserts_of(chunk, is_new)

    def _was_unseen(self, unseen: Relation, keys: Chunk, asked: UInt8s, timeline: Timeline) -> Bools:
        """Applies opcodes `asked` to the index of unseen keys. Returns for each row whether its key was unseen until now and is
        deleted; the index refuses to delete any other key.
        """
        rows = np.flatnonzero(asked != _IGNORED)
        flags = np.full(len(keys), Flag.NORMAL, np.uint8)
        given = Chunk(keys.rank, asked, flags, keys.lanes, keys.valid).copied_rows(rows)
        was_there = np.zeros(len(keys), np.bool_)
        was_there[rows] = given.opcode == Opcode.DELETE
        was_there[rows[unseen.change(given, timeline).refused_row]] = False
        return was_there


def inserts_of(chunk: Chunk, chosen: Bools) -> Chunk:
    """Returns the rows of a chunk for which `chosen` is True, as inserts of a stream."""
    some = chunk.copied_rows(np.flatnonzero(chosen))
    opcode, flags = np.full(len(some), Opcode.INSERT, np.uint8), np.full(len(some), Flag.NORMAL, np.uint8)
    return Chunk(some.rank, opcode, flags, some.lanes, some.valid, is_whole=True)
