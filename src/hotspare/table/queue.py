"""A ring buffer of rows: it stores a relation as long as rows are removed in order of arrival (see `table.relation`).

A snapshot shares the ring. Later rows go into other slots, so nothing is copied before the ring wraps to rows that a snapshot still
needs.

A small ring has room for half as many rows again, and is replaced by a larger one when it is full. A large ring has all the address
space that it may ever need (`memory`). It takes memory as it is written, and releases the memory before the oldest row that is
still needed.
"""

from __future__ import annotations

import mmap
import weakref
from typing import NamedTuple

import numpy as np

from hotspare.rows.chunk import Bools, Chunk, Int64s, UInt8s
from hotspare.rows.tuning import Tuning
from hotspare.table.loops import queue as k
from hotspare.table.loops import slots
from hotspare.table.loops.relation import TIME_SLIDING, Policy
from hotspare.table.loops.text_collection import mark_ring
from hotspare.table.memory import PINNED_MEMORY, EvictableSpace, Space, WindowMemory, largest_granted
from hotspare.table.row_layout import StoredRows
from hotspare.table.strings import FrozenStrings
from hotspare.table.unloaded_queue import ReadBound, UnloadedRows

RELEASE_BYTES = 16 << 20
"""The memory released at a time is about this size, or that of `release_rows` rows if more."""
_MARGIN_ROWS = mmap.PAGESIZE
"""The count of slots kept free before the slots whose memory is not released yet, because both may share a system page."""
BLOCK_ROWS = 4096
"""The rows of a block, the unit of eviction: complete system pages of each column, whatever the width."""
_PREFETCH_ROWS = 1 << 14
_NOTHING_REFUSED = np.empty((0, 2), np.int64)
_SMALL_ROWS_MAX = 256
"""The outputs of at most this many rows get room before their count is known: mostly one for each row, so one kernel is called."""


class QueueResult(NamedTuple):
    """The result of applying the first `rows` rows of a chunk and the first `beats` heartbeats of its batch. `chunk`: the outputs.
    `is_all`: whether all rows and heartbeats were applied.

    `refused`: int64[., 2], refused input rows, each with a REFUSED_ number. `until`: the rank at which to continue, if there was no
    room for more outputs; else None.
    """

    chunk: Chunk
    refused: Int64s
    rows: int
    beats: int
    is_all: bool
    until: int | None


