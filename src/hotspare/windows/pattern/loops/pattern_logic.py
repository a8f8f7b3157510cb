"""The logic of patterns as kernels ask it: nodes of a tree in an array, and what an event or a deadline does to one open match (see
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
"""Kinds of nodes; those up to NOTOCCUR are of an event of interest."""
WAITING, TRUE, FALSE = np.int64(0), np.int64(1), np.int64(2)
"""States of nodes, two bits each in the words of a row."""
NODES_A_WORD = 31

KIND, END, BIT, COUNT, LIMIT, DEADLINE, COUNTER, BELOW_NOT, NEAREST = 0, 1, 2, 3, 4, 5, 6, 7, 8
"""Columns of `PatternProgram.nodes`, which stand as they are read: where the operands end; number of the event of interest; how
many of it; the limit, 0 for none; places of deadline and count in a row, NONE where there is none; 1 where it stands in a not;
the next node around it that has a limit, itself included, NONE where there is none."""
NODE_WIDTH = 9
FIRST, LAST, EVENTS, BEGINS_WITH, ANY_BEGINS, IS_STRICT, ASKS, IS_MANIFOLD, OF_CODE, SKIPS = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
"""Columns of `PatternProgram.patterns`: its nodes, and the number of its first event of interest; the events with which a match
begins, as bits; 1 where any event may begin one, where it matters which event is the next, and where there is one list for all
who wait; the events that ask for `truth`; the place in a row of what people's code keeps of a match, NONE in a pattern without; 1
where a match ends the other open ones of its partition."""
PATTERN_WIDTH = 10
CHECKS_BEGIN, CHECKS_END, CAUGHT_BEGIN, CAUGHT_END = 0, 1, 2, 3
"""Columns of `PatternProgram.events`."""
OP, PLACE, COLUMN = 0, 1, 2
"""Columns of `PatternProgram.checks`: what is asked, of which place in a row, and of which column of the event. Both hold whole
numbers in the order of the values that they stand for (`windows.pattern.columns`)."""
BIND, EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = (np.int64(op) for op in range(7))
"""The value of the match stands on the left. BIND: as EQUAL, where there is one; else it becomes the event's."""
PATTERN, WAITS_FOR, KEYS = 0, 1, 2
"""Places in a row: the number of the pattern; the events that may do something, as bits, and STRICT; then the partition."""
STRICT, TAKEN = np.int64(1) << 61, np.int64(1) << 60
"""Bits beside those of events of interest: it matters which event is the next; the pattern reads the input of the event."""
EVENT_BITS = TAKEN - 1
EVERY_WAIT = np.int64(-1)

MADE, ROOM, EVENTS_TAKEN, BEAT, PHASE, EVENT, AT, RANK, NOW, START, LISTS, ANSWERED = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
FRESH, COMPLETE, ABSENCE, SKIPPED = 12, 13, 14, 15
"""Entries of `counts`: outputs made, and how many may be; events and heartbeats taken; what is under way: with which event, for
which pattern, at which rank and time; the arrival with which it began; how many lists are gone through; 1 where `truth` is
known; what code keeps of a match that the event begins; of a match that is complete, and whose output is code's to make, the
number of its pattern and 1; whether pages of matches may be absent (`table.absent`): ALL_THERE, or ASK before one is
cleared, or ANSWERED_FOR, where it is there for the next event; 1 where a match has just
ended the others."""
COUNTS_WIDTH = 16
ALL_THERE, ASK, ANSWERED_FOR = np.int64(0), np.int64(1), np.int64(2)
NEXT, BEFORE, OPEN, VISIT, BEGINS, BEHIND = (np.int64(phase) for phase in range(6))
"""Phases: nothing is under way; what is due before an event; a pattern, its open matches, and the match that the event begins; what
is due then."""
GOES_ON, DONE, NEEDS_ROOM, IS_FULL, NEEDS_TRUTH, NEEDS_OUTPUT, NEEDS_PAGE, NEEDS_DUE = (np.int64(state) for state in range(8))
CLOCK = 1
"""Entry of `kept`: the newest time of an event; the first one is the next key."""
CLASSES_MAX = 32


class PatternProgram(NamedTuple):
    """What patterns ask for. `keys[p]`: columns of the partition. `outputs[p]`: places in a row of what comes out, NONE for the
    key. `caught`: pairs of column and place. `states`: the first word of states, and how many there are. `by_event` 1: time comes
    from fields."""

    patterns: Int64s
    nodes: Int64s
    events: Int64s
    checks: Int64s
    caught: Int64s
    keys: Int64s
    outputs: Int64s
    states: Int64s
    by_event: int


class PatternEvents(NamedTuple):
    """In order. `masks[p]`: of each event the events of interest of that pattern that it may be, and TAKEN. `fresh[p]`: those of
    ASKS that are true for a match that it begins. `beats`: rank and time."""

    rank: Int64s
    time: Int64s
    masks: Int64s
    values: Int64s
    valid: Bools
    fresh: Int64s
    beats: Int64s


class Made(NamedTuple):
    """Outputs: `rank`, and fields as the window has them, without the key."""

    rank: Int64s
    lanes: Int64s
    valid: Bools


