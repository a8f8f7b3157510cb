"""The layout of a relation in a snapshot: the numbers of its pages, and which of their slots hold a row.

Each snapshot writes the layout as one piece; the rows are in row pages, which are written when they are new. A stored page may hold
rows that were removed since: the layout decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hotspare.base.errors import SnapshotDamaged
from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.table.pages import Column, Columns, require_column
from hotspare.table.strings import FrozenStrings

PAGE_SLOTS_MAX = 1 << 20
NO_PAGE = -1
_PLACES = ("page_slots", "fill", "hand", "arrivals")


class Times(Enum):
    """Whether rows have a time, as they do if retention is by time."""

    KEPT = "kept"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Layout:
    """The pages in use. `numbers`: ascending; `bits`: uint8[pages, bytes], a bit of each slot that holds a row. `fill`: allocated
    slots of the last page. `hand`: the number of the page that is checked next for compaction, or NO_PAGE. `arrivals`: the count of
    rows that ever arrived."""

    page_slots: int
    numbers: Int64s
    bits: UInt8s
    fill: int
    hand: int
    arrivals: int

    @classmethod
    def contiguous(cls, first: int, last: int, page_slots: int) -> Layout:
        """Returns the layout of `last` rows that arrived one after the other, of which those before `first` were removed."""
        open_page = (last - 1) // page_slots
        numbers = np.arange(min(first // page_slots, open_page), open_page + 1) if last else np.empty(0, np.int64)
        full = packed(np.ones(page_slots, np.bool_))
        bits = np.tile(full, (len(numbers), 1))
        for at in (0, -1) if last else ():  # only these pages may have slots without a row
            positions = numbers[at] * page_slots + np.arange(page_slots)
            bits[at] = packed((positions >= first) & (positions < last))
        return cls(page_slots, numbers, bits, last - page_slots * open_page if last else 0, NO_PAGE, last)

    def alive(self, at: int) -> Bools:
        """Returns which slots of the page `numbers[at]` hold a row."""
        return unpacked(self.bits[at], self.page_slots)

    @property
    def counts(self) -> Int64s:
        """The count of rows in each page."""
        counts: Int64s = np.bitwise_count(self.bits).sum(axis=1, dtype=np.int64)
        return counts

    @property
    def words(self) -> npt.NDArray[np.uint64]:
        """The bits of all slots, page after page without padding, in words of 64 bits."""
        is_padded = self.page_slots % 8 > 0
        flat = packed(unpacked(self.bits, self.page_slots).reshape(-1)) if is_padded else self.bits.reshape(-1)
        return np.pad(flat, (0, -len(flat) % 8)).view(np.uint64)

    def is_as(self, other: Layout) -> bool:
        """Whether both layouts are equal."""
        same = all(getattr(self, name) == getattr(other, name) for name in _PLACES)
        return same and np.array_equal(self.numbers, other.numbers) and np.array_equal(self.bits, other.bits)

    def columns(self) -> Columns:
        places = np.array([getattr(self, name) for name in _PLACES], np.int64)
        return {"places": Column(places), "numbers": Column(self.numbers), "alive": Column(self.bits)}

    @classmethod
    def load(cls, columns: Columns) -> Layout:
        """Returns the layout from columns that `columns` returned. Raises SnapshotDamaged if they are not a valid layout."""
        numbers = require_column(columns, "numbers", np.dtype(np.int64), (-1,)).array
        places = require_column(columns, "places", np.dtype(np.int64), (len(_PLACES),)).array.tolist()
        page_slots, fill, hand, arrivals = (int(n) for n in places)
        if not 1 <= page_slots <= PAGE_SLOTS_MAX:
            raise SnapshotDamaged(f"a page has {page_slots} slots, not 1 to {PAGE_SLOTS_MAX}")
        bits = require_column(columns, "alive", np.dtype(np.uint8), (len(numbers), -(-page_slots // 8))).array
        layout = cls(page_slots, numbers, bits, fill, hand, arrivals)
        layout.check()
        return layout

    def check(self) -> None:
        """Raises SnapshotDamaged if the fields contradict each other."""
        numbers, bits = self.numbers, self.bits
        is_rising = bool((np.diff(numbers) > 0).all()) and (not len(numbers) or 0 <= numbers[0] <= numbers[-1] < 2**42)
        fills = 1 <= self.fill <= self.page_slots and not self.alive(-1)[self.fill :].any() if len(numbers) else self.fill == 0
        has_hand = self.hand == NO_PAGE or self.hand in numbers
        is_padded = self.page_slots % 8 and bool((bits[:, -1] >> (self.page_slots % 8)).any())
        if is_padded or not (is_rising and fills and has_hand and self.arrivals >= 0 and bits[:-1].any(axis=1).all()):
            raise SnapshotDamaged("the pages of a window contradict each other")


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows in the order of pages and slots. `lanes`, `valid`: the values, [rows, width]; `order`: arrival numbers; `time`: the
    times from which retention counts, empty if retention is not by time.
    """

    lanes: Int64s
    valid: Bools
    order: Int64s
    time: Int64s

    def check(self, keys: tuple[int, ...], arrivals: int) -> None:
        """Raises SnapshotDamaged if a key is null, or if an arrival number is not below `arrivals`."""
        if not self.valid[:, list(keys)].all():
            raise SnapshotDamaged("a page holds a row without a key")
        if len(self.order) and not 0 <= int(self.order.min()) <= int(self.order.max()) < arrivals:
            raise SnapshotDamaged("a page holds a row with an invalid arrival number")

    @classmethod
    def none(cls, width: int) -> StoredRows:
        return cls(np.empty((0, width), np.int64), np.empty((0, width), np.bool_), np.empty(0, np.int64), np.empty(0, np.int64))

    def columns(self, codes: tuple[int, ...], times: Times) -> Columns:
        columns = {"lanes": Column(self.lanes, codes), "valid": Column(self.valid), "order": Column(self.order)}
        return {**columns, "time": Column(self.time)} if times is Times.KEPT else columns


