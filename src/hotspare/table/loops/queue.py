"""Loops of a relation whose rows are removed in order of arrival: a ring of rows, without table, list or free slots.

Positions count the rows that ever arrived; the row at position p is in slot p modulo the capacity. No row of the current batch is
overwritten, so outputs are runs of positions, and their values are copied run by run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hotspare.rows.chunk import Bools, Chunk, Int64s, UInt8s
from hotspare.rows.compile import Whole, kernel
from hotspare.table.loops.relation import (
    COUNT_JUMPING,
    COUNT_SLIDING,
    DELETE,
    INSERT,
    KEEP,
    REFUSED_KEY_UNKNOWN,
    REFUSED_NULL_KEY,
    RETENTION,
    SAFE_DELETE,
    TIME_JUMPING,
    TIME_SLIDING,
    Policy,
    boundary_passed,
    whole_flags,
)
from hotspare.table.loops.slots import FIRST, LAST, NONE, UNSET

POSITION, COUNT, ROW, RANK = 0, 1, 2, 3
"""Columns of runs: the position of the first row; the count of rows; the first input row that causes them, or -1 if retention
removes the rows; in that case, the rank that causes the removal."""
RUN_WIDTH = 4
RUNS, MADE, TAKEN, BEAT, ROOM, LEAVING, CAUSE, REFUSED = 0, 1, 2, 3, 4, 5, 6, 7
"""Entries of counts: runs, outputs in them, input rows applied, heartbeats applied; the most outputs; the count of the oldest rows
still to be removed, and the rank that causes the removal; input rows refused."""
COUNTS_WIDTH = 8
_NO_RANK = np.int64(2**63 - 1)


class Ring(NamedTuple):
    """A ring of rows. `lanes` and `valid` are flat, row after row, with `width` entries each. `times`: microseconds by row; empty
    if retention is not by time. `keys`: the columns of the key.

    `state` has the entries of `table.loops.slots`: FIRST is the position of the oldest row, LAST one past that of the newest.
    """

    lanes: Int64s
    valid: Bools
    times: Int64s
    keys: Int64s
    state: Int64s
    width: int
    capacity: int


class QueueArrays(NamedTuple):
    """A chunk with the heartbeats of its batch. `lanes` and `valid` are flat, row after row. `time`: microseconds by row, if
    retention is by time; `beats` int64[., 2]: rank and time of each heartbeat.
    """

    rank: Int64s
    opcode: UInt8s
    flags: UInt8s
    lanes: Int64s
    valid: Bools
    time: Int64s
    beats: Int64s


@kernel
def copy_lanes(source: Int64s, begin: Whole, target: Int64s, at: Whole, size: Whole) -> None:
    b, t = np.uint64(begin), np.uint64(at)
    for i in range(np.uint64(size)):
        target[t + i] = source[b + i]


@kernel
def copy_valid(source: Bools, begin: Whole, target: Bools, at: Whole, size: Whole) -> None:
    b, t = np.uint64(begin), np.uint64(at)
    for i in range(np.uint64(size)):
        target[t + i] = source[b + i]


@kernel
def keys_valid(ring: Ring, given: QueueArrays, row: Whole) -> bool:
    begin = np.uint64(row * ring.width)
    every = True
    for k in range(len(ring.keys)):
        every &= given.valid[begin + np.uint64(ring.keys[k])]
    return every


@kernel
def is_key_in(ring: Ring, slot: Whole, given: QueueArrays, row: Whole) -> bool:
    """Whether the row in a slot has the key of an input row."""
    stored = np.uint64(slot * ring.width)
    begin = np.uint64(row * ring.width)
    same = True
    for k in range(len(ring.keys)):
        key = np.uint64(ring.keys[k])
        same &= ring.lanes[stored + key] == given.lanes[begin + key]
    return same


@kernel
def inserts_from(ring: Ring, given: QueueArrays, row: Whole, rank_max: Whole, most: Whole) -> Whole:
    """Returns the count of consecutive inserts without null keys from input row `row` on: at most `most`, and with ranks up to
    `rank_max`.
    """
    at, end = row, min(np.int64(len(given.rank)), row + most)
    while at < end and given.rank[at] <= rank_max and given.opcode[at] == INSERT and keys_valid(ring, given, at):
        at += 1
    return at - row


@kernel
def deletes_from(ring: Ring, given: QueueArrays, row: Whole, rank_max: Whole) -> Whole:
    """Returns the count of consecutive deletes from input row `row` on that delete the oldest rows one after the other, with ranks
    up to `rank_max`.
    """
    at, left = row, ring.state[LAST] - ring.state[FIRST]
    slot = ring.state[FIRST] % ring.capacity
    while at < len(given.rank) and given.rank[at] <= rank_max and DELETE <= given.opcode[at] <= SAFE_DELETE:
        if left == 0 or not keys_valid(ring, given, at) or not is_key_in(ring, slot, given, at):
            break
        at += 1
        left -= 1
        slot = slot + 1 if slot + 1 < ring.capacity else 0
    return at - row


@kernel
def append(ring: Ring, given: QueueArrays, row: Whole, count: Whole) -> None:
    """Appends `count` input rows from `row` on to the ring, which must have room."""
    slot = ring.state[LAST] % ring.capacity
    first = min(count, ring.capacity - slot)
    width = ring.width
    copy_lanes(given.lanes, row * width, ring.lanes, slot * width, first * width)
    copy_valid(given.valid, row * width, ring.valid, slot * width, first * width)
    copy_lanes(given.lanes, (row + first) * width, ring.lanes, 0, (count - first) * width)
    copy_valid(given.valid, (row + first) * width, ring.valid, 0, (count - first) * width)
    if len(ring.times) > 0:
        copy_lanes(given.time, row, ring.times, slot, first)
        copy_lanes(given.time, row + first, ring.times, 0, count - first)
    ring.state[LAST] += count


@kernel
def append_run(runs: Int64s, counts: Int64s, position: Whole, count: Whole, row: Whole, rank: Whole) -> None:
    at = counts[RUNS]
    runs[at, POSITION] = position
    runs[at, COUNT] = count
    runs[at, ROW] = row
    runs[at, RANK] = rank
    counts[RUNS] += 1
    counts[MADE] += count


@kernel
def count_older(ring: Ring, edge: Whole, limit: Whole) -> Whole:
    """Returns the count of consecutive rows, from the oldest on, whose times are `limit` or more before `edge`."""
    count, live = np.int64(0), ring.state[LAST] - ring.state[FIRST]
    slot = ring.state[FIRST] % ring.capacity
    while count < live and edge - ring.times[slot] >= limit:
        count += 1
        slot = slot + 1 if slot + 1 < ring.capacity else 0
    return np.int64(count)


@kernel
def count_expired(ring: Ring, policy: Policy, now: Whole, came: Whole) -> Whole:
    """Returns the count of the oldest rows that expire after a row arrived (`came` is 1) or at a heartbeat at the time `now`."""
    live = np.int64(ring.state[LAST] - ring.state[FIRST])
    if policy.kind == KEEP:
        return np.int64(0)
    if policy.kind == COUNT_SLIDING:
        return max(np.int64(0), live - policy.limit)
    if policy.kind == COUNT_JUMPING:
        return live - came if live > policy.limit else np.int64(0)
    if came == 1:
        return np.int64(0)
    if policy.kind == TIME_SLIDING:
        return count_older(ring, now, policy.limit)
    passed = boundary_passed(ring.state, policy, now)
    if passed == UNSET:
        return np.int64(0)
    return live if policy.kind == TIME_JUMPING else count_older(ring, passed, policy.limit)


@kernel
def count_evicted_for_insert(ring: Ring, policy: Policy) -> Whole:
    """Returns the count of the oldest rows that retention by count evicts before a row that is about to arrive."""
    live = np.int64(ring.state[LAST] - ring.state[FIRST])
    if live < policy.limit:
        return np.int64(0)
    return live + 1 - policy.limit if policy.kind == COUNT_SLIDING else live


@kernel
def evict_pending(ring: Ring, runs: Int64s, counts: Int64s) -> None:
    """Continues the current removal of the oldest rows, as far as outputs have room."""
    count = min(counts[LEAVING], counts[ROOM] - counts[MADE])
    if count > 0:
        append_run(runs, counts, ring.state[FIRST], count, -1, counts[CAUSE])
        ring.state[FIRST] += count
        counts[LEAVING] -= count


@kernel
def is_ignored_row(ring: Ring, policy: Policy, given: QueueArrays, row: Whole, refused: Int64s, counts: Int64s) -> bool:
    """Whether an input row changes nothing: its key is null, or it deletes a row that is known not to be stored (`in_order`).
    Refuses the row if that is an error."""
    opcode, why = given.opcode[row], NONE
    if opcode != INSERT and not DELETE <= opcode <= SAFE_DELETE:
        return False
    if not keys_valid(ring, given, row):
        why = REFUSED_NULL_KEY
    elif opcode == INSERT or policy.in_order == 0:
        return False
    elif opcode == DELETE and policy.kind == KEEP:
        why = REFUSED_KEY_UNKNOWN
    if why >= 0:
        refused[counts[REFUSED], 0] = row
        refused[counts[REFUSED], 1] = why
        counts[REFUSED] += 1
    return True


@kernel
def resolve_in_order(ring: Ring, policy: Policy, given: QueueArrays, runs: Int64s, refused: Int64s, counts: Int64s) -> None:
    """Applies a chunk and the heartbeats of its batch, in order of rank. Stops at a row that breaks the order of removal, or if the
    outputs have no room; the ring has room for all rows.

    `runs` int64[., 4]: the outputs as runs, columns POSITION to RANK. `refused` int64[., 2]: input row and REFUSED_ number.
    `counts`: the progress, zeros at first except ROOM.
    """
    row, beat = np.int64(counts[TAKEN]), np.int64(counts[BEAT])
    evict_pending(ring, runs, counts)
    while counts[MADE] < counts[ROOM] and (row < len(given.rank) or beat < len(given.beats)):
        rank_max = given.beats[beat, 0] if beat < len(given.beats) else _NO_RANK
        if row == len(given.rank) or rank_max < given.rank[row]:
            counts[LEAVING], counts[CAUSE] = count_expired(ring, policy, given.beats[beat, 1], 0), rank_max
            beat += 1
            evict_pending(ring, runs, counts)
            continue
        by_count = policy.kind == COUNT_SLIDING or policy.kind == COUNT_JUMPING
        count = inserts_from(ring, given, row, rank_max, np.int64(1) if by_count else counts[ROOM] - counts[MADE])
        if count > 0:
            if by_count and policy.evicts_first == 1:
                counts[LEAVING], counts[CAUSE] = count_evicted_for_insert(ring, policy), given.rank[row]
                evict_pending(ring, runs, counts)
                if counts[LEAVING] > 0:
                    break
            append_run(runs, counts, ring.state[LAST], count, row, 0)
            append(ring, given, row, count)
            if by_count and policy.evicts_first == 0:
                counts[LEAVING], counts[CAUSE] = count_expired(ring, policy, 0, 1), given.rank[row]
                evict_pending(ring, runs, counts)
        else:
            count = min(deletes_from(ring, given, row, rank_max), counts[ROOM] - counts[MADE])
            if count == 0:
                if not is_ignored_row(ring, policy, given, row, refused, counts):
                    break
                row += 1
                continue
            append_run(runs, counts, ring.state[FIRST], count, row, 0)
            ring.state[FIRST] += count
        row += count
    counts[TAKEN], counts[BEAT] = row, beat


class QueueOutputs(NamedTuple):
    """The arrays of a chunk of outputs. `lanes` and `valid` are flat, row after row."""

    rank: Int64s
    opcode: UInt8s
    flags: UInt8s
    lanes: Int64s
    valid: Bools

    @classmethod
    def empty(cls, rows: int, width: int) -> QueueOutputs:
        lanes, valid = np.empty(rows * width, np.int64), np.empty(rows * width, np.bool_)
        return cls(np.empty(rows, np.int64), np.empty(rows, np.uint8), np.empty(rows, np.uint8), lanes, valid)

    def chunk(self, rows: int, width: int) -> Chunk:
        """Returns the first `rows` rows, of `width` lanes."""
        rank, opcode, flags, lanes, valid = self
        if rows < len(rank):  # some rows are refused
            rank, opcode, flags = rank[:rows], opcode[:rows], flags[:rows]
            lanes, valid = lanes[: rows * width], valid[: rows * width]
        return Chunk(rank, opcode, flags, lanes.reshape(rows, width), valid.reshape(rows, width), is_whole=True)


@kernel
def write_out(ring: Ring, given: QueueArrays, runs: Int64s, count: Whole, out: QueueOutputs) -> None:
    """Writes the outputs of `count` runs to `out`."""
    to, width, rank, opcode, flags = np.int64(0), ring.width, out.rank, out.opcode, out.flags
    for run in range(count):
        size, row = runs[run, COUNT], runs[run, ROW]
        slot = runs[run, POSITION] % ring.capacity
        first = min(size, ring.capacity - slot)
        copy_lanes(ring.lanes, slot * width, out.lanes, to * width, first * width)
        copy_valid(ring.valid, slot * width, out.valid, to * width, first * width)
        copy_lanes(ring.lanes, 0, out.lanes, (to + first) * width, (size - first) * width)
        copy_valid(ring.valid, 0, out.valid, (to + first) * width, (size - first) * width)
        for i in range(size):
            if row < 0:
                rank[to + i], opcode[to + i], flags[to + i] = runs[run, RANK], DELETE, RETENTION
            else:
                at = row + i
                rank[to + i], flags[to + i] = given.rank[at], whole_flags(given.flags[at])
                opcode[to + i] = INSERT if given.opcode[at] == INSERT else DELETE
        to += size


@kernel
def resolve_and_write(
    ring: Ring, policy: Policy, given: QueueArrays, runs: Int64s, refused: Int64s, counts: Int64s, out: QueueOutputs
) -> None:
    """Does the work of `resolve_in_order`, and then, if `out` has room for all outputs, that of `write_out`."""
    resolve_in_order(ring, policy, given, runs, refused, counts)
    if counts[MADE] <= len(out.rank):
        write_out(ring, given, runs, counts[RUNS], out)
