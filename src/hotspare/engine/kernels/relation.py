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
NONE = np.int64(-1)
"""No slot."""
UNSET = -(2**63)
"""NEWEST and BOUNDARY before there is any."""

KEEP, COUNT_SLIDING, COUNT_JUMPING, TIME_SLIDING, TIME_JUMPING, TIME_LOOKBACK = 0, 1, 2, 3, 4, 5
"""Kinds of retention; KEEP forgets nothing."""

REFUSED_NULL_KEY, REFUSED_NULL_TIME, REFUSED_KEY_EXISTS, REFUSED_KEY_UNKNOWN = (np.int64(why) for why in (0, 1, 2, 3))
"""Why a row was refused."""

INSERT, UPDATE, UPSERT, DELETE, SAFE_DELETE, UPDATE_BLOCK = (np.int64(opcode) for opcode in (1, 2, 3, 4, 5, 6))
NORMAL, PARTIAL, RETENTION, NOT_PARTIAL = (np.int64(flag) for flag in (1, 2, 4, 255 - 2))
"""Opcodes and flags as in model.events. They are not plain numbers, for which numba would compile each call anew."""

RANK, OPCODE, FLAGS, SLOT, SOURCE = 0, 1, 2, 3, 4
"""Columns of `Output.made`."""
HEAP_SLOT, HEAP_PLACE = 0, 1
"""Columns of `Rows.heap`."""
_HALF = np.uint64(0xFFFFFFFF)
_EMPTY = np.uint64(0)


class Rows(NamedTuple):
    """What is stored: `lanes`, `valid`, `meta` by slot; `free` is a stack; `heap[place, HEAP_SLOT]`, `heap[slot, HEAP_PLACE]`."""

    table: UInt64s
    lanes: Int64s
    valid: Bools
    meta: Int64s
    free: Int64s
    heap: Int64s
    state: Int64s
    keys: Int64s


class Policy(NamedTuple):
    """Retention. `unit` is the step of boundaries; `by_event` is 1 where time comes from a field, 0 for system time."""

    kind: int
    limit: int
    unit: int
    by_event: int


class Input(NamedTuple):
    """A chunk, with the time of each row (`time_valid` False: null), and int64[., 2] rank and time of its batch's heartbeats."""

    rank: Int64s
    opcode: UInt8s
    flags: UInt8s
    lanes: Int64s
    valid: Bools
    time: Int64s
    time_valid: Bools
    beats: Int64s


class Output(NamedTuple):
    """What came of it, as far as `counts` says: [outputs, slots given up, rows refused].

    made     int64[., 5]  columns RANK, OPCODE, FLAGS, SLOT (where the values are), SOURCE (the input row that made it, or NONE)
    freed    int64[.]
    refused  int64[., 2]  input row, REFUSED_ number
    """

    made: Int64s
    freed: Int64s
    refused: Int64s
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
def find(table: UInt64s, stored: Int64s, keys: Int64s, lanes: Int64s, row: Whole, h: np.uint64) -> Whole:
    """The slot that holds the key of `lanes[row]`, or NONE."""
    mask = np.int64(len(table) - 1)
    half = h & _HALF
    at = np.int64(half) & mask
    while table[at] != _EMPTY:
        entry = table[at]
        if entry >> np.uint64(32) == half:
            slot = np.int64(entry & _HALF) - 1
            same = True
            for k in range(len(keys)):
                if stored[slot, keys[k]] != lanes[row, keys[k]]:
                    same = False
            if same:
                return slot
        at = (at + 1) & mask
    return NONE


@kernel
def table_put(table: UInt64s, h: np.uint64, slot: Whole) -> None:
    mask = np.int64(len(table) - 1)
    half = h & _HALF
    at = np.int64(half) & mask
    while table[at] != _EMPTY:
        at = (at + 1) & mask
    table[at] = (half << np.uint64(32)) | np.uint64(slot + 1)


@kernel
def table_place(table: UInt64s, h: np.uint64, slot: Whole) -> Whole:
    """Where in the table the entry of a stored slot stands; `h` is the hash of its key."""
    mask = np.int64(len(table) - 1)
    half = h & _HALF
    entry = (half << np.uint64(32)) | np.uint64(slot + 1)
    at = np.int64(half) & mask
    while table[at] != entry:
        at = (at + 1) & mask
    return at


@kernel
def table_drop(table: UInt64s, h: np.uint64, slot: Whole) -> None:
    """Remove a slot's entry and close the gap, so that no probe ever meets a tombstone."""
    mask = np.int64(len(table) - 1)
    hole = table_place(table, h, slot)
    at = (hole + 1) & mask
    while table[at] != _EMPTY:
        home = np.int64(table[at] >> np.uint64(32)) & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            table[hole] = table[at]
            hole = at
        at = (at + 1) & mask
    table[hole] = _EMPTY


