"""Loops that find strings that nothing holds any more, and free their codes and bytes (`TextCollector` of `table.strings`)."""

from __future__ import annotations

import numpy as np

from hotspare.rows.chunk import Int64s, UInt8s
from hotspare.rows.compile import Whole, kernel
from hotspare.table.loops.index import COUNT as IN_SEGMENT
from hotspare.table.loops.index import EMPTY, HALF, SEGMENT, SEGMENTS, STUCK, insert_entry
from hotspare.table.loops.interning import (
    BEGIN,
    BYTES,
    END,
    FILL,
    FREED,
    LIVE,
    MOVED,
    PAGE_BITS,
    ROUND,
    SIZE,
    InternedTexts,
    append_bytes,
    count_bytes,
)
from hotspare.table.loops.pages import PAGE_AFTER, PAGE_NUMBER, Rows, is_alive
from hotspare.table.loops.queue import Ring
from hotspare.table.loops.slots import FILL as SLOTS_FILLED
from hotspare.table.loops.slots import OLDEST, OPEN, PAGE_SLOTS, YOUNGEST

SEGMENT_LOOKS, FREED_LOOKS, MOVED_LOOKS, BYTES_A_LOOK = 256, 4, 8, 16
"""Costs in looks; checking a code costs one. A segment of the index costs SEGMENT_LOOKS. Freeing a code costs FREED_LOOKS more;
moving a string costs MOVED_LOOKS more, and one look for each BYTES_A_LOOK bytes."""
MOVED_CODE, MOVED_TO = 0, 1
"""Columns of `moved`."""


@kernel
def mark_rows(rows: Rows, columns: Int64s, since: Whole, count: Whole, marks: UInt8s, round_: Whole) -> Whole:
    """Marks the codes of rows in pages, in the order in which they were written: of about `count` slots from position `since` on
    (page number times slots per page, plus slot). Returns the position after the last slot checked."""
    state, pages, page_slots = rows.state, rows.pages, rows.state[PAGE_SLOTS]
    page, at, left = np.int64(state[OLDEST]), np.int64(since), np.int64(count)
    if state[YOUNGEST] >= 0 and pages[state[YOUNGEST], PAGE_NUMBER] <= at // page_slots:
        page = np.int64(state[YOUNGEST])
    while page >= 0 and pages[page, PAGE_NUMBER] < at // page_slots:
        page = np.int64(pages[page, PAGE_AFTER])
    while page >= 0 and left > 0:
        begin = pages[page, PAGE_NUMBER] * page_slots
        at = max(at, begin)
        end = min(begin + (state[SLOTS_FILLED] if page == state[OPEN] else page_slots), at + left)
        for slot in range(page * page_slots + at - begin, page * page_slots + end - begin):
            if is_alive(rows, slot):
                for k in range(len(columns)):
                    marks[rows.lanes[slot, columns[k]]] = round_
        left -= end - at
        at = end
        page = np.int64(pages[page, PAGE_AFTER])
    return at


@kernel
def mark_ring(ring: Ring, columns: Int64s, begin: Whole, end: Whole, marks: UInt8s, round_: Whole) -> None:
    """Marks the codes of the rows at positions from `begin` to before `end`."""
    for position in range(begin, end):
        at = (position % ring.capacity) * ring.width
        for k in range(len(columns)):
            marks[ring.lanes[at + columns[k]]] = round_


@kernel
def purge(texts: InternedTexts, first: Whole, segments: Whole) -> Whole:
    """Removes strings that were not held in this round from the index: from `segments` segments, number `first` and following ones.
    After the last segment, also removes them from `stuck`. Returns the next segment, or -1 if none is left.
    """
    index, round_ = texts.by_text, texts.state[ROUND]
    for segment in range(first, min(first + segments, index.sizes[SEGMENTS])):
        base, count = segment * SEGMENT, 0
        for i in range(base, base + SEGMENT):
            entry = index.table[i]
            if entry != EMPTY and texts.marks[np.int64(entry & HALF) - 1] == round_:
                index.scratch[count] = entry
                count += 1
        if count < index.segments[segment, IN_SEGMENT]:
            index.table[base : base + SEGMENT] = EMPTY
            index.segments[segment, IN_SEGMENT] = 0
            for i in range(count):
                insert_entry(index, np.uint64(segment), index.scratch[i])
    if first + segments < index.sizes[SEGMENTS]:
        return first + segments
    for i in range(index.sizes[STUCK] - 1, -1, -1):
        if texts.marks[np.int64(index.stuck[i] & HALF) - 1] != round_:
            index.sizes[STUCK] -= 1
            index.stuck[i] = index.stuck[index.sizes[STUCK]]
    return np.int64(-1)


@kernel
def free_unmarked(texts: InternedTexts, first: Whole, end: Whole, looks: Whole, freed: Int64s) -> Whole:
    """Frees codes from `first` to before `end` whose string was not held in this round; `purge` must have removed these strings
    from the index. Writes the freed codes to `freed`, and returns the next code to check. `freed` has room for one more code than
    `looks` allow.
    """
    state, code, left = texts.state, first, looks
    while code < end and left > 0:
        mark = texts.marks[code]
        left -= 1
        if mark != 0 and mark != state[ROUND]:
            size = texts.places[code, SIZE]
            texts.marks[code] = 0
            count_bytes(texts, texts.places[code, BEGIN], size, -1)
            state[LIVE] -= 1
            state[BYTES] -= size
            freed[state[FREED]] = code
            state[FREED] += 1
            left -= FREED_LOOKS
        code += 1
    return code


@kernel
def is_page_flagged(flagged: UInt8s, page: Whole) -> bool:
    """Whether a page is flagged; pages added after `flagged` was computed are not."""
    return bool(page < len(flagged) and flagged[page] != 0)


@kernel
def copy_sparse(texts: InternedTexts, sparse: UInt8s, first: Whole, end: Whole, looks: Whole, moved: Int64s) -> Whole:
    """Copies strings in sparse pages, of codes from `first` to before `end`, to the place after the newest string; lists their
    codes and new places in `moved`. Returns the next code to check. A string longer than a page is not moved, because that costs
    more than it frees."""
    state, code, left = texts.state, first, looks
    bits = state[PAGE_BITS]
    while code < end and left > 0:
        left -= 1
        begin, size = texts.places[code, BEGIN], texts.places[code, SIZE]
        is_sparse = is_page_flagged(sparse, begin >> bits) or is_page_flagged(sparse, (begin + size - 1) >> bits)
        if is_sparse and texts.marks[code] != 0 and 0 < size <= 1 << bits:
            if state[FILL] + size > state[END] or state[MOVED] == len(moved):
                break
            moved[state[MOVED], MOVED_CODE] = code
            moved[state[MOVED], MOVED_TO] = append_bytes(texts, texts.data, begin, size)
            state[MOVED] += 1
            left -= MOVED_LOOKS + size // BYTES_A_LOOK
        code += 1
    return code


@kernel
def redirect_moved(texts: InternedTexts, moved: Int64s) -> None:
    """Points moved strings to their copies. Another thread that reads a place finds the bytes at the new place or at the old
    one."""
    for i in range(texts.state[MOVED]):
        code = moved[i, MOVED_CODE]
        count_bytes(texts, texts.places[code, BEGIN], texts.places[code, SIZE], -1)
        texts.places[code, BEGIN] = moved[i, MOVED_TO]
