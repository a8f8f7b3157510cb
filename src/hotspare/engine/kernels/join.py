"""Loops of a join: who meets whom, event by event (see `engine.operators.join`).

An output names rows, not values: of the side whose event causes it a row of the chunk, of the other side a slot of its store. What
one event causes may be more than there is room for; `counts` tells where to go on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hotspare.engine.kernels import Whole, kernel
from hotspare.engine.kernels.index import NONE
from hotspare.engine.kernels.multi_index import AFTER, Store, add_row, change_row, drop_row, first_of, same_list
from hotspare.engine.kernels.relation import DELETE, INSERT, SAFE_DELETE, UPDATE_BLOCK, UPSERT, whole_flags
from hotspare.engine.rows.chunk import Bools, Int64s, UInt8s

RANK, OPCODE, FLAGS, SIDE, OWN, OTHER, EVENT = 0, 1, 2, 3, 4, 5, 6
"""Columns of what is made: SIDE 0 is left. OWN: row of that side's chunk; OTHER: slot of the other side; NONE: there is none.
EVENT: row of that side's chunk that caused it."""
MADE_WIDTH = 7

MADE, ROOM, AT, WALK, CURSOR = 0, 1, 2, 3, 4
"""Entries of `counts`: outputs made, and how many may be; events taken; the walk that is under way, and where it is."""
COUNTS_WIDTH = 5

KEEPS_OWN, KEEPS_OTHER, IS_KEY, STORES, ONCE, SILENT = 0, 1, 2, 3, 4, 5
"""Of each side: whether its rows come out alone, and those of the other one; whether it identifies joined rows by itself; whether
it is stored; whether it is joined once, for an index behind; whether nothing comes of its events."""
RULES_WIDTH = 6

NO_WALK, OLD, BOTH, NEW = (np.int64(walk) for walk in (0, 1, 2, 3))
"""Walks over the rows of the other side that an event meets: with its old values, with old and new ones, with the new ones."""
LEFT, RIGHT = np.int64(0), np.int64(1)


class Events(NamedTuple):
    """A chunk of one side. `conditions`: places of the fields that are compared."""

    rank: Int64s
    opcode: UInt8s
    flags: UInt8s
    lanes: Int64s
    valid: Bools
    conditions: Int64s


class Meeting(NamedTuple):
    """`made` int64[., 7] has two rows more than there may be outputs."""

    made: Int64s
    counts: Int64s


@kernel
def put(out: Meeting, events: Events, i: Whole, opcode: Whole, side: Whole, own: Whole, other: Whole) -> None:
    at = out.counts[MADE]
    out.made[at, RANK] = events.rank[i]
    out.made[at, OPCODE] = opcode
    out.made[at, FLAGS] = whole_flags(events.flags[i])
    out.made[at, SIDE] = side
    out.made[at, OWN] = own
    out.made[at, OTHER] = other
    out.made[at, EVENT] = i
    out.counts[MADE] = at + 1


@kernel
def put_met(
    out: Meeting, events: Events, i: Whole, side: Whole, walk: Whole, new: Whole, old: Whole, other: Whole, kept: Whole
) -> None:
    """What comes of an event and a row that it meets. `kept` 1: that row is there alone where it meets none."""
    if walk == BOTH:
        put(out, events, i, UPDATE_BLOCK, side, new, other)
        put(out, events, i, DELETE, side, old, other)
    elif walk == OLD:
        if kept == 1:
            put(out, events, i, UPDATE_BLOCK, side, NONE, other)
        put(out, events, i, DELETE, side, old, other)
    elif kept == 1:
        put(out, events, i, UPDATE_BLOCK, side, new, other)
        put(out, events, i, DELETE, side, NONE, other)
    else:
        put(out, events, i, INSERT, side, new, other)


@kernel
def put_alone(out: Meeting, events: Events, i: Whole, side: Whole, walk: Whole, new: Whole, old: Whole) -> None:
    """What comes of an event that meets no row, where its own rows are there alone."""
    if walk == BOTH:
        put(out, events, i, UPDATE_BLOCK, side, new, NONE)
        put(out, events, i, DELETE, side, old, NONE)
    elif walk == OLD:
        put(out, events, i, DELETE, side, old, NONE)
    else:
        put(out, events, i, INSERT, side, new, NONE)


@kernel
def store_event(own: Store, events: Events, i: Whole) -> None:
    if events.opcode[i] == INSERT:
        add_row(own, events.lanes, events.valid, i)
    elif events.opcode[i] == UPDATE_BLOCK:
        change_row(own, events.lanes, events.valid, i)
    else:
        drop_row(own, events.lanes, i)


