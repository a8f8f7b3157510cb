"""The index of a window, shared by window types: a relation, its retention, and messages for the rows that it refuses."""

from __future__ import annotations

from typing import cast

import numpy as np
import pyarrow as pa

from hotspare.model.project import Emit, Eviction, IndexType, Retention, RetentionKind, Window
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.types import FieldType, Schema
from hotspare.rows.changelog import PUBLISHED, Changelog, Deletes, Keys, Opcodes
from hotspare.rows.chunk import Chunk, Timeline, by_retention
from hotspare.rows.event_texts import event_texts
from hotspare.rows.refusals import NO_BAD_EVENTS, BadEvents, Refusals
from hotspare.table.lanes import coded_columns, to_arrow_columns
from hotspare.table.loops import relation as k
from hotspare.table.loops.slots import UNSET
from hotspare.table.pages import Counters, Page, Part
from hotspare.table.relation import KEEP_ALL, Change, Relation, Resolution, RowTime, Shape
from hotspare.table.strings import StringTable
from hotspare.table.text_pieces import text_pieces
from hotspare.table.unloaded import LoadMode
from hotspare.windows.shared.contract import BadReason, Clock, OperatorResult
from hotspare.windows.shared.event_time import event_clock, event_times, idle_beats
from hotspare.windows.shared.stateless import delete_mask

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
    int(k.REFUSED_NULL_GROUP): BadReason.NULL_GROUP,
}
_CAUSES = [(str(_REASON[why]), _REASON[why].sentence) for why in range(len(_REASON))]
ROWS, NEWEST_APPEND = "rows", "came"
"""Parts of a page: the rows of a window, and the append time of the newest event that advances event time."""


def relation_of(schema: Schema, retention: Retention | None = None, given: Changelog = PUBLISHED) -> Relation:
    """Returns an empty index for rows of `schema`, to which a changelog of the kind `given` is applied. `retention` may evict its
    rows.
    """
    by = tuple(schema.index[name] for name in retention.by) if retention is not None else ()
    shape = Shape(len(schema), schema.key_indexes, coded_columns(schema), by)
    new_keys = 0 if given.keys is Keys.ANY else 1
    in_order = 1 if new_keys and has_fifo_deletes(given, retention) else 0
    if retention is None:
        return Relation(shape, KEEP_ALL._replace(new_keys=new_keys, in_order=in_order), reading=LoadMode.AT_USE)
    kind = _KIND[retention.kind] if not by else k.COUNT_OF_GROUP
    unit = retention.unit_us if kind == k.TIME_LOOKBACK else retention.limit
    by_event, evicts_first = 1 if retention.time_field else 0, 1 if retention.eviction is Eviction.BEFORE else 0
    policy = k.Policy(kind, retention.limit, max(unit, 1), by_event, new_keys, in_order, evicts_first)
    return Relation(shape, policy, reading=LoadMode.AT_USE)


def has_fifo_deletes(given: Changelog, retention: Retention | None) -> bool:
    """Whether an event deletes only the oldest row, or none that is present; then deletes need no index by key."""
    return given.opcodes is Opcodes.INSERTS or (given.deletes is Deletes.OLDEST and evicted_by(retention) is Deletes.OLDEST)


def evicted_by(retention: Retention | None) -> Deletes:
    """Returns which rows retention evicts: ANY if it is by event time or per group, else OLDEST (also without retention)."""
    return Deletes.ANY if retention is not None and (retention.time_field or retention.by) else Deletes.OLDEST


def relation_changelog(given: Changelog, retention: Retention | None) -> Changelog:
    """Returns the kind of changelog that a relation with this retention emits for a changelog of the kind `given`."""
    if retention is None:
        return given.indexed()
    return given.with_retention(evicted_by(retention), retention.eviction)


def has_row_index(window: Window, given: Changelog) -> bool:
    """Whether a window keeps an index of its rows. A window with `emit: new` over inserts keeps none: each row is distinct."""
    is_stream = window.emission.emit is Emit.NEW and given.opcodes is Opcodes.INSERTS
    return window.index is not IndexType.EMPTY and not is_stream


def clock_of(retention: Retention | None, idle_us: int) -> Clock:
    """Returns the clock that a relation with this retention needs: event time if retention is by a field, heartbeats if by system
    time. `idle_us` is as in `ResolvedWindow`.
    """
    if retention is None or retention.kind.is_by_count:
        return Clock.NONE
    return event_clock(idle_us) if retention.time_field else Clock.TICKS


