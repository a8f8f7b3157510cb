"""Loops of a join: which rows meet, event by event (see `windows.join.operator`).

An output has no values, but the places of its rows among the rows of both sides. One event may cause more outputs than there is
room for; `JoinOutputs.counts` then records where to continue.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.rows.compile import Whole, kernel
from hotspare.table.loops.columns import BLOCK
from hotspare.table.loops.index import NONE, agree_in_condition
from hotspare.table.loops.multi_index import AFTER, Lists, first_in_order, first_of, follow
from hotspare.table.loops.relation import DELETE, INSERT, SAFE_DELETE, UPDATE_BLOCK, UPSERT, whole_flags

RANK, OPCODE, FLAGS, SIDE, OWN, OTHER, EVENT = 0, 1, 2, 3, 4, 5, 6
"""Columns of outputs. SIDE: the side whose event caused the output, 0 is left. OWN and OTHER: places of the rows of that side and
of the other one, or NONE. EVENT: the number of the event.
"""
OUTPUT_WIDTH = 7

MADE, ROOM, AT, WALK, CURSOR = 0, 1, 2, 3, 4
"""Entries of `counts`: outputs made, and their limit; events processed; the kind of the present walk, and the next slot on it."""
COUNTS_WIDTH = 5

KEEPS_OWN, KEEPS_OTHER, IS_KEY, STORES, ONCE, SILENT = 0, 1, 2, 3, 4, 5
"""Rules of a side, 1 or 0:

