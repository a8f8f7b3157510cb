"""The hash indexes of a relation: extendible hashing over segments of a fixed size. Growing never costs more than a segment.

An entry is the low half of the hash of a key, or of the fields of a condition, and slot + 1; 0 if empty. The highest bits of the
half select a segment through `directory`, the lowest ones the place where probing begins; probing stays inside the segment. A full
segment is split in two by one more bit. If too many keys agree in all bits, as only adversarial keys do, the further entries are in
`stuck`, which is scanned linearly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hotspare.rows.chunk import Bools, Int64s
from hotspare.rows.compile import Whole, kernel
from hotspare.table.loops.hashing import mix

UInt64s = npt.NDArray[np.uint64]

SEGMENT = 512
"""Entries of a segment, a power of two: one page of memory."""
SEGMENT_ENTRIES_MAX = 384
DEPTH_MAX = 20
"""The most bits that select a segment."""
COUNT, DEPTH = 0, 1
"""Columns of `Index.segments`: the count of its entries; the count of the highest bits of the half that are the same in all of
them."""
BITS, SEGMENTS, STUCK = 0, 1, 2
"""Entries of `Index.sizes`: bits that index `directory`, segments in use, entries in `stuck`."""
SIZES_WIDTH = 3
NONE = np.int64(-1)
"""No slot."""
HALF = np.uint64(0xFFFFFFFF)
EMPTY = np.uint64(0)
ONE = np.uint64(1)
_LENGTH = np.uint64(SEGMENT)
_MASK = np.uint64(SEGMENT - 1)
_HALF_BITS = np.uint64(32)
_STUCK_AT = np.uint64(2**48)
"""Places from here on are in `stuck`."""


class Index(NamedTuple):
    """An extendible hash index of slots.

    table      the segments in use, SEGMENT entries each; an entry is (half of the hash) << 32 | slot + 1, and 0 is empty
    directory  int64[2**BITS]: the segment for each value of the highest BITS bits of a half
    segments   int64[., 2]: COUNT and DEPTH of each segment
    stuck      further entries, of keys that agree in too many bits
    scratch    room for one segment
    sizes      int64[3]: BITS, SEGMENTS, STUCK
    """

    table: UInt64s
    directory: Int64s
    segments: Int64s
    stuck: UInt64s
    scratch: UInt64s
    sizes: Int64s


@kernel
def key_hash(lanes: Int64s, row: Whole, keys: Int64s) -> np.uint64:
    """Returns the hash of a row's key. The last three bits of the last lane pass through: near numbers share a cache line."""
    h = np.uint64(0)
    i = np.uint64(row)
    last = len(keys) - 1
    for k in range(last):
        h = mix(h ^ np.uint64(lanes[i, np.uint64(keys[k])]))
    value = np.uint64(lanes[i, np.uint64(keys[np.uint64(last)])])
    h = mix(h ^ (value >> np.uint64(3)))
    return (h << np.uint64(3)) | (value & np.uint64(7))


@kernel
def agree(a: Int64s, a_row: Whole, a_columns: Int64s, b: Int64s, b_row: Whole, b_columns: Int64s) -> bool:
    """Whether row `a_row` of `a` has the same lanes in `a_columns` as row `b_row` of `b` in `b_columns`, in order."""
    i, j = np.uint64(a_row), np.uint64(b_row)
    same = True
    for k in range(len(a_columns)):
        if a[i, np.uint64(a_columns[k])] != b[j, np.uint64(b_columns[k])]:
            same = False
    return same


@kernel
def has_all(valid: Bools, row: Whole, columns: Int64s) -> bool:
    """Whether none of these fields is null."""
    every = True
    for k in range(len(columns)):
        every &= valid[np.uint64(row), np.uint64(columns[k])]
    return every


@kernel
def agree_in_condition(lanes: Int64s, valid: Bools, a: Whole, b: Whole, conditions: Int64s) -> bool:
    """Whether two rows agree in the fields of a condition, or both have a null there, so that neither is found."""
    known = has_all(valid, a, conditions)
    if known != has_all(valid, b, conditions):
        return False
    return not known or agree(lanes, a, conditions, lanes, b, conditions)


