"""Loops of an aggregate: the change that each event makes to its group (see `windows.aggregate.operator`).

A group is a row: its key, its results, and the components that these are computed from. Like all rows of pages it is never
overwritten: each event makes a new version, so emitted versions still exist when outputs are gathered. If a sum needs more words
than a narrow row has, its group moves to a wide row, with words for all doubles, until the group is empty.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.rows.compile import Whole, called, kernel
from hotspare.table.loops.index import NONE, agree, drop, enter, entry_of, find, has_room, key_hash, replace, slot_at
from hotspare.table.loops.pages import Rows, free_slot, is_ready, slots_before_gap_check, take_slot, too_many_gaps
from hotspare.table.loops.relation import DELETE, INSERT, SAFE_DELETE, UPDATE_BLOCK, whole_flags
from hotspare.table.loops.shared import check_gaps_shared, look_up, room_for
from hotspare.table.loops.slots import ARRIVALS, FILL, LIVE
from hotspare.windows.aggregate.loops.arrivals import change_arrivals, is_prepared_for_row, tidy_arrivals
from hotspare.windows.aggregate.loops.components import (
    INLINE_AT,
    Group,
    GroupEvents,
    GroupProgram,
    begin_group,
    change_group,
    load_group,
    widen_group,
)
from hotspare.windows.aggregate.loops.exact import Scratch
from hotspare.windows.aggregate.loops.fast_path import change_on_fast_path, has_inline_state_only
from hotspare.windows.aggregate.loops.inline_sets import INLINE_VALUES_MAX, can_stay_inline, change_inline_sets, move_set_to_trees
from hotspare.windows.aggregate.loops.ordered import (
    change_value,
    is_prepared_for_value,
    set_probe_group,
    set_probe_value,
    tidy_values,
)
from hotspare.windows.aggregate.loops.results import OrderedState, has_list_room, write_results
from hotspare.windows.aggregate.loops.text_extremes import update_text_extremes
from hotspare.windows.aggregate.loops.values import Trees

SLOT, IS_WIDE = 0, 1
"""Columns of `Outputs.places`: the slot of a version of a group, and 1 if that slot is in the wide rows."""
PLACES_WIDTH = 2
MADE, TAKEN, HALF, TIDIED, EVENT, STEP, ASKS = 0, 1, 2, 3, 4, 5, 6
"""Entries of `Outputs.counts`:

MADE    outputs made
TAKEN   event rows processed
HALF    1 if an update across two groups has changed the old group, and not yet the new one
TIDIED  1 if gaps of pages were checked for the present change
EVENT   all changes ever made by the window
STEP    completed steps of the present change of ordered state
ASKS    whether pages may be unloaded (`table.unloaded`): NEVER; ASK before rows of a page are moved; ANSWERED if the pages needed
        next are in memory