KEEPS_OWN    its rows are emitted alone if they meet no row
KEEPS_OTHER  rows of the other side are emitted alone if they meet no row
IS_KEY       its key identifies joined rows
STORES       its rows are stored
ONCE         its rows are joined once, and outputs are meant for an index of joined rows
SILENT       its events cause no outputs
"""
RULES_WIDTH = 6

NO_WALK, OLD, BOTH, NEW = (np.int64(walk) for walk in (0, 1, 2, 3))
"""Walks over the rows of the other side that meet an event: those that meet its old values, its old and new values alike, its new
values.
"""
LEFT, RIGHT = np.int64(0), np.int64(1)
DONE, NEEDS_ROOM, IS_FULL = (np.int64(state) for state in (0, 1, 2))


class SideEvents(NamedTuple):
    """Resolved events of one side; the old row of an update block follows the new one. `row`: the places of their rows in `lanes`
    and `valid`, which are those of the pages if the side is stored. `conditions`: the columns of the fields in the conditions.
    """

    rank: Int64s
    opcode: UInt8s
    flags: UInt8s
    row: Int64s
    lanes: Int64s
    valid: Bools
    conditions: Int64s


class JoinOutputs(NamedTuple):
    """The outputs of a join, and the progress of its kernel.

    `join_rows` int64[ROOM + 2, 7]: a row per output, with the columns RANK to EVENT. Two rows are spare because a change that
    begins with room for one output may make three. `counts` int64[5]: the entries MADE to CURSOR.
    """

    join_rows: Int64s
    counts: Int64s


@kernel
def emit_change(out: JoinOutputs, events: SideEvents, i: Whole, opcode: Whole, side: Whole, own: Whole, other: Whole) -> None:
    at = out.counts[MADE]
    out.join_rows[at, RANK] = events.rank[i]
    out.join_rows[at, OPCODE] = opcode
    out.join_rows[at, FLAGS] = whole_flags(events.flags[i])
    out.join_rows[at, SIDE] = side
    out.join_rows[at, OWN] = own
    out.join_rows[at, OTHER] = other
    out.join_rows[at, EVENT] = i
    out.counts[MADE] = at + 1


@kernel
def emit_matched(
    out: JoinOutputs, events: SideEvents, i: Whole, side: Whole, walk: Whole, new: Whole, old: Whole, other: Whole, kept: Whole
) -> None:
    """Emits the change that event `i` makes to its joined row with row `other` of the other side. `new`, `old`: places of the
    event's rows; `walk`: which of them meet `other` (OLD, BOTH or NEW). `kept` 1: `other` is emitted alone as long as it meets no
    row.
    """
    if walk == BOTH:
        emit_change(out, events, i, UPDATE_BLOCK, side, new, other)
        emit_change(out, events, i, DELETE, side, old, other)
    elif walk == OLD:
        if kept == 1:
            emit_change(out, events, i, UPDATE_BLOCK, side, NONE, other)
        emit_change(out, events, i, DELETE, side, old, other)
    elif kept == 1:
        emit_change(out, events, i, UPDATE_BLOCK, side, new, other)
        emit_change(out, events, i, DELETE, side, NONE, other)
    else:
        emit_change(out, events, i, INSERT, side, new, other)


@kernel
def emit_unmatched(out: JoinOutputs, events: SideEvents, i: Whole, side: Whole, walk: Whole, new: Whole, old: Whole) -> None:
    """Emits the change of a row that meets no row of the other side: deletes `old`, inserts `new`, or both, as `walk` is OLD, NEW
    or BOTH. Call it only if the join emits such rows.
    """
    if walk == BOTH:
        emit_change(out, events, i, UPDATE_BLOCK, side, new, NONE)
        emit_change(out, events, i, DELETE, side, old, NONE)
    elif walk == OLD:
        emit_change(out, events, i, DELETE, side, old, NONE)
    else:
        emit_change(out, events, i, INSERT, side, new, NONE)


@kernel
def new_of(events: SideEvents, i: Whole) -> Whole:
    """Returns the place of the row that an event inserts; NONE for a delete."""
    return NONE if events.opcode[i] == DELETE else events.row[i]


@kernel
def old_of(events: SideEvents, i: Whole) -> Whole:
    """Returns the place of the row that an event removes; NONE for an insert."""
    if events.opcode[i] == UPDATE_BLOCK:
        return np.int64(events.row[i + 1])
    return events.row[i] if events.opcode[i] == DELETE else NONE


@kernel
def match_one(other: Lists, out: JoinOutputs, rule: Int64s, events: SideEvents, i: Whole, side: Whole) -> None:
    """Processes event `i` of the side whose key identifies joined rows: each row of that side is in at most one joined row. `rule`:
    the rules of that side.
    """
    opcode, new, old = events.opcode[i], new_of(events, i), old_of(events, i)
    new_other: Whole = NONE
    old_other: Whole = NONE
    if new >= 0:
        new_other = first_of(other, events.lanes, events.valid, new, events.conditions)
    comes = new >= 0 and (new_other >= 0 or rule[KEEPS_OWN] == 1)
    if rule[ONCE] == 1:
        if comes:
            emit_change(out, events, i, INSERT if opcode == INSERT else UPSERT, side, new, new_other)
        elif old >= 0:
            emit_change(out, events, i, SAFE_DELETE, side, old, NONE)
        return
    if old >= 0:
        old_other = first_of(other, events.lanes, events.valid, old, events.conditions)
    goes = old >= 0 and (old_other >= 0 or rule[KEEPS_OWN] == 1)
    if comes:
        emit_change(out, events, i, UPDATE_BLOCK if goes else INSERT, side, new, new_other)
    if goes:
        emit_change(out, events, i, DELETE, side, old, old_other)


@kernel
def match_all(other: Lists, out: JoinOutputs, rule: Int64s, events: SideEvents, i: Whole, side: Whole) -> bool:
    """Processes event `i`, which may meet any number of rows. Returns False if the room for outputs is used up: WALK and CURSOR
    then have the place to continue.
    """
    opcode, new, old = events.opcode[i], new_of(events, i), old_of(events, i)
    walk = np.int64(out.counts[WALK])
    cursor: Whole = np.int64(out.counts[CURSOR])
    if walk == NO_WALK:
        if opcode == UPDATE_BLOCK:
            walk = BOTH if agree_in_condition(events.lanes, events.valid, new, old, events.conditions) else OLD
        else:
            walk = OLD if opcode == DELETE else NEW
        cursor = first_in_order(other, events.lanes, events.valid, old if walk == OLD else new, events.conditions)
        if cursor < 0 and rule[KEEPS_OWN] == 1:
            emit_unmatched(out, events, i, side, walk, new, old)
    while True:
        while cursor >= 0:
            if out.counts[MADE] >= out.counts[ROOM]:
                out.counts[WALK], out.counts[CURSOR] = walk, cursor
                return False
            emit_matched(out, events, i, side, walk, new, old, cursor, rule[KEEPS_OTHER])
            cursor = np.int64(other.links[cursor, AFTER])
        if walk != OLD or opcode != UPDATE_BLOCK:
            break
        walk = NEW
        cursor = first_in_order(other, events.lanes, events.valid, new, events.conditions)
        if cursor < 0 and rule[KEEPS_OWN] == 1:
            emit_unmatched(out, events, i, side, walk, new, old)
    out.counts[WALK] = NO_WALK
    return True


@kernel
def match_event(own: Lists, other: Lists, out: JoinOutputs, rule: Int64s, events: SideEvents, i: Whole, side: Whole) -> Whole:
    """Stores and joins event `i`. Returns DONE, NEEDS_ROOM if an index has no room (nothing is changed then), or IS_FULL if the
    outputs have no room.
    """
    if rule[STORES] == 1 and out.counts[WALK] == NO_WALK and not follow(own, events.opcode, events.row, i):
        return NEEDS_ROOM
    if rule[SILENT] == 1:
        return DONE
    if rule[IS_KEY] == 0:
        return DONE if match_all(other, out, rule, events, i, side) else IS_FULL
    match_one(other, out, rule, events, i, side)
    return DONE


@kernel
def run_join(
    left: Lists, right: Lists, out: JoinOutputs, rules: Int64s, lefts: SideEvents, rights: SideEvents, side: Int64s, row: Int64s
) -> Whole:
    """Processes events in order: event k is number `row[k]` of side `side[k]`. `rules[s]`: the rules of side s.

    Returns DONE if all events are processed or the room for outputs is used up. Returns NEEDS_ROOM if an index has no room for the
    next event: the caller makes room and calls again.
    """
    at = out.counts[AT]
    state: Whole = DONE
    while at < len(row) and out.counts[MADE] < out.counts[ROOM]:
        i = row[at]
        if side[at] == LEFT:
            opcode = lefts.opcode[i]
            state = match_event(left, right, out, rules[0], lefts, i, LEFT)
        else:
            opcode = rights.opcode[i]
            state = match_event(right, left, out, rules[1], rights, i, RIGHT)
        if state != DONE:
            break
        at += 2 if opcode == UPDATE_BLOCK else 1
    out.counts[AT] = at
    return NEEDS_ROOM if state == NEEDS_ROOM else DONE


@kernel
def gather_matched(
    made: Int64s, lefts: SideEvents, rights: SideEvents, columns: Int64s, otherwise: Int64s, lanes: Int64s, valid: Bools
) -> None:
    """Writes the fields of the outputs `made`, rows of `join_rows`, to `lanes` and `valid`.

    `columns[j]` is the column of field j: left columns first, then the right ones; below 0 the field is null. If that column's side
    has no row, `otherwise[j]` is used instead, unless it is below 0.
    """
    width = lefts.lanes.shape[1]
    for m in range(len(made)):
        left = made[m, OWN] if made[m, SIDE] == LEFT else made[m, OTHER]
        right = made[m, OTHER] if made[m, SIDE] == LEFT else made[m, OWN]
        for j in range(len(columns)):
            column = columns[j]
            if otherwise[j] >= 0 and (left if column < width else right) < 0:
                column = otherwise[j]
            lanes[m, j] = 0
            valid[m, j] = False
            if column < 0:
                continue
            if column < width:
                if left >= 0:
                    lanes[m, j] = lefts.lanes[left, column]
                    valid[m, j] = lefts.valid[left, column]
            elif right >= 0:
                lanes[m, j] = rights.lanes[right, column - width]
                valid[m, j] = rights.valid[right, column - width]


@kernel
def match_inserts(other: Lists, facts: SideEvents, keeps_own: Whole, event: Int64s, met: Int64s) -> Whole:
    """Joins facts that are inserts and are not kept. Writes the number of each emitted fact to `event`, and the slot of the row
    that it meets, or NONE, to `met`. Returns the count of emitted facts; those without a match are emitted if `keeps_own` is 1.
    """
    count = np.int64(0)
    for i in range(len(facts.rank)):
        at = np.uint64(count)
        slot = first_of(other, facts.lanes, facts.valid, np.int64(i), facts.conditions)
        event[at], met[at] = i, slot
        if slot >= 0 or keeps_own == 1:
            count += 1
    return count


@kernel
def gather_column(rows: Int64s, lanes: Int64s, valid: Bools, column: Whole, out_lanes: Int64s, out_valid: Bools, to: Whole) -> None:
    """Copies a column of the rows `rows` to column `to` of the output; null if the row is NONE."""
    source, target = np.uint64(column), np.uint64(to)
    for m in range(len(rows)):
        here = rows[m] >= 0
        row = np.uint64(rows[m]) if here else np.uint64(0)
        out_lanes[m, target] = lanes[row, source] if here else 0
        out_valid[m, target] = valid[row, source] if here else False


@kernel
def gather_matched_inserts(
    event: Int64s, met: Int64s, facts: SideEvents, others: Lists, columns: Int64s, begin: Whole, lanes: Int64s, valid: Bools
) -> None:
    """Writes the fields of facts `event` and of the rows `met` to `lanes` and `valid`. `columns` is as in `gather_matched`; the
    columns of facts begin at `begin`.
    """
    width, other_begin = facts.lanes.shape[1], np.int64(0) if begin > 0 else facts.lanes.shape[1]
    for first in range(0, len(event), BLOCK):
        some, them = event[first : first + BLOCK], met[first : first + BLOCK]
        to, mask = lanes[first : first + BLOCK], valid[first : first + BLOCK]
        for j in range(len(columns)):
            column = columns[j]
            if column < 0:
                to[:, j], mask[:, j] = 0, False
            elif begin <= column < begin + width:
                gather_column(some, facts.lanes, facts.valid, column - begin, to, mask, j)
            else:
                gather_column(them, others.lanes, others.valid, column - other_begin, to, mask, j)