class RowQueue:
    """Rows of `width` lanes in order of arrival. `state`: the entries of `table.loops.slots`, shared with the relation."""

    def __init__(
        self, width: int, keys: Int64s, policy: Policy, state: Int64s, rows: int, tuning: Tuning, home: WindowMemory = PINNED_MEMORY
    ) -> None:
        self._policy = policy
        self._tuning = tuning
        self._home = home
        self._sent = self._wanted = 0
        """Whole blocks before `_sent` are evicted; rows before `_wanted` were prefetched."""
        self.unloaded: UnloadedRows | None = None
        """Rows that a restore left in the store; None if all are loaded."""
        self._sent_before_absent = 0
        """The same as `_sent`, for the rows before the unloaded ones. While rows are unloaded, `_sent` is for the rows after
        them."""
        self._marks: list[tuple[int, int]] = []
        """Pairs (position, time): the position that the queue had reached at a time."""
        self._read_from: list[tuple[EvictableSpace, int]] = []
        """In a snapshot: the spaces of its rows, for read-ahead."""
        self._twins: list[weakref.ref[RowQueue]] = []
        self._runs, self._refused = np.empty((0, k.RUN_WIDTH), np.int64), np.empty((0, 2), np.int64)
        state[[slots.FIRST, slots.LAST]] = 0
        self._ring, self._spaces = _ring_for(rows, width, keys, policy, state, home, tuning)
        home.register_tenant(self)
        self._given_back = 0
        """The memory of rows before this position is released."""

    @property
    def live(self) -> int:
        return self.last - self.first

    @property
    def state(self) -> Int64s:
        return self._ring.state

    def resolve_in_queue(self, chunk: Chunk, time_us: Int64s, beats: Int64s, counts: Int64s, rows_max: int) -> QueueResult:
        """Applies rows, for which the caller has made room (`reserve`), and heartbeats in order of rank, up to a row that breaks
        the order: one that is neither an insert nor a delete of the oldest row. `time_us`: per row, if retention is by time.

        Makes at most `rows_max` outputs; `counts`, zeros at first, has the progress for the next call, which gets the same chunk.
        """
        ring, count = self._ring, len(chunk)
        given = k.QueueArrays(
            chunk.rank, chunk.opcode, chunk.flags, chunk.lanes.reshape(-1), chunk.valid.reshape(-1), time_us, beats
        )
        if len(self._runs) <= 2 * count + len(beats):
            self._runs = np.empty((2 * (2 * count + len(beats)) + 1, k.RUN_WIDTH), np.int64)
        if len(self._refused) < count:
            self._refused = np.empty((2 * count, 2), np.int64)
        counts[k.RUNS] = counts[k.MADE] = counts[k.REFUSED] = 0
        counts[k.ROOM] = rows_max
        if self.unloaded is not None:
            self._load_expiring(ReadBound(ring, self._policy, chunk.opcode, beats, counts, rows_max))
        self._prefetch_oldest(count + min(rows_max, _PREFETCH_ROWS))
        room = k.QueueOutputs.empty(count if count <= _SMALL_ROWS_MAX else 0, ring.width)
        k.resolve_and_write(ring, self._policy, given, self._runs, self._refused, counts, room)
        runs, made, row, beat, _, leaving, cause, refused_count = counts[: k.COUNTS_WIDTH].tolist()
        refused = self._refused[:refused_count].copy() if refused_count else _NOTHING_REFUSED
        if made > len(room.rank):
            room = k.QueueOutputs.empty(made, ring.width)
            k.write_out(ring, given, self._runs, runs, room)
        out = room.chunk(made, ring.width)
        if leaving:
            return QueueResult(out, refused, row, beat, is_all=False, until=cause)
        if row == count and beat == len(beats):
            return QueueResult(out, refused, row, beat, is_all=True, until=None)
        until = next_rank(chunk.rank, beats, row, beat) if made >= rows_max else None
        return QueueResult(out, refused, row, beat, is_all=False, until=until)

    def freeze(self) -> RowQueue:
        twin = RowQueue.__new__(RowQueue)
        twin._policy, twin._twins, twin._runs, twin._refused = self._policy, [], self._runs, self._refused
        twin._spaces, twin._given_back, twin._home, twin._sent, twin._wanted, twin._marks = (), 0, PINNED_MEMORY, 0, 0, []
        twin.unloaded, twin._sent_before_absent = self.unloaded.freeze() if self.unloaded is not None else None, 0
        twin._read_from = self._evictable_spaces()
        twin._ring = self._ring._replace(state=self._ring.state.copy())
        self._twins = [ref for ref in self._twins if ref() is not None]
        self._twins.append(weakref.ref(twin))
        return twin

    @property
    def first(self) -> int:
        """The count of rows that arrived before the oldest."""
        return self._ring.state.item(slots.FIRST)

    @property
    def last(self) -> int:
        """The count of rows that ever arrived."""
        return self._ring.state.item(slots.LAST)

    def stored(self) -> StoredRows:
        """Returns all rows, oldest first; loads unloaded ones."""
        self.load_all_pages()
        return self._rows(self.first, self.last)

    def rows_of(self, page: int, alive: Bools) -> tuple[StoredRows, FrozenStrings | None]:
        """Returns the `alive` rows of a snapshot's page, given by number, and their strings, as `RowPages.rows_of`."""
        if self.unloaded is not None and self.unloaded.has_page(page):
            return self.unloaded.ordered_rows_with_strings(page, alive)
        first = page * len(alive) + int(np.argmax(alive))
        return self._rows(first, first + int(np.count_nonzero(alive))), None

    def _rows(self, begin: int, end: int) -> StoredRows:
        """Returns copies of the rows at positions from `begin` to before `end`, which are in memory."""
        ring = self._ring
        where = _slices(ring, begin, end - begin)
        for space, width in self._read_from:
            for part in where:
                space.read_ahead(part.start * width, part.stop * width)
        lanes, valid = ring.lanes.reshape(-1, ring.width), ring.valid.reshape(-1, ring.width)
        times = [ring.times[part] for part in where] if len(ring.times) else [ring.times]
        chosen = (np.concatenate([lanes[p] for p in where]), np.concatenate([valid[p] for p in where]))
        return StoredRows(*chosen, np.arange(begin, end), np.concatenate(times))

    def begin(self, first: int) -> None:
        """Sets the position of the first row to be appended; the queue is empty."""
        self._ring.state[slots.FIRST] = self._ring.state[slots.LAST] = self._given_back = first
        self._sent = first // BLOCK_ROWS * BLOCK_ROWS

    def append(self, lanes: Int64s, valid: Bools, times: Int64s) -> None:
        """Appends rows, for which the ring has room."""
        self._write(self.last, lanes, valid, times)
        self._ring.state[slots.LAST] += len(lanes)

    def _write(self, position: int, lanes: Int64s, valid: Bools, times: Int64s) -> None:
        ring, done = self._ring, 0
        for part in _slices(ring, position, len(lanes)):
            source = slice(done, done + part.stop - part.start)
            done = source.stop
            ring.lanes.reshape(-1, ring.width)[part] = lanes[source]
            ring.valid.reshape(-1, ring.width)[part] = valid[source]
            if len(ring.times):
                ring.times[part] = times[source]

    def leave_unloaded(self, absent: UnloadedRows) -> None:
        """Sets the oldest rows of the queue, which stay unloaded; called after `begin`, before later rows are appended."""
        self.unloaded = absent
        self._ring.state[slots.LAST] = absent.end
        self._sent_before_absent, self._sent = self._sent, -(-absent.end // BLOCK_ROWS) * BLOCK_ROWS

    def _load_next(self, absent: UnloadedRows) -> None:
        """Loads the oldest unloaded page; evicts blocks of loaded rows if memory is short. Raises what the store raises,
        SnapshotDamaged, and PageFileError."""
        begin, stored = absent.begin, absent.load_next_page()
        self._write(begin, stored.lanes, stored.valid, stored.time)
        if not absent.pages:
            self._end_loading()
        elif self._evictable_spaces() and self._home.loadable_bytes < absent.page_slots * self._row_bytes:
            self._evict_before(absent.begin)

    def _load_expiring(self, leaving: ReadBound) -> None:
        while self.unloaded is not None and leaving.may_read(self.unloaded.begin):
            self._load_next(self.unloaded)

    def load_all_pages(self) -> None:
        """Loads all unloaded rows."""
        while self.unloaded is not None:
            self._load_next(self.unloaded)

    def load_some_pages(self, rows: int) -> bool:
        """Loads more rows, after a step of `rows` rows. Returns False if all are loaded."""
        for _ in range(1 + rows // self.unloaded.page_slots if self.unloaded is not None else 0):
            if self.unloaded is not None:
                self._load_next(self.unloaded)
        return self.unloaded is not None

    def _end_loading(self) -> None:
        """Ends the loading of unloaded rows. From now on `_sent` alone is the end of the evicted blocks."""
        absent, self.unloaded = self.unloaded, None
        assert absent is not None
        if self._sent <= -(-absent.end // BLOCK_ROWS) * BLOCK_ROWS:
            self._sent = self._sent_before_absent
        else:
            self._evict_before(absent.end)

    def _evict_before(self, position: int) -> None:
        """Evicts whole blocks before `position` that are neither evicted nor released."""
        begin, end = max(self._sent_before_absent, self._given_back // BLOCK_ROWS * BLOCK_ROWS), position // BLOCK_ROWS * BLOCK_ROWS
        if end > begin:
            self._evict_rows(begin, end - begin)
        self._sent_before_absent = max(begin, end)

    def mark(self, columns: Int64s, marks: UInt8s, mark: int, since: int, rows: int) -> int:
        """Sets `marks` to `mark` for the codes in these columns of at most `rows` rows from position `since` on, except unloaded
        rows. Returns the position reached."""
        begin = max(since, self.first)
        end = min(begin + rows, self.last)
        for first, last in self._in_memory(begin, end):
            for part in _slices(self._ring, first, max(0, min(last, self._sent) - first)):
                for space, width in self._evictable_spaces()[:1]:
                    space.read_ahead(part.start * width, part.stop * width)
            mark_ring(self._ring, columns, first, last, marks, mark)
        return end

    def _in_memory(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Returns the ranges of loaded rows among the positions from `begin` to before `end`."""
        if self.unloaded is None:
            return [(begin, end)]
        around = (begin, min(end, self.unloaded.begin)), (max(begin, self.unloaded.end), end)
        return [(first, last) for first, last in around if first < last]

    def _sharing(self) -> list[RowQueue]:
        """Returns the snapshots that still read from this ring."""
        if not self._twins:
            return []
        alive = [twin for twin in (ref() for ref in self._twins) if twin is not None]
        return [twin for twin in alive if twin.live and twin._ring.lanes is self._ring.lanes]

    def reserve(self, count: int) -> None:
        """Makes room for `count` more rows, in addition to the rows that the queue or a snapshot still needs."""
        floor, last = self.first, self.last + count
        for twin in self._sharing():
            floor = min(floor, twin.first)
        if self._spaces:
            last += _MARGIN_ROWS
            if last > self._given_back + self._ring.capacity:
                self._release_memory(floor)
            elif floor - self._given_back >= self._tuning.release_rows:
                rows = max(self._tuning.release_rows, RELEASE_BYTES // self._row_bytes)
                self._release_memory(min(floor, self._given_back + 2 * count + rows))
        if last > floor + self._ring.capacity:
            self._renew(self.live + count)

    @property
    def _row_bytes(self) -> int:
        return 9 * self._ring.width + (8 if len(self._ring.times) else 0)

    def _release_memory(self, floor: int) -> None:
        ring = self._ring
        for part in _slices(ring, self._given_back, floor - self._given_back):
            for space, width in zip(self._spaces, (ring.width, ring.width, 1), strict=False):
                space.release_range(part.start * width, part.stop * width)
        self._given_back = floor
        self._sent = max(self._sent, floor // BLOCK_ROWS * BLOCK_ROWS)

    def _prefetch_oldest(self, rows: int) -> None:
        """Prefetches evicted rows among the `rows` oldest, which may be removed next."""
        sent = self._sent if self.unloaded is None else self._sent_before_absent
        if sent <= self._wanted:
            return
        begin, end = max(self.first, self._wanted), min(self.first + rows, sent)
        if end <= begin or (end < sent and end - begin < BLOCK_ROWS // 4):
            return
        self._wanted = end
        for part in _slices(self._ring, begin, end - begin):
            for space, width in self._evictable_spaces():
                space.prefetch_one_range(part.start * width, part.stop * width)

    def _evictable_spaces(self) -> list[tuple[EvictableSpace, int]]:
        widths = (self._ring.width, self._ring.width, 1)
        return [(each, width) for each, width in zip(self._spaces, widths, strict=False) if not isinstance(each, Space)]

    @property
    def pinned_bytes(self) -> int:
        """Bytes of a ring that is never evicted; 0 if the ring can be evicted."""
        return 0 if self._evictable_spaces() else self._ring.capacity * self._row_bytes

    @property
    def evictable_bytes(self) -> int:
        if not self._evictable_spaces():
            return 0
        rows = self.last - max(self._sent, self._given_back)
        if self.unloaded is not None:
            rows += max(0, self.unloaded.begin - max(self._sent_before_absent, self._given_back))
        return rows * self._row_bytes

    def date_writes(self, now: int) -> None:
        if self._evictable_spaces() and (not self._marks or self.last - self._marks[-1][0] >= BLOCK_ROWS):
            self._forget_marks()
            self._marks.append((self.last, now))

    def _forget_marks(self) -> None:
        """Drops write times (`_marks`) that only evicted or removed blocks need."""
        while len(self._marks) > 1 and self._marks[0][0] <= self._sent:
            del self._marks[0]

    def coldest(self) -> tuple[int, int] | None:
        if self._sent + BLOCK_ROWS > self.last or not self._evictable_spaces():
            return None
        self._forget_marks()
        return 0, self._marks[0][1]

    def evict_coldest(self, size: int) -> int:
        blocks = min(max(1, size // (BLOCK_ROWS * self._row_bytes)), (self.last - self._sent) // BLOCK_ROWS)
        self._evict_rows(self._sent, blocks * BLOCK_ROWS)
        self._sent += blocks * BLOCK_ROWS
        return blocks * BLOCK_ROWS * self._row_bytes

    def _evict_rows(self, begin: int, rows: int) -> None:
        for part in _slices(self._ring, begin, rows):
            for space, width in self._evictable_spaces():
                if part.stop > part.start:
                    space.evict_range(part.start * width, part.stop * width)

    def _renew(self, rows: int) -> None:
        """Moves the rows to a new ring with room for `rows` rows; snapshots keep the old one. A ring in ordinary memory is never
        replaced by a smaller one; a ring in spaces may be, if a snapshot still needs rows of the old one."""
        old = self._ring
        first, here = self.first, self._in_memory(self.first, self.last)
        self._given_back, self._wanted, self._sent_before_absent = first, 0, first // BLOCK_ROWS * BLOCK_ROWS
        self._sent = self._sent_before_absent if self.unloaded is None else -(-self.unloaded.end // BLOCK_ROWS) * BLOCK_ROWS
        rows = rows if self._spaces else max(rows, old.capacity * 2 // 3)
        new, self._spaces = _ring_for(rows, old.width, old.keys, self._policy, old.state, self._home, self._tuning)
        self._ring = new
        for begin, end in here:
            for part in _slices(old, begin, end - begin):
                lanes, valid = old.lanes.reshape(-1, old.width)[part], old.valid.reshape(-1, old.width)[part]
                self._write(begin, lanes, valid, old.times[part] if len(old.times) else old.times)
                begin += part.stop - part.start


def next_rank(rank: Int64s, beats: Int64s, row: int, beat: int) -> int:
    """Returns the lower rank of row number `row` and heartbeat number `beat`; at least one of both exists."""
    ranks = (*rank[row : row + 1].tolist(), *beats[beat : beat + 1, 0].tolist())
    return int(min(ranks))


def _ring_for(
    rows: int, width: int, keys: Int64s, policy: Policy, state: Int64s, home: WindowMemory, tuning: Tuning
) -> tuple[k.Ring, tuple[Space | EvictableSpace, ...]]:
    """Returns a ring, and its spaces. It has room for `rows` rows and half as many more, so that growing is rare; not for twice as
    many, because a small ring cycles through all its memory. A large ring has spaces for lanes, validity and times; a small one has
    none."""
    has_times = policy.kind >= TIME_SLIDING
    row_bytes = 9 * width + (8 if has_times else 0)
    capacity = max(tuning.queue_rows_min, rows + rows // 2)

    def made(spaces: tuple[Space | EvictableSpace, ...], length: int) -> k.Ring:
        arrays = [space.array for space in spaces] or [np.empty(length * width, np.int64), np.empty(length * width, np.bool_)]
        times = arrays[2] if len(arrays) > 2 else np.empty(length if has_times else 0, np.int64)
        return k.Ring(arrays[0], arrays[1], times, keys, state, width, length)

    def reserved(length: int) -> tuple[k.Ring, tuple[Space | EvictableSpace, ...]]:
        length = -(-length // BLOCK_ROWS) * BLOCK_ROWS
        columns: list[tuple[type[np.generic], int]] = [(np.int64, length * width), (np.bool_, length * width)]
        columns += [(np.int64, length)] if has_times else []
        spaces = tuple(home.space(np.dtype(kind), size) or Space(np.dtype(kind), size) for kind, size in columns)
        return made(spaces, length), spaces

    if capacity * row_bytes <= min(tuning.small_bytes, home.small_bytes):
        return made((), capacity), ()
    return largest_granted(tuning.reserved_bytes // row_bytes, capacity + _MARGIN_ROWS, reserved)


def _slices(ring: k.Ring, position: int, count: int) -> list[slice]:
    """Returns the slots of `count` positions from `position` on, as two slices in order: the second begins at slot 0 and may be
    empty."""
    slot = position % ring.capacity
    first = min(count, ring.capacity - slot)
    return [slice(slot, slot + first), slice(0, count - first)]
