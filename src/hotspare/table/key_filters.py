"""Key filters, stored next to row pages: after a restore they show which row pages may hold a key, so that a page is loaded only
when its rows are used.

A key filter covers some row pages with consecutive numbers. For each key in these pages it has a half: the low four bytes of the
key's hash (`table.loops.unloaded`). Its outline, a third of its size, is stored on its own: a Bloom filter of the halves and, with
retention, the lowest expiry key of each page. So a lookup reads all outlines, and the halves of few filters. Full row pages do not
change, so a filter is written once, except that of the newest pages; it may name rows and pages that were removed since. The page
being filled has no filter: it is loaded at once.

If rows are also found by the fields of a condition, the filter also has the halves of these fields, each distinct half once per
page, and an outline of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

import numpy as np

from hotspare.base.errors import SnapshotDamaged
from hotspare.rows.chunk import Int64s
from hotspare.rows.tuning import Tuning
from hotspare.table.loops import unloaded as k
from hotspare.table.loops.slots import NEVER
from hotspare.table.pages import Column, Columns, FilterPiece, require_column
from hotspare.table.row_layout import Layout, StoredRows, StoreKeys

_NAMES = ("ends", "halves"), ("met_ends", "met_halves")
"""The columns of a key filter's halves, by the number of the lookup."""
_OUTLINES = "outline", "met_outline"
"""The columns of their outlines."""
_OUTLINE_BITS = 10
"""Bits of an outline for each half."""

_NOTHING = np.empty(0, np.int64)


class ExpiryKey(Enum):
    """The kind of expiry key: retention removes rows by ascending expiry key. The value is the name of the outline's column."""

    NEVER = "never"
    IN_ORDER = "least_order"
    BY_TIME = "least_time"

    def select_keys(self, order: Int64s, time: Int64s) -> Int64s:
        """Returns the expiry keys of rows with these arrival numbers and times; empty for NEVER."""
        return {ExpiryKey.NEVER: _NOTHING, ExpiryKey.IN_ORDER: order, ExpiryKey.BY_TIME: time}[self]


@dataclass(frozen=True, slots=True)
class HashHalves:
    """The halves of the hashes of keys for one lookup, page after page of the key filter: those of page i end at `ends[i]` of
    `halves`."""

    ends: Int64s
    halves: k.UInt32s

    @classmethod
    def from_pages(cls, halves: Sequence[k.UInt32s]) -> HashHalves:
        """Returns the content, given the halves of each page."""
        return cls(np.cumsum([len(each) for each in halves], dtype=np.int64), np.concatenate(halves))

    def columns(self, way: int) -> Columns:
        ends, halves = _NAMES[way]
        return {ends: Column(self.ends), halves: Column(self.halves)}

    @classmethod
    def load(cls, columns: Columns, way: int, pages: int) -> HashHalves:
        """Returns the content for `pages` pages from the columns that `columns(way)` returned. Raises SnapshotDamaged if they
        contradict each other. `way`: the number of the lookup."""
        ends = require_column(columns, _NAMES[way][0], np.dtype(np.int64), (pages,)).array
        halves = require_column(columns, _NAMES[way][1], np.dtype(np.uint32), (-1,)).array
        if not bool((np.diff(ends, prepend=0) >= 0).all()) or (int(ends[-1]) if pages else 0) != len(halves):
            raise SnapshotDamaged("the columns of a key page contradict each other")
        return cls(ends, halves)


@dataclass(frozen=True, slots=True)
class KeyOutline:
    """The piece of a key filter that is read first: the `numbers` of its pages, a Bloom filter of its halves by lookup, and
    `min_expiry_keys`, the expiry key of the first row of each page."""

    numbers: Int64s
    marks: tuple[k.UInt32s, ...]
    min_expiry_keys: Mapping[ExpiryKey, Int64s] = field(default_factory=dict)

    @classmethod
    def from_halves(cls, numbers: Int64s, told: Sequence[HashHalves], least: Mapping[ExpiryKey, Int64s]) -> KeyOutline:
        """Returns the outline of the pages `numbers`. `told`: their halves by lookup."""
        return cls(numbers, tuple(_outline_of(each.halves) for each in told), least)

    def columns(self) -> Columns:
        marks = {name: Column(each) for name, each in zip(_OUTLINES, self.marks, strict=False)}
        least = {by.value: Column(each) for by, each in self.min_expiry_keys.items()}
        return {"numbers": Column(self.numbers), **marks, **least}

    @classmethod
    def load(cls, columns: Columns, ways: int) -> KeyOutline:
        """Returns the outline of a filter with `ways` lookups from the columns that `columns` returned. Raises SnapshotDamaged if
        they contradict each other."""
        numbers = require_column(columns, "numbers", np.dtype(np.int64), (-1,)).array
        marks = tuple(require_column(columns, name, np.dtype(np.uint32), (-1,)).array for name in _OUTLINES[:ways])
        if not bool((np.diff(numbers) > 0).all()) or any(not len(each) or len(each) % k.OUTLINE_WORDS for each in marks):
            raise SnapshotDamaged("the columns of a key page contradict each other")
        told = [by for by in ExpiryKey if by.value in columns]
        least = {by: require_column(columns, by.value, np.dtype(np.int64), (len(numbers),)).array for by in told}
        return cls(numbers, marks, least)


