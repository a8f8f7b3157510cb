"""How rows with retention that a restore left in the store come into the list of those that leave (`table.loops.unlinked`).

Which row leaves first is told by numbers of arrival, or by deadlines. Key pages have the least one of each page of rows, so it is
known up to which of them all rows are in memory: up to there the list is made, a part at a time, before rows leave, and after each
step, until nothing is absent and nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hotspare.rows.chunk import Int64s
from hotspare.table.absent import AbsentPages
from hotspare.table.loops import slots
from hotspare.table.loops import unlinked as k
from hotspare.table.loops.pages import Rows

_AHEAD = 2
"""Of absent pages whose rows leave next, so many are asked for while one is taken in."""


def no_runs(pages: int) -> k.Runs:
    """Of so many pages."""
    return k.Runs(np.zeros((pages, k.RUN_WIDTH), np.int64), np.empty(pages, np.int64), np.zeros(1, np.int64))


class UnlinkedRows:
    """Rows of pages of a restore that are not in the list yet, by the place of their page; of rows with an empty list. At most
    `linked_rows` come into the list at a time."""

    def __init__(self, rows: Rows, pages: int, page_slots: int, linked_rows: int) -> None:
        self._linked_rows = linked_rows
        self._runs = no_runs(pages)
        self._waiting = np.full(pages * page_slots, slots.NONE, np.int64)
        rows.state[slots.UNLINKED] = -slots.NEVER

    def over(self, rows: Rows) -> Rows:
        """These rows, of which some wait here."""
        return rows._replace(waiting=self._waiting)

    def wait(self, rows: Rows, page: int, where: Int64s) -> None:
        """Rows of a page came, those at these slots. Of list or heap, those without a deadline stand in neither."""
        if rows.state[slots.EITHER]:
            stays = rows.time[where] >= slots.NEVER
            rows.links[where[stays], slots.PREV] = slots.IN_NEITHER
            where = where[~stays]
        order = rows.order[where]
        first = np.lexsort((order, rows.time[where])) if rows.state[slots.EITHER] else np.argsort(order)
        k.let_wait(rows, self._runs, np.int64(page), where[first])

    @property
    def is_empty(self) -> bool:
        """Whether none waits."""
        return not int(self._runs.size[0])

    def next_known(self, absent: AbsentPages | None) -> bool:
        """Whether the row that leaves first of those that wait is known: no absent page has one that may leave before."""
        return not self.is_empty and int(self._runs.of_page[self._runs.heap[0], k.KEY]) < _least(absent)

    def link_next(self, rows: Rows, absent: AbsentPages | None, bring: Callable[[int], None]) -> None:
        """It is to be known more of who leaves: by what absent pages leave, else some rows more come into the list; where it is not
        known which, absent pages are read until it is."""
        if self.link(rows, absent, self._linked_rows):
            return
        while absent is not None and absent.left and not self.next_known(absent):
            absent.expect(absent.first(_AHEAD))
            bring(absent.next())
        self.link(rows, absent, self._linked_rows)

    def link(self, rows: Rows, absent: AbsentPages | None, rows_max: int) -> bool:
        """As many rows come into the list, as far as that is known which. False: none did, and nothing is known that was not."""
        until, known = _least(absent), int(rows.state[slots.UNLINKED])
        linked = int(k.link_waiting(rows, self._runs, np.int64(until), np.int64(rows_max)))
        if not self.is_empty:
            until = min(until, int(self._runs.of_page[self._runs.heap[0], k.KEY]))
        rows.state[slots.UNLINKED] = until
        return linked > 0 or until > known

    @property
    def bytes(self) -> int:
        """Of memory beside that of rows."""
        return self._waiting.nbytes + self._runs.of_page.nbytes + self._runs.heap.nbytes


def _least(absent: AbsentPages | None) -> int:
    """By what the first row of absent pages leaves."""
    return int(slots.NEVER) if absent is None or not absent.left else absent.least
