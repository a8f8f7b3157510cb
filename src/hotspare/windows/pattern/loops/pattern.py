"""Loops of a pattern window: open matches, and how events and time change them (see `windows.pattern.operator`).

An open match is a row of pages: the events that it waits for, the partition, the state of the logic, deadlines, counts, values of
variables, and the output so far. A change of a match rewrites it as the newest row; the end of a match removes its row.

Matches are kept in lists by (pattern, awaited events, partition), each in the order in which its matches last changed; and, by
(deadline, that order), in the list or the heap of their pages. In a pattern that skips, a complete match ends the others of its
partition, and its last event begins none.

The cost of an event is a lookup in the lists that wait for it, plus the changes of the matches there.
"""

from __future__ import annotations

import numpy as np

from hotspare.rows.chunk import Int64s
from hotspare.rows.compile import Whole, kernel
from hotspare.table.loops.index import NONE, has_room, key_hash
from hotspare.table.loops.multi_index import AFTER, FOLLOWED, MOVES, Lists, delist, enlist, first_in, first_to_walk, follow_moves
from hotspare.table.loops.pages import Rows, free_slot, is_ready, slots_before_gap_check, take_slot, tidy, too_many_gaps
from hotspare.table.loops.slots import (
    ARRIVALS,
    FREE,
    HIGH,
    LIVE,
    MOVED,
    UNLINKED,
    UNSET,
    dequeue,
    enqueue,
    first_due,
    may_precede_first,
)
from hotspare.windows.pattern.loops.pattern_logic import (
    ABSENCE,
    ANSWERED,
    ANY_BEGINS,
    ASK,
    ASKS,
    AT,
    BEAT,
    BEFORE,
    BEGINS,
    BEGINS_WITH,
    BEHIND,
    BIT,
    CLOCK,
    COMPLETE,
    DONE,
    EVENT,
    EVENT_BITS,
    EVENTS_TAKEN,
    FIRST,
    GOES_ON,
    IS_FULL,
    IS_STRICT,
    KEYS,
    KIND,
    LAST,
    LISTS,
    MADE,
    NEEDS_DUE,
    NEEDS_OUTPUT,
    NEEDS_PAGE,
    NEEDS_ROOM,
    NEEDS_TRUTH,
    NEXT,
    NOTOCCUR,
    NOW,
    OF_CODE,
    OPEN,
    PATTERN,
    PHASE,
    RANK,
    ROOM,
    SKIPPED,
    SKIPS,
    START,
    STRICT,
    TAKEN,
    TRUE,
    VISIT,
    WAITING,
    WAITS_FOR,
    MatchOutputs,
    MatchWork,
    PatternEvents,
    PatternProgram,
    activate,
    apply_event,
    has_begun,
    load_match,
    update_node_states,
    write_awaited_events,
)


@kernel
def remove_match(rows: Rows, lists: Lists, slot: Whole) -> None:
    delist(lists, slot)
    dequeue(rows.links, rows.waiting, rows.heap, rows.time, rows.order, rows.state, slot)
    rows.state[LIVE] -= 1
    free_slot(rows, slot)


@kernel
def store_match(rows: Rows, lists: Lists, p: Whole, deadline: Whole, work: MatchWork) -> None:
    """Stores the match in `work`, with its next `deadline`, as the newest row. The caller checks that there is room."""
    slot = take_slot(rows)
    at = np.uint64(slot)
    for j in range(work.lanes.shape[1]):
        rows.lanes[at, j] = work.lanes[0, j] if work.valid[0, j] else 0
        rows.valid[at, j] = work.valid[0, j]
    rows.order[at] = rows.state[ARRIVALS]
    rows.time[at] = deadline
    rows.state[ARRIVALS] += 1
    rows.state[LIVE] += 1
    enqueue(rows.links, rows.heap, rows.time, rows.order, rows.state, slot)
    enlist(lists, slot)
    waits = work.lanes[0, WAITS_FOR]
    for c in range(work.class_counts[p]):
        if work.classes[p, c] == waits:
            return
    work.classes[p, work.class_counts[p]] = waits
    work.class_counts[p] += 1