@kernel
def meet_one(other: Store, out: Meeting, rule: Int64s, events: Events, i: Whole, side: Whole) -> None:
    """An event of the side that identifies joined rows: each of its rows is in one of them at most."""
    opcode = events.opcode[i]
    new: Whole = NONE if opcode == DELETE else i
    old: Whole = i + 1 if opcode == UPDATE_BLOCK else (i if opcode == DELETE else NONE)
    new_other: Whole = NONE
    old_other: Whole = NONE
    if new >= 0:
        new_other = first_of(other, events.lanes, events.valid, new, events.conditions)
    comes = new >= 0 and (new_other >= 0 or rule[KEEPS_OWN] == 1)
    if rule[ONCE] == 1:
        if comes:
            put(out, events, i, INSERT if opcode == INSERT else UPSERT, side, new, new_other)
        elif old >= 0:
            put(out, events, i, SAFE_DELETE, side, old, NONE)
        return
    if old >= 0:
        old_other = first_of(other, events.lanes, events.valid, old, events.conditions)
    goes = old >= 0 and (old_other >= 0 or rule[KEEPS_OWN] == 1)
    if comes:
        put(out, events, i, UPDATE_BLOCK if goes else INSERT, side, new, new_other)
    if goes:
        put(out, events, i, DELETE, side, old, old_other)


@kernel
def meet_all(own: Store, other: Store, out: Meeting, rule: Int64s, events: Events, i: Whole, side: Whole) -> bool:
    """An event that may meet any number of rows. False: there is no room for all that comes of it."""
    opcode = events.opcode[i]
    new: Whole = NONE if opcode == DELETE else i
    old: Whole = i + 1 if opcode == UPDATE_BLOCK else (i if opcode == DELETE else NONE)
    walk = np.int64(out.counts[WALK])
    cursor: Whole = np.int64(out.counts[CURSOR])
    if walk == NO_WALK:
        store_event(own, events, i)
        if opcode == UPDATE_BLOCK:
            same = same_list(events.valid, new, events.lanes, events.valid, old, events.lanes, events.conditions)
            walk = BOTH if same else OLD
        else:
            walk = OLD if opcode == DELETE else NEW
        cursor = first_of(other, events.lanes, events.valid, old if walk == OLD else new, events.conditions)
        if cursor < 0 and rule[KEEPS_OWN] == 1:
            put_alone(out, events, i, side, walk, new, old)
    while True:
        while cursor >= 0:
            if out.counts[MADE] >= out.counts[ROOM]:
                out.counts[WALK], out.counts[CURSOR] = walk, cursor
                return False
            put_met(out, events, i, side, walk, new, old, cursor, rule[KEEPS_OTHER])
            cursor = np.int64(other.meta[cursor, AFTER])
        if walk != OLD or opcode != UPDATE_BLOCK:
            break
        walk = NEW
        cursor = first_of(other, events.lanes, events.valid, new, events.conditions)
        if cursor < 0 and rule[KEEPS_OWN] == 1:
            put_alone(out, events, i, side, walk, new, old)
    out.counts[WALK] = NO_WALK
    return True


@kernel
def meet(own: Store, other: Store, out: Meeting, rule: Int64s, events: Events, i: Whole, side: Whole) -> bool:
    if rule[IS_KEY] == 0 and rule[SILENT] == 0:
        return meet_all(own, other, out, rule, events, i, side)
    if rule[STORES] == 1:
        store_event(own, events, i)
    if rule[SILENT] == 0:
        meet_one(other, out, rule, events, i, side)
    return True


@kernel
def join(left: Store, right: Store, out: Meeting, rules: Int64s, lefts: Events, rights: Events, side: Int64s, row: Int64s) -> None:
    """Take events in order: `row[k]` of the left or right ones, as `side[k]` says; the rows of an update block are neighbours."""
    at = out.counts[AT]
    while at < len(row) and out.counts[MADE] < out.counts[ROOM]:
        i = row[at]
        if side[at] == LEFT:
            opcode = lefts.opcode[i]
            is_done = meet(left, right, out, rules[0], lefts, i, LEFT)
        else:
            opcode = rights.opcode[i]
            is_done = meet(right, left, out, rules[1], rights, i, RIGHT)
        if not is_done:
            break
        at += 2 if opcode == UPDATE_BLOCK else 1
    out.counts[AT] = at


@kernel
def gather_met(
    made: Int64s,
    lefts: Events,
    rights: Events,
    left: Store,
    right: Store,
    columns: Int64s,
    otherwise: Int64s,
    lanes: Int64s,
    valid: Bools,
) -> None:
    """Fields of what was made: `columns[j]` counts the left fields and then the right ones, below 0 is none; `otherwise[j]` where
    there is no row of its side, if it is not below 0."""
    width = lefts.lanes.shape[1]
    for m in range(len(made)):
        own, other, side = made[m, OWN], made[m, OTHER], made[m, SIDE]
        has_left = own >= 0 if side == LEFT else other >= 0
        has_right = other >= 0 if side == LEFT else own >= 0
        for j in range(len(columns)):
            column = columns[j]
            if otherwise[j] >= 0 and not (has_left if column < width else has_right):
                column = otherwise[j]
            lanes[m, j] = 0
            valid[m, j] = False
            if column < 0:
                continue
            if column < width:
                if has_left:
                    lanes[m, j] = lefts.lanes[own, column] if side == LEFT else left.lanes[other, column]
                    valid[m, j] = lefts.valid[own, column] if side == LEFT else left.valid[other, column]
            elif has_right:
                column -= width
                lanes[m, j] = rights.lanes[own, column] if side == RIGHT else right.lanes[other, column]
                valid[m, j] = rights.valid[own, column] if side == RIGHT else right.valid[other, column]