"""
COUNTS_WIDTH = 7
NEVER, ASK, ANSWERED = 0, 1, 2
EVICTED = np.int64(7)
"""Opcode of the delete of a row that the next event, an insert or update, evicted from a window with retention. If both are of one
group, they change the group together.
"""
STEPS_OF_SET = INLINE_VALUES_MAX + 2
"""The most changes that one event causes for a set in trees: it inserts all values from the group's row, removes one, inserts one.
"""
DONE, NEEDS_ROOM, NEEDS_WIDE_ROOM, NEEDS_TREE_ROOM, NEEDS_ROW_ROOM, NEEDS_LIST_ROOM, NEEDS_PAGES = map(np.int64, range(7))


class GroupChange(NamedTuple):
    """The programs that change a group, and buffers for its row. `small` is the buffer for `program`, and `large` that for
    `wide_program`, whose rows have more words. `scratch` has temporary numbers.
    """

    program: GroupProgram
    wide_program: GroupProgram
    small: Group
    large: Group
    scratch: Scratch


class Outputs(NamedTuple):
    """Output arrays with one entry per output, and room for two outputs per event row.

    lanes, valid  keys and results, and their validity
    failed        the number of the first result with an error, counted from 1, or 0
    source        the event row that caused the output
    places        int64[., 2]: SLOT and IS_WIDE of each version; empty if the caller does not need them
    counts        int64[7]: the progress of the kernel, entries MADE to ASKS
    """

    rank: Int64s
    opcode: UInt8s
    flags: UInt8s
    lanes: Int64s
    valid: Bools
    failed: Int64s
    source: Int64s
    places: Int64s
    counts: Int64s


@kernel
def start_output(out: Outputs, events: GroupEvents, row: Whole, opcode: Whole, slot: Whole, is_wide: Whole) -> Whole:
    """Starts an output with `opcode` and with rank and flags of event row `row`. Returns its number; the caller then adds keys and
    results by `write_output_values`.
    """
    at = np.int64(out.counts[MADE])
    i, cause = np.uint64(at), np.uint64(row)
    out.rank[i] = events.rank[cause]
    out.opcode[i] = opcode
    out.flags[i] = whole_flags(events.flags[cause])
    out.source[i] = row
    if len(out.places) > 0:
        out.places[i, SLOT] = slot
        out.places[i, IS_WIDE] = is_wide
    out.counts[MADE] = at + 1
    return at


@kernel
def write_output_values(out: Outputs, at: Whole, lanes: Int64s, valid: Bools, version: Whole) -> None:
    """Writes keys, results and FAILED of the group's row `version` to output `at`."""
    to, source, width = np.uint64(at), np.uint64(version), np.uint64(out.lanes.shape[1])
    out.failed[to] = lanes[source, width]
    for j in range(width):
        out.lanes[to, j] = lanes[source, j]
        out.valid[to, j] = valid[source, j]


@kernel
def store_group(rows: Rows, group: Group, place: np.uint64, old: Whole, h: np.uint64) -> Whole:
    """Writes `group` as the next version of its row, and returns the slot. `old`: the slot of the present version, or NONE for a
    new group; `place` and `h`: the place in the index, and the hash, of its key.
    """
    slot = take_slot(rows)
    for j in range(rows.lanes.shape[1]):
        rows.lanes[slot, j] = group.lanes[0, j]
        rows.valid[slot, j] = group.valid[0, j]
    if old < 0:
        enter(rows.by_key, place, entry_of(h, slot))
        rows.order[slot] = rows.state[ARRIVALS]
        rows.state[ARRIVALS] += 1
        rows.state[LIVE] += 1
    else:
        replace(rows.by_key, place, entry_of(h, slot))
        rows.order[slot] = rows.order[old]
        free_slot(rows, old)
    return slot


@kernel
def drop_group(rows: Rows, place: np.uint64, slot: Whole) -> None:
    drop(rows.by_key, place)
    rows.state[LIVE] -= 1
    free_slot(rows, slot)


@kernel
def emit_new_version(out: Outputs, events: GroupEvents, row: Whole, rows: Rows, slot: Whole, was: Whole, is_wide: Whole) -> None:
    """Emits the version of a group after an event, unless `slot` is NONE. `was`: the slot before the event. The output is an insert
    if that is NONE; else it is the first row of an update block.
    """
    if slot >= 0:
        at = start_output(out, events, row, INSERT if was < 0 else UPDATE_BLOCK, slot, is_wide)
        write_output_values(out, at, rows.lanes, rows.valid, slot)


@kernel
def emit_old_version(out: Outputs, events: GroupEvents, row: Whole, rows: Rows, was: Whole, is_wide: Whole) -> None:
    """Emits the version of a group before an event, unless `was` is NONE: a delete, or, after `emit_new_version`, the second row of
    an update block.
    """
    if was >= 0:
        at = start_output(out, events, row, DELETE, was, is_wide)
        write_output_values(out, at, rows.lanes, rows.valid, was)


@kernel
def may_clear_unloaded_page(rows: Rows, counts: Int64s) -> bool:
    """Whether the next change of ordered state may move rows of a page that may not be in memory."""
    return bool(counts[ASKS] == ASK and slots_before_gap_check(rows.state) == 0 and too_many_gaps(rows.state))


