"""Loops of a keyed relation: opcodes resolved against stored rows (SPEC A8-A13), and retention (A19-A23).

Rows are in slots of pages (`table.loops.pages`). A version of a row is never overwritten: an update takes a new slot, and pages
emptied in a batch are reused only in the next one. So an output is a slot number, and the values are gathered afterwards.

Three structures hold slots, all derived from the rows in order: an index (`table.loops.index`), a list and a heap
(`table.loops.slots`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.rows.compile import Whole, kernel
from hotspare.table.loops.index import (
    EMPTY,
    ONE,
    add,
    agree,
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
from hotspare.table.loops.pages import NEW_SLOT, OLD_SLOT, Rows, free_slot, is_alive, is_ready, take_slot, tidy
from hotspare.table.loops.slots import (
    ARRIVALS,
    BOUNDARY,
    EITHER,
    FIRST,
    HEAP_PLACE,
    HEAP_SLOT,
    HEAPED,
    INDEXED,
    LIVE,
    MOVED,
    NEWEST,
    NEXT,
    NONE,
    UNLINKED,
    UNSET,
    dequeue,
    enqueue,
    first_to_expire,
    heap_drop,
    heap_push,
    heap_sift,
    link_instead,
    link_last,
    may_precede_first,
    unlink,
)

KEEP, COUNT_SLIDING, COUNT_JUMPING, COUNT_OF_GROUP, TIME_SLIDING, TIME_JUMPING, TIME_LOOKBACK, UNTIL = 0, 1, 2, 3, 4, 5, 6, 7
"""Kinds of retention; KEEP removes nothing. COUNT_OF_GROUP is implemented by `table.loops.groups`. UNTIL: each row has its own
deadline, and another kernel decides what happens then."""

REFUSED_NULL_KEY, REFUSED_NULL_TIME, REFUSED_KEY_EXISTS, REFUSED_KEY_UNKNOWN, REFUSED_NULL_GROUP = map(np.int64, range(5))
"""The reasons for which a row is refused."""

INSERT, UPDATE, UPSERT, DELETE, SAFE_DELETE, UPDATE_BLOCK = (np.int64(opcode) for opcode in (1, 2, 3, 4, 5, 6))
NORMAL, PARTIAL, RETENTION, NOT_PARTIAL = (np.int64(flag) for flag in (1, 2, 4, 255 - 2))
"""Opcodes and flags as in model.events. They are not plain numbers, for which numba would compile each call again."""

RANK, OPCODE, FLAGS, SLOT, SOURCE = 0, 1, 2, 3, 4
"""Columns of `OutputArrays.output_records`."""
MADE, REFUSED, ROW, BEAT, ROOM, LEAVING, EDGE, CAME, CAUSE = 0, 1, 2, 3, 4, 5, 6, 7, 8
ASIDE, ASIDE_OPCODE, ASIDE_FLAGS, ASIDE_SOURCE, ASIDE_OLD = 9, 10, 11, 12, 13
"""Entries of `OutputArrays.counts`."""
COUNTS_WIDTH = 14
DONE, NEEDS_INDEX, NEEDS_ROOM, IS_FULL = (np.int64(state) for state in (0, 1, 2, 3))
"""Results of `relate`: everything is applied; the index is needed from here on; pages or index have no room for the next event;
there is no room for more outputs."""
LEAVE_NONE, LEAVE_ALL, LEAVE_OVER, LEAVE_OLD = (np.int64(which) for which in (0, 1, 2, 3))
"""The rows that expire: none; all except the row that arrived; the rows over the limit; the rows as old as the limit."""


class Policy(NamedTuple):
    """Retention, and what is known of the input.

    kind          KEEP to UNTIL
    limit         rows, or microseconds if `kind` is by time
    unit          the step of boundaries of a jumping window, in microseconds
    by_event      1 if time comes from a field, 0 for system time
    new_keys      1 if an insert never has a stored key, because the input is itself a keyed relation. Then no index is needed as
                  long as rows are removed in order of arrival, always the first of the list
    in_order      1 if that is certain to hold: a delete is of the first row of the list, or of none that is stored
    evicts_first  1 if the rows that an event evicts are emitted before the row that arrived; 0 if retention is by system time,
                  which evicts at heartbeats alone
    """

    kind: int
    limit: int
    unit: int
    by_event: int
    new_keys: int
    in_order: int = 0
    evicts_first: int = 0


class InputArrays(NamedTuple):
    """A chunk with the heartbeats of its batch. `time`: microseconds by row, null if `time_valid` is False; `beats` int64[., 2]:
    rank and time of each heartbeat.
    """

    rank: Int64s
    opcode: UInt8s
    flags: UInt8s
    lanes: Int64s
    valid: Bools
    time: Int64s
    time_valid: Bools
    beats: Int64s


class OutputArrays(NamedTuple):
    """The outputs of `relate`, and its progress.

    output_records  int64[., 5]  columns RANK, OPCODE, FLAGS, SLOT (of the values), SOURCE (the input row that made it, or NONE);
                                 two more than ROOM: an update has two, and may fill a group
    refused         int64[., 2]  input row, REFUSED_ number
    counts          int64[14]    entries MADE to ASIDE_OLD

    Of `counts`, MADE and REFUSED are the outputs and refused rows so far; ROW and BEAT are where to continue. After ROOM outputs
    nothing more is begun. LEAVING (a LEAVE_ number), EDGE, CAME (see `due_expiry`) and the rank CAUSE describe the current removal,
    which continues first.

    ASIDE is the count of outputs of the row CAME that wait for the end of the removal. The other ASIDE_ entries are their opcode,
    flags and source, and the slot of the row's old version. That slot is freed when the old version is emitted.
    """

    output_records: Int64s
    refused: Int64s
    counts: Int64s


@kernel
def emit(out: OutputArrays, rank: Whole, opcode: Whole, flags: Whole, slot: Whole, source: Whole) -> None:
    at = np.uint64(out.counts[MADE])
    out.output_records[at, RANK] = rank
    out.output_records[at, OPCODE] = opcode
    out.output_records[at, FLAGS] = flags
    out.output_records[at, SLOT] = slot
    out.output_records[at, SOURCE] = source
    out.counts[MADE] += 1


@kernel
def refuse(out: OutputArrays, row: Whole, why: Whole) -> None:
    at = out.counts[REFUSED]
    out.refused[at, 0] = row
    out.refused[at, 1] = why
    out.counts[REFUSED] = at + 1


@kernel
def is_linked(policy: Policy) -> bool:
    """Whether all rows are in one list; rows of groups have lists of their own."""
    return policy.kind != COUNT_OF_GROUP and (policy.kind != KEEP or policy.new_keys == 1)


@kernel
def is_set_aside(policy: Policy) -> bool:
    """Whether the outputs of an arrived row wait for the deletes of the rows that it evicts. A group evicts at most one row, and
    the kernel of groups reorders the outputs."""
    return policy.evicts_first == 1 and policy.kind != COUNT_OF_GROUP


@kernel
def set_aside(out: OutputArrays, first: Whole) -> None:
    """Withdraws the outputs of the row that arrived, from number `first` on (an insert, or the two of an update), until
    `put_back`."""
    counts = out.counts
    counts[ASIDE] = counts[MADE] - first
    counts[ASIDE_OPCODE], counts[ASIDE_FLAGS] = out.output_records[first, OPCODE], out.output_records[first, FLAGS]
    counts[ASIDE_SOURCE] = out.output_records[first, SOURCE]
    if counts[ASIDE] == 2:
        counts[ASIDE_OLD] = out.output_records[first + 1, SLOT]
    counts[MADE] = first


@kernel
def put_back(rows: Rows, out: OutputArrays) -> None:
    """Emits the outputs that were set aside, if any."""
    counts = out.counts
    if counts[ASIDE] == 0:
        return
    flags, old = np.int64(counts[ASIDE_FLAGS]), np.int64(counts[ASIDE_OLD])
    emit(out, counts[CAUSE], counts[ASIDE_OPCODE], flags, counts[CAME], counts[ASIDE_SOURCE])
    if counts[ASIDE] == 2:
        emit(out, counts[CAUSE], DELETE, flags, old, NONE)
        free_slot(rows, old)
    counts[ASIDE] = 0


@kernel
def depart(rows: Rows, policy: Policy, slot: Whole) -> None:
    """Removes a slot from list and heap."""
    if rows.state[EITHER] == 1:
        dequeue(rows.links, rows.waiting, rows.heap, rows.time, rows.order, rows.state, slot)
        return
    if is_linked(policy):
        unlink(rows.links, rows.waiting, rows.state, slot)
    if policy.by_event == 1:
        heap_drop(rows.heap, rows.time, rows.order, rows.state, slot)


@kernel
def give_up(rows: Rows, policy: Policy, slot: Whole, place: np.uint64) -> None:
    """Removes a stored row from all structures; its values stay until the next batch. `place`: the place of its entry in the
    index."""
    if rows.state[INDEXED] == 1:
        drop(rows.by_key, place)
    depart(rows, policy, slot)
    rows.state[LIVE] -= 1
    free_slot(rows, slot)


@kernel
def write_row(rows: Rows, slot: Whole, chunk: InputArrays, i: Whole) -> None:
    to, row = np.uint64(slot), np.uint64(i)
    for j in range(rows.lanes.shape[1]):
        rows.lanes[to, j] = chunk.lanes[row, j]
        rows.valid[to, j] = chunk.valid[row, j]
    if len(rows.time) > 0:
        rows.time[to] = chunk.time[row]


@kernel
def whole_flags(flags: Whole) -> Whole:
    """Returns the flags of an output whose row is whole: `flags` without PARTIAL, or NORMAL if no flag remains."""
    flags = np.int64(flags & NOT_PARTIAL)
    return flags if flags != 0 else NORMAL


@kernel
def fill_nulls(rows: Rows, new: Whole, old: Whole) -> None:
    """Completes a partial update: null fields keep the stored value."""
    for j in range(rows.lanes.shape[1]):
        if not rows.valid[new, j]:
            rows.lanes[new, j] = rows.lanes[old, j]
            rows.valid[new, j] = rows.valid[old, j]


@kernel
def arrive(rows: Rows, policy: Policy, slot: Whole) -> None:
    """Makes a slot the last in the order of arrival, and adds it to the list; if rows are in list or heap, to one of the two."""
    rows.order[np.uint64(slot)] = rows.state[ARRIVALS]
    rows.state[ARRIVALS] += 1
    if rows.state[EITHER] == 1:
        enqueue(rows.links, rows.heap, rows.time, rows.order, rows.state, slot)
    elif is_linked(policy):
        link_last(rows.links, rows.state, slot)


@kernel
def insert_row(rows: Rows, policy: Policy, slot: Whole) -> None:
    arrive(rows, policy, slot)
    if policy.by_event == 1 and rows.state[EITHER] == 0:
        heap_push(rows.heap, rows.time, rows.order, rows.state, slot)
    rows.state[LIVE] += 1


@kernel
def replace_row(rows: Rows, policy: Policy, new: Whole, old: Whole) -> None:
    """Replaces an old version in its place; or makes the new one the last, if retention is by time or the fields of the condition
    changed."""
    if rows.state[EITHER] == 1:
        depart(rows, policy, old)
        arrive(rows, policy, new)
    elif policy.kind >= TIME_SLIDING or not agree_in_condition(rows.lanes, rows.valid, new, old, rows.conditions):
        if is_linked(policy):
            unlink(rows.links, rows.waiting, rows.state, old)
        arrive(rows, policy, new)
    else:
        rows.order[new] = rows.order[old]
        if is_linked(policy):
            link_instead(rows.links, rows.waiting, rows.state, old, new)
    if policy.by_event == 1 and rows.state[EITHER] == 0:
        at = rows.heap[old, HEAP_PLACE]
        rows.heap[at, HEAP_SLOT] = new
        heap_sift(rows.heap, rows.state[HEAPED], rows.time, rows.order, at)


@kernel
def refusal_code(rows: Rows, policy: Policy, chunk: InputArrays, i: Whole, slot: Whole) -> Whole:
    """Returns the REFUSED_ number of an event, or NONE if it is valid. `slot`: the row with its key, NONE if no row has it."""
    opcode = chunk.opcode[i]
    if DELETE <= opcode <= SAFE_DELETE:
        return REFUSED_KEY_UNKNOWN if slot < 0 and opcode == DELETE and policy.kind == KEEP else NONE
    if opcode == INSERT and slot >= 0:
        return REFUSED_KEY_EXISTS
    if opcode == UPDATE and slot < 0:
        return REFUSED_KEY_UNKNOWN
    if slot >= 0 and chunk.flags[i] & PARTIAL:
        return NONE
    if not chunk.time_valid[i]:
        return REFUSED_NULL_TIME
    if policy.kind == COUNT_OF_GROUP and not has_all(chunk.valid, i, rows.conditions):
        return REFUSED_NULL_GROUP
    return NONE


@kernel
def resolve_row(rows: Rows, out: OutputArrays, policy: Policy, chunk: InputArrays, i: Whole, h: np.uint64) -> Whole:
    """Applies one event, whose key has the hash `h`. Returns the slot of the inserted or changed row, or NONE."""
    if not has_all(chunk.valid, i, rows.keys):
        refuse(out, i, REFUSED_NULL_KEY)
        return NONE
    place = EMPTY
    slot: Whole = NONE
    if rows.state[INDEXED] == 1:
        place = find(rows.by_key, rows.lanes, rows.keys, chunk.lanes, i, rows.keys, h)
        slot = slot_at(rows.by_key, place)
    elif chunk.opcode[i] != INSERT:
        slot = np.int64(rows.state[FIRST])
    why = refusal_code(rows, policy, chunk, i, slot)
    if why >= 0:
        refuse(out, i, why)
        if slot >= 0 and chunk.opcode[i] == UPDATE_BLOCK:
            give_up(rows, policy, slot, place)
            emit(out, chunk.rank[i], DELETE, whole_flags(chunk.flags[i]), slot, NONE)
        return NONE
    if DELETE <= chunk.opcode[i] <= SAFE_DELETE:
        if slot >= 0:
            give_up(rows, policy, slot, place)
            emit(out, chunk.rank[i], DELETE, whole_flags(chunk.flags[i]), slot, NONE)
        return NONE
    new = take_slot(rows)
    write_row(rows, new, chunk, i)
    if rows.state[INDEXED] == 1:
        if slot < 0:
            enter(rows.by_key, place, entry_of(h, new))
        else:
            replace(rows.by_key, place, entry_of(h, new))
    if slot < 0:
        insert_row(rows, policy, new)
        emit(out, chunk.rank[i], INSERT, whole_flags(chunk.flags[i]), new, i)
    else:
        if chunk.flags[i] & PARTIAL:
            fill_nulls(rows, new, slot)
            if not chunk.time_valid[i] and len(rows.time) > 0:
                rows.time[new] = rows.time[slot]
        replace_row(rows, policy, new, slot)
        if not is_set_aside(policy):
            free_slot(rows, slot)
        emit(out, chunk.rank[i], UPDATE_BLOCK, whole_flags(chunk.flags[i]), new, i)
        emit(out, chunk.rank[i], DELETE, whole_flags(chunk.flags[i]), slot, NONE)
    return new


@kernel
def boundary_passed(state: Int64s, policy: Policy, now: Whole) -> Whole:
    """Returns the last boundary of a jumping window that time passes by reaching `now`, UNSET if it passes none; sets the next
    boundary in `state`."""
    if state[BOUNDARY] == UNSET:
        start = now if policy.kind == TIME_JUMPING else now - now % policy.unit
        state[BOUNDARY] = start + policy.unit
    elif now >= state[BOUNDARY]:
        passed = state[BOUNDARY] + (now - state[BOUNDARY]) // policy.unit * policy.unit
        state[BOUNDARY] = passed + policy.unit
        return np.int64(passed)
    return UNSET


@kernel
def due_expiry(rows: Rows, policy: Policy, now: Whole, came: Whole) -> tuple[Whole, Whole]:
    """Returns which rows expire now, as (LEAVE_ number, edge of time). `came`: the slot of the row that arrived, NONE at a
    heartbeat.

    Event time moves at rows, system time at heartbeats.
    """
    if policy.kind == COUNT_SLIDING:
        return LEAVE_OVER, UNSET
    if policy.kind == COUNT_JUMPING:
        return (LEAVE_ALL if rows.state[LIVE] > policy.limit else LEAVE_NONE), UNSET
    if policy.kind == KEEP or (policy.by_event == 1) != (came >= 0):
        return LEAVE_NONE, UNSET
    if policy.by_event == 1:
        now = max(rows.state[NEWEST], rows.time[came])
        rows.state[NEWEST] = now
    if policy.kind == TIME_SLIDING:
        return LEAVE_OLD, now
    passed = boundary_passed(rows.state, policy, now)
    if passed == UNSET:
        return LEAVE_NONE, UNSET
    return (LEAVE_ALL if policy.kind == TIME_JUMPING else LEAVE_OLD), passed


@kernel
def evict_row(rows: Rows, out: OutputArrays, policy: Policy, slot: Whole, rank: Whole) -> None:
    """Removes an expired row, and emits its delete with the flag RETENTION."""
    place = EMPTY
    if rows.state[INDEXED] == 1:
        place = place_of(rows.by_key, key_hash(rows.lanes, slot, rows.keys), slot)
    give_up(rows, policy, slot, place)
    emit(out, rank, DELETE, RETENTION, slot, NONE)


@kernel
def retain(rows: Rows, out: OutputArrays, policy: Policy) -> bool:
    """Continues the current removal, oldest first: in order of arrival, or of (event time, arrival). Returns False if the outputs
    have no more room, or if the next row to expire is not known yet."""
    which, edge, came = out.counts[LEAVING], out.counts[EDGE], out.counts[CAME]
    slot = first_to_expire(rows.heap, rows.time, rows.order, rows.state)
    while which != LEAVE_NONE and rows.state[LIVE] > 0:
        if which == LEAVE_OVER and rows.state[LIVE] <= policy.limit:
            break
        if may_precede_first(rows.time, rows.order, rows.state, slot):
            if rows.state[EITHER] == 1 and edge - rows.state[UNLINKED] < policy.limit:
                break
            return False
        if slot < 0:
            break
        after = rows.links[slot, NEXT]
        if which == LEAVE_OLD and edge - rows.time[slot] < policy.limit:
            break
        if which != LEAVE_ALL or slot != came:
            if slot == came:  # it is as old as the limit itself
                put_back(rows, out)
            if out.counts[MADE] >= out.counts[ROOM]:
                return False
            evict_row(rows, out, policy, slot, out.counts[CAUSE])
        slot = after if which == LEAVE_ALL else first_to_expire(rows.heap, rows.time, rows.order, rows.state)
    out.counts[LEAVING] = LEAVE_NONE
    put_back(rows, out)
    return True


@kernel
def needs_index(rows: Rows, chunk: InputArrays, i: Whole) -> bool:
    """Whether the event needs the index: it is neither an insert nor the delete of the first row of the list."""
    if rows.state[INDEXED] == 1 or chunk.opcode[i] == INSERT:
        return False
    if rows.state[FIRST] < 0 or not DELETE <= chunk.opcode[i] <= SAFE_DELETE:
        return True
    return not agree(rows.lanes, rows.state[FIRST], rows.keys, chunk.lanes, i, rows.keys)


@kernel
def missing_resource(rows: Rows, chunk: InputArrays, i: Whole, h: np.uint64) -> Whole:
    """Returns NEEDS_INDEX, NEEDS_ROOM, or DONE if the event, whose key has the hash `h`, can be applied."""
    if needs_index(rows, chunk, i):
        return NEEDS_INDEX
    if not is_ready(rows) or (rows.state[INDEXED] == 1 and not has_room(rows.by_key, h)):
        return NEEDS_ROOM
    return DONE


@kernel
def rows_of_event(chunk: InputArrays, i: Whole, keys: Int64s) -> Whole:
    """Returns 2 for an update block: its second row has the old values, which are stored here already. Returns 1 for other events,
    and for an update block whose rows have different keys."""
    if chunk.opcode[i] == UPDATE_BLOCK and agree_in_condition(chunk.lanes, chunk.valid, i, i + 1, keys):
        return np.int64(2)
    return np.int64(1)


@kernel
def relate(rows: Rows, out: OutputArrays, policy: Policy, chunk: InputArrays) -> Whole:
    """Applies a chunk and the heartbeats of its batch, in order of rank.

    Returns DONE, or NEEDS_INDEX, NEEDS_ROOM or IS_FULL: the caller builds the index, makes room or consumes the outputs, and calls
    again. IS_FULL also means that the next row to expire is not known (`table.loops.unlinked`).
    """
    beat, i = np.int64(out.counts[BEAT]), np.int64(out.counts[ROW])
    came: Whole = NONE
    while retain(rows, out, policy) and (i < len(chunk.rank) or beat < len(chunk.beats)):
        if out.counts[MADE] >= out.counts[ROOM]:
            break
        came = NONE
        if beat < len(chunk.beats) and (i == len(chunk.rank) or chunk.beats[beat, 0] < chunk.rank[i]):
            rank, now = chunk.beats[beat, 0], chunk.beats[beat, 1]
            beat += 1
        else:
            h = key_hash(chunk.lanes, i, rows.keys)
            missing = missing_resource(rows, chunk, i, h)
            if missing != DONE:
                out.counts[BEAT], out.counts[ROW] = beat, i
                return missing
            tidy(rows, out.counts[MADE])
            rank, now = chunk.rank[i], np.int64(UNSET)
            made = np.int64(out.counts[MADE])
            came = resolve_row(rows, out, policy, chunk, i, h)
            if came >= 0 and is_set_aside(policy):
                set_aside(out, made)
            i += rows_of_event(chunk, i, rows.keys)
        if policy.kind != KEEP and (came >= 0 or now != UNSET):
            out.counts[LEAVING], out.counts[EDGE] = due_expiry(rows, policy, now, came)
            out.counts[CAME], out.counts[CAUSE] = came, rank
    out.counts[BEAT], out.counts[ROW] = beat, i
    if out.counts[LEAVING] == LEAVE_NONE and i == len(chunk.rank) and beat == len(chunk.beats):
        return DONE
    return IS_FULL


@kernel
def fill_index(rows: Rows, begin: Whole, end: Whole) -> Whole:
    """Enters the rows of slots from `begin` to before `end` into the index. Returns `end`, or the first slot for which the index
    has no room."""
    for slot in range(begin, end):
        if is_alive(rows, slot):
            h = key_hash(rows.lanes, slot, rows.keys)
            if not has_room(rows.by_key, h):
                return np.int64(slot)
            add(rows.by_key, h, slot)
    return np.int64(end)


@kernel
def write_arrived(made: Int64s, rows: Int64s, slots: Int64s) -> Whole:
    """Writes the input rows and slots of the inserted or changed rows to `rows` and `slots`, in order. Returns their count."""
    count = np.uint64(0)
    for i in range(len(made)):
        if made[i, SOURCE] >= 0:
            rows[count] = made[i, SOURCE]
            slots[count] = made[i, SLOT]
            count += ONE
    return np.int64(count)


@kernel
def repeat_moves(rows: Rows) -> None:
    """Copies the values of moved rows to their new slots again, because the caller may have written the old slots after the
    move."""
    for i in range(rows.state[MOVED]):
        old, new = np.uint64(rows.moved[i, OLD_SLOT]), np.uint64(rows.moved[i, NEW_SLOT])
        for j in range(rows.lanes.shape[1]):
            rows.lanes[new, j] = rows.lanes[old, j]
            rows.valid[new, j] = rows.valid[old, j]


@kernel
def gather_outputs(
    rows: Rows, made: Int64s, rank: Int64s, opcode: UInt8s, flags: UInt8s, out_lanes: Int64s, out_valid: Bools
) -> None:
    """Writes the outputs `made` as the arrays of a chunk."""
    for i in range(len(made)):
        rank[i] = made[i, RANK]
        opcode[i] = made[i, OPCODE]
        flags[i] = made[i, FLAGS]
        slot, at = np.uint64(made[i, SLOT]), np.uint64(i)
        for j in range(np.uint64(rows.lanes.shape[1])):
            out_lanes[at, j] = rows.lanes[slot, j]
        for j in range(np.uint64(rows.lanes.shape[1])):
            out_valid[at, j] = rows.valid[slot, j]
