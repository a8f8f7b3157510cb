"""Row pages left unloaded by a restore: which of them may hold a key, and which page is compacted next.

Keys are represented by halves: the low half of a hash of the key, in which texts are replaced by their own hash, so that halves are
the same in every process. Several keys may share a half; then a page may be loaded without need.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hotspare.rows.chunk import Int64s, UInt8s
from hotspare.rows.compile import Whole, kernel
from hotspare.table.loops.hashing import mix
from hotspare.table.loops.index import HALF, NONE, Index, add, after_place, first_place, has_room, key_hash, likely_place, slot_at
from hotspare.table.loops.pages import (
    LOOKS_MAX,
    PAGE_AFTER,
    Rows,
    is_sparse,
    slots_before_gap_check,
    too_many_gaps,
    too_many_gaps_for,
)
from hotspare.table.loops.slots import HAND, LIVE, OLDEST, PAGE_SLOTS

UInt32s = npt.NDArray[np.uint32]
UInt64s = npt.NDArray[np.uint64]

FILTER_BITS = 20
"""A filter has a bit for each value of this many high bits of a half."""
_LOWER = np.uint64(32 - FILTER_BITS)
_SIX, _LOW, _ONE = np.uint64(6), np.uint64(63), np.uint64(1)
OUTLINE_WORDS = 16
"""32-bit words of a block of an outline: a half is recorded in one block, a cache line."""
_OUTLINE_MARKS = 6
_BLOCK_LOW = np.uint64(32 * OUTLINE_WORDS - 1)
_STEP_AT, _HIGH, _FIVE, _WORD_LOW = np.uint64(9), np.uint64(32), np.uint64(5), np.uint64(31)


@kernel
def key_halves(keys: Int64s, columns: Int64s, halves: UInt32s) -> None:
    """Writes the half of each row of `keys` to `halves`."""
    for i in range(len(keys)):
        halves[i] = key_hash(keys, i, columns) & HALF


@kernel
def mark_outline(outline: UInt32s, halves: UInt32s) -> None:
    """Records halves in an outline, a Bloom filter of blocks of OUTLINE_WORDS words, at least one block."""
    blocks = np.uint64(len(outline) // OUTLINE_WORDS)
    for i in range(len(halves)):
        h = mix(np.uint64(halves[i]))
        word, at, step = ((h >> _HIGH) * blocks >> _HIGH) * np.uint64(OUTLINE_WORDS), h & _BLOCK_LOW, (h >> _STEP_AT) | _ONE
        for _ in range(_OUTLINE_MARKS):
            outline[word + (at >> _FIVE)] |= np.uint32(_ONE << (at & _WORD_LOW))
            at = (at + step) & _BLOCK_LOW


@kernel
def may_have_half(outline: UInt32s, wanted: UInt32s) -> bool:
    """Whether one of the `wanted` halves may be recorded in an outline. About one in a hundred that are not looks as if it were."""
    blocks = np.uint64(len(outline) // OUTLINE_WORDS)
    for i in range(len(wanted)):
        h = mix(np.uint64(wanted[i]))
        word, at, step = ((h >> _HIGH) * blocks >> _HIGH) * np.uint64(OUTLINE_WORDS), h & _BLOCK_LOW, (h >> _STEP_AT) | _ONE
        marks = 0
        while marks < _OUTLINE_MARKS and (np.uint64(outline[word + (at >> _FIVE)]) >> (at & _WORD_LOW)) & _ONE == _ONE:
            at = (at + step) & _BLOCK_LOW
            marks += 1
        if marks == _OUTLINE_MARKS:
            return True
    return False


@kernel
def is_among(wanted: UInt32s, half: np.uint64) -> bool:
    """Whether a half is among `wanted`, which are ascending."""
    low, high = 0, len(wanted)
    while low < high:
        middle = (low + high) // 2
        if np.uint64(wanted[middle]) < half:
            low = middle + 1
        else:
            high = middle
    return bool(low < len(wanted) and np.uint64(wanted[low]) == half)


@kernel
def scan_key_filter(
    halves: UInt32s, ends: Int64s, places: Int64s, is_unloaded: UInt8s, wanted: UInt32s, filter_: UInt64s, asked: UInt8s
) -> None:
    """Sets `asked` to 1 for unloaded pages that may hold a key with a half in `wanted`, which is ascending. `ends`: the end of each
    page's halves; `places`: the page's place in memory, NONE if the page does not exist any more.

    `filter_` is scratch memory for a bit per value of FILTER_BITS bits, zeros at first.
    """
    for i in range(len(wanted)):
        at = np.uint64(wanted[i]) >> _LOWER
        filter_[at >> _SIX] |= _ONE << (at & _LOW)
    begin = 0
    for page in range(len(places)):
        place, end = places[page], ends[page]
        if place >= 0 and is_unloaded[place] != 0:
            for i in range(begin, end):
                half = np.uint64(halves[i])
                at = half >> _LOWER
                if (filter_[at >> _SIX] >> (at & _LOW)) & _ONE == _ONE and is_among(wanted, half):
                    asked[place] = 1
        begin = end


@kernel
def index_key_filter(index: Index, halves: UInt32s, ends: Int64s, places: Int64s, is_unloaded: UInt8s, at: Whole) -> Whole:
    """Adds the unloaded page of each half, from number `at` on, to an index. Returns the end, or the number of the first half for
    which the index has no room."""
    page = 0
    for i in range(at, len(halves)):
        while ends[page] <= i:
            page += 1
        place = places[page]
        if place >= 0 and is_unloaded[place] != 0:
            h = np.uint64(halves[i])
            if not has_room(index, h):
                return np.int64(i)
            add(index, h, place)
    return np.int64(len(halves))


@kernel
def look_up_pages(index: Index, halves: UInt32s, is_unloaded: UInt8s, asked: UInt8s) -> None:
    """Sets `asked` of the unloaded pages that the index names for these halves."""
    for i in range(len(halves)):
        h = np.uint64(halves[i])
        at = likely_place(index, h, first_place(index, h))
        page = slot_at(index, at)
        while page >= 0:
            if is_unloaded[page] != 0:
                asked[page] = 1
            at = likely_place(index, h, after_place(at))
            page = slot_at(index, at)


@kernel
def rows_before_gap_check(state: Int64s) -> Whole:
    """Returns the count of rows of any chunk that can be applied before a page is compacted; 0 if the next row may compact one."""
    before = slots_before_gap_check(state)
    if before > 0:
        return before
    share = np.int64(state[PAGE_SLOTS] // 8)
    if share > 0 and not too_many_gaps_for(state, max(state[LIVE] - share, 0)):
        return share
    return np.int64(0)


@kernel
def page_to_clear(rows: Rows) -> Whole:
    """Returns the page that the next event compacts if it checks gaps; NONE if it compacts none."""
    state, pages = rows.state, rows.pages
    if not too_many_gaps(state):
        return NONE
    page = np.int64(state[HAND])
    for _ in range(LOOKS_MAX):
        if page < 0:
            page = np.int64(state[OLDEST])
        if is_sparse(rows, page):
            return page
        page = np.int64(pages[page, PAGE_AFTER])
    return NONE
