"""The logic of patterns for kernels: nodes of a tree in an array, and the effect of an event or a deadline on one open match (see
`windows.pattern.loops.pattern`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hotspare.rows.chunk import Bools, Int64s
from hotspare.rows.compile import Whole, kernel
from hotspare.table.loops.index import NONE as NONE
from hotspare.table.loops.pages import Rows
from hotspare.table.loops.slots import NEVER, UNSET

LEAF, IS, SEEN, NOT_EVENT, NOTOCCUR, NOT, AND, OR, FBY = (np.int64(kind) for kind in range(9))
"""Kinds of nodes; those up to NOTOCCUR are about one event of interest, the others have operands."""
WAITING, TRUE, FALSE = np.int64(0), np.int64(1), np.int64(2)
"""States of nodes. A row of a match has two bits for each node, in the columns `PatternProgram.states`."""
NODES_PER_WORD = 31

KIND, END, BIT, COUNT, LIMIT, DEADLINE, COUNTER, BELOW_NOT, NEAREST = 0, 1, 2, 3, 4, 5, 6, 7, 8
"""Columns of `PatternProgram.nodes`, whose rows are in the order of the text:

KIND               kind of the node
END                number of the node after the last operand
BIT                number of the event of interest
COUNT, LIMIT       required count; time limit in microseconds, 0 for none
DEADLINE, COUNTER  places of deadline and count in a row of a match, or NONE
BELOW_NOT          1 inside a not
NEAREST            the nearest node with a limit, from the node itself outwards, or NONE
"""
NODE_WIDTH = 9
FIRST, LAST, EVENTS, BEGINS_WITH, ANY_BEGINS, IS_STRICT, ASKS, IS_MANIFOLD, OF_CODE, SKIPS = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
"""Columns of `PatternProgram.patterns`:

FIRST, LAST  the first node, and the one after the last
EVENTS       number of the first event of interest
BEGINS_WITH  the events with which a match begins, as bits
ANY_BEGINS   1 if any event may begin a match
IS_STRICT    1 if the very next event matters
ASKS         the events of interest that need `truth`, as bits
IS_MANIFOLD  1 if all waiting matches are in one list
OF_CODE      place in a row of the state that user code keeps of a match; NONE in a pattern without code
SKIPS        1 if a complete match ends the other open matches of its partition
"""
PATTERN_WIDTH = 10
CHECKS_BEGIN, CHECKS_END, CAUGHT_BEGIN, CAUGHT_END = 0, 1, 2, 3
"""Columns of `PatternProgram.events`: begin and end of an event's rows in `checks`, and in `captures`."""
OP, PLACE, COLUMN = 0, 1, 2
"""Columns of `PatternProgram.checks`: the operation, a place in a row of a match, and a column of the event. Both values are whole
numbers that order as the values they represent (`windows.pattern.columns`).
"""
BIND, EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = (np.int64(op) for op in range(7))
"""Operations of checks; the value of the match is the left operand. BIND is EQUAL if the match has a value; if not, the value of
the event becomes that of the match.
"""
PATTERN, WAITS_FOR, KEYS = 0, 1, 2
"""Columns of a row of a match: the number of the pattern; the events that may change the match, as bits, and STRICT; the first
column of the partition.
"""
STRICT, TAKEN = np.int64(1) << 61, np.int64(1) << 60
"""Bits next to those of events of interest. STRICT, in a match: the very next event matters. TAKEN, in an event: the pattern reads
the input of the event.
"""
EVENT_BITS = TAKEN - 1
EVERY_WAIT = np.int64(-1)

