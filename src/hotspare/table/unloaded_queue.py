"""Rows of a queue that a restore left unloaded in the store: they are loaded, oldest first, before they may expire, and a few after
each step.

A queue reads only its oldest rows and appends after the newest, so it needs no key filters. The unloaded rows are those of
consecutive whole pages. The page being filled is never unloaded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hotspare.base.errors import SnapshotDamaged
from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.table.loops import queue as k
from hotspare.table.loops.relation import (
    COUNT_JUMPING,
    COUNT_SLIDING,
    DELETE,
    SAFE_DELETE,
    TIME_JUMPING,
    TIME_SLIDING,
    Policy,
    boundary_passed,
)
from hotspare.table.loops.slots import FIRST, LAST, UNSET
from hotspare.table.row_layout import Layout, StoredRows
from hotspare.table.strings import FrozenStrings
from hotspare.table.unloaded import PageReader

_AHEAD = 4
"""The count of pages requested before they are read."""


@dataclass(slots=True)
class UnloadedRows:
    """The unloaded rows of a queue, at positions from `begin` to before `end`: all slots of the last page, and those of the first
    page from `begin` on. `reader` reads the pages, which have `page_slots` slots each.
    """

    reader: PageReader
    page_slots: int
    begin: int
    end: int

    @classmethod
    def from_layout(cls, reader: PageReader | None, layout: Layout, first: int, pages_min: int) -> UnloadedRows | None:
        """Returns the pages of a layout whose oldest row is number `first`, without the page that is being filled. Returns None if
        the layout has fewer than `pages_min` pages, or if pages cannot be read later."""
        if reader is None or not reader.kept.is_lazy or len(layout.numbers) < pages_min:
            return None
        absent = cls(reader, layout.page_slots, first, int(layout.numbers[-1]) * layout.page_slots)
        if absent.pages <= 0:
            return None
        absent.prefetch_next_pages()
        return absent

    @property
    def pages(self) -> int:
        """The count of pages left."""
        return self.end // self.page_slots - self.begin // self.page_slots

    def prefetch_next_pages(self) -> None:
        """Requests the next pages ahead of use."""
        number = self.begin // self.page_slots
        self.reader.kept.prefetch_row_pages(list(range(number, number + min(_AHEAD, self.pages))))

    def has_page(self, number: int) -> bool:
        """Whether a page is unloaded."""
        return self.begin < (number + 1) * self.page_slots <= self.end

    def load_next_page(self) -> StoredRows:
        """Loads and returns the oldest unloaded page. Raises what the store raises, and SnapshotDamaged."""
        number, slot = divmod(self.begin, self.page_slots)
        if slot == 0 and number % _AHEAD == 0:
            self.prefetch_next_pages()
        alive = np.arange(self.page_slots) >= slot
        stored = self._checked(self.reader.rows(number, alive), number, alive)
        self.begin = (number + 1) * self.page_slots
        return stored

    def ordered_rows_with_strings(self, number: int, alive: Bools) -> tuple[StoredRows, FrozenStrings]:
        """Returns rows as `PageReader.rows_with_strings`, and checks their order."""
        stored, strings = self.reader.rows_with_strings(number, alive)
        return self._checked(stored, number, alive), strings

    def _checked(self, stored: StoredRows, number: int, alive: Bools) -> StoredRows:
        if not np.array_equal(stored.order, number * self.page_slots + np.flatnonzero(alive)):
            raise SnapshotDamaged(f"page {number} of a window holds rows that are not in order of arrival")
        return stored

    def freeze(self) -> UnloadedRows:
        return UnloadedRows(self.reader, self.page_slots, self.begin, self.end)


class ReadBound:
    """The stored rows that one call of `table.loops.queue.resolve_in_order` may read. Times never decrease."""

    def __init__(self, ring: k.Ring, policy: Policy, opcode: UInt8s, beats: Int64s, counts: Int64s, rows_max: int) -> None:
        """Computes the bounds. `opcode` and `beats` are those of the input; the other arguments are as in `resolve_in_order`."""
        left = opcode[counts[k.TAKEN] :]
        deleted = int(np.count_nonzero((left >= DELETE) & (left <= SAFE_DELETE)))
        self._ring, self._policy, self._deleted = ring, policy, deleted
        live, now = int(ring.state[LAST] - ring.state[FIRST]) + len(left) - deleted, beats[counts[k.BEAT] :, 1]
        passed, expelled = _expiry_time(ring.state, policy, now), 0
        self._since: int | None = None
        """Rows of at most this time expire by age; None if none does."""
        if policy.kind == COUNT_SLIDING:
            expelled = max(0, live - policy.limit)
        elif (policy.kind == COUNT_JUMPING and live > policy.limit) or (policy.kind == TIME_JUMPING and passed is not None):
            expelled = live
        elif policy.kind >= TIME_SLIDING and policy.kind != TIME_JUMPING and passed is not None:
            self._since = passed - policy.limit
        self._until = int(ring.state[FIRST]) + deleted + min(rows_max, int(counts[k.LEAVING]) + expelled)

    def may_read(self, position: int) -> bool:
        """Whether the row at `position` may be read, if all before it are loaded."""
        if position < self._until:
            return True
        if self._since is None:
            return False
        stays = position - 1 - self._deleted  # if this one stays, so do all later ones; `_deleted` of them may be deleted
        ring = self._ring
        return stays < ring.state[FIRST] or int(ring.times[stays % ring.capacity]) <= self._since


def _expiry_time(state: Int64s, policy: Policy, now: Int64s) -> int | None:
    """Returns the time that decides which rows expire at the last of these times, in microseconds; None if none expires by time."""
    if policy.kind < TIME_SLIDING or not len(now):
        return None
    if policy.kind == TIME_SLIDING:
        return int(now.max())
    passed = int(boundary_passed(state.copy(), policy, np.int64(now.max())))
    return None if passed == UNSET else passed
