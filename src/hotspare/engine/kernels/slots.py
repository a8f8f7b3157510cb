"""The structures that find and order the rows of a relation (see `kernels.relation`): hash table, list, heap.

table  open addressing with linear probing; an entry is the low half of the key's hash and slot + 1, 0 where empty
list   doubly linked, in order of arrival, only where there is retention
heap   by (event time, arrival), only where retention goes by event time
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hotspare.engine.chunk import Int64s
from hotspare.engine.kernels import Whole, kernel
from hotspare.engine.kernels.hashing import mix

UInt64s = npt.NDArray[np.uint64]

NEXT, PREV, TIME, ORDER = 0, 1, 2, 3
"""Columns of `Rows.meta`: neighbours in the list (-1: none), time that retention counts from, number of arrival (-1: free)."""
META_WIDTH = 4

LIVE, FIRST, LAST, FREE, HIGH, ARRIVALS, HEAPED, NEWEST, BOUNDARY, INDEXED = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
"""Entries of `Rows.state`: rows stored; ends of the list; free slots on the stack; slots ever used; arrivals so far; size of the
heap; newest event time seen; next boundary of a jumping window; 1 where the table holds the rows, 0 while it is not needed."""
STATE_WIDTH = 10
NONE = np.int64(-1)
"""No slot."""
UNSET = np.int64(-(2**63))
"""NEWEST and BOUNDARY before there is any."""

HEAP_SLOT, HEAP_PLACE = 0, 1
"""Columns of `Rows.heap`."""
HALF = np.uint64(0xFFFFFFFF)
EMPTY = np.uint64(0)
ONE = np.uint64(1)


@kernel
def key_hash(lanes: Int64s, row: Whole, keys: Int64s) -> np.uint64:
    """Hash of a row's key. The last three bits of the last lane pass through, so that neighbouring numbers share a cache line."""
    h = np.uint64(0)
    i = np.uint64(row)
    last = len(keys) - 1
    for k in range(last):
        h = mix(h ^ np.uint64(lanes[i, np.uint64(keys[k])]))
    value = np.uint64(lanes[i, np.uint64(keys[np.uint64(last)])])
    h = mix(h ^ (value >> np.uint64(3)))
    return (h << np.uint64(3)) | (value & np.uint64(7))


@kernel
def find(table: UInt64s, stored: Int64s, keys: Int64s, lanes: Int64s, row: Whole, h: np.uint64) -> np.uint64:
    """Place in the table of the entry with the key of `lanes[row]`, or the empty place where it belongs."""
    mask = np.uint64(len(table) - 1)
    half = h & HALF
    at = half & mask
    while table[at] != EMPTY:
        if table[at] >> np.uint64(32) == half and same_key(stored, slot_at(table, at), lanes, row, keys):
            break
        at = (at + ONE) & mask
    return at


@kernel
def slot_at(table: UInt64s, at: np.uint64) -> Whole:
    """The slot that an entry names; NONE where it is empty."""
    return np.int64(table[at] & HALF) - 1


@kernel
def table_entry(h: np.uint64, slot: Whole) -> np.uint64:
    return ((h & HALF) << np.uint64(32)) | np.uint64(slot + 1)


@kernel
def table_place(table: UInt64s, h: np.uint64, slot: Whole) -> np.uint64:
    """Where in the table the entry of a stored slot stands; `h` is the hash of its key."""
    mask = np.uint64(len(table) - 1)
    entry = table_entry(h, slot)
    at = h & HALF & mask
    while table[at] != entry:
        at = (at + ONE) & mask
    return at


@kernel
def table_drop(table: UInt64s, hole: np.uint64) -> None:
    """Remove an entry and close the gap, so that no probe ever meets a tombstone."""
    mask = np.uint64(len(table) - 1)
    at = (hole + ONE) & mask
    while table[at] != EMPTY:
        home = (table[at] >> np.uint64(32)) & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            table[hole] = table[at]
            hole = at
        at = (at + ONE) & mask
    table[hole] = EMPTY


@kernel
def link_last(meta: Int64s, state: Int64s, slot: Whole) -> None:
    last = state[LAST]
    meta[np.uint64(slot), NEXT] = NONE
    meta[np.uint64(slot), PREV] = last
    if last < 0:
        state[FIRST] = slot
    else:
        meta[np.uint64(last), NEXT] = slot
    state[LAST] = slot


@kernel
def unlink(meta: Int64s, state: Int64s, slot: Whole) -> None:
    before = meta[np.uint64(slot), PREV]
    after = meta[np.uint64(slot), NEXT]
    if before < 0:
        state[FIRST] = after
    else:
        meta[np.uint64(before), NEXT] = after
    if after < 0:
        state[LAST] = before
    else:
        meta[np.uint64(after), PREV] = before


@kernel
def link_instead(meta: Int64s, state: Int64s, old: Whole, new: Whole) -> None:
    """Put `new` where `old` stands in the list."""
    before = meta[old, PREV]
    after = meta[old, NEXT]
    meta[new, PREV] = before
    meta[new, NEXT] = after
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
def same_key(a: Int64s, a_row: Whole, b: Int64s, b_row: Whole, keys: Int64s) -> bool:
    i, j = np.uint64(a_row), np.uint64(b_row)
    same = True
    for k in range(len(keys)):
        key = np.uint64(keys[k])
        if a[i, key] != b[j, key]:
            same = False
    return same