@kernel
def segment_of(index: Index, half: np.uint64) -> np.uint64:
    return np.uint64(index.directory[half >> (_HALF_BITS - np.uint64(index.sizes[BITS]))])


@kernel
def entry_of(h: np.uint64, slot: Whole) -> np.uint64:
    return ((h & HALF) << _HALF_BITS) | np.uint64(slot + 1)


@kernel
def entry_at(index: Index, place: np.uint64) -> np.uint64:
    if place >= _STUCK_AT:
        at = place - _STUCK_AT
        return index.stuck[at] if np.int64(at) < index.sizes[STUCK] else EMPTY
    return np.uint64(index.table[place])


@kernel
def slot_at(index: Index, place: np.uint64) -> Whole:
    """Returns the slot that the entry at a place names; NONE for an empty place."""
    return np.int64(entry_at(index, place) & HALF) - 1


@kernel
def first_place(index: Index, h: np.uint64) -> np.uint64:
    """Returns the place where probing for a hash begins."""
    half = h & HALF
    return segment_of(index, half) * _LENGTH + (half & _MASK)


@kernel
def after_place(place: np.uint64) -> np.uint64:
    """Returns the place where probing continues after an entry."""
    return place + ONE if place >= _STUCK_AT else (place & ~_MASK) | ((place + ONE) & _MASK)


