"""Row pages that a restore left unloaded in the store: a page is loaded when one of its keys is looked up, and a few pages are
loaded after each step.

An unloaded page counts as any other: its rows are alive and it has its place in memory. But its content is not loaded, and no index
names its rows. So pages that may hold a key of a chunk are loaded before the chunk is applied; key filters show which
(`key_filters`). A page is loaded before an event compacts it. With retention, pages with the next rows to expire are loaded, too
(`unlinked`). Nothing else reads rows that no event names; a relation that does is loaded completely (`LoadMode.WHOLE`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice

import numpy as np

from hotspare.base.errors import SnapshotDamaged
from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.table.key_filters import ExpiryKey, HashHalves, KeyOutline, RowLookups, filter_numbers_of
from hotspare.table.loops import unloaded as k
from hotspare.table.loops.slots import NEVER
from hotspare.table.pages import Columns, FilterPiece
from hotspare.table.row_index import empty_index, grown_index
from hotspare.table.row_layout import StoredRows, Times, stored_rows
from hotspare.table.strings import FrozenStrings, StringTable


class LoadMode(Enum):
    """The time at which a relation is loaded after a restore."""

    WHOLE = "whole"
    AT_USE = "at use"


class SnapshotRowPages(Mapping[int, Columns]):
    """Row pages of a part by number, readable at any later time. Reads raise what the store raises."""

    @abstractmethod
    def page_with_strings(self, number: int) -> tuple[Columns, FrozenStrings]:
        """Returns a page, and the strings of its codes; callable from any thread."""

    @property
    @abstractmethod
    def is_lazy(self) -> bool:
        """Whether pages are readable later. If not, they are in memory anyway and are read at once."""

    @property
    @abstractmethod
    def key_filter_numbers(self) -> Sequence[int]:
        """The numbers of the key filters; empty if row pages cannot be read later."""

    @abstractmethod
    def key_filter_columns(self, piece: FilterPiece, number: int) -> Columns: ...

    @abstractmethod
    def prefetch_row_pages(self, numbers: Sequence[int]) -> None:
        """Requests these row pages ahead of use; best effort."""

    @abstractmethod
    def prefetch_key_filters(self, piece: FilterPiece, numbers: Sequence[int]) -> None:
        """Requests a piece of each of these key filters ahead of use; best effort."""

    @abstractmethod
    def row_page_store_key(self, number: int) -> object:
        """Returns the store's reference to a row page; None if it has none."""

    @abstractmethod
    def key_filter_store_key(self, piece: FilterPiece, number: int) -> object: ...

    @property
    @abstractmethod
    def strings(self) -> StringTable:
        """The table in which strings get their codes."""


@dataclass(frozen=True, slots=True)
class PageReader:
    """Reads row pages of a snapshot from `kept`, and checks them. `width`: the lanes of a row; `times`: whether rows have a time;
    `keys`: the columns of the key; `arrivals`: the count of rows that had arrived.
    """

    kept: SnapshotRowPages
    width: int
    times: Times
    keys: tuple[int, ...]
    arrivals: int

    def rows(self, number: int, alive: Bools) -> StoredRows:
        """Returns the `alive` rows of a page. Raises SnapshotDamaged if they cannot be read."""
        return self._checked(self.kept[number], number, alive)

    def rows_with_strings(self, number: int, alive: Bools) -> tuple[StoredRows, FrozenStrings]:
        """Returns the rows as `rows`, and the strings of their codes; callable from any thread."""
        columns, strings = self.kept.page_with_strings(number)
        return self._checked(columns, number, alive), strings

    def _checked(self, columns: Columns, number: int, alive: Bools) -> StoredRows:
        stored = stored_rows(columns, number, alive, self.width, self.times)
        stored.check(self.keys, self.arrivals)
        return stored


@dataclass(frozen=True, slots=True)
class FrozenUnloaded:
    """The pages that were unloaded when a snapshot was taken. `is_unloaded`: 1 for an unloaded page, by its place in memory;
    `numbers`: the page numbers, by place; `reader` reads them.
    """

    is_unloaded: UInt8s
    numbers: Int64s
    reader: PageReader


