"""Loops of a keyed relation: resolving opcodes against what is stored (SPEC A8-A13), and forgetting by retention (A19-A23).

Rows live in slots. A version of a row is never overwritten: an update takes a new slot, and slots given up in a batch are used
again only in the next one. So an output is a slot number, and the values are gathered afterwards.

Three structures hold slots, all of them derived from the rows in order:
  table  open addressing with linear probing; an entry is the low half of the key's hash and slot + 1, 0 where empty
  list   doubly linked, in order of arrival
  heap   by (event time, arrival), only where retention goes by event time
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hotspare.engine.chunk import Bools, Int64s, UInt8s
from hotspare.engine.kernels import Whole, kernel
from hotspare.engine.kernels.hashing import mix

UInt64s = npt.NDArray[np.uint64]

NEXT, PREV, TIME, ORDER = 0, 1, 2, 3
"""Columns of `Rows.meta`: neighbours in the list (-1: none), time that retention counts from, number of arrival."""
META_WIDTH = 4

LIVE, FIRST, LAST, FREE, HIGH, ARRIVALS, HEAPED, NEWEST, BOUNDARY = 0, 1, 2, 3, 4, 5, 6, 7, 8
"""Entries of `Rows.state`: rows stored; ends of the list; free slots on the stack; slots ever used; arrivals so far; size of the
heap; newest event time seen; next boundary of a jumping window."""
STATE_WIDTH = 9
UNSET = -(2**63)
"""NEWEST and BOUNDARY before there is any."""

KEEP, COUNT_SLIDING, COUNT_JUMPING, TIME_SLIDING, TIME_JUMPING, TIME_LOOKBACK = 0, 1, 2, 3, 4, 5
"""Kinds of retention; KEEP forgets nothing."""

REFUSED_NULL_KEY, REFUSED_NULL_TIME, REFUSED_KEY_EXISTS, REFUSED_KEY_UNKNOWN = 0, 1, 2, 3
"""Why a row was refused."""

INSERT, UPDATE, UPSERT, DELETE, SAFE_DELETE, UPDATE_BLOCK = 1, 2, 3, 4, 5, 6
NORMAL, PARTIAL, RETENTION = 1, 2, 4
"""Opcodes and flags as in model.events, which a kernel cannot read."""
NOT_PARTIAL = 255 - PARTIAL


class Rows(NamedTuple):
    """What is stored. `lanes`, `valid`, `meta` by slot; `free` is a stack; `heap_at` is a slot's place in `heap`."""

    table: UInt64s
    lanes: Int64s
    valid: Bools
    meta: Int64s
    free: Int64s
    heap: Int64s
    heap_at: Int64s
    state: Int64s
    keys: Int64s


class Policy(NamedTuple):
    """Retention. `unit` is the step of boundaries; `by_event` is 1 where time comes from a field, 0 for system time."""

    kind: int
    limit: int
    unit: int
    by_event: int


class Input(NamedTuple):
    """A chunk, with the time of each row (`time_valid` False: null), and the heartbeats of its batch."""

    rank: Int64s
    opcode: UInt8s
    flags: UInt8s
    lanes: Int64s
    valid: Bools
    time: Int64s
    time_valid: Bools
    beat_rank: Int64s
    beat_time: Int64s


class Output(NamedTuple):
    """What came of it, as far as `counts` says: [outputs, slots given up, rows refused].

    `slot` is where an output's values are; `source` the input row that made it, -1 for rows that leave.
    """

    rank: Int64s
    opcode: UInt8s
    flags: UInt8s
    slot: Int64s
    source: Int64s
    freed: Int64s
    refused_row: Int64s
    refused_why: Int64s
    counts: Int64s


@kernel
def key_hash(lanes: Int64s, row: Whole, keys: Int64s) -> np.uint64:
    """Hash of a row's key. The last three bits of the last lane pass through, so that neighbouring numbers share a cache line."""
    h = np.uint64(0)
    last = len(keys) - 1
    for k in range(last):
        h = mix(h ^ np.uint64(lanes[row, keys[k]]))
    value = np.uint64(lanes[row, keys[last]])
    h = mix(h ^ (value >> np.uint64(3)))
    return (h << np.uint64(3)) | (value & np.uint64(7))