@called
def change_trees(
    group: Group, program: GroupProgram, trees: Trees, events: GroupEvents, number: Whole, new: Whole, old: Whole, counts: Int64s
) -> Whole:
    """Applies a change to set `number` in trees: values from the row of the group are inserted, the value of `old` is removed, that
    of `new` is inserted. Returns DONE, or NEEDS_TREE_ROOM or NEEDS_PAGES. Completed steps are counted, so a repeated call does not
    repeat them.
    """
    at, column, begin = program.inline_sets[number, INLINE_AT], program.sets[number], number * STEPS_OF_SET
    moved = group.lanes[0, at] if at >= 0 else np.int64(0)
    counts[STEP] = max(counts[STEP], begin)
    while counts[STEP] < begin + STEPS_OF_SET:
        step = counts[STEP] - begin
        row, sign = (old, np.int64(-1)) if step == INLINE_VALUES_MAX else (new, np.int64(1))
        if step < moved or (step >= INLINE_VALUES_MAX and row >= 0 and events.valid[row, column]):
            lane = group.lanes[0, at + 1 + step] if step < INLINE_VALUES_MAX else events.lanes[row, column]
            set_probe_group(trees, group.lanes, np.int64(0), program.keys, number)
            set_probe_value(trees, lane)
            if not is_prepared_for_value(trees):
                return NEEDS_TREE_ROOM
            if trees.rows.state[FILL] == 1 and may_clear_unloaded_page(trees.rows, counts):
                return NEEDS_PAGES
            tidy_values(trees)
            change_value(trees, sign)
            counts[ASKS] = min(counts[ASKS], ASK)
        counts[STEP] += 1
    return DONE


@kernel
def change_ordered_state(
    group: Group, program: GroupProgram, ordered: OrderedState, events: GroupEvents, new: Whole, old: Whole, counts: Int64s
) -> Whole:
    """Applies a change to the ordered state outside the group's row: first the sets, then the stored rows. Returns DONE, or a
    NEEDS_ code. Completed steps are counted, so a repeated call does not repeat them.
    """
    for number in range(len(program.sets)):
        if not can_stay_inline(group, program, np.int64(number), events, new, old):
            state = change_trees(group, program, ordered.trees, events, np.int64(number), new, old, counts)
            if state != DONE:
                return state
            if program.inline_sets[number, INLINE_AT] >= 0:
                move_set_to_trees(group, program.inline_sets[number, INLINE_AT])
    if len(ordered.arrivals.columns) == 0:
        return DONE
    begin = len(program.sets) * STEPS_OF_SET
    counts[STEP] = max(counts[STEP], begin)
    while counts[STEP] < begin + 2:
        row, sign = (old, np.int64(-1)) if counts[STEP] == begin else (new, np.int64(1))
        if row >= 0:
            if not is_prepared_for_row(ordered.arrivals, events, row):
                return NEEDS_ROW_ROOM
            if may_clear_unloaded_page(ordered.arrivals.rows, counts):
                return NEEDS_PAGES
            tidy_arrivals(ordered.arrivals)
            change_arrivals(ordered.arrivals, events, row, sign)
            counts[ASKS] = min(counts[ASKS], ASK)
        counts[STEP] += 1
    return DONE


