"""Key filters, stored as key pages: after a restore they show which row pages may hold a key, so that rows can be loaded at use.

A key filter covers some row pages with consecutive numbers. It has four bytes of the hash of each key in them
(`table.loops.absent`), and with retention the expiry key of each page's first row. Full row pages do not change, so a filter is
written once, except that of the newest pages; it may name rows and pages that were removed since. The page being filled has no
filter: it is loaded at once.

If rows are also found by the fields of a condition, the filter has the halves of these too, each once per page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

import numpy as np

from hotspare.base.errors import SnapshotDamaged
from hotspare.rows.chunk import Bools, Int64s
from hotspare.rows.tuning import Tuning
from hotspare.table.loops import absent as k
from hotspare.table.loops.slots import NEVER
from hotspare.table.pages import Column, Columns, expect
from hotspare.table.row_layout import Known, Layout, StoredRows

_NAMES = ("ends", "halves"), ("met_ends", "met_halves")
"""The columns of a key filter, by the number of the lookup."""

_NOTHING = np.empty(0, np.int64)


class Leaves(Enum):
    """The expiry key, by which retention removes rows, lowest first; the value is the name of its column."""

    NEVER = "never"
    IN_ORDER = "least_order"
    BY_TIME = "least_time"

    def of(self, order: Int64s, time: Int64s) -> Int64s:
        """Returns the expiry keys of rows with these arrival numbers and times."""
        return {Leaves.NEVER: _NOTHING, Leaves.IN_ORDER: order, Leaves.BY_TIME: time}[self]


@dataclass(frozen=True, slots=True)
class Halves:
    """Halves of the hashes of keys, page after page: those of page `numbers[i]` end at `ends[i]`. `least`: the expiry key of the
    first row of each page."""

    numbers: Int64s
    ends: Int64s
    halves: k.UInt32s
    least: Mapping[Leaves, Int64s] = field(default_factory=dict)

    @classmethod
    def of(cls, numbers: Int64s, halves: Sequence[k.UInt32s], least: Mapping[Leaves, Int64s]) -> Halves:
        """Builds a filter from the halves of each page."""
        return cls(numbers, np.cumsum([len(each) for each in halves], dtype=np.int64), np.concatenate(halves), least)

    def columns(self, way: int) -> Columns:
        ends, halves = _NAMES[way]
        least = {by.value: Column(each) for by, each in self.least.items()}
        return {"numbers": Column(self.numbers), ends: Column(self.ends), halves: Column(self.halves), **least}

    @classmethod
    def load(cls, columns: Columns, way: int) -> Halves:
        """Reads what `columns` returned. Raises SnapshotDamaged if it is not a valid filter."""
        numbers = expect(columns, "numbers", np.dtype(np.int64), (-1,)).array
        ends = expect(columns, _NAMES[way][0], np.dtype(np.int64), (len(numbers),)).array
        halves = expect(columns, _NAMES[way][1], np.dtype(np.uint32), (-1,)).array
        rising = bool((np.diff(numbers) > 0).all()) and bool((np.diff(ends, prepend=0) >= 0).all())
        if not rising or (int(ends[-1]) if len(ends) else 0) != len(halves):
            raise SnapshotDamaged("the columns of a key page contradict each other")
        told = [by for by in Leaves if not way and by.value in columns]
        return cls(numbers, ends, halves, {by: expect(columns, by.value, np.dtype(np.int64), (len(numbers),)).array for by in told})


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The columns of rows that are the key, and the columns that hold codes of strings."""

    keys: tuple[int, ...]
    codes: tuple[int, ...]

    def halves(self, keys: Int64s, hashes: k.UInt64s) -> k.UInt32s:
        """Returns the halves of rows with these columns only. `hashes`: those of strings, by code."""
        found, keys = np.empty(len(keys), np.uint32), np.array(keys, order="C")
        for at, key in enumerate(self.keys):
            if key in self.codes:
                keys[:, at] = hashes[keys[:, at]].view(np.int64)
        k.key_halves(keys, np.arange(len(self.keys)), found)
        return found


@dataclass(frozen=True, slots=True)
class AskedBy:
    """The lookups of rows: by key, unless `keys` is empty; by the fields of a condition, if there are any and they are not the key;
    and by expiry key."""

    keys: tuple[int, ...]
    codes: tuple[int, ...]
    conditions: tuple[int, ...]
    leaves: Leaves

    @property
    def ways(self) -> tuple[KeyColumns, ...]:
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
        return sum((way.keys for way in self.ways), ())

    def of(self, rows: StoredRows) -> tuple[Int64s, Int64s]:
        """Returns the `columns` of the rows and their expiry keys."""
        return rows.lanes[:, list(self.columns)], self.leaves.of(rows.order, rows.time)

    def by_conditions(self, values: Int64s) -> tuple[Int64s, int]:
        """Returns the values of the condition's fields in the order of a lookup, and the number of that lookup."""
        if self._has_condition:
            return values, len(self.ways) - 1
        return values[:, [self.conditions.index(key) for key in self.keys]], 0

    def halves(self, values: Int64s, hashes: k.UInt64s) -> k.UInt32s:
        """Returns the halves of rows of `columns`, one column per lookup."""
        at, found = 0, np.empty((len(values), len(self.ways)), np.uint32)
        for number, way in enumerate(self.ways):
            found[:, number] = way.halves(values[:, at : at + len(way.keys)], hashes)
            at += len(way.keys)
        return found