class MatchWork(NamedTuple):
    """One match that is worked on: a row, states of nodes and which of them are asked; and the lists that are gone through.
    `classes[p]`: who is waited for, as far as that came up; `known[p]`: how many. `truth`: of each row the events of interest that
    are true for it; `keeps`: of each row what code keeps of it with these events, as the code of a text."""

    lanes: Int64s
    valid: Bools
    state: Int64s
    active: Int64s
    cursors: Int64s
    classes: Int64s
    known: Int64s
    truth: Int64s
    keeps: Int64s
    counts: Int64s
    kept: Int64s


@kernel
def load(rows: Rows, program: PatternProgram, slot: Whole, first: Whole, last: Whole, work: MatchWork) -> None:
    """Take a row up; without one, a fresh match."""
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
        word = work.lanes[0, program.states[0] + (v - first) // NODES_A_WORD]
        work.state[v] = (word >> (2 * ((v - first) % NODES_A_WORD))) & 3


@kernel
def activate(program: PatternProgram, first: Whole, last: Whole, work: MatchWork) -> None:
    """Which nodes are asked: the root, and what stands in a node that is asked; in a fby one after the other."""
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
def holds(op: Whole, a: Whole, b: Whole) -> bool:
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
def is_that(
    rows: Rows, program: PatternProgram, events: PatternEvents, i: Whole, number: Whole, slot: Whole, work: MatchWork
) -> bool:
    """Whether an event passes the checks of an event of interest for a match: comparisons ask what was known before the event."""
    for c in range(program.events[number, CHECKS_BEGIN], program.events[number, CHECKS_END]):
        op, place, column = program.checks[c, OP], program.checks[c, PLACE], program.checks[c, COLUMN]
        value = events.values[i, column]
        if op == BIND:
            if work.valid[0, place] and work.lanes[0, place] != value:
                return False
        elif slot < 0 or not rows.valid[slot, place] or not holds(op, rows.lanes[slot, place], value):
            return False
    return True


@kernel
def catch(program: PatternProgram, events: PatternEvents, i: Whole, number: Whole, work: MatchWork) -> None:
    """Keep what a match needs of an event that belongs to it."""
    for c in range(program.events[number, CHECKS_BEGIN], program.events[number, CHECKS_END]):
        if program.checks[c, OP] == BIND and not work.valid[0, program.checks[c, PLACE]]:
            work.lanes[0, program.checks[c, PLACE]] = events.values[i, program.checks[c, COLUMN]]
            work.valid[0, program.checks[c, PLACE]] = True
    for c in range(program.events[number, CAUGHT_BEGIN], program.events[number, CAUGHT_END]):
        column, place = program.caught[c, 0], program.caught[c, 1]
        work.lanes[0, place] = events.values[i, column]
        work.valid[0, place] = events.valid[i, column]


@kernel
def take_event(
    rows: Rows, program: PatternProgram, events: PatternEvents, i: Whole, p: Whole, slot: Whole, work: MatchWork
) -> bool:
    """What an event does to the nodes that are asked; whether it does anything."""
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
        came = came and is_that(rows, program, events, i, number, slot, work)
        if came:
            is_any = True
            catch(program, events, i, number, work)
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
        work.lanes[0, place] = work.counts[FRESH] if slot < 0 else work.keeps[slot]
        work.valid[0, place] = True
    return did


@kernel
def from_operands(program: PatternProgram, v: Whole, work: MatchWork) -> Whole:
    """The state of an operator."""
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
def decide(program: PatternProgram, first: Whole, last: Whole, due: Whole, work: MatchWork) -> None:
    """Bring states up to date, from operands to operators. `due`: limits up to this time are over; UNSET where time did nothing."""
    for u in range(last - first):
        v = np.int64(last - 1 - u)
        if work.active[v] == 0 or work.state[v] != WAITING:
            continue
        kind = program.nodes[v, KIND]
        if kind > NOTOCCUR:
            work.state[v] = from_operands(program, v, work)
        if due == UNSET or work.state[v] != WAITING:
            continue
        if kind == NOTOCCUR:
            nearest = program.nodes[v, NEAREST]
            if nearest >= 0 and work.lanes[0, program.nodes[nearest, DEADLINE]] <= due:
                work.state[v] = TRUE
        elif program.nodes[v, LIMIT] > 0 and work.lanes[0, program.nodes[v, DEADLINE]] <= due:
            work.state[v] = FALSE


@kernel
def await_rest(program: PatternProgram, p: Whole, now: Whole, work: MatchWork) -> Whole:
    """Who has to come next, written to the row, as states are and deadlines that begin at `now`; the first deadline."""
    first, last = program.patterns[p, FIRST], program.patterns[p, LAST]
    activate(program, first, last, work)
    waits, deadline = np.int64(0), NEVER
    for w in range(program.states[1]):
        work.lanes[0, program.states[0] + w] = 0
        work.valid[0, program.states[0] + w] = True
    for v in range(first, last):
        at = v - first
        work.lanes[0, program.states[0] + at // NODES_A_WORD] |= work.state[v] << (2 * (at % NODES_A_WORD))
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
    """Whether an event is the first of a match: something came of it, outside of a not."""
    for v in range(program.patterns[p, FIRST], program.patterns[p, LAST]):
        if program.nodes[v, BELOW_NOT] == 0:
            if work.state[v] == TRUE:
                return True
            if program.nodes[v, COUNTER] >= 0 and work.lanes[0, program.nodes[v, COUNTER]] > 0:
                return True
    return False