def _outline_of(halves: k.UInt32s) -> k.UInt32s:
    blocks = max(1, -(-len(halves) * _OUTLINE_BITS // (32 * k.OUTLINE_WORDS)))
    outline = np.zeros(blocks * k.OUTLINE_WORDS, np.uint32)
    k.mark_outline(outline, halves)
    return outline


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The columns of one lookup. `keys`: the columns of a row by which the lookup finds it; `codes`: all columns of a row that hold
    codes of strings.
    """

    keys: tuple[int, ...]
    codes: tuple[int, ...]

    def halves(self, keys: Int64s, hashes: k.UInt64s) -> k.UInt32s:
        """Returns the half of each row of `keys`, which has the columns of this lookup alone. `hashes`: the hashes of strings, by
        code."""
        found, keys = np.empty(len(keys), np.uint32), np.array(keys, order="C")
        for at, key in enumerate(self.keys):
            if key in self.codes:
                keys[:, at] = hashes[keys[:, at]].view(np.int64)
        k.key_halves(keys, np.arange(len(self.keys)), found)
        return found


@dataclass(frozen=True, slots=True)
class RowLookups:
    """The lookups of rows: by the key, unless `keys` is empty; by the fields `conditions`, unless they are empty or the key; and by
    expiry key. `codes`: the columns of a row that hold codes of strings.
    """

    keys: tuple[int, ...]
    codes: tuple[int, ...]
    conditions: tuple[int, ...]
    expiry_key: ExpiryKey

    @property
    def lookup_columns(self) -> tuple[KeyColumns, ...]:
        key, condition = KeyColumns(self.keys, self.codes), KeyColumns(self.conditions, self.codes)
        if not self.keys:
            return (condition,)
        return (key, condition) if self._has_condition else (key,)

    @property
    def _has_condition(self) -> bool:
        return bool(self.conditions) and sorted(self.conditions) != sorted(self.keys)

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns of all lookups, one after the other."""
        return sum((way.keys for way in self.lookup_columns), ())

    def values_and_expiry_keys(self, rows: StoredRows) -> tuple[Int64s, Int64s]:
        """Returns the `columns` of the rows and their expiry keys."""
        return rows.lanes[:, list(self.columns)], self.expiry_key.select_keys(rows.order, rows.time)

    def condition_values(self, values: Int64s) -> tuple[Int64s, int]:
        """Prepares `values`, one column per field of the condition in its order, for the lookup that finds rows by these fields.
        Returns them in the lookup's column order, and the number of the lookup.
        """
        if self._has_condition:
            return values, len(self.lookup_columns) - 1
        return values[:, [self.conditions.index(key) for key in self.keys]], 0

    def halves(self, values: Int64s, hashes: k.UInt64s) -> k.UInt32s:
        """Returns uint32[rows, lookups]: the half of each row for each lookup. `values`: the rows' `columns`."""
        at, found = 0, np.empty((len(values), len(self.lookup_columns)), np.uint32)
        for number, way in enumerate(self.lookup_columns):
            found[:, number] = way.halves(values[:, at : at + len(way.keys)], hashes)
            at += len(way.keys)
        return found


@dataclass(slots=True)
class KeyFilterCache:
    """The content of the newest key filter, so that a snapshot need not read the rows again; shared with snapshots.

    `by_page`: by page number (snapshot, slots, halves, expiry keys), without rows removed before that snapshot.
    `filter_store_keys`: the store's references to stored key filters.
    """

    tuning: Tuning
    filter_store_keys: Mapping[FilterPiece, StoreKeys] = field(
        default_factory=lambda: {piece: StoreKeys({}) for piece in FilterPiece}
    )
    by_page: dict[int, tuple[int, Int64s, k.UInt32s, Int64s]] = field(default_factory=dict)

    def drop_entries_before(self, first: int) -> None:
        """Drops the entries of pages with numbers below `first`."""
        for number in sorted(self.by_page):
            if number < first:
                self.by_page.pop(number, None)


Read: TypeAlias = Callable[[int, k.UInt64s], tuple[Int64s, Int64s, k.UInt64s]]
"""A function from (index of a page in a layout, hashes of strings by code) to the page's rows: the values of `RowLookups.columns`,
the expiry keys (empty if rows have none), and the hashes by code for these values. The hashes are those of the argument, unless the
page has codes of its own."""


@dataclass(frozen=True, slots=True)
class FrozenKeyFilter:
    """A piece of a key filter of a snapshot. It covers the row pages `numbers`, which begin at index `first` of the layout;
    `full_pages` of the pages that the filter covers were full.

    `number`: the number of the filter; `snapshot`: that of the snapshot. `read` returns the rows of a page.
    """

    piece: FilterPiece
    number: int
    full_pages: int
    snapshot: int
    first: int
    numbers: Int64s
    layout: Layout
    row_lookups: RowLookups
    shared: KeyFilterCache
    read: Read

    @property
    def store_key(self) -> object:
        given, snapshot, known = self.shared.filter_store_keys[self.piece].by_page.get(self.number, (-1, 0, None))
        return known if given == self.full_pages and snapshot <= self.snapshot else None

    def set_store_key(self, known: object) -> None:
        self.shared.filter_store_keys[self.piece].by_page[self.number] = self.full_pages, self.snapshot, known

    def columns(self, hashes: k.UInt64s) -> Columns:
        """Returns the piece's columns to be written. `hashes`: the hashes of the table's strings, by code."""
        told = [self._page_halves(at, hashes) for at in range(len(self.numbers))]
        ways = range(len(self.row_lookups.lookup_columns))
        by_way = [self._halves_of([halves[:, way] for halves, _ in told], way) for way in ways]
        if self.piece is FilterPiece.HALVES:
            return {name: column for way, each in enumerate(by_way) for name, column in each.columns(way).items()}
        least: dict[ExpiryKey, Int64s] = {}
        if (by := self.row_lookups.expiry_key) is not ExpiryKey.NEVER:
            least[by] = np.array([leaves.min(initial=NEVER) for _, leaves in told], np.int64)
        return KeyOutline.from_halves(self.numbers, by_way, least).columns()

    def _halves_of(self, pages: Sequence[k.UInt32s], way: int) -> HashHalves:
        is_by_key = not way and self.row_lookups.keys
        return HashHalves.from_pages(pages if is_by_key else [np.unique(halves) for halves in pages])

    def _page_halves(self, at: int, hashes: k.UInt64s) -> tuple[k.UInt32s, Int64s]:
        """Returns, for each row of a page, the hash halves that key filters store, and the expiry key (no entries if rows have
        none)."""
        number, slots = int(self.numbers[at]), np.flatnonzero(self.layout.alive(self.first + at))
        if (remembered := self.shared.by_page.get(number)) is not None and remembered[0] <= self.snapshot:
            _, of_slots, halves, leaves = remembered
            chosen = np.searchsorted(of_slots, slots)
            return halves[chosen], leaves[chosen] if len(leaves) else leaves
        values, leaves, hashes = self.read(self.first + at, hashes)
        halves = self.row_lookups.halves(values, hashes)
        if self.full_pages < self.shared.tuning.key_filter_spans:
            self.shared.by_page[number] = self.snapshot, slots, halves, leaves
        return halves, leaves


def key_filters_of(
    layout: Layout, snapshot: int, asked_by: RowLookups, shared: KeyFilterCache, read: Read
) -> Sequence[FrozenKeyFilter]:
    """Returns the key filters of a snapshot with this layout, piece by piece; empty if the layout has fewer than
    `key_filter_pages_min` pages."""
    spans = shared.tuning.key_filter_spans
    if len(layout.numbers) < shared.tuning.key_filter_pages_min:
        return []
    full, open_page = layout.numbers[:-1], int(layout.numbers[-1])
    groups = np.unique(filter_numbers_of(full, spans))
    for known in shared.filter_store_keys.values():
        known.drop_other_pages(groups, open_page // spans)
    shared.drop_entries_before(open_page // spans * spans)
    found = []
    for number in groups.tolist():
        first, end = np.searchsorted(full, [number * spans, (number + 1) * spans]).tolist()
        given = min(spans, open_page - number * spans)
        found += [
            FrozenKeyFilter(piece, number, given, snapshot, first, full[first:end], layout, asked_by, shared, read)
            for piece in FilterPiece
        ]
    return found


def filter_numbers_of(numbers: Int64s, spans: int) -> Int64s:
    """Returns, for each row page number, the number of the key filter that covers the page; a filter covers `spans` page
    numbers."""
    found: Int64s = numbers // spans
    return found


def full_pages_covered(number: int, layout: Layout, spans: int) -> int:
    """Returns `FrozenKeyFilter.full_pages` of the key filter of that number in a snapshot with this layout."""
    return min(spans, int(layout.numbers[-1]) - number * spans)
