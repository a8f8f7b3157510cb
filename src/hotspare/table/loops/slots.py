"""The structures that order the rows of a relation (see `table.loops.relation`): list and heap.

list   doubly linked, in order of arrival, only with retention or `Policy.new_keys`
heap   by (event time, arrival), only if retention is by event time

Or each row is in one of the two, by (deadline, arrival): in the list as long as deadlines rise with arrival, else in the heap. Rows
without a deadline are in neither. Event time is such a deadline: if rows arrive in its order, no heap costs anything.

After a restore, rows may wait for their place in the list (`table.loops.unlinked`), which then has a seam: they are linked there.
"""

from __future__ import annotations

import numpy as np

from hotspare.rows.chunk import Int64s
from hotspare.rows.compile import Whole, kernel
from hotspare.table.loops.index import NONE as NONE

NEXT, PREV = 0, 1
"""Columns of `Rows.links`: neighbours in the list, NONE at its ends."""
LINKS_WIDTH = 2

LIVE, FIRST, LAST, ARRIVALS, HEAPED, NEWEST, BOUNDARY, INDEXED = 0, 1, 2, 3, 4, 5, 6, 7
"""Entries of `Rows.state`: rows stored; ends of the list; arrivals so far; size of the heap; newest event time seen; next boundary
of a jumping window; 1 if the index holds the rows, 0 while it is not needed."""
OPEN, FILL, NUMBER, PAGES, HAND, OLDEST, YOUNGEST, FREE, HIGH, EMPTIED, MOVED = 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18
"""Entries about pages: the one being filled, NONE before the first; its allocated slots; the number of the next one; pages in use;
the page that is checked next for compaction, NONE for the oldest; ends of the list by number; free pages on the stack; pages ever
used; emptied pages not free yet; moved rows not reported yet."""
PAGE_SLOTS, SPARE, EITHER, SEAM, UNLINKED = 19, 20, 21, 22, 23
"""Slots of a page; spare slots that a small relation may have; 1 if rows are in list or heap, 0 if in both; the last row before the
seam of the list, NONE if that is its beginning; the expiry key (arrival number, or deadline if that decides) from which on rows may
not be in list or heap yet, NEVER if all are."""
STATE_WIDTH = 24
UNSET = np.int64(-(2**63))
"""The value of NEWEST and BOUNDARY before there is any."""

IN_HEAP, IN_NEITHER, IN_RUN = np.int64(-2), np.int64(-3), np.int64(-4)
"""Values of PREV for a row that is not in the list; IN_HEAP and IN_NEITHER occur only if rows are in list or heap. IN_RUN: the row
waits for its place, and NEXT is its place in `Rows.waiting`."""
NEVER = np.int64(2**62)
"""The deadline of a row without one."""

HEAP_SLOT, HEAP_PLACE = 0, 1
"""Columns of `Rows.heap`."""


@kernel
def link_last(links: Int64s, state: Int64s, slot: Whole) -> None:
    last = state[LAST]
    links[np.uint64(slot), NEXT] = NONE
    links[np.uint64(slot), PREV] = last
    if last < 0:
        state[FIRST] = slot
    else:
        links[np.uint64(last), NEXT] = slot
    state[LAST] = slot


@kernel
def unlink(links: Int64s, waiting: Int64s, state: Int64s, slot: Whole) -> None:
    before = links[np.uint64(slot), PREV]
    after = links[np.uint64(slot), NEXT]
    if before == IN_RUN:
        waiting[after] = NONE
        return
    if state[SEAM] == slot:
        state[SEAM] = before
    if before < 0:
        state[FIRST] = after
    else:
        links[np.uint64(before), NEXT] = after
    if after < 0:
        state[LAST] = before
    else:
        links[np.uint64(after), PREV] = before


@kernel
def link_instead(links: Int64s, waiting: Int64s, state: Int64s, old: Whole, new: Whole) -> None:
    """Puts `new` in the place of `old`, in the list or among the waiting rows."""
    before = links[old, PREV]
    after = links[old, NEXT]
    links[new, PREV] = before
    links[new, NEXT] = after
    if before == IN_RUN:
        waiting[after] = new
        return
    if state[SEAM] == old:
        state[SEAM] = new
    if before < 0:
        state[FIRST] = new
    else:
        links[before, NEXT] = new
    if after < 0:
        state[LAST] = new
    else:
        links[after, PREV] = new