@called
def process_wide_change(
    narrow: Rows,
    wide: Rows,
    c: GroupChange,
    ordered: OrderedState,
    events: GroupEvents,
    new: Whole,
    old: Whole,
    was: Whole,
    out: Outputs,
) -> Whole:
    """Applies a change to a group whose sums need more words. Its row is wide already, or moves from the narrow slot `was`, or is
    new. Returns DONE, or a NEEDS_ code; the row of the group is unchanged then.
    """
    row, keys, number = new if new >= 0 else old, c.program.keys, out.counts[EVENT]
    h = key_hash(events.lanes, row, keys)
    if not is_ready(wide) or not room_for(wide.by_key, h):
        return NEEDS_WIDE_ROOM
    place = look_up(wide.by_key, wide.lanes, wide.keys, events.lanes, row, keys, h)
    was_wide = slot_at(wide.by_key, place)
    if was_wide >= 0:
        load_group(c.large, wide, was_wide)
    else:
        begin_group(c.large, c.wide_program, events, row)
        if was >= 0:
            widen_group(c.large, c.wide_program, narrow, was, c.program)
    missing = change_ordered_state(c.large, c.wide_program, ordered, events, new, old, out.counts)
    if missing != DONE:
        return missing
    change_group(c.large, c.wide_program, events, new, old, number)
    change_inline_sets(c.large, c.wide_program, events, new, old)
    update_text_extremes(c.large, c.wide_program, ordered.trees, events, new)
    slot: Whole = NONE
    rows = c.large.lanes[0, len(keys) + len(c.program.results) + 1]
    if rows > 0:
        if not has_list_room(ordered, rows):
            return NEEDS_LIST_ROOM
        write_results(c.large, c.wide_program, ordered, c.scratch)
        slot = store_group(wide, c.large, place, was_wide, h)
    elif was_wide >= 0:
        drop_group(wide, place, was_wide)
    if was >= 0:
        drop_group(narrow, look_up(narrow.by_key, narrow.lanes, narrow.keys, events.lanes, row, keys, h), was)
    emit_new_version(out, events, row, wide, slot, max(was, was_wide), np.int64(1))
    emit_old_version(out, events, row, wide, was_wide, np.int64(1))
    emit_old_version(out, events, row, narrow, was, np.int64(0))
    out.counts[EVENT] = number + 1
    return DONE


@kernel
def may_clear(narrow: Rows, wide: Rows) -> bool:
    """Whether the next change may move rows of a sparse page of groups."""
    of_narrow = narrow.state[FILL] == 1 and too_many_gaps(narrow.state)
    of_wide = wide.state[LIVE] > 0 and slots_before_gap_check(wide.state) == 0 and too_many_gaps(wide.state)
    return bool(of_narrow or of_wide)


@kernel
def process_change(
    narrow: Rows, wide: Rows, c: GroupChange, ordered: OrderedState, events: GroupEvents, new: Whole, old: Whole, out: Outputs
) -> Whole:
    """Applies a change to a group: row `new` is added, row `old` is removed; either may be NONE. Returns DONE, or a NEEDS_ code;
    the row of the group is unchanged then. A removal from an unknown group changes nothing.
    """
    row, counts, program = new if new >= 0 else old, out.counts, c.program
    h = key_hash(events.lanes, row, program.keys)
    if not is_ready(narrow) or not has_room(narrow.by_key, h):
        return NEEDS_ROOM
    if wide.state[LIVE] > 0 and not is_ready(wide):
        return NEEDS_WIDE_ROOM
    if counts[TIDIED] == 0:
        if counts[ASKS] == ASK and may_clear(narrow, wide):
            return NEEDS_PAGES
        if narrow.state[FILL] == 1:
            check_gaps_shared(narrow, counts[MADE])
        if wide.state[LIVE] > 0:
            check_gaps_shared(wide, counts[MADE])
        counts[TIDIED], counts[ASKS] = 1, min(counts[ASKS], ASK)
    place = find(narrow.by_key, narrow.lanes, narrow.keys, events.lanes, row, program.keys, h)
    was = slot_at(narrow.by_key, place)
    is_wide = False
    if was >= 0:
        load_group(c.small, narrow, was)
    else:
        if wide.state[LIVE] > 0:
            wide_place = look_up(wide.by_key, wide.lanes, wide.keys, events.lanes, row, program.keys, h)
            is_wide = bool(slot_at(wide.by_key, wide_place) >= 0)
        if not is_wide and new < 0:
            return DONE
        begin_group(c.small, program, events, row)
    if not is_wide:
        missing = change_ordered_state(c.small, program, ordered, events, new, old, counts)
        if missing != DONE:
            return missing
    if is_wide or not change_group(c.small, program, events, new, old, counts[EVENT]):
        return process_wide_change(narrow, wide, c, ordered, events, new, old, was, out)
    change_inline_sets(c.small, program, events, new, old)
    update_text_extremes(c.small, program, ordered.trees, events, new)
    slot: Whole = NONE
    rows = c.small.lanes[0, len(program.keys) + len(program.results) + 1]
    if rows == 0:
        drop_group(narrow, place, was)
    else:
        if not has_list_room(ordered, rows):
            return NEEDS_LIST_ROOM
        write_results(c.small, program, ordered, c.scratch)
        slot = store_group(narrow, c.small, place, was, h)
    emit_new_version(out, events, row, narrow, slot, was, np.int64(0))
    emit_old_version(out, events, row, narrow, was, np.int64(0))
    counts[EVENT] += 1
    return DONE


