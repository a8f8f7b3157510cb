"""Linking of rows that were loaded after a restore into the list of rows that expire in order (`table.loops.unlinked`).

Rows expire by arrival number or by deadline. Key filters have the lowest expiry key of each row page, so the expiry key up to which
all rows are loaded is known. Rows up to that key are linked, a few at a time, before rows expire and after each step, until no page
is unloaded and no row waits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hotspare.rows.chunk import Int64s
from hotspare.table.loops import slots
from hotspare.table.loops import unlinked as k
from hotspare.table.loops.pages import Rows
from hotspare.table.unloaded import UnloadedPages

_AHEAD = 2
"""The count of unloaded pages, those that expire next, requested while one is loaded."""


def no_runs(pages: int) -> k.Runs:
    """Returns empty runs for `pages` pages."""
    return k.Runs(np.zeros((pages, k.RUN_WIDTH), np.int64), np.empty(pages, np.int64), np.zeros(1, np.int64))


class UnlinkedRows:
    """Loaded rows that are not in the list yet, by the place of their page; the list is empty at first. At most `linked_rows` are
    linked at a time."""

    def __init__(self, rows: Rows, pages: int, page_slots: int, linked_rows: int) -> None:
        self._linked_rows = linked_rows
        self._runs = no_runs(pages)
        self._waiting = np.full(pages * page_slots, slots.NONE, np.int64)
        rows.state[slots.UNLINKED] = -slots.NEVER

    def with_waiting_slots(self, rows: Rows) -> Rows:
        """Returns `rows` with this object's array of waiting slots as the field `waiting`."""
        return rows._replace(waiting=self._waiting)

    def add_waiting_page(self, rows: Rows, page: int, where: Int64s) -> None:
        """Adds the loaded rows of a page, at slots `where`. If rows expire by deadline, rows without one are added to neither list
        nor heap."""
        if rows.state[slots.EITHER]:
            stays = rows.time[where] >= slots.NEVER
            rows.links[where[stays], slots.PREV] = slots.IN_NEITHER
            where = where[~stays]
        order = rows.order[where]
        first = np.lexsort((order, rows.time[where])) if rows.state[slots.EITHER] else np.argsort(order)
        k.add_run(rows, self._runs, np.int64(page), where[first])

    @property
    def is_empty(self) -> bool:
        """Whether no row waits."""
        return not int(self._runs.size[0])

    def is_next_known(self, absent: UnloadedPages | None) -> bool:
        """Whether the first waiting row to expire is known: no unloaded page may have one that expires before."""
        return not self.is_empty and int(self._runs.run_by_page[self._runs.heap[0], k.KEY]) < _least_unloaded_expiry(absent)

    def link_next(self, rows: Rows, absent: UnloadedPages | None, bring: Callable[[int], None]) -> None:
        """Links more rows whose order is known. If it is not known for any, first loads the unloaded pages that expire next, by
        calling `bring` with their places."""
        if self.link(rows, absent, self._linked_rows):
            return
        while absent is not None and absent.left and not self.is_next_known(absent):
            absent.prefetch_places(absent.pages_by_expiry(_AHEAD))
            bring(absent.next_to_expire())
        self.link(rows, absent, self._linked_rows)

    def link(self, rows: Rows, absent: UnloadedPages | None, rows_max: int) -> bool:
        """Links at most `rows_max` rows whose order is known. Returns False if no row was linked and no more of the order became
        known."""
        until, known = _least_unloaded_expiry(absent), int(rows.state[slots.UNLINKED])
        linked = int(k.link_waiting(rows, self._runs, np.int64(until), np.int64(rows_max)))
        if not self.is_empty:
            until = min(until, int(self._runs.run_by_page[self._runs.heap[0], k.KEY]))
        rows.state[slots.UNLINKED] = until
        return linked > 0 or until > known

    @property
    def bytes(self) -> int:
        """Bytes of the waiting slots and of the runs, which are in addition to the rows."""
        return self._waiting.nbytes + self._runs.run_by_page.nbytes + self._runs.heap.nbytes


def _least_unloaded_expiry(absent: UnloadedPages | None) -> int:
    """Returns a lower bound of the expiry keys in unloaded pages."""
    return int(slots.NEVER) if absent is None or not absent.left else absent.least_expiry_key
