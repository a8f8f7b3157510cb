"""Loops of a relation that keeps the newest rows of each group (SPEC A23 by key): those that agree in the fields `Rows.conditions`.

Each group has a list of its rows in order of arrival. An index finds the first row of a list; the links of the first row have the
last row and the count of rows. So the cost of an event depends neither on the number of groups nor on the rows that they keep.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hotspare.rows.chunk import Int64s
from hotspare.rows.compile import Whole, called, kernel
from hotspare.table.loops.index import NONE, agree_in_condition, enter, entry_of, find, has_all, key_hash, slot_at
from hotspare.table.loops.multi_index import (
    AFTER,
    BEFORE,
    NEWEST,
    UNORDERED,
    Lists,
    admit,
    delist,
    first_in,
    put_in_order,
    replace_in_list,
)
from hotspare.table.loops.pages import NEW_SLOT, OLD_SLOT, Rows, tidy
from hotspare.table.loops.relation import (
    DELETE,
    DONE,
    INSERT,
    IS_FULL,
    MADE,
    NEEDS_ROOM,
    OPCODE,
    PARTIAL,
    ROOM,
    ROW,
    SLOT,
    InputArrays,
    OutputArrays,
    Policy,
    evict_row,
    missing_resource,
    resolve_row,
    rows_of_event,
)
from hotspare.table.loops.shared import look_up, room_for
from hotspare.table.loops.slots import INDEXED, MOVED

MEMBERS = 3
"""The column of `Lists.links` after those of `table.loops.multi_index`: in the first row of a list, the count of the list's
rows."""
LINKS_WIDTH = 4


class RowGroups(NamedTuple):
    """Lists by the fields `Rows.conditions`, none of which is null in any row. `merged`: int64[1, width], scratch memory for a
    row."""

    lists: Lists
    merged: Int64s


@kernel
def join_group(lists: Lists, slot: Whole) -> None:
    """Appends a row to the list of its group."""
    links = lists.links
    h = key_hash(lists.lanes, slot, lists.conditions)
    place = find(lists.by_condition, lists.lanes, lists.conditions, lists.lanes, slot, lists.conditions, h)
    first = slot_at(lists.by_condition, place)
    links[slot, AFTER] = NONE
    if first < 0:
        enter(lists.by_condition, place, entry_of(h, slot))
        links[slot, BEFORE] = NONE
        links[slot, NEWEST] = slot
        links[slot, MEMBERS] = 1
        return
    last = links[first, NEWEST]
    links[last, AFTER] = slot
    links[slot, BEFORE] = last
    links[first, NEWEST] = slot
    links[first, MEMBERS] += 1


@kernel
def admit_to_group(lists: Lists, slot: Whole) -> None:
    """Inserts a row into the list of its group in order of arrival, after a restore."""
    links, first = lists.links, first_in(lists, lists.lanes, slot, lists.conditions)
    members = np.int64(links[first, MEMBERS]) if first >= 0 else np.int64(0)
    admit(lists, slot)
    links[slot if first < 0 or links[first, BEFORE] == slot else first, MEMBERS] = members + 1


@kernel
def oldest_of_group(lists: Lists, first: Whole) -> Whole:
    """Returns the oldest row of the list whose first row is `first`; sorts the list before if it is unordered."""
    if lists.links[first, BEFORE] != UNORDERED:
        return first
    members = np.int64(lists.links[first, MEMBERS])
    oldest = put_in_order(lists, first)
    lists.links[oldest, MEMBERS] = members
    return oldest


@called
def remove_from_group(lists: Lists, slot: Whole) -> None:
    links = lists.links
    before, after = links[slot, BEFORE], links[slot, AFTER]
    if before >= 0:
        links[first_in(lists, lists.lanes, slot, lists.conditions), MEMBERS] -= 1
    elif after >= 0:
        links[after, MEMBERS] = links[slot, MEMBERS] - 1
    delist(lists, slot)


@called
def replace_in_group(lists: Lists, slot: Whole, old: Whole) -> None:
    """Puts `slot` in the place of `old`, a row of the same group, in its list."""
    replace_in_list(lists, slot, old)
    lists.links[slot, MEMBERS] = lists.links[old, MEMBERS]


@called
def has_room_for_group(rows: Rows, groups: RowGroups, chunk: InputArrays, i: Whole, h: np.uint64) -> bool:
    """Whether the index has room for the group that an event, whose key has the hash `h`, may begin. For a partial update, new and
    stored values together may give the group."""
    lists = groups.lists
    if has_all(chunk.valid, i, rows.conditions):
        return room_for(lists.by_condition, key_hash(chunk.lanes, i, rows.conditions))
    if not chunk.flags[i] & PARTIAL or rows.state[INDEXED] == 0 or not has_all(chunk.valid, i, rows.keys):
        return True
    slot = slot_at(rows.by_key, look_up(rows.by_key, rows.lanes, rows.keys, chunk.lanes, i, rows.keys, h))
    if slot < 0:
        return True
    for at in range(len(rows.conditions)):
        column = rows.conditions[at]
        groups.merged[0, column] = chunk.lanes[i, column] if chunk.valid[i, column] else rows.lanes[slot, column]
    return room_for(lists.by_condition, key_hash(groups.merged, 0, rows.conditions))


@kernel
def tidy_groups(rows: Rows, lists: Lists, made: Whole) -> None:
    """Compacts pages if there are too many gaps, and applies the moves of rows to the lists; called exactly once before each event.
    `made`: the count of outputs so far.
    """
    tidy(rows, made)
    for at in range(rows.state[MOVED]):
        replace_in_group(lists, rows.moved[at, NEW_SLOT], rows.moved[at, OLD_SLOT])
    rows.state[MOVED] = 0


@kernel
def follow_groups(lists: Lists, made: Int64s, at: Whole) -> None:
    """Applies output number `at` of the records `made`, and for an update the one after it, to the lists."""
    slot = made[at, SLOT]
    if made[at, OPCODE] == INSERT:
        join_group(lists, slot)
    elif made[at, OPCODE] == DELETE:
        remove_from_group(lists, slot)
    else:
        old = made[at + 1, SLOT]
        if agree_in_condition(lists.lanes, lists.valid, slot, old, lists.conditions):
            replace_in_group(lists, slot, old)
        else:
            remove_from_group(lists, old)
            join_group(lists, slot)


@kernel
def evict_first(made: Int64s, first: Whole, last: Whole) -> None:
    """Moves output number `last`, the delete of an evicted row, before the outputs of the arrived row, which begin at number
    `first`."""
    for at in range(last, first, -1):
        for column in range(made.shape[1]):
            made[at, column], made[at - 1, column] = made[at - 1, column], made[at, column]


@kernel
def relate_groups(rows: Rows, groups: RowGroups, out: OutputArrays, policy: Policy, chunk: InputArrays) -> Whole:
    """Applies a chunk as `table.loops.relation.relate` does, without heartbeats and times. A row that arrives in a full group
    evicts the oldest one."""
    lists = groups.lists
    i = np.int64(out.counts[ROW])
    while i < len(chunk.rank) and out.counts[MADE] < out.counts[ROOM]:
        h = key_hash(chunk.lanes, i, rows.keys)
        missing = missing_resource(rows, chunk, i, h)
        if missing == DONE and not has_room_for_group(rows, groups, chunk, i, h):
            missing = NEEDS_ROOM
        if missing != DONE:
            out.counts[ROW] = i
            return missing
        made = np.int64(out.counts[MADE])
        tidy_groups(rows, lists, made)
        came = resolve_row(rows, out, policy, chunk, i, h)
        if out.counts[MADE] > made:
            follow_groups(lists, out.output_records, made)
        if came >= 0:
            first = first_in(lists, lists.lanes, came, lists.conditions)
            if lists.links[first, MEMBERS] > policy.limit:
                first = oldest_of_group(lists, first)
                remove_from_group(lists, first)
                evict_row(rows, out, policy, first, chunk.rank[i])
                if policy.evicts_first == 1:
                    evict_first(out.output_records, made, np.int64(out.counts[MADE] - 1))
        i += rows_of_event(chunk, i, rows.keys)
    out.counts[ROW] = i
    return DONE if i == len(chunk.rank) else IS_FULL


@kernel
def fill_groups(lists: Lists, slots: Int64s, begin: Whole) -> Whole:
    """Appends the rows of `slots`, which are in order of arrival, from index `begin` on. Returns the end, or the index of the first
    row for which the index of groups lacks room."""
    at = begin
    while at < len(slots) and room_for(lists.by_condition, key_hash(lists.lanes, slots[at], lists.conditions)):
        join_group(lists, slots[at])
        at += 1
    return at


@kernel
def admit_groups(lists: Lists, slots: Int64s, begin: Whole) -> Whole:
    """Inserts rows loaded after a restore into lists that may hold other rows, in order of arrival. `begin` and the result are as
    in `fill_groups`."""
    at = begin
    while at < len(slots) and room_for(lists.by_condition, key_hash(lists.lanes, slots[at], lists.conditions)):
        admit_to_group(lists, slots[at])
        at += 1
    return at