@kernel
def find(rows: Rows, lanes: Int64s, row: Whole, h: np.uint64) -> Whole:
    """The slot that holds the key of `lanes[row]`, or -1."""
    mask = np.int64(len(rows.table) - 1)
    half = h & np.uint64(0xFFFFFFFF)
    at = np.int64(half) & mask
    while rows.table[at] != np.uint64(0):
        entry = rows.table[at]
        if entry >> np.uint64(32) == half:
            slot = np.int64(entry & np.uint64(0xFFFFFFFF)) - 1
            same = True
            for k in range(len(rows.keys)):
                if rows.lanes[slot, rows.keys[k]] != lanes[row, rows.keys[k]]:
                    same = False
            if same:
                return slot
        at = (at + 1) & mask
    return np.int64(-1)


@kernel
def table_put(rows: Rows, h: np.uint64, slot: Whole) -> None:
    mask = np.int64(len(rows.table) - 1)
    half = h & np.uint64(0xFFFFFFFF)
    at = np.int64(half) & mask
    while rows.table[at] != np.uint64(0):
        at = (at + 1) & mask
    rows.table[at] = (half << np.uint64(32)) | np.uint64(slot + 1)


@kernel
def table_place(rows: Rows, slot: Whole) -> Whole:
    """Where in the table the entry of a stored slot stands."""
    mask = np.int64(len(rows.table) - 1)
    half = key_hash(rows.lanes, slot, rows.keys) & np.uint64(0xFFFFFFFF)
    entry = (half << np.uint64(32)) | np.uint64(slot + 1)
    at = np.int64(half) & mask
    while rows.table[at] != entry:
        at = (at + 1) & mask
    return at


@kernel
def table_drop(rows: Rows, slot: Whole) -> None:
    """Remove a slot's entry and close the gap, so that no probe ever meets a tombstone."""
    mask = np.int64(len(rows.table) - 1)
    hole = table_place(rows, slot)
    at = (hole + 1) & mask
    while rows.table[at] != np.uint64(0):
        home = np.int64(rows.table[at] >> np.uint64(32)) & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            rows.table[hole] = rows.table[at]
            hole = at
        at = (at + 1) & mask
    rows.table[hole] = np.uint64(0)


@kernel
def link_last(rows: Rows, slot: Whole) -> None:
    last = rows.state[LAST]
    rows.meta[slot, NEXT] = -1
    rows.meta[slot, PREV] = last
    rows.meta[slot, ORDER] = rows.state[ARRIVALS]
    rows.state[ARRIVALS] += 1
    if last < 0:
        rows.state[FIRST] = slot
    else:
        rows.meta[last, NEXT] = slot
    rows.state[LAST] = slot


@kernel
def unlink(rows: Rows, slot: Whole) -> None:
    before = rows.meta[slot, PREV]
    after = rows.meta[slot, NEXT]
    if before < 0:
        rows.state[FIRST] = after
    else:
        rows.meta[before, NEXT] = after
    if after < 0:
        rows.state[LAST] = before
    else:
        rows.meta[after, PREV] = before


@kernel
def link_instead(rows: Rows, old: Whole, new: Whole) -> None:
    """Put `new` where `old` stands in the list."""
    before = rows.meta[old, PREV]
    after = rows.meta[old, NEXT]
    rows.meta[new, PREV] = before
    rows.meta[new, NEXT] = after
    rows.meta[new, ORDER] = rows.meta[old, ORDER]
    if before < 0:
        rows.state[FIRST] = new
    else:
        rows.meta[before, NEXT] = new
    if after < 0:
        rows.state[LAST] = new
    else:
        rows.meta[after, PREV] = new


@kernel
def earlier(rows: Rows, a: Whole, b: Whole) -> bool:
    """Whether slot a leaves before slot b."""
    if rows.meta[a, TIME] != rows.meta[b, TIME]:
        return bool(rows.meta[a, TIME] < rows.meta[b, TIME])
    return bool(rows.meta[a, ORDER] < rows.meta[b, ORDER])


