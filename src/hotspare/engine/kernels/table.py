"""A hash table in one piece, whose owner sees to it that it never fills up: open addressing with linear probing.

An entry is the low half of the key's hash and slot + 1, 0 where empty.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hotspare.engine.kernels import Whole, kernel
from hotspare.engine.kernels.index import EMPTY, HALF, ONE, same_key
from hotspare.engine.rows.chunk import Int64s

UInt64s = npt.NDArray[np.uint64]


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
