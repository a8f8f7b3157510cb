"""Rows that leave in the order in which they came: how a relation is kept as long as that holds (see `engine.relation`).

A snapshot shares the ring. Rows that come later go into other slots, so nothing is copied before the ring has come round to rows
that a snapshot still needs.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hotspare.engine.kernels import queue as k
from hotspare.engine.kernels import slots
from hotspare.engine.kernels.interning import mark_codes
from hotspare.engine.kernels.relation import TIME_SLIDING, Policy
from hotspare.engine.rows.chunk import Bools, Chunk, Int64s

_CAPACITY_MIN = 64


@dataclass(frozen=True, slots=True)
class Taken:
    """What came of a chunk up to its first `rows` rows and the first `beats` heartbeats; `is_all`: there are no more.

    `until`: where there was no room for more, the rank at which to go on.
    """

    chunk: Chunk
    rows: int
    beats: int
    is_all: bool
    until: int | None


class RowQueue:
    """Rows of `width` lanes in order of arrival. `state`: the entries of `kernels.slots` that a snapshot has."""

    def __init__(self, width: int, keys: Int64s, policy: Policy, state: Int64s, rows: int) -> None:
        self._policy = policy
        self._twins: list[weakref.ref[RowQueue]] = []
        self._runs = np.empty((0, k.RUN_WIDTH), np.int64)
        state[[slots.FIRST, slots.LAST]] = 0
        self._ring = _ring(width, keys, policy, state, _capacity(rows))

    @property
    def live(self) -> int:
        return int(self._ring.state[slots.LAST] - self._ring.state[slots.FIRST])

    @property
    def state(self) -> Int64s:
        return self._ring.state

    def take(self, chunk: Chunk, time_us: Int64s, beats: Int64s, counts: Int64s, rows_max: int) -> Taken:
        """Take rows, for which there is room (`reserve`), and heartbeats in order of rank, up to a row that cannot be taken: one
        that is neither an insert nor a delete of the oldest row, or has no key. `time_us`: per row, where retention goes by time.

        Makes at most `rows_max` outputs; `counts`, zeros at first, keeps how far it came, to be called again with the rest.
        """
        ring, count = self._ring, len(chunk)
        given = k.Given(chunk.rank, chunk.opcode, chunk.flags, chunk.lanes.reshape(-1), chunk.valid.reshape(-1), time_us, beats)
        if len(self._runs) <= 2 * count + len(beats):
            self._runs = np.empty((2 * (2 * count + len(beats)) + 1, k.RUN_WIDTH), np.int64)
        counts[[k.RUNS, k.MADE]] = 0
        counts[k.ROOM] = rows_max
        k.take(ring, self._policy, given, self._runs, counts)
        runs, made, row, beat = counts[: k.BEAT + 1].tolist()
        rank, opcode, flags = np.empty(made, np.int64), np.empty(made, np.uint8), np.empty(made, np.uint8)
        lanes, valid = np.empty(made * ring.width, np.int64), np.empty(made * ring.width, np.bool_)
        k.write_out(ring, given, self._runs, runs, rank, opcode, flags, lanes, valid)
        out = Chunk(rank, opcode, flags, lanes.reshape(made, ring.width), valid.reshape(made, ring.width))
        if counts[k.LEAVING]:
            return Taken(out, row, beat, is_all=False, until=int(counts[k.CAUSE]))
        if row == count and beat == len(beats):
            return Taken(out, row, beat, is_all=True, until=None)
        return Taken(out, row, beat, is_all=False, until=next_rank(chunk.rank, beats, row, beat) if made >= rows_max else None)

    def freeze(self) -> RowQueue:
        twin = RowQueue.__new__(RowQueue)
        twin._policy, twin._twins, twin._runs = self._policy, [], self._runs
        twin._ring = self._ring._replace(state=self._ring.state.copy())
        self._twins = [ref for ref in self._twins if ref() is not None]
        self._twins.append(weakref.ref(twin))
        return twin

    @property
    def first(self) -> int:
        """How many rows came before the oldest."""
        return int(self._ring.state[slots.FIRST])

    @property
    def last(self) -> int:
        """How many rows ever came."""
        return int(self._ring.state[slots.LAST])

    def rows(self, begin: int, end: int) -> tuple[Int64s, Bools, Int64s]:
        """Copies of (lanes int64[n, width], valid bool[n, width], times int64[n], empty without), oldest first: of the rows that
        came as number `begin` to before `end`, which are there."""
        ring = self._ring
        where = _slices(ring, begin, end - begin)
        lanes, valid = ring.lanes.reshape(-1, ring.width), ring.valid.reshape(-1, ring.width)
        times = [ring.times[part] for part in where] if len(ring.times) else [ring.times]
        return np.concatenate([lanes[p] for p in where]), np.concatenate([valid[p] for p in where]), np.concatenate(times)

    def load(self, lanes: Int64s, valid: Bools, times: Int64s, first: int) -> None:
        """Fill one that is empty and has room. `first`: how many rows came before these."""
        count, ring, done = len(lanes), self._ring, 0
        for part in _slices(ring, first, count):
            source = slice(done, done + part.stop - part.start)
            done = source.stop
            ring.lanes.reshape(-1, ring.width)[part] = lanes[source]
            ring.valid.reshape(-1, ring.width)[part] = valid[source]
            if len(ring.times):
                ring.times[part] = times[source]
        ring.state[slots.FIRST], ring.state[slots.LAST] = first, first + count

    def mark(self, columns: tuple[int, ...], used: Bools) -> None:
        for lanes in self._parts():
            for column in columns:
                mark_codes(lanes[:, column], used)

    def recode(self, columns: tuple[int, ...], codes: Int64s) -> None:
        if columns and self._sharing():
            self._renew(self._ring.capacity)
        for lanes in self._parts():
            for column in columns:
                lanes[:, column] = codes[lanes[:, column]]

    def _parts(self) -> list[Int64s]:
        ring = self._ring
        lanes = ring.lanes.reshape(-1, ring.width)
        return [lanes[part] for part in _slices(ring, int(ring.state[slots.FIRST]), self.live)]

    def _sharing(self) -> list[RowQueue]:
        """Snapshots that are still read from this ring."""
        alive = [twin for twin in (ref() for ref in self._twins) if twin is not None]
        return [twin for twin in alive if twin.live and twin._ring.lanes is self._ring.lanes]

    def reserve(self, count: int) -> None:
        """Make room for `count` more rows beside those that somebody needs."""
        floor = min(int(each.state[slots.FIRST]) for each in (self, *self._sharing()))
        if int(self.state[slots.LAST]) + count > floor + self._ring.capacity:
            need = self.live + count
            self._renew(self._ring.capacity if need <= self._ring.capacity else _capacity(need))

    def _renew(self, capacity: int) -> None:
        """Move to a ring of one's own."""
        old = self._ring
        first, live = int(old.state[slots.FIRST]), self.live
        new = _ring(old.width, old.keys, self._policy, old.state, capacity)
        for part in _slices(old, first, live):
            at = _slices(new, first, part.stop - part.start)
            first += part.stop - part.start
            done = part.start
            for to in at:
                source = slice(done, done + to.stop - to.start)
                done = source.stop
                new.lanes.reshape(-1, new.width)[to] = old.lanes.reshape(-1, old.width)[source]
                new.valid.reshape(-1, new.width)[to] = old.valid.reshape(-1, old.width)[source]
                if len(new.times):
                    new.times[to] = old.times[source]
        self._ring = new


def next_rank(rank: Int64s, beats: Int64s, row: int, beat: int) -> int:
    """The lower rank of the next row and the next heartbeat, of which there is one at least."""
    ranks = (*rank[row : row + 1].tolist(), *beats[beat : beat + 1, 0].tolist())
    return int(min(ranks))


def _ring(width: int, keys: Int64s, policy: Policy, state: Int64s, capacity: int) -> k.Ring:
    lanes: npt.NDArray[np.int64] = np.empty(capacity * width, np.int64)
    times = np.empty(capacity if policy.kind >= TIME_SLIDING else 0, np.int64)
    return k.Ring(lanes, np.empty(capacity * width, np.bool_), times, keys, state, width, capacity)


def _capacity(rows: int) -> int:
    """Half as many rows more, so that growing is rare; not twice as many, because the ring comes round through all its memory."""
    return max(_CAPACITY_MIN, rows + rows // 2)


def _slices(ring: k.Ring, position: int, count: int) -> list[slice]:
    """The slots of `count` positions from `position` on, in order."""
    slot = position % ring.capacity
    first = min(count, ring.capacity - slot)
    return [slice(slot, slot + first), slice(0, count - first)]