@kernel
def heap_sift(rows: Rows, at: Whole) -> None:
    """Move the entry at `at` up or down to where it belongs."""
    slot = rows.heap[at]
    while at > 0:
        above = (at - 1) // 2
        if not earlier(rows, slot, rows.heap[above]):
            break
        rows.heap[at] = rows.heap[above]
        rows.heap_at[rows.heap[at]] = at
        at = above
    size = rows.state[HEAPED]
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and earlier(rows, rows.heap[below + 1], rows.heap[below]):
            below += 1
        if not earlier(rows, rows.heap[below], slot):
            break
        rows.heap[at] = rows.heap[below]
        rows.heap_at[rows.heap[at]] = at
        at = below
    rows.heap[at] = slot
    rows.heap_at[slot] = at


@kernel
def heap_push(rows: Rows, slot: Whole) -> None:
    at = rows.state[HEAPED]
    rows.state[HEAPED] += 1
    rows.heap[at] = slot
    heap_sift(rows, at)


@kernel
def heap_drop(rows: Rows, slot: Whole) -> None:
    at = rows.heap_at[slot]
    rows.state[HEAPED] -= 1
    last = rows.heap[rows.state[HEAPED]]
    if last != slot:
        rows.heap[at] = last
        heap_sift(rows, at)


@kernel
def emit(out: Output, rank: Whole, opcode: int, flags: Whole, slot: Whole, source: Whole) -> None:
    at = out.counts[0]
    out.rank[at] = rank
    out.opcode[at] = opcode
    out.flags[at] = flags
    out.slot[at] = slot
    out.source[at] = source
    out.counts[0] = at + 1


@kernel
def refuse(out: Output, row: Whole, why: int) -> None:
    at = out.counts[2]
    out.refused_row[at] = row
    out.refused_why[at] = why
    out.counts[2] = at + 1


@kernel
def give_up(rows: Rows, out: Output, policy: Policy, slot: Whole) -> None:
    """Take a stored row out of list, table and heap; its values stay readable until the next batch."""
    unlink(rows, slot)
    table_drop(rows, slot)
    if policy.by_event == 1:
        heap_drop(rows, slot)
    rows.state[LIVE] -= 1
    out.freed[out.counts[1]] = slot
    out.counts[1] += 1


@kernel
def expel(rows: Rows, out: Output, policy: Policy, slot: Whole, rank: Whole) -> None:
    give_up(rows, out, policy, slot)
    emit(out, rank, DELETE, RETENTION, slot, -1)


@kernel
def take_slot(rows: Rows) -> Whole:
    if rows.state[FREE] > 0:
        rows.state[FREE] -= 1
        return np.int64(rows.free[rows.state[FREE]])
    rows.state[HIGH] += 1
    return np.int64(rows.state[HIGH] - 1)


@kernel
def write_row(rows: Rows, slot: Whole, chunk: Input, i: Whole) -> None:
    for j in range(rows.lanes.shape[1]):
        rows.lanes[slot, j] = chunk.lanes[i, j]
        rows.valid[slot, j] = chunk.valid[i, j]
    rows.meta[slot, TIME] = chunk.time[i]


@kernel
def whole_flags(flags: Whole) -> Whole:
    """Flags of an output whose row is whole: without PARTIAL, and never none."""
    flags = np.int64(flags & NOT_PARTIAL)
    return flags if flags != 0 else np.int64(NORMAL)


@kernel
def insert_row(rows: Rows, out: Output, policy: Policy, chunk: Input, i: Whole, h: np.uint64) -> None:
    slot = take_slot(rows)
    write_row(rows, slot, chunk, i)
    link_last(rows, slot)
    table_put(rows, h, slot)
    if policy.by_event == 1:
        heap_push(rows, slot)
    rows.state[LIVE] += 1
    emit(out, chunk.rank[i], INSERT, whole_flags(chunk.flags[i]), slot, i)