class IndexedRows:
    """The rows of a window whose index has the schema of its input, and their retention. Their state is in the parts ROWS and
    NEWEST_APPEND of a page. Immutable; `clock` and `output_changelog` are those of the window.
    """

    def __init__(self, window: ResolvedWindow, retention: Retention | None, given: Changelog) -> None:
        self._schema, self._retention, self._given = window.schema, retention, given
        self.clock, self.output_changelog = clock_of(retention, window.idle_us), relation_changelog(given, retention)
        self._idle_us = window.idle_us if self.clock.has_event_time else 0
        columns = [self._schema.index[name] for name in retention.by] if retention is not None else []
        self._double_groups = tuple(each for each in columns if self._schema.fields[each].type is FieldType.DOUBLE)

    def new_row_parts(self) -> dict[str, Part]:
        """Returns empty parts for a fresh page, by name."""
        found: dict[str, Part] = {ROWS: relation_of(self._schema, self._retention, self._given)}
        if self._idle_us:
            found[NEWEST_APPEND] = came = Counters(1)
            came.values[0] = UNSET
        return found

    def resolve_rows(self, page: Page, chunk: Chunk, timeline: Timeline, strings: StringTable) -> OperatorResult:
        """Applies a chunk to the rows, or continues with an earlier chunk if its outputs did not fit. Returns resolved events and
        bad events; `until` is set if outputs remain.
        """
        relation, rows_max = cast(Relation, page.parts[ROWS]), 3 * len(chunk) + timeline.extra_rows_max
        if relation.is_done:
            chunk = chunk.with_plain_doubles(self._double_groups)
            change = relation.change(chunk, timeline, self._row_time(page, chunk, timeline), rows_max)
        else:
            change = relation.continue_change(rows_max)
        return OperatorResult(change.chunk, refusals(change, change.given, self._schema, strings), change.until)

    def _row_time(self, page: Page, chunk: Chunk, timeline: Timeline) -> RowTime | None:
        """Returns the event time of each row, with the heartbeats at which it advances; None if retention is not by event time."""
        if self._retention is None or not self._retention.time_field:
            return None
        column = self._schema.index[self._retention.time_field]
        time_us, valid = event_times(chunk, column, self._schema.fields[column].type), np.ascontiguousarray(chunk.valid[:, column])
        if not self._idle_us:
            return RowTime(time_us, valid)
        tells_time = valid & ~delete_mask(chunk.opcode) & ~by_retention(chunk)
        came_us = cast(Counters, page.parts[NEWEST_APPEND]).values
        return RowTime(time_us, valid, idle_beats(came_us, chunk.rank[tells_time], timeline, self._idle_us))


def resolved_events(
    relation: Part, chunk: Chunk, timeline: Timeline, schema: Schema, strings: StringTable
) -> tuple[Chunk, BadEvents]:
    """Applies a chunk of `schema` to the index `relation`. Returns the resolved events, and bad events for those that the index
    refuses.
    """
    change = cast(Relation, relation).change(chunk, timeline)
    return change.chunk, refusals(change, chunk, schema, strings)


def refusals(done: Change | Resolution, chunk: Chunk, schema: Schema, strings: StringTable) -> BadEvents:
    """Returns bad events for the rows of `chunk`, which has the schema `schema`, that an index refused."""
    if not len(done.refused_row):
        return NO_BAD_EVENTS
    return bad_events(Refusals.from_causes(done.refused_row, done.refused_why, _CAUSES), chunk, schema, strings)


def bad_events(refused: Refusals, chunk: Chunk, schema: Schema, strings: StringTable) -> BadEvents:
    """Returns bad events for the `refused` rows of `chunk`, which has the schema `schema`."""
    if not len(refused):
        return NO_BAD_EVENTS
    rows = refused.rows
    of = chunk.copied_rows(rows)
    texts = [
        event_texts(schema, of.opcode[begin:end], to_arrow_columns(of.lanes[begin:end], of.valid[begin:end], schema, strings))
        for begin, end in text_pieces(of.lanes, coded_columns(schema), strings)
    ]
    return BadEvents(of.rank, (refused.reason, refused.message, pa.concat_arrays(texts)))
