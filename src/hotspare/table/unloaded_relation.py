"""The extra steps of a relation while some of its pages are unloaded (`unloaded`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from hotspare.rows.chunk import Int64s
from hotspare.rows.compile import Whole
from hotspare.table.key_filters import KeyFilterCache, full_pages_covered
from hotspare.table.loops import relation as k
from hotspare.table.loops import unloaded as kernels
from hotspare.table.loops.pages import slots_before_gap_check
from hotspare.table.row_layout import Layout, StoreKeys
from hotspare.table.row_pages import RowPages
from hotspare.table.unloaded import SnapshotRowPages

Take: TypeAlias = Callable[[k.OutputArrays, k.InputArrays], Whole]
"""The kernel `table.loops.relation.relate` on some rows, or an equivalent."""


def relate_with_unloaded(pages: RowPages, take: Take, out: k.OutputArrays, policy: k.Policy, given: k.InputArrays) -> Whole:
    """Applies a chunk by `take`, and returns its state, while pages are unloaded or rows are not linked yet. Applies it in pieces;
    before each piece, loads the page that the piece may compact. The caller has loaded the pages with the chunk's keys. Links more
    rows if the next row to expire is not known."""
    while True:
        state = take(out, _piece(pages, policy, given, out.counts))
        if state in (k.NEEDS_INDEX, k.NEEDS_ROOM):
            return state
        leaving, is_full = out.counts[k.LEAVING] != k.LEAVE_NONE, out.counts[k.MADE] >= out.counts[k.ROOM]
        if not leaving and int(out.counts[k.ROW]) >= len(given.rank) and int(out.counts[k.BEAT]) >= len(given.beats):
            return k.DONE
        if is_full:
            return k.IS_FULL
        if leaving:
            pages.link_next()


def _piece(pages: RowPages, policy: k.Policy, given: k.InputArrays, counts: Int64s) -> k.InputArrays:
    """Returns the part of a chunk that can be applied before it compacts an unloaded page; if that is the next event, first loads
    the page. Which page the next row compacts is known only after the heartbeats before it, and the removals that they cause, were
    applied."""
    row, beat = int(counts[k.ROW]), int(counts[k.BEAT])
    beats = int(np.searchsorted(given.beats[:, 0], given.rank[row])) if row < len(given.rank) else len(given.beats)
    if pages.unloaded is None:
        return given
    if beat < beats or counts[k.LEAVING] != k.LEAVE_NONE:
        return given._replace(rank=given.rank[:row], beats=given.beats[:beats])
    before = (
        kernels.rows_before_gap_check if policy.kind == k.KEEP else slots_before_gap_check
    )  # else one event may expire many rows
    count = int(before(pages.rows.state))
    if not count:
        count = 1
        load_page_to_clear(pages)
    end = row + count  # the second row of a block may be after it
    beats = int(np.searchsorted(given.beats[:, 0], given.rank[end - 1])) if end < len(given.rank) else len(given.beats)
    return given._replace(rank=given.rank[:end], beats=given.beats[:beats])


def load_page_to_clear(pages: RowPages) -> None:
    """Loads the page that the next event may compact, if that page is unloaded."""
    if pages.unloaded is not None and (page := int(kernels.page_to_clear(pages.rows))) >= 0:
        pages.load_page_now(page)


def record_store_keys(known: StoreKeys, keys: KeyFilterCache, layout: Layout, pages: SnapshotRowPages) -> None:
    """Records the store's references to the pages of the restored snapshot, so that they need not be written again."""
    for at, number in enumerate(layout.numbers.tolist()):
        given = layout.page_slots if at + 1 < len(layout.numbers) else layout.fill
        if (page_key := pages.row_page_store_key(number)) is not None:
            known.by_page[number] = given, 0, page_key
    for piece, filters in keys.filter_store_keys.items():
        for number in pages.key_filter_numbers:
            if (page_key := pages.key_filter_store_key(piece, number)) is not None:
                filters.by_page[number] = full_pages_covered(number, layout, keys.tuning.key_filter_spans), 0, page_key
