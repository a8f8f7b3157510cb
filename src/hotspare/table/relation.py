"""A keyed relation as a part of a page: the index of a window, and its retention.

Semantics (SPEC A8-A13, A19-A23), where the sources leave a choice open:

- An update block on an unknown key inserts: retention may have removed a row that the upstream window still had. If its old values
  have another key, it inserts or updates the new row and deletes the old one. A refused update block deletes the row, because the
  upstream window no longer has the old values.
- With retention, deleting an unknown key is allowed, for the same reason; without, it is refused.
- Outputs of resolved events carry the flags of their event without PARTIAL, because the stored row is whole. Retention deletes
  carry RETENTION alone, and the rank of the row or heartbeat that caused them. They follow the outputs of that row, or precede them
  with `Policy.evicts_first`.
- Retention by time counts from the newest version of a row; retention by count leaves an updated row in its place. If groups keep
  their newest rows, a row that an update moves to another group is the newest there.
- A jumping window by system time starts with the first time that it sees, one by event time with its first row. The row whose event
  time passes a boundary stays. `bytime_jumping_lookback`: each multiple of the unit since 1970 removes rows that are `limit` or
  more before it (unverified).
- At a heartbeat while sources are idle (`RowTime.idle_beats`), event time is later than that of the newest row. That time removes
  rows and passes boundaries, but is not stored: the next row sets event time again.

If an insert never has a stored key, rows are in a `RowQueue` as long as they are removed in order of arrival. If that may end, the
first event that breaks the order turns the queue into pages with an index. So does a row beyond `late_index_rows_max` of `Tuning`,
because indexing more rows takes long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from hotspare.rows import tuning
from hotspare.rows.chunk import NO_BEATS, Bools, Chunk, Int64s, Timeline, UInt8s
from hotspare.rows.compile import Whole
from hotspare.table.key_filters import FrozenKeyFilter, KeyFilterCache, key_filters_of
from hotspare.table.loops import groups, slots, unlinked
from hotspare.table.loops import relation as k
from hotspare.table.loops.pages import Rows
from hotspare.table.loops.text_collection import mark_rows
from hotspare.table.loops.unloaded import UInt64s
from hotspare.table.memory import PINNED_MEMORY, WindowMemory, largest_granted, longer
from hotspare.table.pages import Column, Columns, require_column
from hotspare.table.queue import QueueResult, RowQueue, next_rank
from hotspare.table.row_index import empty_lists, grown_index, index_bytes
from hotspare.table.row_layout import FrozenRowPage, Layout, RowsInMemory, RowSource, StoredPages, StoredRows, StoreKeys, Times
from hotspare.table.row_pages import RowPages
from hotspare.table.row_shape import Shape as Shape
from hotspare.table.row_shape import row_lookups_of
from hotspare.table.strings import FrozenStrings
from hotspare.table.unloaded import LoadMode, PageReader, SnapshotRowPages, UnloadedPages
from hotspare.table.unloaded_queue import UnloadedRows
from hotspare.table.unloaded_relation import record_store_keys, relate_with_unloaded

KEEP_ALL = k.Policy(k.KEEP, 0, 1, 0, 0)
"""The policy of a relation without retention."""
_PERSISTED = (slots.NEWEST, slots.BOUNDARY)


class Relation:
    """Rows by key. `change` applies a chunk, and `continue_change` continues that; do not freeze in between. If values depend on
    which rows arrived, call `resolve_chunk` instead of `change`; the caller may write `lanes` and `valid` at arrived slots until
    `settle`."""

    def __init__(
        self, shape: Shape, policy: k.Policy = KEEP_ALL, home: WindowMemory = PINNED_MEMORY, reading: LoadMode = LoadMode.WHOLE
    ) -> None:
        """Creates an empty relation. `reading` may be AT_USE only if rows are read by this class alone, and by kernels for a
        chunk's keys and for expiring rows."""
        self.shape = shape
        self.policy = policy
        self._tuning = tuning.current()
        is_queue = self._may_queue and policy.in_order
        self._reading = LoadMode.WHOLE if is_queue else reading
        self._of_pages = policy
        """The policy of the rows in pages. It is without `new_keys` if these have an index from the first row on: then they need no
        list of all rows."""
        self._home = home
        self._queue: RowQueue | None = None
        self._groups: GroupLists | None = None
        self._work: _RelationWork | None = None
        self._scratch = _output_arrays(0, 0)
        self._known, self._keys_known = StoreKeys({}), KeyFilterCache(self._tuning)
        self._snapshot = 0
        self._pages = self._fresh(self._tuning.page_slots)
        self._begin_queue(0)
        self._begin_groups()

    def set_window_memory(self, home: WindowMemory) -> None:
        """Sets the memory in which rows live; called before the first row."""
        self._home = home
        self._pages = self._fresh(self._pages.page_slots)
        self._begin_queue(0)
        self._begin_groups()

    @property
    def _rows(self) -> Rows:
        return self._pages.rows

    @property
    def pages(self) -> RowPages:
        """The pages of the rows; they have no rows while these are in a queue."""
        return self._pages

    @property
    def live(self) -> int:
        return int(self._rows.state[slots.LIVE]) if self._queue is None else self._queue.live

    @property
    def lanes(self) -> Int64s:
        """int64[capacity, width] by slot."""
        return self._rows.lanes

    @property
    def valid(self) -> Bools:
        """bool[capacity, width] by slot."""
        return self._rows.valid

    def change(self, chunk: Chunk, timeline: Timeline, row_time: RowTime | None = None, rows_max: int | None = None) -> Change:
        """Applies a chunk, removes the rows that expire, and returns the outputs. `row_time` is needed if the policy is by event
        time.

        Makes at most `rows_max` outputs (None: no limit); if that is not enough, call `continue_change` before anything else.
        """
        self._work = self._begun(chunk, timeline, row_time)
        return self.continue_change(rows_max)

    def continue_change(self, rows_max: int | None = None) -> Change:
        """Continues a change that is not complete; makes at most `rows_max` further outputs (None: no limit)."""
        work = self._work
        assert work is not None
        if rows_max is None:
            rows_max = self._outputs_max(work)
        done: QueueResult | None = None
        if self._queue is not None:
            done = self._queue.resolve_in_queue(work.chunk, work.time_us, work.beats, work.counts, rows_max)
            if done.until is not None or done.is_all:
                return self._changed(work, done.chunk, done.refused[:, 0], done.refused[:, 1], done.until)
            rows_max -= len(done.chunk)
            work.counts = np.zeros(k.COUNTS_WIDTH, np.int64)
            work.counts[k.ROW], work.counts[k.BEAT] = done.rows, done.beats
            self._end_queue()
        resolution, until = self._resolve(work, rows_max)
        made, row, why = self.settle(resolution), resolution.refused_row, resolution.refused_why
        if done is not None:
            made, before = done.chunk.joined(made), done.refused.T
            row, why = np.concatenate((before[0], row)), np.concatenate((before[1], why))
        return self._changed(work, made, row, why, until)

    def _changed(self, work: _RelationWork, made: Chunk, refused_row: Int64s, refused_why: Int64s, until: int | None) -> Change:
        if until is None:
            self._work = None
        return Change(made, work.chunk, refused_row, refused_why, until)

    @property
    def is_done(self) -> bool:
        """Whether the last change is complete."""
        return self._work is None

    def resolve_chunk(self, chunk: Chunk, timeline: Timeline, row_time: RowTime | None = None) -> Resolution:
        """Applies a chunk as `change`, but without the values of the outputs: `settle` returns these."""
        if self._queue is not None:
            self._end_queue()
        work = self._begun(chunk, timeline, row_time)
        self._pages.record_moves()
        resolution, _ = self._resolve(work, self._outputs_max(work))
        return resolution

    def _begun(self, chunk: Chunk, timeline: Timeline, row_time: RowTime | None) -> _RelationWork:
        assert self._work is None
        count = len(chunk)
        if row_time is not None:
            time_us, has_time = row_time.time_us, row_time.valid
        else:
            time_us, has_time = timeline.time_us[chunk.rank] if self._by_time else chunk.rank, None
        self._start_boundary(timeline)
        if self._is_late():
            self._prepare_index()
        if self._queue is not None:
            self._queue.reserve(count)
        beats, idle_beats = _beats_of(self.policy, timeline), NO_BEATS if row_time is None else row_time.idle_beats
        return _RelationWork(chunk, time_us, has_time, beats, np.zeros(k.COUNTS_WIDTH, np.int64), idle_beats)

    def _is_late(self) -> bool:
        """Whether there are too many rows to index them quickly, if an index is needed later."""
        return not self.policy.in_order and self.live > self._tuning.late_index_rows_max

    def _prepare_index(self) -> None:
        """Moves rows to pages with an index."""
        if self._queue is not None:
            self._end_queue()
        if not self._rows.state[slots.INDEXED]:
            self._pages.build_index()

    def _outputs_max(self, work: _RelationWork) -> int:
        """Returns an upper bound on the outputs that a chunk of this length can cause."""
        waits = self._by_time and not self.policy.by_event and not len(work.beats)
        forgets = self.policy.kind != k.KEEP and not waits
        return 2 * len(work.chunk) + (self.live + len(work.chunk) if forgets else 0) + 1

    def _resolve(self, work: _RelationWork, rows_max: int) -> tuple[Resolution, int | None]:
        """Continues `work` with rows in pages. Returns the effect, and `until` as in `Change`."""
        chunk = work.chunk
        has_time = np.ones(len(chunk), np.bool_) if work.has_time is None else work.has_time
        given = k.InputArrays(chunk.rank, chunk.opcode, chunk.flags, chunk.lanes, chunk.valid, work.time_us, has_time, work.beats)
        out = self._room(rows_max, len(chunk), work.counts)
        self._pages.prefetch_for_keys(chunk.lanes)
        if self._groups is not None:
            self._groups.load_chunk_groups(chunk)
        while True:
            state = self._related(out, given._replace(rank=given.rank[: work.rows_before_beat]))
            if state != k.DONE or not len(work.idle_beats):
                return _resolution_of(out), None if state == k.DONE else work.resume_rank
            work.begin_idle_beat(self.policy, self._rows.state)

    def _related(self, out: k.OutputArrays, given: k.InputArrays) -> Whole:
        """Continues with the rows and heartbeats of `given`. Returns DONE or IS_FULL."""
        if not (len(given.rank) > out.counts[k.ROW] or len(given.beats) or out.counts[k.LEAVING] != k.LEAVE_NONE):
            return k.DONE
        while (state := self._relate(out, given)) in (k.NEEDS_INDEX, k.NEEDS_ROOM):
            if state == k.NEEDS_INDEX:
                self._pages.build_index()
            else:
                self._make_room()
        return state

    def _relate(self, out: k.OutputArrays, given: k.InputArrays) -> Whole:
        if self._pages.unloaded is not None or self._pages.unlinked is not None:
            return relate_with_unloaded(self._pages, self._take, out, self._of_pages, given)
        return self._take(out, given)

    def _take(self, out: k.OutputArrays, given: k.InputArrays) -> Whole:
        if self._groups is not None:
            return self._groups.relate(out, self._of_pages, given)
        return k.relate(self._rows, out, self._of_pages, given)

    def _make_room(self) -> None:
        self._pages.make_room()
        if self._groups is not None:
            self._groups.make_room()

    def settle(self, resolution: Resolution) -> Chunk:
        """Returns the outputs with their values; emptied pages may be reused from now on."""
        count = len(resolution.output_records)
        rank, opcode, flags = np.empty(count, np.int64), np.empty(count, np.uint8), np.empty(count, np.uint8)
        lanes = np.empty((count, self.shape.width), np.int64)
        valid = np.empty((count, self.shape.width), np.bool_)
        k.repeat_moves(self._rows)
        k.gather_outputs(self._rows, resolution.output_records, rank, opcode, flags, lanes, valid)
        self.release_outputs()
        return Chunk(rank, opcode, flags, lanes, valid, is_whole=True)

    def release_outputs(self) -> None:
        """Releases the outputs of `resolve_chunk`: called instead of `settle` if no values were written."""
        self._pages.stop_recording_moves()
        self._pages.release()

    def freeze(self) -> Relation:
        twin = Relation.__new__(Relation)
        twin._home = PINNED_MEMORY
        twin.shape, twin.policy, twin._work, twin._known = self.shape, self.policy, None, self._known
        twin._of_pages, twin._tuning = self._of_pages, self._tuning
        twin._reading, twin._keys_known = self._reading, self._keys_known
        twin._groups = None
        self._known.snapshots = twin._snapshot = self._known.snapshots + 1
        twin._queue = None if self._queue is None else self._queue.freeze()
        twin._pages = self._pages.freeze()
        return twin

    def __reduce__(self) -> tuple[Callable[..., Relation], tuple[object, ...]]:
        """Pickles and copies the relation as a snapshot has it: memory holds far more than rows, and belongs to one process. String
        codes stay as they are, so the string table must be pickled with it. Not allowed during a change."""
        assert self._work is None
        self._load_all_pages()
        pages = {page.number: page.columns() for page in self.row_pages()}
        return _received, (self.shape, self.policy, self._home, self._reading, self.columns(), pages)

    def columns(self) -> Columns:
        return {"state": Column(self._rows.state[list(_PERSISTED)]), **self._layout().columns()}

    def row_pages(self) -> list[FrozenRowPage]:
        layout = self._layout()
        numbers, count = layout.numbers.tolist(), len(layout.numbers)
        self._known.drop_other_pages(layout.numbers, numbers[-1] + 1 if numbers else 0)
        given = [layout.page_slots] * (count - 1) + [layout.fill] * min(count, 1)
        where = self._where(layout)
        return [
            FrozenRowPage(
                number, slots_given, self._snapshot, layout.bits[at], self._known, partial(self._page_columns, page, layout, at)
            )
            for at, (number, slots_given, rows, page) in enumerate(zip(numbers, given, layout.counts.tolist(), where, strict=True))
            if rows
        ]

    def key_filters(self) -> Sequence[FrozenKeyFilter]:
        if self._reading is LoadMode.WHOLE:
            return []
        layout = self._layout()
        where, ways = self._where(layout), row_lookups_of(self.shape, self.policy)

        def read(at: int, hashes: UInt64s) -> tuple[Int64s, Int64s, UInt64s]:
            found, leaves, strings = self._columns_of(where[at], layout.alive(at))
            return found, leaves, hashes if strings is None else strings.hashes

        return key_filters_of(layout, self._snapshot, ways, self._keys_known, read)

    @property
    def has_unloaded_pages(self) -> bool:
        return self._pages.unloaded is not None or (self._queue is not None and self._queue.unloaded is not None)

    def load_some_pages(self, rows: int) -> bool:
        is_left = self._pages.load_some_pages(rows) if self._queue is None else self._queue.load_some_pages(rows)
        if self._groups is not None:
            self._groups.admit()
        return is_left

    def _load_all_pages(self) -> None:
        if self._queue is not None:
            self._queue.load_all_pages()
        self._pages.load_all_pages()

    def _layout(self) -> Layout:
        if self._queue is None:
            return self._pages.layout()
        return Layout.contiguous(self._queue.first, self._queue.last, self._pages.page_slots)

    def _where(self, layout: Layout) -> list[int]:
        """Returns the place of each page in memory, or its number if rows are in a queue."""
        found: list[int] = (self._pages.in_use() if self._queue is None else layout.numbers).tolist()
        return found

    def _columns_of(self, page: int, alive: Bools) -> tuple[Int64s, Int64s, FrozenStrings | None]:
        """Returns the lookup columns, expiry keys and strings of a page's `alive` rows; `page` as in `_page_columns`."""
        ways = row_lookups_of(self.shape, self.policy)
        if self._queue is None:
            return self._pages.columns_of(page, alive, ways)
        rows, strings = self._queue.rows_of(page, alive)
        return *ways.values_and_expiry_keys(rows), strings

    def _page_columns(self, page: int, layout: Layout, at: int) -> tuple[Columns, FrozenStrings | None]:
        """Returns the rows of a page and their strings, as `FrozenRowPage`. `page`: its place in memory; its number if rows are
        queued. `at`: its index in the layout."""
        alive = layout.alive(at)
        rows, strings = self._pages.rows_of(page, alive) if self._queue is None else self._queue.rows_of(page, alive)
        return rows.columns(self.shape.codes, self._times), strings

    @property
    def _by_time(self) -> bool:
        return self.policy.kind >= k.TIME_SLIDING

    @property
    def _times(self) -> Times:
        return Times.KEPT if self._by_time else Times.NONE

    def stored(self) -> tuple[Int64s, Bools, Int64s]:
        """Returns lanes, valid and times (empty if retention is not by time) of all rows, in order of arrival."""
        if self._queue is not None:
            found = self._queue.stored()
            return found.lanes, found.valid, found.time
        rows, order = self._rows, self._pages.slots_in_arrival_order()
        return rows.lanes[order], rows.valid[order], rows.time[order] if self._by_time else rows.time

    def load_pages(self, columns: Columns, pages: Mapping[int, Columns]) -> None:
        source = StoredPages(Layout.load(columns), pages, self.shape.width, self._times)
        source.check()
        self._load(columns, source)
        if isinstance(pages, SnapshotRowPages):
            record_store_keys(self._known, self._keys_known, source.layout, pages)

    def _load(self, columns: Columns, source: RowSource) -> None:
        """Loads the rows of `source` page by page, so that loaded rows may be evicted meanwhile."""
        layout, state = source.layout, require_column(columns, "state", np.dtype(np.int64), (len(_PERSISTED),)).array
        count = int(layout.counts.sum())
        is_late = not self.policy.in_order and count > self._tuning.late_index_rows_max
        first = layout.arrivals - count
        self._known, self._keys_known = StoreKeys({}), KeyFilterCache(self._tuning)
        in_order = not is_late and layout.is_as(Layout.contiguous(first, layout.arrivals, layout.page_slots))
        absent = None if in_order and self._may_queue else self._unloaded_pages_of(source)
        self._of_pages = self.policy if absent is None or self.policy.in_order else self.policy._replace(new_keys=0)
        self._queue, self._pages = None, self._fresh(layout.page_slots)
        self._rows.state[list(_PERSISTED)] = state
        if in_order:
            self._begin_queue(count)
        if self._queue is not None and not self._queued(self._queue, source, first):
            self._queue, self._pages = None, self._fresh(layout.page_slots)
            self._rows.state[list(_PERSISTED)] = state
        if self._queue is None:
            self._write_to_pages(source, absent)

    def _queued(self, queue: RowQueue, source: RowSource, first: int) -> bool:
        """Fills the queue. Returns False if rows are not in order of arrival."""
        queue.begin(first)
        pages_min = self._tuning.key_filter_pages_min
        absent = (
            UnloadedRows.from_layout(self._reader_of(source), source.layout, first, pages_min) if self.policy.in_order else None
        )
        if absent is not None:
            queue.leave_unloaded(absent)
        for at in range(absent.pages if absent is not None else 0, len(source.layout.numbers)):
            stored = self._checked(source, at)
            if not np.array_equal(stored.order, np.arange(queue.last, queue.last + len(stored.order))):
                return False
            queue.append(stored.lanes, stored.valid, stored.time)
            self._home.evict_during_restore()
        return True

    def _checked(self, source: RowSource, at: int) -> StoredRows:
        stored = source.rows(at)
        stored.check(self.shape.keys, source.layout.arrivals)
        return stored

    def _begin_queue(self, rows: int) -> None:
        """Starts a queue with room for `rows` rows, if the policy allows it; called before the first row."""
        if self._may_queue:
            width, keys, state = self.shape.width, self._rows.keys, self._rows.state
            self._queue = RowQueue(width, keys, self.policy, state, rows, self._tuning, self._home)

    @property
    def _may_queue(self) -> bool:
        return bool(self.policy.new_keys and not self.policy.by_event and self.policy.kind != k.COUNT_OF_GROUP)

    def _begin_groups(self) -> None:
        """Creates the lists of groups from the rows in pages, if each group keeps its newest rows."""
        if self.policy.kind == k.COUNT_OF_GROUP:
            self._groups = GroupLists(self._pages)
            self._groups.fill()

    def _end_queue(self) -> None:
        """Moves rows from the queue to pages, to the places that they would have if they had always been there."""
        assert self._queue is not None
        layout, kept, stored = self._layout(), self._rows.state[list(_PERSISTED)], self._queue.stored()
        self._queue, self._pages = None, self._fresh(layout.page_slots)
        self._rows.state[list(_PERSISTED)] = kept
        self._write_to_pages(RowsInMemory(layout, stored))

    def _write_to_pages(self, source: RowSource, absent: UnloadedPages | None = None) -> None:
        """Writes rows to fresh pages, except those in `absent`."""
        layout, pages = source.layout, self._pages
        pages.allocate_pages(layout)
        if absent is not None:
            pages.leave_unloaded(absent)
        elif not self._of_pages.new_keys or self._is_late():
            pages.begin_index(self.live)
        for at in range(len(layout.numbers)) if absent is None else np.flatnonzero(absent.is_unloaded == 0).tolist():
            pages.fill(at, layout.alive(at), self._checked(source, at))
            pages.index_filled_page(at)
            self._home.evict_during_restore()
        if pages.is_ordered and absent is None:
            unlinked.relink(self._rows, self.policy, pages.slots_in_arrival_order())
        self._begin_groups()

    def _unloaded_pages_of(self, source: RowSource) -> UnloadedPages | None:
        """Returns the pages that need not be loaded now; None if all must be loaded."""
        reader = self._reader_of(source) if self._reading is LoadMode.AT_USE else None
        if reader is None:
            return None
        layout, ways = source.layout, row_lookups_of(self.shape, self.policy)
        return UnloadedPages.from_page_numbers(reader, layout.numbers, layout.counts, ways, self._tuning.key_filter_spans)

    def _reader_of(self, source: RowSource) -> PageReader | None:
        """Returns the reader of pages that can be read later, or None."""
        if not isinstance(source, StoredPages) or not isinstance(source.pages, SnapshotRowPages):
            return None
        return PageReader(source.pages, self.shape.width, self._times, self.shape.keys, source.layout.arrivals)

    @property
    def codes_per_row(self) -> int:
        return len(self.shape.codes)

    @property
    def write_position(self) -> int:
        """Page number times slots per page, plus slot, of the next row."""
        return self._pages.write_position if self._queue is None else self._queue.last

    def mark(self, marks: UInt8s, mark: int, since: int, rows: int) -> int:
        columns = np.array(self.shape.codes, np.int64)
        if self._queue is None:
            self._pages.prefetch_scan(since, rows)
            return int(mark_rows(self._rows, columns, since, rows, marks, mark))
        return self._queue.mark(columns, marks, mark, since, rows)

    def _start_boundary(self, timeline: Timeline) -> None:
        """Starts a jumping window by system time with the first time that it sees."""
        if self.policy.kind < k.TIME_JUMPING or self.policy.by_event or not len(timeline.time_us):
            return
        if self._rows.state[slots.BOUNDARY] == slots.UNSET:
            k.boundary_passed(self._rows.state, self.policy, np.int64(timeline.time_us[0]))

    def _room(self, outputs: int, count: int, counts: Int64s) -> k.OutputArrays:
        """Returns the arrays for a kernel's outputs, reused because fresh memory is slow to touch."""
        out = self._scratch
        if len(out.output_records) < outputs + 2 or len(out.refused) < count:
            self._scratch = out = _output_arrays(2 * outputs + 2, 2 * count)
        counts[[k.MADE, k.REFUSED]] = 0
        counts[k.ROOM] = outputs
        return out._replace(counts=counts)

    def _fresh(self, page_slots: int) -> RowPages:
        pages = RowPages(self.shape, self._of_pages, page_slots, self._tuning, self._home)
        pages.rows.state[slots.INDEXED] = 1 - self._of_pages.new_keys
        return pages


