"""A keyed relation as a part of a page: what index a window has, and what it forgets.

Semantics (SPEC A8-A13, A19-A23), where the sources leave a choice open:

- An update block on an unknown key inserts: retention may have forgotten the row that its window still had. One whose old values
  stand under another key inserts or updates the new one and deletes the old one. One that is refused deletes the row: where it
  came from, its old values are no more.
- With retention, deleting an unknown key is no mistake, for the same reason; without, it is refused.
- Outputs of resolved events carry the flags of their event without PARTIAL, because the stored row is whole; retention deletes
  carry RETENTION alone, and the rank of the row or heartbeat that caused them, after what that row itself put out.
- Retention by time counts from the newest version of a row; retention by count leaves an updated row in its place.
- A jumping window by system time starts with the first time that it sees, one by event time with its first row. The row whose
  event time passes a boundary stays. `bytime_jumping_lookback`: at each multiple of the unit since 1970, rows that are `limit` or
  more before it go (unverified).

Where an insert never brings a key that is there, rows stand in a `RowQueue` as long as they leave in the order in which they came;
the first event that wants it otherwise, if there ever is one, makes it a table.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hotspare.engine.chunk import Bools, Chunk, Int64s, Timeline
from hotspare.engine.kernels import Whole, slots
from hotspare.engine.kernels import relation as k
from hotspare.engine.kernels.interning import mark_codes
from hotspare.engine.pages import Column, Columns, expect
from hotspare.engine.queue import RowQueue, next_rank
from hotspare.errors import SnapshotDamaged

KEEP_ALL = k.Policy(k.KEEP, 0, 1, 0, 0)
"""The policy of a relation that forgets nothing."""
_PERSISTED = (slots.NEWEST, slots.BOUNDARY)
_NO_BEATS = np.empty((0, 2), np.int64)
_NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Shape:
    """`width` lanes, of which `keys` identify a row and `codes` hold codes of the string table."""

    width: int
    keys: tuple[int, ...]
    codes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RowTime:
    """The time of each row of a chunk, in microseconds, for retention; not valid is null."""

    time_us: Int64s
    valid: Bools


@dataclass(slots=True)
class Resolution:
    """What a chunk does to a relation; good until the relation's next `apply`. Values come with `Relation.settle`.

    `made`: one row per output, see `kernels.relation.Output`. `refused_row`, `refused_why`: input rows that cannot be, with a
    REFUSED_ number. `freed`: slots given up.
    """

    made: Int64s
    refused_row: Int64s
    refused_why: Int64s
    freed: Int64s

    def arrived(self) -> tuple[Int64s, Int64s]:
        """(input rows, slots) of the rows that came or changed, in order: where a window writes what it computes."""
        rows, slots_ = np.empty(len(self.made), np.int64), np.empty(len(self.made), np.int64)
        count = int(k.arrived(self.made, rows, slots_))
        return rows[:count], slots_[:count]


@dataclass(frozen=True, slots=True)
class Change:
    """What a chunk did to a relation. `refused_row`, `refused_why` as in `Resolution`: rows of `given`.

    `until`: outputs of this rank and of higher ones are still to come, with `Relation.go_on`; None: nothing is.
    """

    chunk: Chunk
    given: Chunk
    refused_row: Int64s
    refused_why: Int64s
    until: int | None = None


@dataclass(slots=True)
class _Work:
    """A chunk and the heartbeats of its batch, and in `counts` how far they are taken: as `kernels.queue.take` counts while rows
    stand in a queue, as `kernels.relation.relate` does else."""

    chunk: Chunk
    time: RowTime
    beats: Int64s
    counts: Int64s


class Relation:
    """Rows by key. `change` takes a chunk, and `go_on` what it left: until then the relation is neither frozen nor recoded. Where
    values can only be computed when it is known which rows came, `apply` does, and after it values may be written to `lanes` and
    `valid` at arrived slots, until `settle`."""

    def __init__(self, shape: Shape, policy: k.Policy = KEEP_ALL) -> None:
        self.shape = shape
        self.policy = policy
        self._keys = np.array(shape.keys, np.int64)
        self._twins: list[weakref.ref[Relation]] = []
        self._queue: RowQueue | None = None
        self._work: _Work | None = None
        self._scratch = _output(0, 0)
        self._rows = self._fresh(0)
        self._begin_queue(0)

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
        """Resolve the chunk and expel what retention ends. `row_time` is needed where the policy goes by event time.

        At most `rows_max` outputs are made; where that is not enough, `go_on` is to be called before anything else.
        """
        self._work = self._begun(chunk, timeline, row_time)
        return self.go_on(rows_max)

    def go_on(self, rows_max: int | None = None) -> Change:
        """More of a change that is not done."""
        work = self._work
        assert work is not None
        if rows_max is None:
            rows_max = self._outputs_max(work.chunk)
        done: Chunk | None = None
        if self._queue is not None:
            taken = self._queue.take(work.chunk, work.time.time_us, work.beats, work.counts, rows_max)
            if taken.until is not None or taken.is_all:
                return self._changed(work, taken.chunk, _NO_ROWS, _NO_ROWS, taken.until)
            done, rows_max = taken.chunk, rows_max - len(taken.chunk)
            work.counts = np.zeros(k.COUNTS_WIDTH, np.int64)
            work.counts[k.ROW], work.counts[k.BEAT] = taken.rows, taken.beats
            self._end_queue(len(work.chunk))
        resolution, until = self._resolve(work, rows_max)
        rest = self.settle(resolution)
        joined = rest if done is None else done.joined(rest)
        return self._changed(work, joined, resolution.refused_row, resolution.refused_why, until)

    def _changed(self, work: _Work, made: Chunk, refused_row: Int64s, refused_why: Int64s, until: int | None) -> Change:
        if until is None:
            self._work = None
        return Change(made, work.chunk, refused_row, refused_why, until)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left of the last change."""
        return self._work is None

    def apply(self, chunk: Chunk, timeline: Timeline, row_time: RowTime | None = None) -> Resolution:
        """`change`, but for the values of the outputs: these come with `settle`."""
        if self._queue is not None:
            self._end_queue(0)
        resolution, _ = self._resolve(self._begun(chunk, timeline, row_time), self._outputs_max(chunk))
        return resolution

    def _begun(self, chunk: Chunk, timeline: Timeline, row_time: RowTime | None) -> _Work:
        assert self._work is None
        count = len(chunk)
        if row_time is None:
            time_us = timeline.time_us[chunk.rank] if self.policy.kind >= k.TIME_SLIDING else chunk.rank
            row_time = RowTime(time_us, np.ones(count, np.bool_))
        self._start_boundary(timeline)
        if self._queue is not None:
            self._queue.reserve(count)
        else:
            self._own()
            self._reserve(count)
        return _Work(chunk, row_time, self._beats(timeline), np.zeros(k.COUNTS_WIDTH, np.int64))

    def _outputs_max(self, chunk: Chunk) -> int:
        """More outputs than can come of a chunk, whatever it holds."""
        forgotten = self.live + len(chunk) if self.policy.kind != k.KEEP else 0
        return 2 * len(chunk) + forgotten + 1

    def _beats(self, timeline: Timeline) -> Int64s:
        if self.policy.kind == k.KEEP or not len(timeline.heartbeat_rank):
            return _NO_BEATS
        return np.column_stack((timeline.heartbeat_rank, timeline.time_us[timeline.heartbeat_rank]))

    def _resolve(self, work: _Work, rows_max: int) -> tuple[Resolution, int | None]:
        """Go on with work that rows in a queue cannot do; `until` as in `Change`."""
        chunk = work.chunk
        given = k.Input(
            chunk.rank, chunk.opcode, chunk.flags, chunk.lanes, chunk.valid, work.time.time_us, work.time.valid, work.beats
        )
        out = self._room(rows_max, len(chunk), work.counts)
        state: Whole = k.DONE
        if len(chunk) or len(work.beats):
            while (state := k.relate(self._rows, out, self.policy, given)) == k.NEEDS_TABLE:
                self._index(len(chunk))
        return _resolution(out), None if state == k.DONE else _next_rank(given, out.counts)

    def settle(self, resolution: Resolution) -> Chunk:
        """The outputs with their values; slots given up may be used again from now on."""
        count = len(resolution.made)
        rank, opcode, flags = np.empty(count, np.int64), np.empty(count, np.uint8), np.empty(count, np.uint8)
        lanes = np.empty((count, self.shape.width), np.int64)
        valid = np.empty((count, self.shape.width), np.bool_)
        k.gather_outputs(self._rows, resolution.made, rank, opcode, flags, lanes, valid)
        state, freed = self._rows.state, resolution.freed
        free = int(state[slots.FREE])
        self._rows.free[free : free + len(freed)] = freed
        state[slots.FREE] = free + len(freed)
        return Chunk(rank, opcode, flags, lanes, valid)

    def freeze(self) -> Relation:
        twin = Relation.__new__(Relation)
        twin.shape, twin.policy, twin._keys, twin._twins, twin._work = self.shape, self.policy, self._keys, [], None
        twin._queue = None if self._queue is None else self._queue.freeze()
        twin._rows = self._rows._replace(state=self._rows.state.copy())
        self._twins = [ref for ref in self._twins if ref() is not None]
        self._twins.append(weakref.ref(twin))
        return twin

    def columns(self) -> Columns:
        if self._queue is not None:
            lanes, valid, times = self._queue.rows()
        else:
            lanes, valid, times = self._stored()
        columns = {
            "lanes": Column(lanes, self.shape.codes),
            "valid": Column(valid),
            "state": Column(self._rows.state[list(_PERSISTED)]),
        }
        return {**columns, "time": Column(times)} if self.policy.kind >= k.TIME_SLIDING else columns

    def _stored(self) -> tuple[Int64s, Bools, Int64s]:
        """Lanes, valid and times in order of arrival, of rows that do not stand in a queue."""
        arrivals = self._rows.meta[: int(self._rows.state[slots.HIGH]), slots.ORDER]
        order = np.argsort(arrivals, kind="stable")[len(arrivals) - self.live :]
        lanes = np.empty((len(order), self.shape.width), np.int64)
        valid = np.empty((len(order), self.shape.width), np.bool_)
        k.gather_rows(self._rows.lanes, self._rows.valid, order, lanes, valid)
        return lanes, valid, self._rows.meta[order, slots.TIME]

    def load(self, columns: Columns) -> None:
        lanes = expect(columns, "lanes", np.dtype(np.int64), (-1, self.shape.width)).array
        count = len(lanes)
        valid = expect(columns, "valid", np.dtype(np.bool_), (count, self.shape.width)).array
        by_time = self.policy.kind >= k.TIME_SLIDING
        time = expect(columns, "time", np.dtype(np.int64), (count,)).array if by_time else np.zeros(count, np.int64)
        state = expect(columns, "state", np.dtype(np.int64), (len(_PERSISTED),)).array
        if not valid[:, list(self.shape.keys)].all():
            raise SnapshotDamaged("a page holds a row without a key")
        self._twins, self._queue = [], None
        self._rows = self._fresh(0)
        self._rows.state[list(_PERSISTED)] = state
        self._begin_queue(count)
        if self._queue is not None:
            self._queue.load(lanes, valid, time)
        else:
            self._fill(lanes, valid, time)

    def _begin_queue(self, rows: int) -> None:
        """Keep rows in a queue with room for so many, where the policy allows it. There are none yet."""
        if self.policy.new_keys and not self.policy.by_event:
            self._queue = RowQueue(self.shape.width, self._keys, self.policy, self._rows.state, rows)

    def _end_queue(self, count: int) -> None:
        """From now on rows stand in a table, with room for `count` more."""
        assert self._queue is not None
        lanes, valid, times = self._queue.rows()
        self._queue, self._twins = None, []
        self._fill(lanes, valid, times if len(times) else np.zeros(len(lanes), np.int64))
        self._reserve(count)

    def _fill(self, lanes: Int64s, valid: Bools, times: Int64s) -> None:
        """Fresh structures with these rows in order of arrival; what a snapshot has beside rows stays."""
        kept, count = self._rows.state[list(_PERSISTED)], len(lanes)
        self._rows = self._fresh(count)
        self._rows.lanes[:count] = lanes
        self._rows.valid[:count] = valid
        self._rows.meta[:count, slots.TIME] = times
        self._rows.state[list(_PERSISTED)] = kept
        k.relink(self._rows, self.policy, count)
        if not self.policy.new_keys:
            self._index(0)

    def mark(self, used: Bools) -> None:
        if self._queue is not None:
            self._queue.mark(self.shape.codes, used)
            return
        high = int(self._rows.state[slots.HIGH])
        for column in self.shape.codes:
            mark_codes(self._rows.lanes[:high, column], used)

    def recode(self, codes: Int64s) -> None:
        if self._queue is not None:
            self._queue.recode(self.shape.codes, codes)
            return
        self._own()
        high = int(self._rows.state[slots.HIGH])
        for column in self.shape.codes:
            self._rows.lanes[:high, column] = codes[self._rows.lanes[:high, column]]
        if set(self.shape.codes) & set(self.shape.keys) and self._rows.state[slots.INDEXED]:
            self._index(0)

    def _start_boundary(self, timeline: Timeline) -> None:
        """A jumping window by system time begins with the first time that it sees."""
        if self.policy.kind < k.TIME_JUMPING or self.policy.by_event or not len(timeline.time_us):
            return
        if self._rows.state[slots.BOUNDARY] == slots.UNSET:
            k.boundary_passed(self._rows.state, self.policy, np.int64(timeline.time_us[0]))

    def _own(self) -> None:
        """Stop sharing with snapshots that are still being written."""
        if any(ref() is not None for ref in self._twins):
            rows = self._rows
            self._rows = rows._replace(lanes=rows.lanes.copy(), valid=rows.valid.copy(), meta=rows.meta.copy())
        self._twins = []

    def _room(self, outputs: int, count: int, counts: Int64s) -> k.Output:
        """Where the kernel writes; kept from call to call, because fresh memory is slow to touch."""
        out = self._scratch
        if len(out.made) <= outputs or len(out.refused) < count:
            self._scratch = out = _output(2 * outputs + 1, 2 * count)
        counts[[k.MADE, k.FREED, k.REFUSED]] = 0
        counts[k.ROOM] = outputs
        return out._replace(counts=counts)

    def _fresh(self, count: int) -> k.Rows:
        capacity = max(64, count)
        state = np.zeros(slots.STATE_WIDTH, np.int64)
        state[[slots.FIRST, slots.LAST]] = -1
        state[[slots.NEWEST, slots.BOUNDARY]] = slots.UNSET
        state[slots.INDEXED] = 1 - self.policy.new_keys
        heap_capacity = capacity if self.policy.by_event else 0
        return k.Rows(
            table=np.zeros(_table_length(0), np.uint64),
            lanes=np.zeros((capacity, self.shape.width), np.int64),
            valid=np.zeros((capacity, self.shape.width), np.bool_),
            meta=np.zeros((capacity, slots.META_WIDTH), np.int64),
            free=np.empty(capacity, np.int64),
            heap=np.empty((heap_capacity, 2), np.int64),
            state=state,
            keys=self._keys,
        )

    def _reserve(self, count: int) -> None:
        """Room for `count` more rows and versions."""
        rows, state = self._rows, self._rows.state
        need = int(state[slots.HIGH]) + max(0, count - int(state[slots.FREE]))
        if need > len(rows.meta):
            capacity = max(need, 2 * len(rows.meta))
            heap = capacity if self.policy.by_event else 0
            self._rows = rows = rows._replace(
                lanes=_grown(rows.lanes, capacity),
                valid=_grown(rows.valid, capacity),
                meta=_grown(rows.meta, capacity),
                free=_grown(rows.free, capacity),
                heap=_grown(rows.heap, heap),
            )
        if state[slots.INDEXED] and 2 * (self.live + count) > len(rows.table):
            self._index(self.live + 2 * count)

    def _index(self, more: int) -> None:
        """Fill the table, with room for `more` rows."""
        self._rows = self._rows._replace(table=np.zeros(_table_length(self.live + more), np.uint64))
        self._rows.state[slots.INDEXED] = 1
        k.fill_table(self._rows)