@kernel
def update_row(rows: Rows, out: Output, policy: Policy, chunk: Input, i: Whole, old: Whole) -> None:
    """The new version takes the old one's place, or the last one where retention goes by time."""
    slot = take_slot(rows)
    write_row(rows, slot, chunk, i)
    if chunk.flags[i] & PARTIAL:
        for j in range(rows.lanes.shape[1]):
            if not rows.valid[slot, j]:
                rows.lanes[slot, j] = rows.lanes[old, j]
                rows.valid[slot, j] = rows.valid[old, j]
    half = rows.table[table_place(rows, old)] >> np.uint64(32)
    rows.table[table_place(rows, old)] = (half << np.uint64(32)) | np.uint64(slot + 1)
    if policy.kind >= TIME_SLIDING:
        unlink(rows, old)
        link_last(rows, slot)
    else:
        link_instead(rows, old, slot)
    if policy.by_event == 1:
        at = rows.heap_at[old]
        rows.heap[at] = slot
        heap_sift(rows, at)
    out.freed[out.counts[1]] = old
    out.counts[1] += 1
    flags = whole_flags(chunk.flags[i])
    emit(out, chunk.rank[i], UPDATE_BLOCK, flags, slot, i)
    emit(out, chunk.rank[i], DELETE, flags, old, -1)


@kernel
def delete_row(rows: Rows, out: Output, policy: Policy, chunk: Input, i: Whole, slot: Whole) -> None:
    if slot >= 0:
        give_up(rows, out, policy, slot)
        emit(out, chunk.rank[i], DELETE, whole_flags(chunk.flags[i]), slot, -1)
    elif chunk.opcode[i] == DELETE and policy.kind == KEEP:
        refuse(out, i, REFUSED_KEY_UNKNOWN)


@kernel
def resolve_row(rows: Rows, out: Output, policy: Policy, chunk: Input, i: Whole) -> bool:
    """Do what one event asks for; whether a row arrived or changed."""
    for k in range(len(rows.keys)):
        if not chunk.valid[i, rows.keys[k]]:
            refuse(out, i, REFUSED_NULL_KEY)
            return False
    opcode = chunk.opcode[i]
    h = key_hash(chunk.lanes, i, rows.keys)
    slot = find(rows, chunk.lanes, i, h)
    if opcode in (DELETE, SAFE_DELETE):
        delete_row(rows, out, policy, chunk, i, slot)
        return False
    if opcode == INSERT and slot >= 0:
        refuse(out, i, REFUSED_KEY_EXISTS)
        return False
    if opcode == UPDATE and slot < 0:
        refuse(out, i, REFUSED_KEY_UNKNOWN)
        return False
    if not chunk.time_valid[i] and not (slot >= 0 and chunk.flags[i] & PARTIAL):
        refuse(out, i, REFUSED_NULL_TIME)
        return False
    if slot < 0:
        insert_row(rows, out, policy, chunk, i, h)
    else:
        if not chunk.time_valid[i]:
            chunk.time[i] = rows.meta[slot, TIME]
        update_row(rows, out, policy, chunk, i, slot)
    return True


@kernel
def expel_before(rows: Rows, out: Output, policy: Policy, edge: Whole, rank: Whole) -> None:
    """Expel what is `limit` or more before `edge`, oldest first."""
    while rows.state[LIVE] > 0:
        slot = rows.heap[0] if policy.by_event == 1 else rows.state[FIRST]
        if edge - rows.meta[slot, TIME] < policy.limit:
            break
        expel(rows, out, policy, slot, rank)


@kernel
def expel_all_but(rows: Rows, out: Output, policy: Policy, keep: Whole, rank: Whole) -> None:
    """Expel every row but slot `keep` (-1: none), in order of arrival."""
    slot = rows.state[FIRST]
    while slot >= 0:
        after = rows.meta[slot, NEXT]
        if slot != keep:
            expel(rows, out, policy, slot, rank)
        slot = after