@kernel
def emit_match(program: PatternProgram, p: Whole, out: MatchOutputs, work: MatchWork) -> None:
    at = work.counts[MADE]
    out.rank[at] = work.counts[RANK]
    for f in range(program.outputs.shape[1]):
        place = program.outputs[p, f]
        has = place >= 0 and work.valid[0, place]
        out.lanes[at, f] = work.lanes[0, place] if has else 0
        out.valid[at, f] = has
    work.counts[MADE] = at + 1
    work.counts[COMPLETE] = p + 1 if program.patterns[p, OF_CODE] >= 0 else 0


@kernel
def end_others(rows: Rows, lists: Lists, p: Whole, work: MatchWork) -> None:
    """Ends all open matches with the pattern `p` and the partition of the match in `work`."""
    work.lanes[0, PATTERN] = p
    for c in range(work.class_counts[p]):
        work.lanes[0, WAITS_FOR] = work.classes[p, c]
        slot = first_in(lists, work.lanes, 0, lists.conditions)
        while slot >= 0:
            after = np.int64(lists.links[slot, AFTER])
            remove_match(rows, lists, slot)
            slot = after
    work.counts[SKIPPED] = 1


@kernel
def set_partition(program: PatternProgram, events: PatternEvents, i: Whole, p: Whole, work: MatchWork) -> None:
    for j in range(program.keys.shape[1]):
        column = program.keys[p, j]
        work.lanes[0, KEYS + j] = events.values[i, column] if column >= 0 else 0
        work.valid[0, KEYS + j] = True


@kernel
def find_waiting_lists(lists: Lists, program: PatternProgram, events: PatternEvents, i: Whole, p: Whole, work: MatchWork) -> None:
    """Writes the first match of each list whose matches wait for event `i` to `work.cursors`, and the number of lists to LISTS."""
    mask = events.masks[p, i]
    work.lanes[0, PATTERN] = p
    set_partition(program, events, i, p, work)
    found = np.int64(0)
    for c in range(work.class_counts[p]):
        waits = work.classes[p, c]
        if waits & mask & EVENT_BITS != 0 or waits & STRICT != 0:
            work.lanes[0, WAITS_FOR] = waits
            slot = first_to_walk(lists, work.lanes, 0, lists.conditions)
            if slot >= 0:
                work.cursors[found] = slot
                found += 1
    work.counts[LISTS] = found


@kernel
def nearest_cursor(rows: Rows, work: MatchWork) -> Whole:
    """Returns the number of the current list whose next match changed longest ago; NONE if only matches stored during this event
    remain.
    """
    best, oldest = NONE, work.counts[START]
    for c in range(work.counts[LISTS]):
        slot = work.cursors[c]
        if slot >= 0 and rows.order[slot] < oldest:
            best, oldest = np.int64(c), rows.order[slot]
    return best


@kernel
def begin_next(rows: Rows, lists: Lists, program: PatternProgram, events: PatternEvents, work: MatchWork) -> Whole:
    """Begins the next heartbeat or event, in order of rank. Returns GOES_ON; DONE if none remains; NEEDS_ROOM or NEEDS_PAGE if the
    caller must provide that first.
    """
    counts = work.counts
    e, b = counts[EVENTS_TAKEN], counts[BEAT]
    has_event = e < len(events.rank)
    if b < len(events.beats) and (not has_event or events.beats[b, 0] < events.rank[e]):
        counts[RANK], counts[NOW] = events.beats[b, 0], events.beats[b, 1]
        counts[BEAT], counts[PHASE] = b + 1, BEHIND
        return GOES_ON
    if not has_event:
        return DONE
    if not is_ready(rows):
        return NEEDS_ROOM
    if counts[ABSENCE] == ASK and slots_before_gap_check(rows.state) == 0 and too_many_gaps(rows.state):
        return NEEDS_PAGE
    counts[ABSENCE] = min(counts[ABSENCE], ASK)
    tidy(rows, 0)
    lists.counts[FOLLOWED], lists.counts[MOVES] = 0, rows.state[MOVED]
    follow_moves(lists, np.int64(0))
    rows.state[MOVED] = 0
    counts[RANK], counts[EVENT], counts[AT] = events.rank[e], e, 0
    counts[EVENTS_TAKEN], counts[PHASE] = e + 1, OPEN
    if program.by_event == 1:
        work.window_counters[CLOCK] = max(work.window_counters[CLOCK], events.time[e])
        counts[NOW] = work.window_counters[CLOCK]
        counts[PHASE] = BEFORE
    return GOES_ON


