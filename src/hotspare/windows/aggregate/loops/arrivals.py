"""Loops over the rows of each group in order of arrival, for functions of the first row, the n-th, the n-th last or all (see
`windows.aggregate.operator`). A changed row counts as a new arrival.

Rows are stored in the pages of a relation, under a key of their own; the lists of `table.loops.multi_index` keep them in order.
"""

from __future__ import annotations

from typing import NamedTuple

from hotspare.rows.chunk import Int64s
from hotspare.rows.compile import Whole, called, kernel
from hotspare.table.loops.index import NONE, drop, enter, entry_of, key_hash, slot_at
from hotspare.table.loops.multi_index import AFTER, BEFORE, NEWEST, Lists, delist, enlist, first_to_walk, replace_in_list
from hotspare.table.loops.pages import NEW_SLOT, OLD_SLOT, Rows, free_slot, is_ready, take_slot
from hotspare.table.loops.shared import check_gaps_shared, look_up, room_for
from hotspare.table.loops.slots import ARRIVALS, LIVE, MOVED
from hotspare.windows.aggregate.loops.components import GroupEvents


class Arrivals(NamedTuple):
    """Rows in order of arrival, with a list for each group. A group is identified by the condition columns of `rows`.

    `columns`: columns of events that `rows` stores. `keys`: columns of events that are the key of a row. `groups`: columns of
    events that are the key of its group.
    """

    rows: Rows
    lists: Lists
    columns: Int64s
    keys: Int64s
    groups: Int64s


@called
def is_prepared_for_row(arrivals: Arrivals, events: GroupEvents, row: Whole) -> bool:
    """Whether the pages, their index and the lists have room for event row `row`."""
    rows, lists = arrivals.rows, arrivals.lists
    has_lists = room_for(lists.by_condition, key_hash(events.lanes, row, arrivals.groups))
    return is_ready(rows) and has_lists and room_for(rows.by_key, key_hash(events.lanes, row, arrivals.keys))


@kernel
def tidy_arrivals(arrivals: Arrivals) -> None:
    """Prepares a change: checks gaps of pages, which may move rows, and updates the lists for moved rows. Call it once before each
    change.
    """
    rows = arrivals.rows
    check_gaps_shared(rows, 0)
    for at in range(rows.state[MOVED]):
        replace_in_list(arrivals.lists, rows.moved[at, NEW_SLOT], rows.moved[at, OLD_SLOT])
    rows.state[MOVED] = 0


@called
def change_arrivals(arrivals: Arrivals, events: GroupEvents, row: Whole, sign: Whole) -> None:
    """Appends event row `row` as the newest of its group (`sign` 1), or removes it (-1). A stored row with the same key is removed
    first.
    """
    rows = arrivals.rows
    h = key_hash(events.lanes, row, arrivals.keys)
    place = look_up(rows.by_key, rows.lanes, rows.keys, events.lanes, row, arrivals.keys, h)
    slot = slot_at(rows.by_key, place)
    if slot >= 0:
        delist(arrivals.lists, slot)
        drop(rows.by_key, place)
        rows.state[LIVE] -= 1
        free_slot(rows, slot)
        place = look_up(rows.by_key, rows.lanes, rows.keys, events.lanes, row, arrivals.keys, h)
    if sign < 0:
        return
    slot = take_slot(rows)
    for j in range(len(arrivals.columns)):
        rows.lanes[slot, j] = events.lanes[row, arrivals.columns[j]]
        rows.valid[slot, j] = events.valid[row, arrivals.columns[j]]
    rows.order[slot] = rows.state[ARRIVALS]
    rows.state[ARRIVALS] += 1
    rows.state[LIVE] += 1
    enter(rows.by_key, place, entry_of(h, slot))
    enlist(arrivals.lists, slot)


@called
def first_arrival(arrivals: Arrivals, lanes: Int64s, row: Whole, groups: Int64s) -> Whole:
    """Returns the slot of the oldest row of the group whose key is in columns `groups` of `lanes[row]`; NONE for an empty group."""
    return first_to_walk(arrivals.lists, lanes, row, groups)


@kernel
def arrival_at(arrivals: Arrivals, first: Whole, steps: Whole) -> Whole:
    """Returns the slot of the row `steps` after `first`, the first row of its group. Below 0, `steps` counts from the end: -1 is
    the last row. NONE if the group has too few rows.
    """
    links = arrivals.lists.links
    at: Whole = first
    if first >= 0 and steps < 0:
        at = links[first, NEWEST]
        while at >= 0 and steps < -1:
            at = links[at, BEFORE]
            steps += 1
        return at
    while at >= 0 and steps > 0:
        at = links[at, AFTER]
        steps -= 1
    return at if at >= 0 else NONE
