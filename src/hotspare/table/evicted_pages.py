"""Eviction of row pages. A full page does not change any more, so it can be written to a file as it is, and that file is mapped at
the page's address.

The values of a row are needed if it changes, is removed or is looked up. Validity, order and time take little memory, and are
evicted only after the values of all pages. But if no field of a page is null, the page's validity is evicted with its values: all
such pages share one copy, so reading it costs nothing.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from itertools import chain

import numpy as np

from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.rows.runs import runs
from hotspare.table.loops import pages as k
from hotspare.table.loops import prefetch, slots
from hotspare.table.loops.index import Index
from hotspare.table.memory import EvictableSpace

_VALUES, _VALIDITY, _REST = 0, 1, 2
_PARTS = (_VALUES, _VALIDITY, _REST)


class EvictedPages:
    """The state of eviction of a table's pages. `spaces`: (space, entries per slot) for values, for validity, and for each other
    column. Methods identify pages by their index in memory."""

    def __init__(self, spaces: Sequence[tuple[EvictableSpace, int]], page_slots: int, pages: int) -> None:
        self._spaces = (tuple(spaces[:1]), tuple(spaces[1:2]), tuple(spaces[2:]))
        self._page_slots = page_slots
        self._is_away: tuple[UInt8s, ...] = tuple(np.zeros(pages, np.uint8) for _ in _PARTS)
        self._bytes = tuple(page_slots * sum(s.array.itemsize * width for s, width in part) for part in self._spaces)
        self._is_empty: Bools = np.zeros(pages, np.bool_)
        """bool[pages]: whether a page has no memory, because it was freed or not filled yet."""
        self._born: Int64s = np.zeros(pages, np.int64)
        self._told = 0
        """All pages of lower numbers have the time at which they were begun in `_born`."""
        self._found = np.empty(0, np.int64)
        self._count = 0

    @staticmethod
    def can_evict_pages(page_slots: int) -> bool:
        """Whether pages of `page_slots` slots are whole system pages."""
        return page_slots % mmap.PAGESIZE == 0

    def evictable_bytes(self, rows: k.Rows) -> int:
        high = int(rows.state[slots.HIGH])
        empty = int(np.count_nonzero(self._is_empty[:high]))
        away = [int(np.count_nonzero(each[:high])) for each in self._is_away]
        return sum((high - empty - gone) * size for gone, size in zip(away, self._bytes, strict=True))

    def date_writes(self, rows: k.Rows, now: int) -> None:
        """Records `now` as the time of the pages begun since the last call."""
        page, pages = int(rows.state[slots.YOUNGEST]), rows.pages
        while page >= 0 and pages[page, k.PAGE_NUMBER] >= self._told:
            self._born[page], self._is_empty[page] = now, False
            page = int(pages[page, k.PAGE_BEFORE])
        self._told = int(rows.state[slots.NUMBER])

    def record_allocated(self, rows: k.Rows) -> None:
        """Records newly allocated pages, which have no memory until `mark_filled`."""
        self.mark_unfilled(np.arange(int(rows.state[slots.HIGH])))
        self._told = int(rows.state[slots.NUMBER])

    def mark_unfilled(self, pages: Int64s) -> None:
        """Records that these pages have no memory yet: `mark_filled` and `date_writes` end that."""
        self._is_empty[pages] = True

    def mark_filled(self, page: int) -> None:
        self._is_empty[page] = False

    def coldest(self, rows: k.Rows) -> tuple[int, int] | None:
        for part in _PARTS:
            if len(pages := self._evictable_pages(rows, part)):
                return min(part, 1), int(self._born[pages[0]])
        return None

    def evict_coldest(self, rows: k.Rows, size: int) -> int:
        free = rows.free[: int(rows.state[slots.FREE])]
        surplus = free[~self._is_empty[free]]
        if len(surplus):
            self.free_page_memory(surplus)
            return len(surplus) * sum(self._bytes)
        for part in _PARTS:
            pages = self._evictable_pages(rows, part)[: max(1, size // self._bytes[part])]
            if not len(pages):
                continue
            return self._evict_part(part, pages)
        return 0

    def evict_values(self, page: int) -> None:
        """Evicts the values of a page that was just filled."""
        self._evict_part(_VALUES, np.array([page]))

    def _evict_part(self, part: int, pages: Int64s) -> int:
        """Evicts one part of these pages: values, validity or the rest. Returns the bytes evicted."""
        for begin, end in runs(np.sort(pages)).tolist():
            for space, width in self._spaces[part]:
                space.evict_range(begin * self._page_slots * width, end * self._page_slots * width)
            self._is_away[part][begin:end] = 1
        size = len(pages) * self._bytes[part]
        if part == _VALUES:
            self._count += len(pages)
            size += self._evict_all_true(pages)
        return size

    def _evict_all_true(self, pages: Int64s) -> int:
        """Evicts the validity of those pages that have no null. Returns the bytes evicted."""
        ((space, width),), left = self._spaces[_VALIDITY], 0
        for page in pages[self._is_away[_VALIDITY][pages] == 0].tolist():
            begin, end = page * self._page_slots * width, (page + 1) * self._page_slots * width
            if space.evict_if_all_true(begin, end):
                self._is_away[_VALIDITY][page] = 1
                left += self._bytes[_VALIDITY]
        return left

    def _evictable_pages(self, rows: k.Rows, part: int) -> Int64s:
        """Returns the full pages that hold rows and are in memory, oldest first."""
        high = int(rows.state[slots.HIGH])
        may = (rows.pages[:high, k.PAGE_LIVE] > 0) & (self._is_away[part][:high] == 0) & ~self._is_empty[:high]
        if rows.state[slots.OPEN] >= 0:
            may[int(rows.state[slots.OPEN])] = False
        found = np.flatnonzero(may)
        return found[np.argsort(rows.pages[found, k.PAGE_NUMBER], kind="stable")]

    def free_page_memory(self, pages: Int64s) -> None:
        """Frees the memory, and the room in the page file, of pages whose content is not needed."""
        self._count -= int(self._is_away[_VALUES][pages].sum())
        for begin, end in runs(np.sort(pages)).tolist():
            for space, width in chain(*self._spaces):
                space.release_range(begin * self._page_slots * width, end * self._page_slots * width)
        for each in self._is_away:
            each[pages] = 0
        self._is_empty[pages] = True

    def free_evicted_pages(self, pages: Int64s) -> None:
        """Frees the evicted ones of these pages as `free_page_memory` does. Pages in memory can be reused as they are."""
        if self._count and len(gone := pages[self._is_away[_VALUES][pages] == 1]):
            self.free_page_memory(gone)

    def prefetch_for_keys(self, rows: k.Rows, lanes: Int64s) -> None:
        """Prefetches, together, the evicted rows that a chunk with these lanes is likely to need, and the pages that the next step
        reads."""
        if not self._count:
            return
        if rows.state[slots.INDEXED] == 1:
            self.prefetch_matches(rows.by_key, lanes, rows.keys)
        for page in self._next_pages(rows, 2 + len(lanes) // self._page_slots):
            self._prefetch_page(page)

    def prefetch_matches(self, index: Index, lanes: Int64s, columns: Int64s) -> None:
        """Prefetches, together, the evicted rows that an index finds by these columns of `lanes`."""
        if not self._count or not len(lanes):
            return
        if len(self._found) < len(lanes):
            self._found = np.empty(2 * len(lanes), np.int64)
        is_page_evicted = self._is_away[_VALUES]
        if count := int(
            prefetch.find_evicted_slots(index, lanes, columns, np.int64(self._page_slots), is_page_evicted, self._found)
        ):
            self.prefetch_slots(self._found[:count])

    def prefetch_slots(self, where: Int64s) -> None:
        """Prefetches the evicted parts of these slots, which are read soon."""
        for part, each in enumerate(self._spaces):
            gone = where[self._is_away[part][where // self._page_slots] == 1]
            for space, width in each if len(gone) else ():
                space.prefetch_each(gone * width, width)

    def prefetch_scan(self, rows: k.Rows, since: int, count: int) -> None:
        """Prefetches the values of about `count` slots from position `since` on (page number times slots per page, plus slot),
        which are read once."""
        if not self._count:
            return
        pages = rows.pages[: int(rows.state[slots.HIGH])]
        first, last = since // self._page_slots, (since + count) // self._page_slots
        is_there = (pages[:, k.PAGE_NUMBER] >= first) & (pages[:, k.PAGE_NUMBER] <= last) & (pages[:, k.PAGE_LIVE] > 0)
        ((space, width),) = self._spaces[_VALUES]
        for begin, end in (runs(np.flatnonzero(is_there)) * self._page_slots * width).tolist():
            space.read_ahead(begin, end)

    def read_ahead(self, page: int) -> None:
        """Prefetches a page that a snapshot reads next; callable from any thread."""
        begin, end = page * self._page_slots, (page + 1) * self._page_slots
        for space, width in chain(*self._spaces):
            space.read_ahead(begin * width, end * width)

    def _prefetch_page(self, page: int) -> None:
        begin, end = page * self._page_slots, (page + 1) * self._page_slots
        for part, each in enumerate(self._spaces):
            if self._is_away[part][page]:
                for space, width in each:
                    space.prefetch_one_range(begin * width, end * width)

    def _next_pages(self, rows: k.Rows, count: int) -> list[int]:
        """Returns about `count` pages that the next step reads whatever its input is: those from the page of the oldest row on, and
        sparse pages, whose rows the step moves."""
        state, pages = rows.state, rows.pages
        found: list[int] = []
        if len(rows.links) and (first := int(state[slots.FIRST])) >= 0:
            page = first // self._page_slots
            while page >= 0 and len(found) < count:
                found.append(page)
                page = int(pages[page, k.PAGE_AFTER])
        if int(state[slots.PAGES]) * self._page_slots * 16 > 17 * int(state[slots.LIVE]):
            page, cleared, most = int(state[slots.HAND]), 0, k.CLEARED_MAX * k.TIMES_A_PAGE * count
            page = page if page >= 0 else int(state[slots.OLDEST])
            for _ in range(k.LOOKS_MAX):
                if page < 0 or cleared >= most:
                    break
                if pages[page, k.PAGE_LIVE] * state[slots.PAGES] <= state[slots.LIVE]:
                    cleared += 1
                    found.append(page)
                page = int(pages[page, k.PAGE_AFTER])
        return found
