"""What source, copy and calculate windows share: a relation as their index, its retention, and words for what it refuses."""

from __future__ import annotations

import numpy as np

from hotspare.engine.chunk import Chunk, Timeline
from hotspare.engine.kernels import relation as k
from hotspare.engine.lanes import coded_columns, row_text
from hotspare.engine.operators.contract import Applied, BadEvent, BadReason, Inserts
from hotspare.engine.relation import KEEP_ALL, Change, Relation, Resolution, RowTime, Shape
from hotspare.engine.strings import StringTable
from hotspare.model.project import Retention, RetentionKind
from hotspare.model.types import FieldType, Schema

_KIND: dict[RetentionKind, int] = {
    RetentionKind.BYTIME_SLIDING: k.TIME_SLIDING,
    RetentionKind.BYTIME_JUMPING: k.TIME_JUMPING,
    RetentionKind.BYTIME_JUMPING_LOOKBACK: k.TIME_LOOKBACK,
    RetentionKind.BYCOUNT_SLIDING: k.COUNT_SLIDING,
    RetentionKind.BYCOUNT_JUMPING: k.COUNT_JUMPING,
}
_REASON: dict[int, BadReason] = {
    int(k.REFUSED_NULL_KEY): BadReason.NULL_KEY,
    int(k.REFUSED_NULL_TIME): BadReason.NULL_TIME,
    int(k.REFUSED_KEY_EXISTS): BadReason.KEY_EXISTS,
    int(k.REFUSED_KEY_UNKNOWN): BadReason.KEY_UNKNOWN,
}
_MESSAGE: dict[BadReason, str] = {
    BadReason.NOT_INSERT: "the window takes inserts only",
    BadReason.OPCODE: "an update block cannot be published",
    BadReason.NULL_KEY: "a key field is null",
    BadReason.NULL_TIME: "the field that retention takes its time from is null",
    BadReason.KEY_EXISTS: "the key to insert exists",
    BadReason.KEY_UNKNOWN: "the key to update or delete does not exist",
}
_DATE_UNIT_US = 1_000_000
EVENT_TIME_US_MAX = 2**61
"""73,000 years: the difference of two such times is no overflow, whatever an event says."""


def relation_of(schema: Schema, retention: Retention | None = None, inserts: Inserts = Inserts.ANY) -> Relation:
    """A fresh index for rows of `schema`."""
    shape = Shape(len(schema), schema.key_indexes, coded_columns(schema))
    new_keys = 1 if inserts is Inserts.NEW_KEYS else 0
    if retention is None:
        return Relation(shape, KEEP_ALL._replace(new_keys=new_keys))
    kind = _KIND[retention.kind]
    unit = retention.unit_us if kind == k.TIME_LOOKBACK else retention.limit
    return Relation(shape, k.Policy(kind, retention.limit, max(unit, 1), 1 if retention.time_field else 0, new_keys))


def row_time(chunk: Chunk, schema: Schema, retention: Retention | None) -> RowTime | None:
    """Event time of each row; None where the retention does not ask for it. Times beyond EVENT_TIME_US_MAX count as that."""
    if retention is None or not retention.time_field:
        return None
    column = schema.index[retention.time_field]
    unit = _DATE_UNIT_US if schema.fields[column].type is FieldType.DATE else 1
    farthest = EVENT_TIME_US_MAX // unit
    return RowTime(np.clip(chunk.lanes[:, column], -farthest, farthest) * unit, np.ascontiguousarray(chunk.valid[:, column]))


def apply_relation(
    relation: Relation, chunk: Chunk, timeline: Timeline, schema: Schema, retention: Retention | None, strings: StringTable
) -> Applied:
    """Resolve a chunk of the relation's own schema: what a keyed source or copy window does."""
    change = relation.change(chunk, timeline, row_time(chunk, schema, retention))
    return Applied(change.chunk, refusals(change, chunk, schema, strings))


def refusals(done: Change | Resolution, chunk: Chunk, schema: Schema, strings: StringTable) -> list[BadEvent]:
    """Bad events for the rows of `chunk`, which is of `schema`, that were refused."""
    pairs = zip(done.refused_row.tolist(), done.refused_why.tolist(), strict=True)
    return [bad_event(chunk, row, _REASON[why], schema, strings) for row, why in pairs]


def bad_event(chunk: Chunk, row: int, reason: BadReason, schema: Schema, strings: StringTable, message: str = "") -> BadEvent:
    text = row_text(schema, chunk.lanes[row], chunk.valid[row], int(chunk.opcode[row]), strings)
    return BadEvent(int(chunk.rank[row]), reason, message or _MESSAGE[reason], text)