def _grown(array: npt.NDArray[Any], capacity: int) -> npt.NDArray[Any]:
    larger = np.zeros((capacity, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


def _table_length(rows: int) -> int:
    """A power of two that leaves the table at most half full."""
    length = 128
    while length < 2 * rows:
        length *= 2
    return length


def _output(outputs: int, count: int) -> k.Output:
    return k.Output(
        made=np.empty((outputs, 5), np.int64),
        freed=np.empty(outputs, np.int64),
        refused=np.empty((count, 2), np.int64),
        counts=np.zeros(k.COUNTS_WIDTH, np.int64),
    )


def _next_rank(given: k.Input, counts: Int64s) -> int:
    """The rank at which `relate` goes on: all that lower ones cause is made."""
    if counts[k.LEAVING] != k.LEAVE_NONE:
        return int(counts[k.CAUSE])
    return next_rank(given.rank, given.beats, int(counts[k.ROW]), int(counts[k.BEAT]))


def _resolution(out: k.Output) -> Resolution:
    outputs, freed, refused = out.counts[: k.REFUSED + 1].tolist()
    return Resolution(
        made=out.made[:outputs],
        refused_row=out.refused[:refused, 0].copy(),
        refused_why=out.refused[:refused, 1].copy(),
        freed=out.freed[:freed],
    )
