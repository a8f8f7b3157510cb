"""The fast path of an event through an aggregate: the group exists before and after the event and keeps everything in its row.

The words of its sums must suffice, too. The new row is computed in place, in the next free slot, instead of in a buffer.

Events that do not fit are detected before anything but that unused slot is written. The general path of
`windows.aggregate.loops.aggregate` then does the whole change. Both paths result in the same rows in the same slots.
"""

from __future__ import annotations

import numpy as np

from hotspare.rows.compile import Whole, kernel
from hotspare.table.loops.index import NONE, entry_of, find, key_hash, replace, slot_at
from hotspare.table.loops.pages import Rows, free_slot, take_slot
from hotspare.table.loops.slots import FILL, LIVE, OPEN, PAGE_SLOTS
from hotspare.windows.aggregate.loops.components import INLINE_AT, Group, GroupEvents, GroupProgram, change_group
from hotspare.windows.aggregate.loops.exact import Scratch
from hotspare.windows.aggregate.loops.inline_sets import can_stay_inline, change_inline_sets
from hotspare.windows.aggregate.loops.results import LISTED_RESULTS, OrderedState, write_results


@kernel
def has_inline_state_only(program: GroupProgram, ordered: OrderedState) -> bool:
    """Whether groups can keep all their state in their rows, and keep no extremes of texts, which only the general path compares. A
    set that outgrows its row moves to trees nevertheless.
    """
    every = len(ordered.arrivals.columns) == 0 and ordered.counts[LISTED_RESULTS] == 0 and len(program.texts) == 0
    for number in range(len(program.sets)):
        every &= program.inline_sets[number, INLINE_AT] >= 0
    return bool(every)


@kernel
def copy_row(rows: Rows, slot: Whole, to: Whole) -> None:
    """Copies the row of `slot` to the slot `to`."""
    source, target = np.uint64(slot), np.uint64(to)
    for j in range(np.uint64(rows.lanes.shape[1])):
        rows.lanes[target, j] = rows.lanes[source, j]
    for j in range(np.uint64(rows.valid.shape[1])):
        rows.valid[target, j] = rows.valid[source, j]


@kernel
def change_on_fast_path(
    narrow: Rows,
    wide: Rows,
    program: GroupProgram,
    ordered: OrderedState,
    events: GroupEvents,
    new: Whole,
    old: Whole,
    number: Whole,
    s: Scratch,
) -> tuple[Whole, Whole]:
    """Applies the change of a group from event row `old` to `new`; either may be NONE. `number`: that of the change in the window.

    Returns the slots of the group's row before and after the change. If the event needs the general path, both are NONE, and no row
    is changed.
    """
    state, row = narrow.state, new if new >= 0 else old
    if state[OPEN] < 0 or state[FILL] == 1 or state[FILL] == state[PAGE_SLOTS] or wide.state[LIVE] > 0:
        return NONE, NONE
    h = key_hash(events.lanes, row, program.keys)
    place = find(narrow.by_key, narrow.lanes, narrow.keys, events.lanes, row, program.keys, h)
    was = slot_at(narrow.by_key, place)
    if was < 0:
        return NONE, NONE
    to = state[OPEN] * state[PAGE_SLOTS] + state[FILL]
    copy_row(narrow, was, to)
    lanes = narrow.lanes[to : to + 1]
    group = Group(lanes, lanes.view(np.float64), narrow.valid[to : to + 1])
    for each in range(len(program.sets)):
        if not can_stay_inline(group, program, np.int64(each), events, new, old):
            return NONE, NONE
    if not change_group(group, program, events, new, old, number):
        return NONE, NONE
    if group.lanes[0, len(program.keys) + len(program.results) + 1] == 0:
        return NONE, NONE
    change_inline_sets(group, program, events, new, old)
    write_results(group, program, ordered, s)
    slot = take_slot(narrow)
    narrow.order[slot] = narrow.order[was]
    replace(narrow.by_key, place, entry_of(h, slot))
    free_slot(narrow, was)
    return was, slot