@kernel
def link_last(meta: Int64s, state: Int64s, slot: Whole) -> None:
    last = state[LAST]
    meta[slot, NEXT] = NONE
    meta[slot, PREV] = last
    meta[slot, ORDER] = state[ARRIVALS]
    state[ARRIVALS] += 1
    if last < 0:
        state[FIRST] = slot
    else:
        meta[last, NEXT] = slot
    state[LAST] = slot


@kernel
def unlink(meta: Int64s, state: Int64s, slot: Whole) -> None:
    before = meta[slot, PREV]
    after = meta[slot, NEXT]
    if before < 0:
        state[FIRST] = after
    else:
        meta[before, NEXT] = after
    if after < 0:
        state[LAST] = before
    else:
        meta[after, PREV] = before


@kernel
def link_instead(meta: Int64s, state: Int64s, old: Whole, new: Whole) -> None:
    """Put `new` where `old` stands in the list."""
    before = meta[old, PREV]
    after = meta[old, NEXT]
    meta[new, PREV] = before
    meta[new, NEXT] = after
    meta[new, ORDER] = meta[old, ORDER]
    if before < 0:
        state[FIRST] = new
    else:
        meta[before, NEXT] = new
    if after < 0:
        state[LAST] = new
    else:
        meta[after, PREV] = new


@kernel
def earlier(meta: Int64s, a: Whole, b: Whole) -> bool:
    """Whether slot a leaves before slot b."""
    if meta[a, TIME] != meta[b, TIME]:
        return bool(meta[a, TIME] < meta[b, TIME])
    return bool(meta[a, ORDER] < meta[b, ORDER])


@kernel
def heap_sift(heap: Int64s, size: Whole, meta: Int64s, at: Whole) -> None:
    """Move the entry at `at` up or down to where it belongs."""
    slot = heap[at, HEAP_SLOT]
    while at > 0:
        above = (at - 1) // 2
        if not earlier(meta, slot, heap[above, HEAP_SLOT]):
            break
        heap[at, HEAP_SLOT] = heap[above, HEAP_SLOT]
        heap[heap[at, HEAP_SLOT], HEAP_PLACE] = at
        at = above
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and earlier(meta, heap[below + 1, HEAP_SLOT], heap[below, HEAP_SLOT]):
            below += 1
        if not earlier(meta, heap[below, HEAP_SLOT], slot):
            break
        heap[at, HEAP_SLOT] = heap[below, HEAP_SLOT]
        heap[heap[at, HEAP_SLOT], HEAP_PLACE] = at
        at = below
    heap[at, HEAP_SLOT] = slot
    heap[slot, HEAP_PLACE] = at


@kernel
def heap_push(heap: Int64s, meta: Int64s, state: Int64s, slot: Whole) -> None:
    at = state[HEAPED]
    state[HEAPED] += 1
    heap[at, HEAP_SLOT] = slot
    heap_sift(heap, state[HEAPED], meta, at)


@kernel
def heap_drop(heap: Int64s, meta: Int64s, state: Int64s, slot: Whole) -> None:
    at = heap[slot, HEAP_PLACE]
    state[HEAPED] -= 1
    last = heap[state[HEAPED], HEAP_SLOT]
    if last != slot:
        heap[at, HEAP_SLOT] = last
        heap_sift(heap, state[HEAPED], meta, at)


@kernel
def emit(out: Output, rank: Whole, opcode: Whole, flags: Whole, slot: Whole, source: Whole) -> None:
    at = out.counts[0]
    out.made[at, RANK] = rank
    out.made[at, OPCODE] = opcode
    out.made[at, FLAGS] = flags
    out.made[at, SLOT] = slot
    out.made[at, SOURCE] = source
    out.counts[0] = at + 1


@kernel
def refuse(out: Output, row: Whole, why: Whole) -> None:
    at = out.counts[2]
    out.refused[at, 0] = row
    out.refused[at, 1] = why
    out.counts[2] = at + 1


@kernel
def give_up(rows: Rows, out: Output, policy: Policy, slot: Whole) -> None:
    """Take a stored row out of list, table and heap; its values stay readable until the next batch."""
    unlink(rows.meta, rows.state, slot)
    table_drop(rows.table, key_hash(rows.lanes, slot, rows.keys), slot)
    if policy.by_event == 1:
        heap_drop(rows.heap, rows.meta, rows.state, slot)
    rows.state[LIVE] -= 1
    out.freed[out.counts[1]] = slot
    out.counts[1] += 1


@kernel
def expel(rows: Rows, out: Output, policy: Policy, slot: Whole, rank: Whole) -> None:
    give_up(rows, out, policy, slot)
    emit(out, rank, DELETE, RETENTION, slot, NONE)


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
    return flags if flags != 0 else NORMAL