@kernel
def read_eviction_pair(keys: Int64s, events: GroupEvents, at: Whole, half: Whole) -> tuple[Whole, Whole, Whole]:
    """Returns the next change if row `at` is EVICTED: the new row, the old row, and the number of event rows that are then
    processed. Either row may be NONE.

    The eviction is a change by itself if the next row is of another group, or updates a row of the same group. If the next row is
    an insert into the group, one change does both. If it moves a row from another group to this one, that other group changes first
    (`half` 0, no rows processed), and then this one (`half` 1).
    """
    new = at + 1
    if not agree(events.lanes, at, keys, events.lanes, new, keys):
        return np.int64(NONE), at, np.int64(1)
    if events.opcode[new] != UPDATE_BLOCK:
        return new, at, np.int64(2)
    if agree(events.lanes, new, keys, events.lanes, new + 1, keys):
        return np.int64(NONE), at, np.int64(1)
    if half == 0:
        return np.int64(NONE), new + 1, np.int64(0)
    return new, at, np.int64(3)


@kernel
def run_aggregate(narrow: Rows, wide: Rows, c: GroupChange, ordered: OrderedState, events: GroupEvents, out: Outputs) -> Whole:
    """Processes events in order. Returns DONE, or a NEEDS_ code: the caller provides the room or pages, and calls again. An update
    that moves a row to another group changes the old group, and then the new one. An evicted row is removed from its group in the
    same change that adds the row that evicted it.
    """
    counts, is_short = out.counts, has_inline_state_only(c.program, ordered)
    while counts[TAKEN] < len(events.rank):
        at, opcode = np.int64(counts[TAKEN]), events.opcode[counts[TAKEN]]
        new: Whole = at
        old: Whole = np.int64(NONE)
        taken: Whole = np.int64(1)
        if opcode == UPDATE_BLOCK:
            taken = np.int64(2)
            if agree(events.lanes, at, c.program.keys, events.lanes, at + 1, c.program.keys):
                old = at + 1
            elif counts[HALF] == 0:
                new, old, taken = np.int64(NONE), at + 1, np.int64(0)
        elif opcode == EVICTED:
            new, old, taken = read_eviction_pair(c.program.keys, events, at, np.int64(counts[HALF]))
        elif DELETE <= opcode <= SAFE_DELETE:
            new, old = np.int64(NONE), at
        was: Whole = NONE
        slot: Whole = NONE
        if is_short and counts[TIDIED] == 0 and counts[STEP] == 0:
            was, slot = change_on_fast_path(narrow, wide, c.program, ordered, events, new, old, counts[EVENT], c.scratch)
        if slot >= 0:
            row = new if new >= 0 else old
            emit_new_version(out, events, row, narrow, slot, was, np.int64(0))
            emit_old_version(out, events, row, narrow, was, np.int64(0))
            counts[EVENT] += 1
        else:
            state = process_change(narrow, wide, c, ordered, events, new, old, out)
            if state != DONE:
                return state
        counts[TIDIED], counts[STEP], counts[HALF] = 0, 0, 1 if taken == 0 else 0
        counts[TAKEN] = at + taken
    return DONE


@kernel
def gather_groups(narrow: Rows, wide: Rows, out: Outputs) -> None:
    """Writes keys and results of all outputs again, from the slots in `places`. Needed after lists were replaced by texts in the
    rows.
    """
    for at in range(out.counts[MADE]):
        slot = out.places[at, SLOT]
        if out.places[at, IS_WIDE] == 0:
            write_output_values(out, at, narrow.lanes, narrow.valid, slot)
        else:
            write_output_values(out, at, wide.lanes, wide.valid, slot)