MADE, ROOM, EVENTS_TAKEN, BEAT, PHASE, EVENT, AT, RANK, NOW, START, LISTS, ANSWERED = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
FRESH, COMPLETE, ABSENCE, SKIPPED = 12, 13, 14, 15
"""Entries of `MatchWork.counts`:

MADE, ROOM          outputs made, and their limit
EVENTS_TAKEN, BEAT  events and heartbeats processed
PHASE               the current phase
EVENT, AT           the current event and pattern
RANK, NOW           rank and time of the current event or heartbeat
START               the arrival number at which the event began for the pattern
LISTS               number of current lists
ANSWERED            1 if `truth` is computed
FRESH               the code's state of a match that the event begins, as the code of a text
COMPLETE            number of the pattern plus 1, if user code has to make the output of a complete match; else 0
ABSENCE             whether pages of matches may be unloaded (`table.unloaded`): ALL_THERE; ASK before rows of a page are moved;
                    ANSWERED_FOR if the page is loaded for the next event
SKIPPED             1 if a match has just ended the others of its partition
"""
COUNTS_WIDTH = 16
ALL_THERE, ASK, ANSWERED_FOR = np.int64(0), np.int64(1), np.int64(2)
NEXT, BEFORE, OPEN, VISIT, BEGINS, BEHIND = (np.int64(phase) for phase in range(6))
"""Phases. NEXT: idle. BEFORE: deadlines before an event. OPEN: the next pattern. VISIT: open matches of the pattern. BEGINS: the
match that the event begins. BEHIND: deadlines after the event.
"""
GOES_ON, DONE, NEEDS_ROOM, IS_FULL, NEEDS_TRUTH, NEEDS_OUTPUT, NEEDS_PAGE, NEEDS_DUE = (np.int64(state) for state in range(8))
CLOCK = 1
"""Entry of `window_counters`: the newest time of an event; entry 0 is the next key."""
CLASSES_MAX = 32


class PatternProgram(NamedTuple):
    """The compiled patterns.

    patterns  int64[., 10]  columns FIRST to SKIPS
    nodes     int64[., 9]   columns KIND to NEAREST: the nodes of all patterns, in the order of the text
    events    int64[., 4]   columns CHECKS_BEGIN to CAUGHT_END: the events of interest of all patterns
    checks    int64[., 3]   columns OP, PLACE, COLUMN
    captures  int64[., 2]   column of an event, and the place in a row of a match that keeps its value
    keys      int64[., .]   columns of events with the partition, by pattern
    outputs   int64[., .]   places in a row of a match of the output's fields, by pattern; NONE for the key
    states    int64[2]      the first column with states in a row of a match, and the number of these columns
    by_event  1 if time is read from fields, else 0
    """

    patterns: Int64s
    nodes: Int64s
    events: Int64s
    checks: Int64s
    captures: Int64s
    keys: Int64s
    outputs: Int64s
    states: Int64s
    by_event: int


class PatternEvents(NamedTuple):
    """Events in order.

    rank, time     int64[n]; time in microseconds
    masks[p]       int64[n]: the events of interest of pattern `p` that each event may be, as bits, and TAKEN
    values, valid  [n, .]: the computed columns of the events
    fresh[p]       int64[n]: those bits of ASKS that are true for a match that the event begins
    beats          int64[., 2]: rank and time of each heartbeat
    """

    rank: Int64s
    time: Int64s
    masks: Int64s
    values: Int64s
    valid: Bools
    fresh: Int64s
    beats: Int64s


class MatchOutputs(NamedTuple):
    """Output arrays: `rank`, and the fields of the window; the caller adds the key."""

    rank: Int64s
    lanes: Int64s
    valid: Bools


class MatchWork(NamedTuple):
    """The match that the kernel changes, and the lists of matches that it visits.

    lanes, valid             [1, width]: the row of the current match
    state, active            int64[nodes]: the state of each node, and 1 for an active one
    cursors                  int64[CLASSES_MAX]: the next match of each current list
    classes, class_counts    by pattern: the sets of awaited events seen so far, as bits, and their number
    truth, code_states       by slot: the events of interest that are true, as bits; and the state that user code keeps of the
                             match after them, as the code of a text
    counts, window_counters  progress in the batch (MADE to SKIPPED); counters that are state: the next key, and CLOCK
    """

    lanes: Int64s
    valid: Bools
    state: Int64s
    active: Int64s
    cursors: Int64s
    classes: Int64s
    class_counts: Int64s
    truth: Int64s
    code_states: Int64s
    counts: Int64s
    window_counters: Int64s