@kernel
def jump(rows: Rows, out: Output, policy: Policy, now: Whole, keep: Whole, rank: Whole) -> None:
    """Time has come to `now` in a jumping window: expel what a boundary in between ends."""
    if rows.state[BOUNDARY] == UNSET:
        start = now if policy.kind == TIME_JUMPING else now - now % policy.unit
        rows.state[BOUNDARY] = start + policy.unit
    elif now >= rows.state[BOUNDARY]:
        passed = rows.state[BOUNDARY] + (now - rows.state[BOUNDARY]) // policy.unit * policy.unit
        rows.state[BOUNDARY] = passed + policy.unit
        if policy.kind == TIME_JUMPING:
            expel_all_but(rows, out, policy, keep, rank)
        else:
            expel_before(rows, out, policy, passed, rank)


@kernel
def after_row(rows: Rows, out: Output, policy: Policy, rank: Whole) -> None:
    """Retention that a row causes: by count, and by event time. Where time counts, the row that came is the last of the list."""
    if policy.kind == COUNT_SLIDING:
        while rows.state[LIVE] > policy.limit:
            expel(rows, out, policy, rows.state[FIRST], rank)
    elif policy.kind == COUNT_JUMPING:
        if rows.state[LIVE] > policy.limit:
            expel_all_but(rows, out, policy, rows.state[LAST], rank)
    elif policy.by_event == 1:
        came = rows.state[LAST]
        time = rows.meta[came, TIME]
        if time > rows.state[NEWEST]:
            rows.state[NEWEST] = time
        if policy.kind == TIME_SLIDING:
            expel_before(rows, out, policy, rows.state[NEWEST], rank)
        else:
            jump(rows, out, policy, rows.state[NEWEST], came, rank)


@kernel
def on_heartbeat(rows: Rows, out: Output, policy: Policy, now: Whole, rank: Whole) -> None:
    """Retention that system time causes."""
    if policy.by_event == 0:
        if policy.kind == TIME_SLIDING:
            expel_before(rows, out, policy, now, rank)
        elif policy.kind > TIME_SLIDING:
            jump(rows, out, policy, now, -1, rank)


@kernel
def relate(rows: Rows, out: Output, policy: Policy, chunk: Input) -> None:
    """Take a chunk and the heartbeats of its batch, in order of rank. Both `rows` and `out` have room for all that can come."""
    beat = 0
    i = 0
    while i < len(chunk.rank):
        while beat < len(chunk.beat_rank) and chunk.beat_rank[beat] < chunk.rank[i]:
            on_heartbeat(rows, out, policy, chunk.beat_time[beat], chunk.beat_rank[beat])
            beat += 1
        if resolve_row(rows, out, policy, chunk, i):
            after_row(rows, out, policy, chunk.rank[i])
        # the second row of an update block carries old values, which are stored here already
        i += 2 if chunk.opcode[i] == UPDATE_BLOCK else 1
    while beat < len(chunk.beat_rank):
        on_heartbeat(rows, out, policy, chunk.beat_time[beat], chunk.beat_rank[beat])
        beat += 1


@kernel
def follow(meta: Int64s, first: Whole, order: Int64s) -> None:
    """Write the slots of the list to `order`, first to last."""
    slot = first
    for i in range(len(order)):
        order[i] = slot
        slot = meta[slot, NEXT]


@kernel
def fill_table(rows: Rows) -> None:
    """Enter every row of the list into an empty table."""
    slot = rows.state[FIRST]
    while slot >= 0:
        table_put(rows, key_hash(rows.lanes, slot, rows.keys), slot)
        slot = rows.meta[slot, NEXT]


@kernel
def relink(rows: Rows, policy: Policy, count: int) -> None:
    """Make list and heap of slots 0 to count - 1, in that order; the table is filled apart."""
    for slot in range(count):
        link_last(rows, slot)
        if policy.by_event == 1:
            heap_push(rows, slot)
    rows.state[LIVE] = count
    rows.state[HIGH] = count


@kernel
def gather_rows(lanes: Int64s, valid: Bools, slots: Int64s, out_lanes: Int64s, out_valid: Bools) -> None:
    for i in range(len(slots)):
        slot = slots[i]
        for j in range(lanes.shape[1]):
            out_lanes[i, j] = lanes[slot, j]
            out_valid[i, j] = valid[slot, j]
