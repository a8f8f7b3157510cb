"""Pages of a relation's rows, as a log. A new version of a row takes the next slot of the page being filled. No slot is written
twice, and a page is reused when none of its rows is needed.

Pages are numbered in the order in which they are begun. The page number and the slot of a row depend on the events alone: not on
how the input was cut into batches, nor on where a page is in memory. So full pages change only by removed rows, and a snapshot
costs what arrived since the previous one.

Removed rows leave gaps. When there are too many gaps, pages with many of them are compacted, older pages first: their rows are
written again, after the newest row. That happens between two events, one page at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hotspare.rows.chunk import Bools, Int64s
from hotspare.rows.compile import Whole, kernel
from hotspare.table.loops.index import Index, entry_of, key_hash, place_of, replace
from hotspare.table.loops.slots import (
    EITHER,
    EMPTIED,
    FILL,
    FREE,
    HAND,
    HEAP_PLACE,
    HEAP_SLOT,
    HIGH,
    IN_HEAP,
    IN_RUN,
    INDEXED,
    LIVE,
    MOVED,
    NONE,
    NUMBER,
    OLDEST,
    OPEN,
    PAGE_SLOTS,
    PAGES,
    PREV,
    SPARE,
    YOUNGEST,
    link_instead,
)

PAGE_NUMBER, PAGE_LIVE, PAGE_AFTER, PAGE_BEFORE = 0, 1, 2, 3
"""Columns of `Rows.pages`: number, rows stored, neighbours in the list by number."""
PAGES_WIDTH = 4
OLD_SLOT, NEW_SLOT, MADE_BEFORE = 0, 1, 2
"""Columns of `Rows.moved`."""
MOVED_WIDTH = 3
LOOKS_MAX, CLEARED_MAX = 64, 1
"""The most pages that are checked, and compacted, at a time. More would delay the next event."""
TIMES_A_PAGE = 4
"""How often gaps are checked while events fill a page."""
_ONE = np.uint64(1)
_SIX = np.uint64(6)
_LOW = np.uint64(63)


class Rows(NamedTuple):
    """The arrays of a relation.

    by_key        the index of slots by key
    lanes, valid  [slots, width]: the values
    order         by slot: the arrival number of the row
    time          by slot: the time from which retention counts; empty if retention is not by time
    links         by slot: NEXT and PREV in the list; empty without a list
    waiting       slots that wait for their place in the list; NONE for an entry that no longer waits
    alive         a bit per slot: whether it holds a row
    pages         int64[., 4]: PAGE_NUMBER to PAGE_BEFORE of each page
    free          a stack of pages
    emptied       a list of pages that are not free yet
    moved         (old slot, new slot, outputs made before); empty if moves are not recorded
    heap          int64[., 2]: `heap[place, HEAP_SLOT]` is a slot, `heap[slot, HEAP_PLACE]` its place
    state         int64[24]: the entries of `table.loops.slots`
    keys          the columns of the key
    conditions    columns by which rows are also found; an update that changes them makes the row the newest
    """

    by_key: Index
    lanes: Int64s
    valid: Bools
    order: Int64s
    time: Int64s
    links: Int64s
    waiting: Int64s
    alive: npt.NDArray[np.uint64]
    pages: Int64s
    free: Int64s
    emptied: Int64s
    moved: Int64s
    heap: Int64s
    state: Int64s
    keys: Int64s
    conditions: Int64s


@kernel
def is_alive(rows: Rows, slot: Whole) -> bool:
    at = np.uint64(slot)
    return bool((rows.alive[at >> _SIX] >> (at & _LOW)) & _ONE == _ONE)


@kernel
def drop_page(rows: Rows, page: Whole) -> None:
    """Removes a page without rows from the pages in use. It is free after the outputs of this batch are consumed."""
    state, pages = rows.state, rows.pages
    before, after = pages[page, PAGE_BEFORE], pages[page, PAGE_AFTER]
    if before < 0:
        state[OLDEST] = after
    else:
        pages[before, PAGE_AFTER] = after
    if after < 0:
        state[YOUNGEST] = before
    else:
        pages[after, PAGE_BEFORE] = before
    if state[HAND] == page:
        state[HAND] = after
    state[PAGES] -= 1
    rows.emptied[state[EMPTIED]] = page
    state[EMPTIED] += 1


@kernel
def open_page(rows: Rows) -> None:
    state, pages = rows.state, rows.pages
    full = state[OPEN]
    if state[FREE] > 0:
        state[FREE] -= 1
        page = np.int64(rows.free[state[FREE]])
    else:
        page = np.int64(state[HIGH])
        state[HIGH] += 1
    last = state[YOUNGEST]
    pages[page, PAGE_NUMBER] = state[NUMBER]
    pages[page, PAGE_LIVE] = 0
    pages[page, PAGE_AFTER] = NONE
    pages[page, PAGE_BEFORE] = last
    if last < 0:
        state[OLDEST] = page
    else:
        pages[last, PAGE_AFTER] = page
    state[YOUNGEST] = page
    state[NUMBER] += 1
    state[PAGES] += 1
    state[OPEN], state[FILL] = page, 0
    if full >= 0 and pages[full, PAGE_LIVE] == 0:
        drop_page(rows, full)


@kernel
def take_slot(rows: Rows) -> Whole:
    """Returns the next slot, which holds a row from now on."""
    state = rows.state
    if state[OPEN] < 0 or state[FILL] == state[PAGE_SLOTS]:
        open_page(rows)
    slot = state[OPEN] * state[PAGE_SLOTS] + state[FILL]
    state[FILL] += 1
    at = np.uint64(slot)
    rows.alive[at >> _SIX] |= _ONE << (at & _LOW)
    rows.pages[np.uint64(state[OPEN]), PAGE_LIVE] += 1
    return np.int64(slot)


@kernel
def free_slot(rows: Rows, slot: Whole) -> None:
    """Removes a row; its values stay until the outputs of this batch are consumed, and as long as a snapshot needs them."""
    at = np.uint64(slot)
    rows.alive[at >> _SIX] &= ~(_ONE << (at & _LOW))
    page = np.int64(at // np.uint64(rows.state[PAGE_SLOTS]))
    rows.pages[np.uint64(page), PAGE_LIVE] -= 1
    if rows.pages[np.uint64(page), PAGE_LIVE] == 0 and page != rows.state[OPEN]:
        drop_page(rows, page)


@kernel
def too_many_gaps_for(state: Int64s, live: Whole) -> bool:
    """Whether the pages have more gaps than are allowed for `live` rows."""
    spare = max(live // 8, min(4 * live, state[SPARE]))
    return bool(state[PAGES] * state[PAGE_SLOTS] > live + spare + 2 * state[PAGE_SLOTS])


@kernel
def too_many_gaps(state: Int64s) -> bool:
    return too_many_gaps_for(state, state[LIVE])


@kernel
def move_row(rows: Rows, old: Whole) -> None:
    """Moves a row from slot `old` to the next free slot; its values, order and places in list and heap stay the same."""
    new = take_slot(rows)
    to, source = np.uint64(new), np.uint64(old)
    for j in range(rows.lanes.shape[1]):
        rows.lanes[to, j] = rows.lanes[source, j]
        rows.valid[to, j] = rows.valid[source, j]
    rows.order[to] = rows.order[source]
    if len(rows.time) > 0:
        rows.time[to] = rows.time[source]
    is_listed = len(rows.links) > 0 and (rows.links[old, PREV] >= NONE or rows.links[old, PREV] == IN_RUN)
    if is_listed:
        link_instead(rows.links, rows.waiting, rows.state, old, new)
    elif len(rows.links) > 0:
        rows.links[new, PREV] = rows.links[old, PREV]
    if len(rows.heap) > 0 and (rows.state[EITHER] == 0 or (not is_listed and rows.links[old, PREV] == IN_HEAP)):
        at = rows.heap[old, HEAP_PLACE]
        rows.heap[at, HEAP_SLOT] = new
        rows.heap[new, HEAP_PLACE] = at
    if rows.state[INDEXED] == 1:
        h = key_hash(rows.lanes, new, rows.keys)
        replace(rows.by_key, place_of(rows.by_key, h, old), entry_of(h, new))
    if len(rows.moved) > 0:
        rows.moved[rows.state[MOVED], OLD_SLOT] = old
        rows.moved[rows.state[MOVED], NEW_SLOT] = new
        rows.state[MOVED] += 1
    free_slot(rows, old)


@kernel
def is_sparse(rows: Rows, page: Whole) -> bool:
    """Whether a page is compacted when it is checked: it is full, and holds at most the average count of rows."""
    return bool(page != rows.state[OPEN] and rows.pages[page, PAGE_LIVE] * rows.state[PAGES] <= rows.state[LIVE])


@kernel
def clear_pages(rows: Rows) -> None:
    """Compacts pages that hold at most the average count of rows, CLEARED_MAX at a time: moves their rows after the newest one."""
    state, pages = rows.state, rows.pages
    looks, cleared = 0, 0
    while looks < LOOKS_MAX and cleared < CLEARED_MAX and too_many_gaps(state):
        page = np.int64(state[HAND] if state[HAND] >= 0 else state[OLDEST])
        state[HAND] = pages[page, PAGE_AFTER]
        looks += 1
        if is_sparse(rows, page):
            cleared += 1
            begin = page * state[PAGE_SLOTS]
            for slot in range(begin, begin + state[PAGE_SLOTS]):
                if is_alive(rows, slot):
                    move_row(rows, slot)


@kernel
def pages_needed(state: Int64s) -> Whole:
    """Returns the most pages that one event may need: for its own row, and for the rows of pages that are compacted."""
    return np.int64(min(state[PAGES], CLEARED_MAX) + 2)


@kernel
def is_ready(rows: Rows) -> bool:
    """Whether pages and `moved` have room for the most that one event may need."""
    state = rows.state
    enough = state[FREE] + len(rows.pages) - state[HIGH] >= pages_needed(state)
    return bool(enough and (len(rows.moved) == 0 or state[MOVED] + CLEARED_MAX * state[PAGE_SLOTS] <= len(rows.moved)))


@kernel
def slots_before_gap_check(state: Int64s) -> Whole:
    """Returns the slots left before gaps are checked again: 0 if they are checked before the next event."""
    share = max(state[PAGE_SLOTS] // TIMES_A_PAGE, 1)
    return np.int64((1 - state[FILL]) % share)


@kernel
def tidy(rows: Rows, made: Whole) -> None:
    """Compacts pages if there are too many gaps, which is checked TIMES_A_PAGE times per page. Called exactly once before each
    event, because its effects are state. `made`: the count of outputs so far."""
    if slots_before_gap_check(rows.state) == 0 and too_many_gaps(rows.state):
        told = rows.state[MOVED]
        clear_pages(rows)
        for i in range(told, rows.state[MOVED]):
            rows.moved[i, MADE_BEFORE] = made