def _received(
    shape: Shape, policy: k.Policy, home: WindowMemory, reading: LoadMode, columns: Columns, pages: Mapping[int, Columns]
) -> Relation:
    relation = Relation(shape, policy, home, reading)
    relation.load_pages(columns, pages)
    return relation


@dataclass(frozen=True, slots=True)
class RowTime:
    """The event time of each row of a chunk, in microseconds, for retention; null if not valid. `idle_beats` int64[., 2]: rank of
    each heartbeat at which event time has advanced since the newest row, and by how many microseconds."""

    time_us: Int64s
    valid: Bools
    idle_beats: Int64s = field(default_factory=lambda: NO_BEATS)


@dataclass(slots=True)
class Resolution:
    """The effect of a chunk on a relation, valid until its next `resolve_chunk`. `Relation.settle` returns the values.

    `output_records`: one row per output, see `table.loops.relation.OutputArrays`. `refused_row`, `refused_why`: refused input rows,
    each with a REFUSED_ number.
    """

    output_records: Int64s
    refused_row: Int64s
    refused_why: Int64s

    def arrived_rows(self) -> tuple[Int64s, Int64s]:
        """Returns (input rows, slots) of the inserted or changed rows, in order. A window writes the values that it computes to
        these slots."""
        rows, slots_ = np.empty(len(self.output_records), np.int64), np.empty(len(self.output_records), np.int64)
        count = int(k.write_arrived(self.output_records, rows, slots_))
        return rows[:count], slots_[:count]