@kernel
def open_pattern(rows: Rows, lists: Lists, program: PatternProgram, events: PatternEvents, work: MatchWork) -> Whole:
    """Begins pattern AT for the current event; after the last pattern, begins phase BEHIND (event time) or NEXT (system time).

    Returns GOES_ON, or NEEDS_TRUTH if the caller must first compute for which open matches the event is true.
    """
    counts = work.counts
    e, p = counts[EVENT], counts[AT]
    if p == len(program.patterns):
        counts[PHASE] = BEHIND if program.by_event == 1 else NEXT
        return GOES_ON
    mask = events.masks[p, e]
    if mask == 0 or (mask == TAKEN and program.patterns[p, IS_STRICT] == 0):
        counts[AT] = p + 1
        return GOES_ON
    if program.patterns[p, ASKS] & mask != 0 and counts[ANSWERED] == 0:
        return NEEDS_TRUTH
    counts[ANSWERED] = 0
    counts[START] = rows.state[ARRIVALS]
    find_waiting_lists(lists, program, events, e, p, work)
    counts[PHASE] = VISIT
    return GOES_ON


@kernel
def can_store(rows: Rows, lists: Lists, work: MatchWork) -> bool:
    if rows.state[FREE] + len(rows.pages) - rows.state[HIGH] < 2:
        return False
    return has_room(lists.by_condition, key_hash(work.lanes, 0, lists.conditions))


@kernel
def advance_match(
    rows: Rows,
    lists: Lists,
    program: PatternProgram,
    events: PatternEvents,
    p: Whole,
    slot: Whole,
    due: Whole,
    out: MatchOutputs,
    work: MatchWork,
) -> Whole:
    """Applies the current event, or time if `due` is a deadline and not UNSET, to the open match at `slot`; NONE is a new match.
    Stores, emits or removes the match. Returns GOES_ON; IS_FULL or NEEDS_ROOM if no stored match was changed for lack of room.
    """
    counts = work.counts
    first, last = program.patterns[p, FIRST], program.patterns[p, LAST]
    e = counts[EVENT]
    if counts[MADE] >= counts[ROOM]:
        return IS_FULL
    load_match(rows, program, slot, first, last, work)
    activate(program, first, last, work)
    now = due
    if due == UNSET:
        if slot < 0:
            set_partition(program, events, e, p, work)
        now = events.time[e]
        if not apply_event(rows, program, events, e, p, slot, work):
            return GOES_ON
    update_node_states(program, first, last, due, work)
    root = work.state[first]
    if root == WAITING:
        if slot < 0 and not has_begun(program, p, work):
            return GOES_ON
        deadline = write_awaited_events(program, p, now, work)
        if not can_store(rows, lists, work):
            return NEEDS_ROOM
        if slot >= 0:
            remove_match(rows, lists, slot)
        store_match(rows, lists, p, deadline, work)
        return GOES_ON
    is_match = root == TRUE and (slot >= 0 or has_begun(program, p, work))
    if is_match:
        emit_match(program, p, out, work)
    if slot >= 0:
        remove_match(rows, lists, slot)
    if is_match and program.patterns[p, SKIPS] == 1:
        end_others(rows, lists, p, work)
    return GOES_ON