@dataclass(slots=True)
class RememberedKeys:
    """The content of the newest key filter by page, so that rows are not read for every snapshot; shared with snapshots. Entries:
    (snapshot, slots, halves, expiry keys), without rows removed before that snapshot."""

    tuning: Tuning
    known: Known = field(default_factory=lambda: Known({}))
    by_page: dict[int, tuple[int, Int64s, k.UInt32s, Int64s]] = field(default_factory=dict)

    def forget_before(self, first: int) -> None:
        """Drops the entries of pages with lower numbers."""
        for number in sorted(self.by_page):
            if number < first:
                self.by_page.pop(number, None)


Read: TypeAlias = Callable[[int, k.UInt64s], tuple[Int64s, Int64s, k.UInt64s]]
"""A function from a page's place in a layout to its rows' `AskedBy.columns`, expiry keys (empty without them), and the hashes of
their strings: the given ones, or others if the codes are others."""


@dataclass(frozen=True, slots=True)
class KeysOfPages:
    """A key filter of a snapshot, for the row pages from place `first` of its layout on; `alive` has their rows. `given`: how many
    of the pages that it covers were full."""

    number: int
    given: int
    snapshot: int
    first: int
    numbers: Int64s
    alive: Bools
    asked_by: AskedBy
    shared: RememberedKeys
    read: Read

    @property
    def known(self) -> object:
        given, snapshot, known = self.shared.known.by_page.get(self.number, (-1, 0, None))
        return known if given == self.given and snapshot <= self.snapshot else None

    def note(self, known: object) -> None:
        self.shared.known.by_page[self.number] = self.given, self.snapshot, known

    def columns(self, hashes: k.UInt64s) -> Columns:
        """Returns the buffers of the filter. `hashes`: those of the table's strings, by code."""
        told = [self._told(at, hashes) for at in range(len(self.numbers))]
        least: dict[Leaves, Int64s] = {}
        if (by := self.asked_by.leaves) is not Leaves.NEVER:
            least[by] = np.array([leaves.min(initial=NEVER) for _, leaves in told], np.int64)
        columns: dict[str, Column] = {}
        for way in range(len(self.asked_by.ways)):
            each = [halves[:, way] for halves, _ in told]
            if way or not self.asked_by.keys:
                each = [np.unique(halves) for halves in each]
            columns |= Halves.of(self.numbers, each, {} if way else least).columns(way)
        return columns

    def _told(self, at: int, hashes: k.UInt64s) -> tuple[k.UInt32s, Int64s]:
        """Returns the halves of each row of a page, and the expiry keys (empty if rows have none)."""
        number, slots = int(self.numbers[at]), np.flatnonzero(self.alive[at])
        if (remembered := self.shared.by_page.get(number)) is not None and remembered[0] <= self.snapshot:
            _, of_slots, halves, leaves = remembered
            chosen = np.searchsorted(of_slots, slots)
            return halves[chosen], leaves[chosen] if len(leaves) else leaves
        values, leaves, hashes = self.read(self.first + at, hashes)
        halves = self.asked_by.halves(values, hashes)
        if self.given < self.shared.tuning.key_page_spans:
            self.shared.by_page[number] = self.snapshot, slots, halves, leaves
        return halves, leaves


def key_pages(layout: Layout, snapshot: int, asked_by: AskedBy, shared: RememberedKeys, read: Read) -> Sequence[KeysOfPages]:
    """Returns the key filters of a snapshot with this layout; empty if it has too few pages."""
    spans = shared.tuning.key_page_spans
    if len(layout.numbers) < shared.tuning.key_pages_min:
        return []
    full, open_page = layout.numbers[:-1], int(layout.numbers[-1])
    groups = np.unique(group_of(full, spans))
    shared.known.forget_others(groups, open_page // spans)
    shared.forget_before(open_page // spans * spans)
    found = []
    for number in groups.tolist():
        first, end = np.searchsorted(full, [number * spans, (number + 1) * spans]).tolist()
        given = min(spans, open_page - number * spans)
        found.append(KeysOfPages(number, given, snapshot, first, full[first:end], layout.alive[first:end], asked_by, shared, read))
    return found


def group_of(numbers: Int64s, spans: int) -> Int64s:
    """Returns the numbers of the key filters that cover these row pages, `spans` for each."""
    found: Int64s = numbers // spans
    return found


def given_of(number: int, layout: Layout, spans: int) -> int:
    """Returns `KeysOfPages.given` of the key filter of that number in a snapshot with this layout."""
    return min(spans, int(layout.numbers[-1]) - number * spans)