@dataclass(slots=True)
class _PendingFilter:
    """A key filter that is not in the index yet. `places`: those of its pages in memory, -1 for a page that no longer exists.
    `halves`: by lookup; empty until they are read."""

    number: int
    outline: KeyOutline
    places: Int64s
    halves: tuple[HashHalves, ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in (*self.outline.marks, *(told.halves for told in self.halves)))


class UnloadedPages:
    """The row pages of a restored relation that may be unloaded, by their place (index) in memory, at first their index in
    `numbers`. At first the pages at `places` are unloaded."""

    def __init__(self, reader: PageReader, numbers: Int64s, places: Int64s, asked_by: RowLookups, spans: int) -> None:
        self.is_unloaded: UInt8s = np.zeros(len(numbers), np.uint8)
        self.is_unloaded[places] = 1
        self.left = len(places)
        self._reader, self._numbers, self._asked_by, self._spans = reader, numbers, asked_by, spans
        self._groups = np.unique(filter_numbers_of(numbers[places], spans)).tolist()
        self._read: list[_PendingFilter] | None = None
        """Key filters that are not in the index yet; None before their outlines were read."""
        self._indexes = [empty_index() for _ in asked_by.lookup_columns]
        """An index per lookup: places of pages that are or were unloaded, by half."""
        self._least: Int64s = np.full(len(numbers), -NEVER)
        """By place, a lower bound of the expiry keys of the page's rows; valid once key filters were read."""
        self._by_least: list[int] = []
        """Places of pages that may be unloaded, the one with the first row to expire at the end; empty until needed."""

    @classmethod
    def from_page_numbers(
        cls, reader: PageReader, numbers: Int64s, counts: Int64s, asked_by: RowLookups, spans: int
    ) -> UnloadedPages | None:
        """Returns the pages that a restore leaves unloaded: all pages with rows that key filters cover, except the page being
        filled; None if no page is left. `counts`: the rows of each page."""
        full = numbers[:-1]
        is_told = np.isin(filter_numbers_of(full, spans), np.array(reader.kept.key_filter_numbers, np.int64)) & (counts[:-1] > 0)
        return cls(reader, numbers, np.flatnonzero(is_told), asked_by, spans) if is_told.any() else None

    def rows(self, place: int, alive: Bools) -> StoredRows:
        return self._reader.rows(int(self._numbers[place]), alive)

    def prefetch_places(self, places: Sequence[int]) -> None:
        """Requests these pages ahead of use."""
        self._reader.kept.prefetch_row_pages(self._numbers[places].tolist())

    def mark_loaded(self, place: int) -> None:
        """Records that a page is loaded."""
        self.is_unloaded[place] = 0
        self.left -= 1

    def check_least_expiry(self, place: int, stored: StoredRows) -> None:
        """Raises SnapshotDamaged if the expiry key of a row of the page is below the one that its key filter records."""
        leaves = self._asked_by.expiry_key.select_keys(stored.order, stored.time)
        if len(leaves) and int(leaves.min()) < self._least[place]:
            raise SnapshotDamaged("a row of a page expires before the time that its key page records")

    @property
    def least_expiry_key(self) -> int:
        """A lower bound of the expiry keys in unloaded pages. There is such a page."""
        return int(self._least[self.next_to_expire()])

    def next_to_expire(self) -> int:
        """Returns the place of the unloaded page whose rows expire first."""
        if not self._by_least:
            self._pending_filters()
            places = np.flatnonzero(self.is_unloaded)
            self._by_least = places[np.argsort(-self._least[places], kind="stable")].tolist()
        while not self.is_unloaded[self._by_least[-1]]:
            self._by_least.pop()
        return self._by_least[-1]

    def pages_with_keys(self, lanes: Int64s) -> list[int]:
        """Returns the places of unloaded pages that may hold a row with one of these keys."""
        return self._pages_with_halves(lanes[:, list(self._asked_by.keys)], 0)

    def pages_with_conditions(self, values: Int64s) -> list[int]:
        """Returns the places of unloaded pages that may hold a row with such values in the fields of the condition."""
        return self._pages_with_halves(*self._asked_by.condition_values(values))

    def _pages_with_halves(self, values: Int64s, way: int) -> list[int]:
        halves = np.unique(self._asked_by.lookup_columns[way].halves(values, self._reader.kept.strings.hashes))
        asked = np.zeros(len(self._numbers), np.uint8)
        k.look_up_pages(self._indexes[way], halves, self.is_unloaded, asked)
        filter_ = np.zeros(1 << k.FILTER_BITS >> 6, np.uint64)
        chosen = [each for each in self._pending_filters() if k.may_have_half(each.outline.marks[way], halves)]
        for each in self._with_halves(chosen):
            told = each.halves[way]
            k.scan_key_filter(told.halves, told.ends, each.places, self.is_unloaded, halves, filter_, asked)
        found: list[int] = np.flatnonzero(asked).tolist()
        return found

    def _pending_filters(self) -> list[_PendingFilter]:
        if self._read is None:
            self._reader.kept.prefetch_key_filters(FilterPiece.OUTLINE, self._groups)
            self._read = [self._read_outline(number) for number in self._groups]
        return self._read

    def _with_halves(self, filters: Sequence[_PendingFilter]) -> Sequence[_PendingFilter]:
        """Returns the filters after reading the halves that were not read yet."""
        unread, kept = [each for each in filters if not each.halves], self._reader.kept
        if unread:
            kept.prefetch_key_filters(FilterPiece.HALVES, [each.number for each in unread])
        for each in unread:
            columns, pages = kept.key_filter_columns(FilterPiece.HALVES, each.number), len(each.places)
            each.halves = tuple(HashHalves.load(columns, way, pages) for way in range(len(self._indexes)))
        return filters

    def _read_outline(self, number: int) -> _PendingFilter:
        columns, numbers = self._reader.kept.key_filter_columns(FilterPiece.OUTLINE, number), self._numbers
        outline = KeyOutline.load(columns, len(self._indexes))
        at = np.minimum(np.searchsorted(numbers, outline.numbers), len(numbers) - 1)
        places = np.where(numbers[at] == outline.numbers, at, -1)
        first, end = np.searchsorted(numbers, [number * self._spans, (number + 1) * self._spans]).tolist()
        missing = np.setdiff1d(first + np.flatnonzero(self.is_unloaded[first:end]), places)
        if len(missing):
            raise SnapshotDamaged("a key page does not list a page of rows")
        if (least := outline.min_expiry_keys.get(self._asked_by.expiry_key)) is not None:
            self._least[places[places >= 0]] = np.clip(least[places >= 0], -NEVER, NEVER)
        return _PendingFilter(number, outline, places)

    def index_next_filter(self) -> bool:
        """Adds one more key filter to the index. Returns False if all were added."""
        waiting = self._pending_filters()
        if not waiting:
            return False
        (next_filter,) = self._with_halves([waiting.pop()])
        for way, each in enumerate(next_filter.halves):
            self._index_filter(each, next_filter.places, way)
        if waiting and not waiting[-1].halves:
            self._reader.kept.prefetch_key_filters(FilterPiece.HALVES, [waiting[-1].number])
        return True

    def _index_filter(self, told: HashHalves, places: Int64s, way: int) -> None:
        at = 0
        while at < len(told.halves):
            at = int(k.index_key_filter(self._indexes[way], told.halves, told.ends, places, self.is_unloaded, at))
            if at < len(told.halves):
                self._indexes[way] = grown_index(self._indexes[way])

    def pages_by_expiry(self, count: int) -> list[int]:
        """Returns the places of at most `count` unloaded pages, those whose rows expire first; without expiry, those with the
        lowest places.
        """
        if self._asked_by.expiry_key is ExpiryKey.NEVER:
            found: list[int] = np.flatnonzero(self.is_unloaded)[:count].tolist()
            return found
        self.next_to_expire()
        return list(islice((place for place in reversed(self._by_least) if self.is_unloaded[place]), count))

    @property
    def bytes(self) -> int:
        """Bytes of the key filters and their index."""
        waiting = sum(each.nbytes for each in self._read or ())
        return waiting + sum(each.table.itemsize * len(each.scratch) * int(each.sizes[1]) for each in self._indexes)

    def freeze(self) -> FrozenUnloaded:
        return FrozenUnloaded(self.is_unloaded.copy(), self._numbers, self._reader)
