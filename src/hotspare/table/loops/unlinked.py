"""Linking of rows from pages loaded after a restore into the list of rows that expire in order.

The place of a row in the list is known only once all rows before it are loaded. Until then it waits in a run: rows of one page in
order of expiry, by arrival number, or by (deadline, arrival) if that decides. The first row of all runs is linked at the seam of
the list, before rows that arrived since the restore, once no row of an unloaded page may precede it. A waiting row may change its
slot or be removed like any other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hotspare.rows.chunk import Int64s
from hotspare.rows.compile import Whole, kernel
from hotspare.table.loops.pages import Rows
from hotspare.table.loops.relation import Policy, is_linked
from hotspare.table.loops.slots import (
    EITHER,
    FIRST,
    IN_HEAP,
    IN_RUN,
    LAST,
    NEXT,
    PREV,
    SEAM,
    enqueue,
    heap_push,
    is_earlier_slot,
    link_last,
)

CURSOR, END, KEY, ORDER = 0, 1, 2, 3
"""Columns of `Runs.run_by_page`: the index in `Rows.waiting` of the run's next row, and the end of the run there; the expiry key
and the arrival number of the next row."""
RUN_WIDTH = 4


class Runs(NamedTuple):
    """Runs of waiting rows. `run_by_page` int64[., 4]: CURSOR to ORDER of each run, by the place of its page. `heap`: places of
    unfinished runs, with the run of the first row to expire on top; `size` int64[1]: the count of these runs.
    """

    run_by_page: Int64s
    heap: Int64s
    size: Int64s


@kernel
def is_earlier_run(run_by_page: Int64s, a: Whole, b: Whole) -> bool:
    """Whether the next row of run a expires before that of run b."""
    if run_by_page[a, KEY] != run_by_page[b, KEY]:
        return bool(run_by_page[a, KEY] < run_by_page[b, KEY])
    return bool(run_by_page[a, ORDER] < run_by_page[b, ORDER])


@kernel
def sift_runs(runs: Runs, at: Whole) -> None:
    """Moves the run at `at` of the heap up or down to its place."""
    heap, size, run = runs.heap, runs.size[0], runs.heap[at]
    while at > 0:
        above = (at - 1) // 2
        if not is_earlier_run(runs.run_by_page, run, heap[above]):
            break
        heap[at] = heap[above]
        at = above
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and is_earlier_run(runs.run_by_page, heap[below + 1], heap[below]):
            below += 1
        if not is_earlier_run(runs.run_by_page, heap[below], run):
            break
        heap[at] = heap[below]
        at = below
    heap[at] = run


@kernel
def advance_run(rows: Rows, runs: Runs, run: Whole) -> bool:
    """Advances a run to the first of its rows that still waits. Returns False if there is none."""
    run_by_page = runs.run_by_page
    while run_by_page[run, CURSOR] < run_by_page[run, END]:
        slot = rows.waiting[run_by_page[run, CURSOR]]
        if slot >= 0:
            run_by_page[run, KEY] = rows.time[slot] if rows.state[EITHER] == 1 else rows.order[slot]
            run_by_page[run, ORDER] = rows.order[slot]
            return True
        run_by_page[run, CURSOR] += 1
    return False


@kernel
def add_run(rows: Rows, runs: Runs, page: Whole, slots: Int64s) -> None:
    """Adds the run of a page: `slots` are its rows in order of expiry, which wait from now on. Each page has a part of
    `Rows.waiting`."""
    first = page * (len(rows.waiting) // len(runs.run_by_page))
    for i in range(len(slots)):
        slot = slots[i]
        rows.waiting[first + i] = slot
        rows.links[slot, PREV] = IN_RUN
        rows.links[slot, NEXT] = first + i
        if rows.state[EITHER] == 0 and len(rows.heap) > 0:
            heap_push(rows.heap, rows.time, rows.order, rows.state, slot)
    runs.run_by_page[page, CURSOR] = first
    runs.run_by_page[page, END] = first + len(slots)
    if advance_run(rows, runs, page):
        at = runs.size[0]
        runs.heap[at] = page
        runs.size[0] += 1
        sift_runs(runs, at)


@kernel
def link_at_seam(rows: Rows, slot: Whole) -> None:
    """Links a row at the seam, after the rows that were linked there before. Adds the row to the heap instead if rows are in list
    or heap, and the row does not precede the next row of the list.
    """
    links, state = rows.links, rows.state
    before = np.int64(state[SEAM])
    after = np.int64(links[before, NEXT] if before >= 0 else state[FIRST])
    if state[EITHER] == 1 and after >= 0 and not is_earlier_slot(rows.time, rows.order, slot, after):
        links[slot, PREV] = IN_HEAP
        heap_push(rows.heap, rows.time, rows.order, state, slot)
        return
    links[slot, PREV] = before
    links[slot, NEXT] = after
    if before < 0:
        state[FIRST] = slot
    else:
        links[before, NEXT] = slot
    if after < 0:
        state[LAST] = slot
    else:
        links[after, PREV] = slot
    state[SEAM] = slot


@kernel
def link_waiting(rows: Rows, runs: Runs, until: Whole, rows_max: Whole) -> Whole:
    """Links the first waiting rows, at most `rows_max`, whose expiry keys are below `until`. Returns their count."""
    linked = 0
    while linked < rows_max and runs.size[0] > 0:
        run = runs.heap[0]
        if runs.run_by_page[run, KEY] >= until:
            break
        slot = rows.waiting[runs.run_by_page[run, CURSOR]]
        runs.run_by_page[run, CURSOR] += 1
        if slot >= 0:
            link_at_seam(rows, slot)
            linked += 1
        if not advance_run(rows, runs, run):
            runs.size[0] -= 1
            runs.heap[0] = runs.heap[runs.size[0]]
        if runs.size[0] > 0:
            sift_runs(runs, 0)
    return np.int64(linked)


@kernel
def relink(rows: Rows, policy: Policy, slots: Int64s) -> None:
    """Enters `slots`, which are in order of arrival, into list and heap, or into one of the two, as the policy requires."""
    for i in range(len(slots)):
        if rows.state[EITHER] == 1:
            enqueue(rows.links, rows.heap, rows.time, rows.order, rows.state, slots[i])
            continue
        if is_linked(policy):
            link_last(rows.links, rows.state, slots[i])
        if policy.by_event == 1:
            heap_push(rows.heap, rows.time, rows.order, rows.state, slots[i])
