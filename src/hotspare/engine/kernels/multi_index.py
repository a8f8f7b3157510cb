"""Loops of an index with several rows per condition (see `engine.multi_index`).

Rows stand in slots and are found by their key, and by the fields of a condition: those that agree in them are a list, in order of
arrival. A version of a row is never overwritten: an update takes a new slot, and slots given up are used again when `freed` has
been taken over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hotspare.engine.kernels import Whole, kernel
from hotspare.engine.kernels.index import EMPTY, HALF, NONE, ONE, key_hash
from hotspare.engine.kernels.table import find, slot_at, table_drop, table_entry, table_place
from hotspare.engine.rows.chunk import Bools, Int64s

UInt64s = npt.NDArray[np.uint64]

AFTER, BEFORE, ARRIVAL, NEWEST = 0, 1, 2, 3
"""Columns of `Store.meta`: neighbours in the list (-1: none), number of arrival (-1: free), in the first of a list its last."""
META_WIDTH = 4

LIVE, FREE, HIGH, ARRIVALS, FREED = 0, 1, 2, 3, 4
"""Entries of `Store.state`: rows stored; free slots on the stack; slots ever used; arrivals so far; slots given up."""
STATE_WIDTH = 5


class Store(NamedTuple):
    """`by_key`, `by_condition`: tables as `kernels.table` has them, of all rows and of the first of each list. `keys`,
    `conditions`: places of fields."""

    by_key: UInt64s
    by_condition: UInt64s
    lanes: Int64s
    valid: Bools
    meta: Int64s
    free: Int64s
    freed: Int64s
    state: Int64s
    keys: Int64s
    conditions: Int64s


@kernel
def has_all(valid: Bools, row: Whole, columns: Int64s) -> bool:
    """Whether none of these fields is null."""
    whole = True
    for k in range(len(columns)):
        if not valid[np.uint64(row), np.uint64(columns[k])]:
            whole = False
    return whole


@kernel
def agree(a: Int64s, a_row: Whole, a_columns: Int64s, b: Int64s, b_row: Whole, b_columns: Int64s) -> bool:
    i, j = np.uint64(a_row), np.uint64(b_row)
    same = True
    for k in range(len(a_columns)):
        if a[i, np.uint64(a_columns[k])] != b[j, np.uint64(b_columns[k])]:
            same = False
    return same


@kernel
def place_of_list(store: Store, lanes: Int64s, row: Whole, columns: Int64s, h: np.uint64) -> np.uint64:
    """Place of the list whose rows agree with these fields, or the empty place where it belongs."""
    mask = np.uint64(len(store.by_condition) - 1)
    half = h & HALF
    at = half & mask
    while store.by_condition[at] != EMPTY:
        slot = slot_at(store.by_condition, at)
        if store.by_condition[at] >> np.uint64(32) == half and agree(store.lanes, slot, store.conditions, lanes, row, columns):
            break
        at = (at + ONE) & mask
    return at


@kernel
def first_of(store: Store, lanes: Int64s, valid: Bools, row: Whole, columns: Int64s) -> Whole:
    """The slot of the first row that agrees with these fields; NONE where there is none, or one of them is null."""
    if not has_all(valid, row, columns):
        return NONE
    return slot_at(store.by_condition, place_of_list(store, lanes, row, columns, key_hash(lanes, row, columns)))


@kernel
def enlist(store: Store, slot: Whole) -> None:
    """Put a stored row last in its list."""
    store.meta[slot, AFTER] = NONE
    store.meta[slot, BEFORE] = NONE
    store.meta[slot, NEWEST] = slot
    if not has_all(store.valid, slot, store.conditions):
        return
    h = key_hash(store.lanes, slot, store.conditions)
    at = place_of_list(store, store.lanes, slot, store.conditions, h)
    first = slot_at(store.by_condition, at)
    if first < 0:
        store.by_condition[at] = table_entry(h, slot)
        return
    last = store.meta[first, NEWEST]
    store.meta[last, AFTER] = slot
    store.meta[slot, BEFORE] = last
    store.meta[first, NEWEST] = slot


@kernel
def delist(store: Store, slot: Whole) -> None:
    if not has_all(store.valid, slot, store.conditions):
        return
    before, after = store.meta[slot, BEFORE], store.meta[slot, AFTER]
    h = key_hash(store.lanes, slot, store.conditions)
    if before >= 0:
        store.meta[before, AFTER] = after
        if after >= 0:
            store.meta[after, BEFORE] = before
        else:
            first = slot_at(store.by_condition, place_of_list(store, store.lanes, slot, store.conditions, h))
            store.meta[first, NEWEST] = before
        return
    at = table_place(store.by_condition, h, slot)
    if after < 0:
        table_drop(store.by_condition, at)
        return
    store.by_condition[at] = table_entry(h, after)
    store.meta[after, BEFORE] = NONE
    store.meta[after, NEWEST] = store.meta[slot, NEWEST]


@kernel
def stand_in(store: Store, slot: Whole, old: Whole) -> None:
    """Put a row where another one of the same list stands, and arrived."""
    store.meta[slot, ARRIVAL] = store.meta[old, ARRIVAL]
    if not has_all(store.valid, slot, store.conditions):
        enlist(store, slot)
        return
    before, after = store.meta[old, BEFORE], store.meta[old, AFTER]
    store.meta[slot, BEFORE] = before
    store.meta[slot, AFTER] = after
    store.meta[slot, NEWEST] = slot if after < 0 else store.meta[old, NEWEST]
    if after >= 0:
        store.meta[after, BEFORE] = slot
    h = key_hash(store.lanes, slot, store.conditions)
    if before >= 0:
        store.meta[before, AFTER] = slot
        if after < 0:
            first = slot_at(store.by_condition, place_of_list(store, store.lanes, slot, store.conditions, h))
            store.meta[first, NEWEST] = slot
    else:
        store.by_condition[table_place(store.by_condition, h, old)] = table_entry(h, slot)


@kernel
def written(store: Store, lanes: Int64s, valid: Bools, row: Whole) -> Whole:
    """A slot of its own for a row."""
    if store.state[FREE] > 0:
        store.state[FREE] -= 1
        slot = np.int64(store.free[store.state[FREE]])
    else:
        slot = np.int64(store.state[HIGH])
        store.state[HIGH] += 1
    for j in range(lanes.shape[1]):
        store.lanes[slot, j] = lanes[row, j]
        store.valid[slot, j] = valid[row, j]
    return slot


@kernel
def given_up(store: Store, slot: Whole) -> None:
    store.meta[slot, ARRIVAL] = NONE
    store.freed[store.state[FREED]] = slot
    store.state[FREED] += 1


@kernel
def add_row(store: Store, lanes: Int64s, valid: Bools, row: Whole) -> None:
    """A row whose key is not there."""
    h = key_hash(lanes, row, store.keys)
    place = find(store.by_key, store.lanes, store.keys, lanes, row, h)
    slot = written(store, lanes, valid, row)
    store.by_key[place] = table_entry(h, slot)
    store.meta[slot, ARRIVAL] = store.state[ARRIVALS]
    store.state[ARRIVALS] += 1
    store.state[LIVE] += 1
    enlist(store, slot)


@kernel
def drop_row(store: Store, lanes: Int64s, row: Whole) -> None:
    """The row with this key, if it is there."""
    place = find(store.by_key, store.lanes, store.keys, lanes, row, key_hash(lanes, row, store.keys))
    slot = slot_at(store.by_key, place)
    if slot < 0:
        return
    table_drop(store.by_key, place)
    delist(store, slot)
    store.state[LIVE] -= 1
    given_up(store, slot)


@kernel
def change_row(store: Store, lanes: Int64s, valid: Bools, row: Whole) -> None:
    """A new version of the row with this key: in its place, or last where it comes into another list."""
    h = key_hash(lanes, row, store.keys)
    place = find(store.by_key, store.lanes, store.keys, lanes, row, h)
    old = slot_at(store.by_key, place)
    if old < 0:
        add_row(store, lanes, valid, row)
        return
    slot = written(store, lanes, valid, row)
    store.by_key[place] = table_entry(h, slot)
    if same_list(store.valid, old, store.lanes, valid, row, lanes, store.conditions):
        stand_in(store, slot, old)
    else:
        delist(store, old)
        store.meta[slot, ARRIVAL] = store.state[ARRIVALS]
        store.state[ARRIVALS] += 1
        enlist(store, slot)
    given_up(store, old)


@kernel
def same_list(a_valid: Bools, a_row: Whole, a: Int64s, b_valid: Bools, b_row: Whole, b: Int64s, columns: Int64s) -> bool:
    """Whether two rows are found together, or both are not found because of a null."""
    known = has_all(a_valid, a_row, columns)
    if known != has_all(b_valid, b_row, columns):
        return False
    return not known or agree(a, a_row, columns, b, b_row, columns)


@kernel
def fill_store(store: Store, count: Whole) -> None:
    """Enter the rows that stand in slots 0 to count - 1 into empty structures, in this order."""
    for slot in range(count):
        h = key_hash(store.lanes, slot, store.keys)
        store.by_key[find(store.by_key, store.lanes, store.keys, store.lanes, slot, h)] = table_entry(h, slot)
        store.meta[slot, ARRIVAL] = slot
        enlist(store, slot)
    store.state[LIVE] = count
    store.state[HIGH] = count
    store.state[ARRIVALS] = count