class RowSource(Protocol):
    """The rows of a layout, page by page."""

    @property
    def layout(self) -> Layout: ...

    def rows(self, at: int) -> StoredRows:
        """Returns the rows of the page at index `at` of `layout.numbers`, by slot. Raises SnapshotDamaged if the page is missing or
        damaged."""


@dataclass(frozen=True, slots=True)
class StoredPages:
    """The rows of a layout from stored pages, by page number, which may hold more rows. `width`: the lanes of a row; `times`:
    whether rows have a time. Methods raise SnapshotDamaged if a page lacks rows.
    """

    layout: Layout
    pages: Mapping[int, Columns]
    width: int
    times: Times

    def check(self) -> None:
        """Raises SnapshotDamaged if there are pages that the layout does not list."""
        if set(self.pages) - set(self.layout.numbers.tolist()):
            raise SnapshotDamaged("a window has a page that its layout does not list")

    def rows(self, at: int) -> StoredRows:
        number, alive = int(self.layout.numbers[at]), self.layout.alive(at)
        if not alive.any():
            return StoredRows.none(self.width)
        if number not in self.pages:
            raise SnapshotDamaged(f"page {number} of a window is missing")
        return stored_rows(self.pages[number], number, alive, self.width, self.times)


class RowsInMemory:
    """The rows of a layout, from `stored` rows in memory, which are in the order of pages and slots."""

    def __init__(self, layout: Layout, stored: StoredRows) -> None:
        self.layout = layout
        self._stored = stored
        self._ends = np.cumsum(layout.counts)

    def rows(self, at: int) -> StoredRows:
        begin, end, stored = int(self._ends[at - 1]) if at else 0, int(self._ends[at]), self._stored
        return StoredRows(stored.lanes[begin:end], stored.valid[begin:end], stored.order[begin:end], stored.time[begin:end])


def stored_rows(columns: Columns, number: int, alive: Bools, width: int, times: Times) -> StoredRows:
    """Returns the rows of a page at the `alive` slots; the page may hold more. Raises SnapshotDamaged if it holds fewer."""
    bits = require_column(columns, "alive", np.dtype(np.uint8), (-(-len(alive) // 8),)).array
    written = unpacked(bits, len(alive))
    count = int(written.sum())
    if (alive & ~written).any():
        raise SnapshotDamaged(f"page {number} of a window lacks rows")
    chosen = alive[written]
    return StoredRows(
        require_column(columns, "lanes", np.dtype(np.int64), (count, width)).array[chosen],
        require_column(columns, "valid", np.dtype(np.bool_), (count, width)).array[chosen],
        require_column(columns, "order", np.dtype(np.int64), (count,)).array[chosen],
        require_column(columns, "time", np.dtype(np.int64), (count,)).array[chosen]
        if times is Times.KEPT
        else np.empty(0, np.int64),
    )


@dataclass(slots=True)
class StoreKeys:
    """The store's references to stored pages, by page number; shared with snapshots. Entries: (allocated slots, snapshot,
    reference). Rows removed before that snapshot are not in the stored page, so earlier snapshots cannot use it."""

    by_page: dict[int, tuple[int, int, object]]
    snapshots: int = 0
    """The count of snapshots taken."""

    def drop_other_pages(self, numbers: Int64s, until: int) -> None:
        """Drops the entries of all pages except `numbers` and pages from number `until` on."""
        kept = set(numbers.tolist())
        for number in sorted(set(self.by_page) - kept):
            if number < until:
                self.by_page.pop(number, None)


@dataclass(frozen=True, slots=True)
class FrozenRowPage:
    """A page of a frozen table (`pages.RowPage`). `slots_allocated`: how many of its slots are allocated; `bits`: as in `Layout`;
    `snapshot`: the number of the snapshot. `read` returns its rows and their strings, None for the table's own.
    """

    number: int
    slots_allocated: int
    snapshot: int
    bits: UInt8s
    shared: StoreKeys
    read: Callable[[], tuple[Columns, FrozenStrings | None]]

    @property
    def store_key(self) -> object:
        given, snapshot, known = self.shared.by_page.get(self.number, (-1, 0, None))
        return known if given == self.slots_allocated and snapshot <= self.snapshot else None

    def set_store_key(self, known: object) -> None:
        self.shared.by_page[self.number] = self.slots_allocated, self.snapshot, known

    def columns(self) -> Columns:
        return self.content()[0]

    def content(self) -> tuple[Columns, FrozenStrings | None]:
        columns, strings = self.read()
        return {**columns, "alive": Column(self.bits)}, strings


def packed(bits: Bools) -> UInt8s:
    return np.packbits(bits, axis=-1, bitorder="little")


def unpacked(bits: UInt8s, length: int) -> Bools:
    """Returns the first `length` bits along the last axis, without the padding."""
    return np.unpackbits(bits, axis=-1, count=length, bitorder="little").view(np.bool_)