@kernel
def likely_place(index: Index, h: np.uint64, place: np.uint64) -> np.uint64:
    """Returns the place, from `place` on, of the next entry with this half of the hash; if there is none, the empty place for a new
    entry."""
    half, table = h & HALF, index.table
    if place < _STUCK_AT:
        while table[place] != EMPTY:
            if table[place] >> _HALF_BITS == half:
                return place
            place = after_place(place)
        if index.sizes[STUCK] == 0 and index.segments[place // _LENGTH, COUNT] < SEGMENT_ENTRIES_MAX:
            return place
        place = _STUCK_AT
    for i in range(np.int64(place - _STUCK_AT), index.sizes[STUCK]):
        if index.stuck[i] >> _HALF_BITS == half:
            return _STUCK_AT + np.uint64(i)
    if index.segments[segment_of(index, half), COUNT] >= SEGMENT_ENTRIES_MAX:
        return _STUCK_AT + np.uint64(index.sizes[STUCK])
    place = first_place(index, h)
    while table[place] != EMPTY:
        place = after_place(place)
    return place


@kernel
def find(index: Index, stored: Int64s, stored_keys: Int64s, lanes: Int64s, row: Whole, keys: Int64s, h: np.uint64) -> np.uint64:
    """Returns the place of the entry whose slot agrees in `stored_keys` with `keys` of `lanes[row]`, or the empty place for such an
    entry."""
    place = first_place(index, h)
    while True:
        place = likely_place(index, h, place)
        slot = slot_at(index, place)
        if slot < 0 or agree(stored, slot, stored_keys, lanes, row, keys):
            return place
        place = after_place(place)


@kernel
def place_of(index: Index, h: np.uint64, slot: Whole) -> np.uint64:
    """Returns the place of the entry of a stored slot; `h` is the hash of its key."""
    entry = entry_of(h, slot)
    half = h & HALF
    base = segment_of(index, half) * _LENGTH
    at = half & _MASK
    while index.table[base + at] != EMPTY:
        if index.table[base + at] == entry:
            return base + at
        at = (at + ONE) & _MASK
    i = np.uint64(0)
    while index.stuck[i] != entry:
        i += ONE
    return _STUCK_AT + i


@kernel
def enter(index: Index, place: np.uint64, entry: np.uint64) -> None:
    """Writes an entry to the empty place that `find` returned."""
    if place >= _STUCK_AT:
        index.stuck[place - _STUCK_AT] = entry
        index.sizes[STUCK] += 1
    else:
        index.table[place] = entry
        index.segments[place // _LENGTH, COUNT] += 1


@kernel
def replace(index: Index, place: np.uint64, entry: np.uint64) -> None:
    """Points an entry to another slot of the same key."""
    if place >= _STUCK_AT:
        index.stuck[place - _STUCK_AT] = entry
    else:
        index.table[place] = entry


@kernel
def drop(index: Index, place: np.uint64) -> None:
    """Removes an entry and closes the gap, so that no probe ever meets a tombstone."""
    if place >= _STUCK_AT:
        index.sizes[STUCK] -= 1
        index.stuck[place - _STUCK_AT] = index.stuck[np.uint64(index.sizes[STUCK])]
        return
    table = index.table
    segment = place // _LENGTH
    base = segment * _LENGTH
    hole = place - base
    at = (hole + ONE) & _MASK
    while table[base + at] != EMPTY:
        home = (table[base + at] >> _HALF_BITS) & _MASK
        if ((at - home) & _MASK) >= ((at - hole) & _MASK):
            table[base + hole] = table[base + at]
            hole = at
        at = (at + ONE) & _MASK
    table[base + hole] = EMPTY
    index.segments[segment, COUNT] -= 1


@kernel
def widen(index: Index) -> None:
    """Doubles the directory: it is indexed by one more bit."""
    length = np.int64(1) << index.sizes[BITS]
    for i in range(length - 1, -1, -1):
        segment = index.directory[i]
        index.directory[2 * i] = segment
        index.directory[2 * i + 1] = segment
    index.sizes[BITS] += 1


@kernel
def insert_entry(index: Index, segment: np.uint64, entry: np.uint64) -> None:
    base = segment * _LENGTH
    at = (entry >> _HALF_BITS) & _MASK
    while index.table[base + at] != EMPTY:
        at = (at + ONE) & _MASK
    index.table[base + at] = entry
    index.segments[segment, COUNT] += 1


@kernel
def split(index: Index, half: np.uint64, old: np.uint64) -> None:
    """Moves the entries of a segment whose next bit is 1 to a new one; `half` is a half that belongs in the segment."""
    depth = index.segments[old, DEPTH]
    new = np.uint64(index.sizes[SEGMENTS])
    index.sizes[SEGMENTS] += 1
    for i in range(SEGMENT):
        index.scratch[i] = index.table[old * _LENGTH + np.uint64(i)]
        index.table[old * _LENGTH + np.uint64(i)] = EMPTY
        index.table[new * _LENGTH + np.uint64(i)] = EMPTY
    index.segments[old, COUNT] = 0
    index.segments[new, COUNT] = 0
    index.segments[old, DEPTH] = depth + 1
    index.segments[new, DEPTH] = depth + 1
    bit = _HALF_BITS - np.uint64(depth + 1)
    for i in range(SEGMENT):
        entry = index.scratch[i]
        if entry != EMPTY:
            insert_entry(index, new if ((entry >> _HALF_BITS) >> bit) & ONE == ONE else old, entry)
    spread = np.int64(1) << (index.sizes[BITS] - depth)
    first = np.int64(half >> (_HALF_BITS - np.uint64(depth))) * spread
    for i in range(first + spread // 2, first + spread):
        index.directory[i] = np.int64(new)


@kernel
def has_room(index: Index, h: np.uint64) -> bool:
    """Splits until one more entry with that hash fits. Returns False if the arrays are too short for that; then the caller grows
    them."""
    half = h & HALF
    while True:
        segment = segment_of(index, half)
        if index.segments[segment, COUNT] < SEGMENT_ENTRIES_MAX:
            return True
        depth = index.segments[segment, DEPTH]
        if depth == DEPTH_MAX:
            return bool(index.sizes[STUCK] < len(index.stuck))
        if depth == index.sizes[BITS]:
            if 2 * (np.int64(1) << depth) > len(index.directory):
                return False
            widen(index)
        if index.sizes[SEGMENTS] == len(index.segments):
            return False
        split(index, half, segment)


@kernel
def add(index: Index, h: np.uint64, slot: Whole) -> None:
    """Adds the entry of a slot whose key no other slot has; the index must have room (`has_room`)."""
    segment = segment_of(index, h & HALF)
    if index.segments[segment, COUNT] < SEGMENT_ENTRIES_MAX:
        insert_entry(index, segment, entry_of(h, slot))
    else:
        index.stuck[index.sizes[STUCK]] = entry_of(h, slot)
        index.sizes[STUCK] += 1