class Change(NamedTuple):
    """The effect of a chunk on a relation. `chunk`: the outputs; `given`: the input. `refused_row` and `refused_why` are as in
    `Resolution`, for rows of `given`.

    `until`: outputs of at least this rank are still due, from `Relation.continue_change`; None if complete.
    """

    chunk: Chunk
    given: Chunk
    refused_row: Int64s
    refused_why: Int64s
    until: int | None = None


@dataclass(slots=True)
class _RelationWork:
    """A chunk and the heartbeats of its batch, and in `counts` its progress: as `table.loops.queue.resolve_in_order` counts while
    rows are in a queue, else as `table.loops.relation.relate` does."""

    chunk: Chunk
    time_us: Int64s
    has_time: Bools | None
    """None if every row has a time."""
    beats: Int64s
    counts: Int64s
    idle_beats: Int64s
    """The idle beats of `RowTime` not applied yet. Kernels do not see idle beats."""

    @property
    def rows_before_beat(self) -> int:
        """The count of rows that are applied before the next idle beat."""
        if not len(self.idle_beats):
            return len(self.chunk)
        return int(np.searchsorted(self.chunk.rank, self.idle_beats[0, 0], side="right"))

    @property
    def resume_rank(self) -> int:
        """The rank at which the work continues: all outputs of lower ranks have been emitted."""
        if self.counts[k.LEAVING] != k.LEAVE_NONE:
            return int(self.counts[k.CAUSE])
        beats = self.idle_beats if len(self.idle_beats) else self.beats[self.counts[k.BEAT] :]
        return next_rank(self.chunk.rank, beats, int(self.counts[k.ROW]), 0)

    def begin_idle_beat(self, policy: k.Policy, state: Int64s) -> None:
        """Begins the removal that the next idle beat causes; `state` is that of the rows. Does not change the newest event time:
        the next row sets it."""
        (rank, over_us), self.idle_beats = self.idle_beats[0].tolist(), self.idle_beats[1:]
        if state[slots.NEWEST] == slots.UNSET:
            return
        edge: Whole = np.int64(state[slots.NEWEST] + over_us)
        if policy.kind != k.TIME_SLIDING:
            edge = k.boundary_passed(state, policy, edge)
        if edge != slots.UNSET:
            leaving = k.LEAVE_ALL if policy.kind == k.TIME_JUMPING else k.LEAVE_OLD
            self.counts[[k.LEAVING, k.EDGE, k.CAME, k.CAUSE]] = leaving, edge, slots.NONE, rank


