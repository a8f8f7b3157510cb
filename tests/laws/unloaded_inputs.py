"""Inputs for the law Twin of the loops over pages that a restore left in the store (see `kernel_inputs`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hotspare.table.loops import slots, unlinked
from hotspare.table.loops import unloaded as k
from hotspare.table.loops.pages import Rows
from hotspare.table.row_index import empty_index, grown_index
from hotspare.table.row_pages import RowPages
from hotspare.table.unlinked import no_runs

Args = tuple[Any, ...]
PAGES, ROWS = 5, 60


def _halves() -> k.UInt32s:
    """Returns hash halves of the rows of five pages; some are in several pages, some are above 2^31."""
    halves = np.random.default_rng(3).integers(0, 2**32, PAGES * ROWS).astype(np.uint32)
    halves[ROWS : ROWS + 10] = halves[:10]
    return halves


def _ends() -> np.ndarray[Any, Any]:
    """Returns the ends of pages, of which the third is empty."""
    return np.array([ROWS, 2 * ROWS, 2 * ROWS, 4 * ROWS, PAGES * ROWS])


PLACES = np.array([3, 1, 0, -1, 2])
IS_ABSENT = np.array([1, 1, 0, 1], np.uint8)


def key_halves() -> Iterator[Args]:
    keys = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, (40, 3))
    for columns in ([0], [2, 0], [0, 1, 2]):
        yield keys, np.array(columns), np.empty(len(keys), np.uint32)


def mark_outline() -> Iterator[Args]:
    for blocks in (1, 3):
        for halves in (_halves()[:0], _halves()):
            yield np.zeros(blocks * k.OUTLINE_WORDS, np.uint32), halves


def may_have_half() -> Iterator[Args]:
    """Yields outlines with and without the halves."""
    outline = np.zeros(5 * k.OUTLINE_WORDS, np.uint32)
    k.mark_outline(outline, _halves())
    for wanted in (_halves()[:0], _halves()[7:8], np.arange(9, dtype=np.uint32)):
        yield outline, wanted
        yield np.zeros_like(outline), wanted


def scan_key_filter() -> Iterator[Args]:
    for wanted in (np.empty(0, np.uint32), _halves()[[3, 70, 290]], _halves()[:PAGES], np.arange(9, dtype=np.uint32)):
        filter_ = np.zeros(1 << k.FILTER_BITS >> 6, np.uint64)
        yield _halves(), _ends(), PLACES, IS_ABSENT, np.unique(wanted), filter_, np.zeros(4, np.uint8)


def index_key_filter() -> Iterator[Args]:
    """Yields indexes with room for all, and for some."""
    yield grown_index(empty_index(8)), _halves(), _ends(), PLACES, IS_ABSENT, 0
    yield empty_index(), np.full(2 * 512, 7, np.uint32), np.array([1024]), np.array([1]), IS_ABSENT, 0
    yield empty_index(), _halves(), _ends(), PLACES, IS_ABSENT, 100


def look_up_pages() -> Iterator[Args]:
    index = grown_index(empty_index(8))
    k.index_key_filter(index, _halves(), _ends(), PLACES, np.ones(4, np.uint8), 0)
    for wanted in (_halves()[:12], _halves()[200:], np.arange(20, dtype=np.uint32)):
        yield index, wanted, IS_ABSENT, np.zeros(4, np.uint8)


def rows_before_gap_check() -> Iterator[Args]:
    for page_slots, fill, pages, live in ((4096, 17, 9, 100), (4096, 1, 9, 100), (64, 17, 3, 150), (64, 17, 40, 150), (2, 1, 3, 6)):
        state = np.zeros(slots.STATE_WIDTH, np.int64)
        state[[slots.PAGE_SLOTS, slots.FILL, slots.PAGES, slots.LIVE]] = page_slots, fill, pages, live
        yield (state,)


def page_to_clear(rows: Rows) -> Iterator[Args]:
    """Yields rows in pages with many gaps, and some without; from the oldest page on, and from others."""
    yield (rows,)
    state = rows.state.copy()
    state[slots.LIVE], state[slots.SPARE] = 1, 0
    for hand in (slots.NONE, np.int64(2)):
        state[slots.HAND] = hand
        yield (rows._replace(state=state.copy()),)
    rows.pages[:, 1] = 100
    yield (rows._replace(state=state.copy()),)


def add_run(stored: Sequence[RowPages]) -> Iterator[Args]:
    """Yields rows of each page of relations with a list, all unlinked; page after page, in place."""
    for pages in stored:
        if not pages.is_ordered:
            continue
        used, state = pages.slots_used // pages.page_slots, pages.rows.state
        state[[slots.FIRST, slots.LAST, slots.SEAM, slots.HEAPED]] = slots.NONE, slots.NONE, slots.NONE, 0
        rows, runs = pages.rows._replace(waiting=np.full(pages.slots_used, slots.NONE)), no_runs(used)
        alive = pages.alive_slots()
        key = rows.time if state[slots.EITHER] else rows.order
        for page in range(used):
            where = alive[alive // pages.page_slots == page]
            yield rows, runs, np.int64(page), where[np.lexsort((rows.order[where], key[where]))]


def link_waiting(stored: Sequence[RowPages]) -> Iterator[Args]:
    """Yields rows to link: some, those up to a number, and all; some have moved to another slot meanwhile, and some are deleted."""
    last: Args | None = None
    for args in add_run(stored):
        if last is not None and last[1] is not args[1]:
            yield from _linked(last[0], last[1])
        unlinked.add_run(*args)
        last = args
    assert last is not None
    yield from _linked(last[0], last[1])


def _linked(rows: Rows, runs: unlinked.Runs) -> Iterator[Args]:
    gone = np.flatnonzero(rows.waiting >= 0)[::5]
    rows.waiting[gone] = slots.NONE
    keys, waiting = rows.time if rows.state[slots.EITHER] else rows.order, rows.waiting[rows.waiting >= 0]
    if not len(waiting):
        return
    for until, rows_max in ((int(slots.NEVER), 2), (int(np.median(keys[waiting])), 99)):
        yield rows, runs, np.int64(until), np.int64(rows_max)
    rows.state[slots.SEAM] = slots.NONE  # as if the rows before the seam were deleted
    yield rows, runs, np.int64(slots.NEVER), np.int64(99)