@kernel
def insert_row(rows: Rows, out: Output, policy: Policy, chunk: Input, i: Whole, h: np.uint64) -> None:
    slot = take_slot(rows)
    write_row(rows, slot, chunk, i)
    link_last(rows.meta, rows.state, slot)
    table_put(rows.table, h, slot)
    if policy.by_event == 1:
        heap_push(rows.heap, rows.meta, rows.state, slot)
    rows.state[LIVE] += 1
    emit(out, chunk.rank[i], INSERT, whole_flags(chunk.flags[i]), slot, i)


@kernel
def update_row(rows: Rows, out: Output, policy: Policy, chunk: Input, i: Whole, old: Whole, h: np.uint64) -> None:
    """The new version takes the old one's place, or the last one where retention goes by time."""
    slot = take_slot(rows)
    write_row(rows, slot, chunk, i)
    if chunk.flags[i] & PARTIAL:
        for j in range(rows.lanes.shape[1]):
            if not rows.valid[slot, j]:
                rows.lanes[slot, j] = rows.lanes[old, j]
                rows.valid[slot, j] = rows.valid[old, j]
    rows.table[table_place(rows.table, h, old)] = ((h & _HALF) << np.uint64(32)) | np.uint64(slot + 1)
    if policy.kind >= TIME_SLIDING:
        unlink(rows.meta, rows.state, old)
        link_last(rows.meta, rows.state, slot)
    else:
        link_instead(rows.meta, rows.state, old, slot)
    if policy.by_event == 1:
        at = rows.heap[old, HEAP_PLACE]
        rows.heap[at, HEAP_SLOT] = slot
        heap_sift(rows.heap, rows.state[HEAPED], rows.meta, at)
    out.freed[out.counts[1]] = old
    out.counts[1] += 1
    flags = whole_flags(chunk.flags[i])
    emit(out, chunk.rank[i], UPDATE_BLOCK, flags, slot, i)
    emit(out, chunk.rank[i], DELETE, flags, old, NONE)


@kernel
def delete_row(rows: Rows, out: Output, policy: Policy, chunk: Input, i: Whole, slot: Whole) -> None:
    if slot >= 0:
        give_up(rows, out, policy, slot)
        emit(out, chunk.rank[i], DELETE, whole_flags(chunk.flags[i]), slot, NONE)
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
    slot = find(rows.table, rows.lanes, rows.keys, chunk.lanes, i, h)
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
        update_row(rows, out, policy, chunk, i, slot, h)
    return True


@kernel
def expel_before(rows: Rows, out: Output, policy: Policy, edge: Whole, rank: Whole) -> None:
    """Expel what is `limit` or more before `edge`, oldest first."""
    while rows.state[LIVE] > 0:
        slot = rows.heap[0, HEAP_SLOT] if policy.by_event == 1 else rows.state[FIRST]
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
            jump(rows, out, policy, now, NONE, rank)


@kernel
def relate(rows: Rows, out: Output, policy: Policy, chunk: Input) -> None:
    """Take a chunk and the heartbeats of its batch, in order of rank. Both `rows` and `out` have room for all that can come."""
    beat = np.int64(0)
    i = np.int64(0)
    while i < len(chunk.rank):
        while beat < len(chunk.beats) and chunk.beats[beat, 0] < chunk.rank[i]:
            on_heartbeat(rows, out, policy, chunk.beats[beat, 1], chunk.beats[beat, 0])
            beat += 1
        if resolve_row(rows, out, policy, chunk, i):
            after_row(rows, out, policy, chunk.rank[i])
        # the second row of an update block carries old values, which are stored here already
        i += 2 if chunk.opcode[i] == UPDATE_BLOCK else 1
    while beat < len(chunk.beats):
        on_heartbeat(rows, out, policy, chunk.beats[beat, 1], chunk.beats[beat, 0])
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
        table_put(rows.table, key_hash(rows.lanes, slot, rows.keys), slot)
        slot = rows.meta[slot, NEXT]


@kernel
def relink(rows: Rows, policy: Policy, count: int) -> None:
    """Make list and heap of slots 0 to count - 1, in that order; the table is filled apart."""
    for slot in range(count):
        link_last(rows.meta, rows.state, slot)
        if policy.by_event == 1:
            heap_push(rows.heap, rows.meta, rows.state, slot)
    rows.state[LIVE] = count
    rows.state[HIGH] = count


@kernel
def gather_rows(lanes: Int64s, valid: Bools, slots: Int64s, out_lanes: Int64s, out_valid: Bools) -> None:
    for i in range(len(slots)):
        slot = slots[i]
        for j in range(lanes.shape[1]):
            out_lanes[i, j] = lanes[slot, j]
            out_valid[i, j] = valid[slot, j]