@kernel
def load_match(rows: Rows, program: PatternProgram, slot: Whole, first: Whole, last: Whole, work: MatchWork) -> None:
    """Loads the row at `slot` into `work`, or a new match if it is NONE. `first`, `last`: the nodes of the pattern."""
    if slot < 0:
        for j in range(work.lanes.shape[1]):
            work.lanes[0, j] = 0
            work.valid[0, j] = j < KEYS
        for v in range(first, last):
            work.state[v] = WAITING
        return
    at = np.uint64(slot)
    for j in range(work.lanes.shape[1]):
        work.lanes[0, j] = rows.lanes[at, j]
        work.valid[0, j] = rows.valid[at, j]
    for v in range(first, last):
        word = work.lanes[0, program.states[0] + (v - first) // NODES_PER_WORD]
        work.state[v] = (word >> (2 * ((v - first) % NODES_PER_WORD))) & 3


@kernel
def activate(program: PatternProgram, first: Whole, last: Whole, work: MatchWork) -> None:
    """Computes which nodes are active in `work`: the root while it waits, and waiting operands of active nodes; of a fby only the
    first waiting one.
    """
    for v in range(first, last):
        work.active[v] = 0
    work.active[first] = 1 if work.state[first] == WAITING else 0
    for v in range(first, last):
        kind = program.nodes[v, KIND]
        if work.active[v] == 0 or kind <= NOTOCCUR:
            continue
        child = np.int64(v + 1)
        while child < program.nodes[v, END]:
            if work.state[child] == WAITING:
                work.active[child] = 1
                if kind == FBY:
                    break
            child = program.nodes[child, END]


@kernel
def is_comparison_true(op: Whole, a: Whole, b: Whole) -> bool:
    if op <= EQUAL:
        return bool(a == b)
    if op == NOT_EQUAL:
        return bool(a != b)
    if op == LESS:
        return bool(a < b)
    if op == LESS_EQUAL:
        return bool(a <= b)
    if op == GREATER:
        return bool(a > b)
    return bool(a >= b)


@kernel
def is_event_of_interest(
    rows: Rows, program: PatternProgram, events: PatternEvents, i: Whole, number: Whole, slot: Whole, work: MatchWork
) -> bool:
    """Whether event `i` passes the checks of event of interest `number` for the match at `slot`. Comparisons use the values from
    before the event; for a new match they are false.
    """
    for c in range(program.events[number, CHECKS_BEGIN], program.events[number, CHECKS_END]):
        op, place, column = program.checks[c, OP], program.checks[c, PLACE], program.checks[c, COLUMN]
        value = events.values[i, column]
        if op == BIND:
            if work.valid[0, place] and work.lanes[0, place] != value:
                return False
        elif slot < 0 or not rows.valid[slot, place] or not is_comparison_true(op, rows.lanes[slot, place], value):
            return False
    return True


@kernel
def capture_values(program: PatternProgram, events: PatternEvents, i: Whole, number: Whole, work: MatchWork) -> None:
    """Stores in the match the values of event `i` that event of interest `number` binds or outputs."""
    for c in range(program.events[number, CHECKS_BEGIN], program.events[number, CHECKS_END]):
        if program.checks[c, OP] == BIND and not work.valid[0, program.checks[c, PLACE]]:
            work.lanes[0, program.checks[c, PLACE]] = events.values[i, program.checks[c, COLUMN]]
            work.valid[0, program.checks[c, PLACE]] = True
    for c in range(program.events[number, CAUGHT_BEGIN], program.events[number, CAUGHT_END]):
        column, place = program.captures[c, 0], program.captures[c, 1]
        work.lanes[0, place] = events.values[i, column]
        work.valid[0, place] = events.valid[i, column]


@kernel
def apply_event(
    rows: Rows, program: PatternProgram, events: PatternEvents, i: Whole, p: Whole, slot: Whole, work: MatchWork
) -> bool:
    """Applies event `i` to the active nodes of the match in `work`. Returns whether any of them changed."""
    mask, first = events.masks[p, i], program.patterns[p, FIRST]
    asks = program.patterns[p, ASKS]
    truth = np.int64(-1)
    if asks & mask != 0:
        truth = events.fresh[p, i] if slot < 0 else work.truth[slot]
    did, is_any = False, False
    for v in range(first, program.patterns[p, LAST]):
        kind = program.nodes[v, KIND]
        if work.active[v] == 0 or kind > NOTOCCUR:
            continue
        bit = np.int64(1) << program.nodes[v, BIT]
        number = program.patterns[p, EVENTS] + program.nodes[v, BIT]
        came = mask & bit != 0 and (asks & bit == 0 or truth & bit != 0)
        came = came and is_event_of_interest(rows, program, events, i, number, slot, work)
        if came:
            is_any = True
            capture_values(program, events, i, number, work)
        if kind == NOT_EVENT:
            work.state[v] = FALSE if came else TRUE
            did = True
        elif kind == NOTOCCUR:
            if came:
                work.state[v] = FALSE
                did = True
        elif came:
            did = True
            if program.nodes[v, COUNTER] >= 0:
                work.lanes[0, program.nodes[v, COUNTER]] += 1
            if program.nodes[v, COUNTER] < 0 or work.lanes[0, program.nodes[v, COUNTER]] >= program.nodes[v, COUNT]:
                work.state[v] = TRUE
        elif kind == IS:
            work.state[v] = FALSE
            did = True
    place = program.patterns[p, OF_CODE]
    if is_any and place >= 0:
        work.lanes[0, place] = work.counts[FRESH] if slot < 0 else work.code_states[slot]
        work.valid[0, place] = True
    return did


@kernel
def operator_state(program: PatternProgram, v: Whole, work: MatchWork) -> Whole:
    """Returns the state of the operator node `v`, from the states of its operands."""
    kind, operands, true, false, guards = program.nodes[v, KIND], 0, 0, 0, 0
    child = np.int64(v + 1)
    while child < program.nodes[v, END]:
        operands += 1
        if work.state[child] == TRUE:
            true += 1
        elif work.state[child] == FALSE:
            false += 1
        elif program.nodes[child, KIND] == NOTOCCUR and program.nodes[child, LIMIT] == 0:
            guards += 1
        child = program.nodes[child, END]
    if kind == NOT:
        return FALSE if true else TRUE if false else WAITING
    if kind == OR:
        return TRUE if true else FALSE if false == operands else WAITING
    if false:
        return FALSE
    if kind == AND:
        return TRUE if true and true + guards == operands else WAITING
    return TRUE if true == operands else WAITING


@kernel
def update_node_states(program: PatternProgram, first: Whole, last: Whole, due: Whole, work: MatchWork) -> None:
    """Updates states, from operands to operators. `due`: limits up to this time are over; UNSET if an event is the cause."""
    for u in range(last - first):
        v = np.int64(last - 1 - u)
        if work.active[v] == 0 or work.state[v] != WAITING:
            continue
        kind = program.nodes[v, KIND]
        if kind > NOTOCCUR:
            work.state[v] = operator_state(program, v, work)
        if due == UNSET or work.state[v] != WAITING:
            continue
        if kind == NOTOCCUR:
            nearest = program.nodes[v, NEAREST]
            if nearest >= 0 and work.lanes[0, program.nodes[nearest, DEADLINE]] <= due:
                work.state[v] = TRUE
        elif program.nodes[v, LIMIT] > 0 and work.lanes[0, program.nodes[v, DEADLINE]] <= due:
            work.state[v] = FALSE


@kernel
def write_awaited_events(program: PatternProgram, p: Whole, now: Whole, work: MatchWork) -> Whole:
    """Writes states, deadlines that begin at `now`, and the awaited events to the row of the match. Returns the first deadline."""
    first, last = program.patterns[p, FIRST], program.patterns[p, LAST]
    activate(program, first, last, work)
    waits, deadline = np.int64(0), NEVER
    for w in range(program.states[1]):
        work.lanes[0, program.states[0] + w] = 0
        work.valid[0, program.states[0] + w] = True
    for v in range(first, last):
        at = v - first
        work.lanes[0, program.states[0] + at // NODES_PER_WORD] |= work.state[v] << (2 * (at % NODES_PER_WORD))
        if work.active[v] == 0:
            continue
        kind = program.nodes[v, KIND]
        if kind <= NOTOCCUR:
            waits |= np.int64(1) << program.nodes[v, BIT]
            if kind in (IS, NOT_EVENT):
                waits |= STRICT
        place = program.nodes[v, COUNTER]
        if place >= 0:
            work.valid[0, place] = True
        place = program.nodes[v, DEADLINE]
        if place >= 0:
            if not work.valid[0, place]:
                work.lanes[0, place] = now + program.nodes[v, LIMIT]
                work.valid[0, place] = True
            deadline = min(deadline, work.lanes[0, place])
    work.lanes[0, PATTERN] = p
    work.lanes[0, WAITS_FOR] = EVERY_WAIT if program.patterns[p, IS_MANIFOLD] == 1 else waits
    return deadline


@kernel
def has_begun(program: PatternProgram, p: Whole, work: MatchWork) -> bool:
    """Whether the event is the first of a match: it changed a node outside of a not."""
    for v in range(program.patterns[p, FIRST], program.patterns[p, LAST]):
        if program.nodes[v, BELOW_NOT] == 0:
            if work.state[v] == TRUE:
                return True
            if program.nodes[v, COUNTER] >= 0 and work.lanes[0, program.nodes[v, COUNTER]] > 0:
                return True
    return False
