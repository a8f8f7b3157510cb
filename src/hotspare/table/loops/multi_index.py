"""Loops of an index with several rows per condition (see `table.multi_index`).

Rows are in the pages of a relation. Those that agree in the fields of a condition are a list, in order of arrival; the index finds
the first of a list. Lists name slots, and follow event by event what the relation did to a whole chunk. A version of a row stays in
its slot until the chunk is done, so each event finds the rows as they were then.

If rows are loaded later than they arrived, after a restore, a list has the loaded ones, and a row is inserted in order of arrival.
If its place is far from both ends, the row is appended, and the list is sorted when it is next walked.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.rows.compile import Whole, called, kernel
from hotspare.table.loops.index import (
    NONE,
    Index,
    agree_in_condition,
    drop,
    enter,
    entry_of,
    find,
    has_all,
    has_room,
    key_hash,
    place_of,
    replace,
    slot_at,
)
from hotspare.table.loops.pages import MADE_BEFORE, NEW_SLOT, OLD_SLOT
from hotspare.table.loops.relation import DELETE, INSERT, UPDATE_BLOCK

AFTER, BEFORE, NEWEST = 0, 1, 2
"""Columns of `Lists.links`: neighbours in the list, NONE at its ends; in the first row of a list, its last."""
LINKS_WIDTH = 3
UNORDERED = np.int64(-2)
"""The BEFORE of the first row of a list that is not in order of arrival."""
LOOKS_MAX = 16
"""The most rows checked, from the last one backwards, to find the place of a row by arrival."""
FOLLOWED, MOVES = 0, 1
"""Entries of `Lists.counts`: the moves followed, and all moves."""
COUNTS_WIDTH = 2


class Lists(NamedTuple):
    """Lists of rows that agree in the fields of a condition. `lanes`, `valid`, `order` and `moved` are those of `Rows`.

    by_condition  the index that finds the first row of a list
    links         int64[., 3]: AFTER, BEFORE and NEWEST of each slot
    counts        int64[2]: FOLLOWED, MOVES
    conditions    the columns of the condition's fields
    """

    by_condition: Index
    links: Int64s
    lanes: Int64s
    valid: Bools
    order: Int64s
    moved: Int64s
    counts: Int64s
    conditions: Int64s


@kernel
def first_in(lists: Lists, lanes: Int64s, row: Whole, columns: Int64s) -> Whole:
    """Returns the slot of the first row that agrees with these fields, none of which is null; NONE if there is none."""
    h = key_hash(lanes, row, columns)
    return slot_at(lists.by_condition, find(lists.by_condition, lists.lanes, lists.conditions, lanes, row, columns, h))


@kernel
def first_of(lists: Lists, lanes: Int64s, valid: Bools, row: Whole, columns: Int64s) -> Whole:
    """Returns the slot of the first row that agrees with these fields; NONE if there is none, or a field is null."""
    if not has_all(valid, row, columns):
        return NONE
    return first_in(lists, lanes, row, columns)


@kernel
def can_enlist(lists: Lists, slot: Whole) -> bool:
    """Whether the index has room for the list that a row may begin."""
    if not has_all(lists.valid, slot, lists.conditions):
        return True
    return has_room(lists.by_condition, key_hash(lists.lanes, slot, lists.conditions))


@kernel
def enlist(lists: Lists, slot: Whole) -> None:
    """Appends a row to its list."""
    if not has_all(lists.valid, slot, lists.conditions):
        return
    links = lists.links
    links[slot, AFTER] = NONE
    h = key_hash(lists.lanes, slot, lists.conditions)
    place = find(lists.by_condition, lists.lanes, lists.conditions, lists.lanes, slot, lists.conditions, h)
    first = slot_at(lists.by_condition, place)
    if first < 0:
        enter(lists.by_condition, place, entry_of(h, slot))
        links[slot, BEFORE] = NONE
        links[slot, NEWEST] = slot
        return
    last = links[first, NEWEST]
    links[last, AFTER] = slot
    links[slot, BEFORE] = last
    links[first, NEWEST] = slot


@kernel
def place_to_admit(lists: Lists, first: Whole, slot: Whole) -> Whole:
    """Returns the row of the list of `first` after which `slot` belongs by arrival; NONE if it belongs first. If the list is
    unordered, or more than LOOKS_MAX rows would be checked, returns its last row and marks the list as unordered."""
    links, order, last = lists.links, lists.order, np.int64(lists.links[first, NEWEST])
    if links[first, BEFORE] == UNORDERED or order[last] < order[slot]:
        return last
    if order[slot] < order[first]:
        return NONE
    before = last
    for _ in range(LOOKS_MAX):
        before = np.int64(links[before, BEFORE])
        if order[before] < order[slot]:
            return before
    links[first, BEFORE] = UNORDERED
    return last


@kernel
def admit(lists: Lists, slot: Whole) -> None:
    """Inserts a row into its list in order of arrival."""
    if not has_all(lists.valid, slot, lists.conditions):
        return
    links = lists.links
    h = key_hash(lists.lanes, slot, lists.conditions)
    place = find(lists.by_condition, lists.lanes, lists.conditions, lists.lanes, slot, lists.conditions, h)
    first = slot_at(lists.by_condition, place)
    if first < 0:
        enter(lists.by_condition, place, entry_of(h, slot))
        links[slot, AFTER], links[slot, BEFORE], links[slot, NEWEST] = NONE, NONE, slot
        return
    before = place_to_admit(lists, first, slot)
    links[slot, BEFORE] = before
    if before < 0:
        replace(lists.by_condition, place, entry_of(h, slot))
        links[slot, AFTER], links[slot, NEWEST] = first, links[first, NEWEST]
        links[first, BEFORE] = slot
        return
    after = links[before, AFTER]
    links[slot, AFTER] = after
    links[before, AFTER] = slot
    if after >= 0:
        links[after, BEFORE] = slot
    else:
        links[first, NEWEST] = slot


@called
def put_in_order(lists: Lists, first: Whole) -> Whole:
    """Sorts a list by arrival, by merging runs that double in length. Returns its first row."""
    links, order = lists.links, lists.order
    head: Whole = np.int64(first)
    tail: Whole = NONE
    size, merges = np.int64(1), np.int64(2)
    while merges > 1:
        merges = np.int64(0)
        one: Whole = np.int64(head)
        tail = NONE
        while one >= 0:
            merges += 1
            other: Whole = np.int64(one)
            ones, others = np.int64(0), np.int64(size)
            while other >= 0 and ones < size:
                other = np.int64(links[other, AFTER])
                ones += 1
            while ones > 0 or (others > 0 and other >= 0):
                if ones == 0 or (others > 0 and other >= 0 and order[other] < order[one]):
                    taken = np.int64(other)
                    other = np.int64(links[other, AFTER])
                    others -= 1
                else:
                    taken = np.int64(one)
                    one = np.int64(links[one, AFTER])
                    ones -= 1
                if tail < 0:
                    head = taken
                else:
                    links[tail, AFTER] = taken
                links[taken, BEFORE] = tail
                tail = taken
            one = other
        links[tail, AFTER] = NONE
        size *= 2
    links[head, NEWEST] = tail
    h = key_hash(lists.lanes, first, lists.conditions)
    replace(lists.by_condition, place_of(lists.by_condition, h, first), entry_of(h, head))
    return head


@kernel
def first_to_walk(lists: Lists, lanes: Int64s, row: Whole, columns: Int64s) -> Whole:
    """Returns the same as `first_in`, and sorts the list before it is walked."""
    first = first_in(lists, lanes, row, columns)
    if first >= 0 and lists.links[first, BEFORE] == UNORDERED:
        return put_in_order(lists, first)
    return first


@kernel
def first_in_order(lists: Lists, lanes: Int64s, valid: Bools, row: Whole, columns: Int64s) -> Whole:
    """Returns the same as `first_of`, and sorts the list before it is walked."""
    if not has_all(valid, row, columns):
        return NONE
    return first_to_walk(lists, lanes, row, columns)


@kernel
def delist(lists: Lists, slot: Whole) -> None:
    if not has_all(lists.valid, slot, lists.conditions):
        return
    links = lists.links
    before, after = links[slot, BEFORE], links[slot, AFTER]
    if before >= 0:
        links[before, AFTER] = after
        if after >= 0:
            links[after, BEFORE] = before
        else:
            links[first_in(lists, lists.lanes, slot, lists.conditions), NEWEST] = before
        return
    h = key_hash(lists.lanes, slot, lists.conditions)
    place = place_of(lists.by_condition, h, slot)
    if after < 0:
        drop(lists.by_condition, place)
        return
    replace(lists.by_condition, place, entry_of(h, after))
    links[after, BEFORE] = before
    links[after, NEWEST] = links[slot, NEWEST]


@kernel
def replace_in_list(lists: Lists, slot: Whole, old: Whole) -> None:
    """Puts `slot` in the place of `old`, a row of the same list."""
    if not has_all(lists.valid, slot, lists.conditions):
        return
    links = lists.links
    before, after = links[old, BEFORE], links[old, AFTER]
    links[slot, BEFORE] = before
    links[slot, AFTER] = after
    if after >= 0:
        links[after, BEFORE] = slot
    if before >= 0:
        links[before, AFTER] = slot
        if after < 0:
            links[first_in(lists, lists.lanes, slot, lists.conditions), NEWEST] = slot
        return
    links[slot, NEWEST] = slot if after < 0 else links[old, NEWEST]
    h = key_hash(lists.lanes, slot, lists.conditions)
    replace(lists.by_condition, place_of(lists.by_condition, h, old), entry_of(h, slot))


@kernel
def follow_moves(lists: Lists, made: Whole) -> None:
    """Replaces the slots of moved rows by their new slots in the lists, for the moves that happened before output number `made`."""
    counts = lists.counts
    while counts[FOLLOWED] < counts[MOVES] and lists.moved[counts[FOLLOWED], MADE_BEFORE] <= made:
        at = counts[FOLLOWED]
        replace_in_list(lists, lists.moved[at, NEW_SLOT], lists.moved[at, OLD_SLOT])
        counts[FOLLOWED] += 1


@kernel
def follow(lists: Lists, opcode: UInt8s, row: Int64s, i: Whole) -> bool:
    """Applies the event at output number `i` to the lists; `row` has the slots of the outputs. Returns False, with the event not
    applied, if the index has no room."""
    follow_moves(lists, i)
    slot = row[i]
    if opcode[i] == DELETE:
        delist(lists, slot)
        return True
    if not can_enlist(lists, slot):
        return False
    if opcode[i] == INSERT:
        enlist(lists, slot)
    elif opcode[i] == UPDATE_BLOCK:
        if agree_in_condition(lists.lanes, lists.valid, slot, row[i + 1], lists.conditions):
            replace_in_list(lists, slot, row[i + 1])
        else:
            delist(lists, row[i + 1])
            enlist(lists, slot)
    return True


@kernel
def follow_all(lists: Lists, opcode: UInt8s, row: Int64s, begin: Whole) -> Whole:
    """Applies all events from output number `begin` on. Returns the end, or the number of the first output for which the index has
    no room."""
    at = begin
    while at < len(row) and follow(lists, opcode, row, at):
        at += 2 if opcode[at] == UPDATE_BLOCK else 1
    return at


@kernel
def find_lists(lists: Lists, lanes: Int64s, columns: Int64s, first: Int64s) -> None:
    """Writes for each row the slot of the first one that agrees with these fields, none of which is null; NONE if there is none."""
    for i in range(len(lanes)):
        first[i] = first_in(lists, lanes, i, columns)


@kernel
def fill_lists(lists: Lists, slots: Int64s, begin: Whole) -> Whole:
    """Appends the rows of `slots`, which are in order of arrival, from index `begin` on. Returns the end, or the index of the first
    row for which the lists lack room."""
    at = begin
    while at < len(slots) and can_enlist(lists, slots[at]):
        enlist(lists, slots[at])
        at += 1
    return at


@kernel
def admit_all(lists: Lists, slots: Int64s, begin: Whole) -> Whole:
    """Inserts the rows of `slots` from index `begin` on into their lists, in order of arrival. Returns the end, or the index of the
    first row for which the lists lack room."""
    at = begin
    while at < len(slots) and can_enlist(lists, slots[at]):
        admit(lists, slots[at])
        at += 1
    return at