@kernel
def is_earlier_slot(time: Int64s, order: Int64s, a: Whole, b: Whole) -> bool:
    """Whether slot a expires before slot b."""
    if time[a] != time[b]:
        return bool(time[a] < time[b])
    return bool(order[a] < order[b])


@kernel
def heap_sift(heap: Int64s, size: Whole, time: Int64s, order: Int64s, at: Whole) -> None:
    """Moves the entry at `at` up or down to its place."""
    slot = heap[at, HEAP_SLOT]
    while at > 0:
        above = (at - 1) // 2
        if not is_earlier_slot(time, order, slot, heap[above, HEAP_SLOT]):
            break
        heap[at, HEAP_SLOT] = heap[above, HEAP_SLOT]
        heap[heap[at, HEAP_SLOT], HEAP_PLACE] = at
        at = above
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and is_earlier_slot(time, order, heap[below + 1, HEAP_SLOT], heap[below, HEAP_SLOT]):
            below += 1
        if not is_earlier_slot(time, order, heap[below, HEAP_SLOT], slot):
            break
        heap[at, HEAP_SLOT] = heap[below, HEAP_SLOT]
        heap[heap[at, HEAP_SLOT], HEAP_PLACE] = at
        at = below
    heap[at, HEAP_SLOT] = slot
    heap[slot, HEAP_PLACE] = at


@kernel
def heap_push(heap: Int64s, time: Int64s, order: Int64s, state: Int64s, slot: Whole) -> None:
    at = state[HEAPED]
    state[HEAPED] += 1
    heap[at, HEAP_SLOT] = slot
    heap_sift(heap, state[HEAPED], time, order, at)


@kernel
def heap_drop(heap: Int64s, time: Int64s, order: Int64s, state: Int64s, slot: Whole) -> None:
    at = heap[slot, HEAP_PLACE]
    state[HEAPED] -= 1
    last = heap[state[HEAPED], HEAP_SLOT]
    if last != slot:
        heap[at, HEAP_SLOT] = last
        heap_sift(heap, state[HEAPED], time, order, at)


@kernel
def enqueue(links: Int64s, heap: Int64s, time: Int64s, order: Int64s, state: Int64s, slot: Whole) -> None:
    """Adds a slot, which is the last to arrive, to list, heap or neither, by its deadline."""
    last = state[LAST]
    if time[slot] >= NEVER:
        links[slot, PREV] = IN_NEITHER
    elif last < 0 or time[last] <= time[slot]:
        link_last(links, state, slot)
    else:
        links[slot, PREV] = IN_HEAP
        heap_push(heap, time, order, state, slot)


@kernel
def dequeue(links: Int64s, waiting: Int64s, heap: Int64s, time: Int64s, order: Int64s, state: Int64s, slot: Whole) -> None:
    where = links[slot, PREV]
    if where == IN_HEAP:
        heap_drop(heap, time, order, state, slot)
    elif where != IN_NEITHER:
        unlink(links, waiting, state, slot)


@kernel
def first_due(heap: Int64s, time: Int64s, order: Int64s, state: Int64s) -> Whole:
    """Returns the slot of the row with the first deadline; NONE if no row has a deadline."""
    listed = np.int64(state[FIRST])
    if state[HEAPED] == 0:
        return listed
    heaped = np.int64(heap[0, HEAP_SLOT])
    return listed if listed >= 0 and is_earlier_slot(time, order, listed, heaped) else heaped


@kernel
def first_to_expire(heap: Int64s, time: Int64s, order: Int64s, state: Int64s) -> Whole:
    """Returns the first row in order of arrival, or by deadline if that decides expiry; NONE if there is none."""
    return first_due(heap, time, order, state) if state[EITHER] == 1 else np.int64(state[FIRST])


@kernel
def may_precede_first(time: Int64s, order: Int64s, state: Int64s, slot: Whole) -> bool:
    """Whether a row that is not in list or heap yet may expire before this one, which is the first of them, or NONE."""
    unlinked = state[UNLINKED]
    if unlinked == NEVER or slot < 0:
        return bool(unlinked != NEVER)
    return bool((time[slot] if state[EITHER] == 1 else order[slot]) >= unlinked)