@kernel
def run_pattern(
    rows: Rows, lists: Lists, program: PatternProgram, events: PatternEvents, out: MatchOutputs, work: MatchWork
) -> Whole:
    """Processes events and heartbeats in order of rank. Returns DONE, or the reason to stop; the caller provides what is missing,
    and calls again: room for outputs (IS_FULL) or matches (NEEDS_ROOM), or `truth` of open matches (NEEDS_TRUTH).

    NEEDS_OUTPUT: user code must make the last output, of the match in `work`; the caller then sets COMPLETE to 0.
    NEEDS_PAGE: the page whose rows are moved next must be loaded.
    NEEDS_DUE: unlinked matches may be due first; the caller links the next ones.
    """
    counts = work.counts
    state: Whole = GOES_ON
    while state == GOES_ON:
        phase = counts[PHASE]
        if phase == NEXT:
            state = begin_next(rows, lists, program, events, work)
            continue
        if phase == OPEN:
            state = open_pattern(rows, lists, program, events, work)
            continue
        slot: Whole = NONE
        due: Whole = UNSET
        cursor: Whole = NONE
        p: Whole = np.int64(counts[AT])
        if phase in (BEFORE, BEHIND):
            slot = first_due(rows.heap, rows.time, rows.order, rows.state)
            if rows.state[UNLINKED] <= counts[NOW] and may_precede_first(rows.time, rows.order, rows.state, slot):
                state = NEEDS_DUE
                continue
            if slot >= 0 and rows.time[slot] <= counts[NOW]:
                due, p = np.int64(rows.time[slot]), np.int64(rows.lanes[slot, PATTERN])
            else:
                counts[PHASE] = OPEN if phase == BEFORE else NEXT
                continue
        elif phase == VISIT:
            cursor = nearest_cursor(rows, work)
            if cursor < 0:
                counts[PHASE] = BEGINS
                continue
            slot = np.int64(work.cursors[cursor])
        elif events.masks[p, counts[EVENT]] & program.patterns[p, BEGINS_WITH] == 0 and program.patterns[p, ANY_BEGINS] == 0:
            counts[PHASE], counts[AT] = OPEN, p + 1
            continue
        after = np.int64(lists.links[slot, AFTER]) if cursor >= 0 else NONE
        if cursor < 0 or rows.time[slot] > events.time[counts[EVENT]]:
            state = advance_match(rows, lists, program, events, p, slot, due, out, work)
        if state == GOES_ON and counts[SKIPPED] == 1:
            counts[SKIPPED] = 0
            if due == UNSET:  # the event is done for this pattern
                counts[PHASE], counts[AT] = OPEN, p + 1
        elif state == GOES_ON and cursor >= 0:
            work.cursors[cursor] = after
        elif state == GOES_ON and due == UNSET:
            counts[PHASE], counts[AT] = OPEN, p + 1
        if state == GOES_ON and counts[COMPLETE] > 0:
            state = NEEDS_OUTPUT
    return state


@kernel
def collect_waiting_matches(
    rows: Rows, lists: Lists, program: PatternProgram, events: PatternEvents, work: MatchWork, slots: Int64s
) -> Whole:
    """Writes to `slots` the slots of the open matches that the current event may change, as far as there is room. Returns the
    number of all these matches, which may be larger than `slots`.
    """
    find_waiting_lists(lists, program, events, work.counts[EVENT], work.counts[AT], work)
    count = np.int64(0)
    for c in range(work.counts[LISTS]):
        slot = work.cursors[c]
        while slot >= 0:
            if count < len(slots):
                slots[count] = slot
            count += 1
            slot = np.int64(lists.links[slot, AFTER])
    return count


@kernel
def collect_awaited_events(rows: Rows, program: PatternProgram, p: Whole, slots: Int64s, work: MatchWork, bits: Int64s) -> None:
    """Writes to `bits` for each match in `slots` (NONE is a new one) the events of interest that may change it, as bits."""
    first, last = program.patterns[p, FIRST], program.patterns[p, LAST]
    for i in range(len(slots)):
        load_match(rows, program, slots[i], first, last, work)
        activate(program, first, last, work)
        bits[i] = 0
        for v in range(first, last):
            if work.active[v] == 1 and program.nodes[v, KIND] <= NOTOCCUR:
                bits[i] |= np.int64(1) << program.nodes[v, BIT]