def _beats_of(policy: k.Policy, timeline: Timeline) -> Int64s:
    """Returns int64[., 2]: rank and time of the heartbeats at which rows may expire under `policy`."""
    if not len(timeline.heartbeat_rank) or policy.kind in (k.KEEP, k.COUNT_OF_GROUP) or policy.by_event:
        return NO_BEATS
    return np.column_stack((timeline.heartbeat_rank, timeline.time_us[timeline.heartbeat_rank]))


def _output_arrays(outputs: int, count: int) -> k.OutputArrays:
    return k.OutputArrays(
        output_records=np.empty((outputs, 5), np.int64),
        refused=np.empty((count, 2), np.int64),
        counts=np.zeros(k.COUNTS_WIDTH, np.int64),
    )


def _resolution_of(out: k.OutputArrays) -> Resolution:
    outputs, refused = out.counts[: k.REFUSED + 1].tolist()
    return Resolution(
        output_records=out.output_records[:outputs],
        refused_row=out.refused[:refused, 0].copy(),
        refused_why=out.refused[:refused, 1].copy(),
    )


class GroupLists:
    """The rows of each group in `pages`, in order of arrival, if each group keeps its newest rows (`table.loops.groups`).

    Lists are derived from rows and are in no snapshot; their index grows by splitting. After a restore they have the loaded rows;
    rows of a chunk's groups are loaded before the chunk is applied.
    """

    def __init__(self, pages: RowPages) -> None:
        self._pages = pages
        rows = pages.rows
        lists = empty_lists(rows, groups.LINKS_WIDTH)
        self._groups = groups.RowGroups(lists, np.zeros((1, rows.lanes.shape[1]), np.int64))
        pages.home.register_counted(self)

    def relate(self, out: k.OutputArrays, policy: k.Policy, given: k.InputArrays) -> Whole:
        """Applies a chunk by the kernel of groups, and returns its state. If that is NEEDS_ROOM, the caller makes room in the pages
        and by `make_room`."""
        self._pages.record_moves()
        self.admit()
        return groups.relate_groups(self._pages.rows, self._groups, out, policy, given)

    def make_room(self) -> None:
        """Makes room for one more group."""
        lists = self._groups.lists
        self._groups = self._groups._replace(lists=lists._replace(by_condition=grown_index(lists.by_condition)))

    def load_chunk_groups(self, chunk: Chunk) -> None:
        """Loads unloaded rows of the groups in which rows of the chunk may be. Loads everything if a partial row names only some
        fields of its group: the other fields are those of the stored row, or of an earlier row in the chunk."""
        if self._pages.unloaded is None:
            return
        named = chunk.valid[:, self._pages.rows.conditions]
        is_whole = named.all(axis=1)
        if (named.any(axis=1) & ~is_whole & (chunk.flags & k.PARTIAL > 0)).any():
            self._pages.load_all_pages()
        self._pages.load_matches(chunk.lanes[is_whole][:, self._pages.rows.conditions])

    def admit(self) -> None:
        """Adds rows that were loaded from the store to the lists."""
        self._follow_pages()
        found, at = self._pages.pop_loaded_slots(), 0
        while at < len(found) and (at := int(groups.admit_groups(self._groups.lists, found, np.int64(at)))) < len(found):
            self.make_room()

    def fill(self) -> None:
        """Adds all loaded rows to the lists, in order of arrival."""
        self._follow_pages()
        order, at = self._pages.loaded_slots_in_order(), 0
        while at < len(order) and (at := int(groups.fill_groups(self._groups.lists, order, np.int64(at)))) < len(order):
            self.make_room()
        self._pages.record_loaded_slots()

    @property
    def pinned_bytes(self) -> int:
        """Bytes of the lists and their index."""
        return index_bytes(self._groups.lists.by_condition) + 8 * groups.LINKS_WIDTH * self._pages.slots_used

    def _follow_pages(self) -> None:
        """Points the lists to the current memory of the rows."""
        rows, lists = self._pages.rows, self._groups.lists
        links, length = lists.links, len(rows.lanes)
        if len(links) < length:
            known = links
            links = largest_granted(length, length, lambda most: longer(known, len(known), most))
        lists = lists._replace(links=links, lanes=rows.lanes, valid=rows.valid, order=rows.order, moved=rows.moved)
        self._groups = self._groups._replace(lists=lists)
