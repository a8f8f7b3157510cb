"""Key pages: what tells, after a restore, in which pages of rows a key may be, so that the rows themselves can be read at use.

One stands for some pages of rows that follow each other by number, and has four bytes of the hash of each key in them
(`table.loops.absent`); where rows leave by retention, also by what the first row of each page does. Rows that are full do not
change, so it is written once, but for the one that stands for the newest pages; it may tell of rows and pages that are gone since.
Of the page that is being filled there is none: that is read at once.

Where rows are also found by the fields of a condition, it has halves of these beside, each once for a page.
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
"""Of the columns of a key page, by the number of the way in which rows are asked for."""

_NOTHING = np.empty(0, np.int64)


class Leaves(Enum):
    """By what rows leave that retention ends, the least first; the name of the column that has it."""

    NEVER = "never"
    IN_ORDER = "least_order"
    BY_TIME = "least_time"

    def of(self, order: Int64s, time: Int64s) -> Int64s:
        """That of rows with these numbers of arrival and times."""
        return {Leaves.NEVER: _NOTHING, Leaves.IN_ORDER: order, Leaves.BY_TIME: time}[self]


@dataclass(frozen=True, slots=True)
class Halves:
    """Halves of the hashes of keys, page after page: those of page `numbers[i]` end at `ends[i]`. `least`: by what the first row of
    each page leaves."""

    numbers: Int64s
    ends: Int64s
    halves: k.UInt32s
    least: Mapping[Leaves, Int64s] = field(default_factory=dict)

    @classmethod
    def of(cls, numbers: Int64s, halves: Sequence[k.UInt32s], least: Mapping[Leaves, Int64s]) -> Halves:
        """Page by page."""
        return cls(numbers, np.cumsum([len(each) for each in halves], dtype=np.int64), np.concatenate(halves), least)

    def columns(self, way: int) -> Columns:
        ends, halves = _NAMES[way]
        least = {by.value: Column(each) for by, each in self.least.items()}
        return {"numbers": Column(self.numbers), ends: Column(self.ends), halves: Column(self.halves), **least}

    @classmethod
    def load(cls, columns: Columns, way: int) -> Halves:
        """SnapshotDamaged where they cannot be."""
        numbers = expect(columns, "numbers", np.dtype(np.int64), (-1,)).array
        ends = expect(columns, _NAMES[way][0], np.dtype(np.int64), (len(numbers),)).array
        halves = expect(columns, _NAMES[way][1], np.dtype(np.uint32), (-1,)).array
        rising = bool((np.diff(numbers) > 0).all()) and bool((np.diff(ends, prepend=0) >= 0).all())
        if not rising or (int(ends[-1]) if len(ends) else 0) != len(halves):
            raise SnapshotDamaged("a page of keys contradicts itself")
        told = [by for by in Leaves if not way and by.value in columns]
        return cls(numbers, ends, halves, {by: expect(columns, by.value, np.dtype(np.int64), (len(numbers),)).array for by in told})


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Which columns of rows are the key, and which of these hold codes of strings."""

    keys: tuple[int, ...]
    codes: tuple[int, ...]

    def halves(self, keys: Int64s, hashes: k.UInt64s) -> k.UInt32s:
        """Of these columns of rows. `hashes`: of strings, by code."""
        found, keys = np.empty(len(keys), np.uint32), np.array(keys, order="C")
        for at, key in enumerate(self.keys):
            if key in self.codes:
                keys[:, at] = hashes[keys[:, at]].view(np.int64)
        k.key_halves(keys, np.arange(len(self.keys)), found)
        return found


@dataclass(frozen=True, slots=True)
class AskedBy:
    """In which ways rows are asked for: by their key, unless none is told; by the fields of a condition, where there are some and
    they are not the key; and by what they leave."""

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
        """Of all ways, one behind the other."""
        return sum((way.keys for way in self.ways), ())

    def of(self, rows: StoredRows) -> tuple[Int64s, Int64s]:
        """`columns` of rows, and by what they leave."""
        return rows.lanes[:, list(self.columns)], self.leaves.of(rows.order, rows.time)

    def by_conditions(self, values: Int64s) -> tuple[Int64s, int]:
        """Values of the fields of the condition, as the way of that number has them."""
        if self._has_condition:
            return values, len(self.ways) - 1
        return values[:, [self.conditions.index(key) for key in self.keys]], 0

    def halves(self, values: Int64s, hashes: k.UInt64s) -> k.UInt32s:
        """Of rows of `columns`, a column for each way."""
        at, found = 0, np.empty((len(values), len(self.ways)), np.uint32)
        for number, way in enumerate(self.ways):
            found[:, number] = way.halves(values[:, at : at + len(way.keys)], hashes)
            at += len(way.keys)
        return found


@dataclass(slots=True)
class RememberedKeys:
    """What stands in the newest key page of each page, so that their rows are not read for every snapshot; shared with snapshots.
    Beside it stands which rows it is of, and for which snapshot it was made: rows that are gone by then have nothing there."""

    tuning: Tuning
    known: Known = field(default_factory=lambda: Known({}))
    by_page: dict[int, tuple[int, Int64s, k.UInt32s, Int64s]] = field(default_factory=dict)

    def forget_before(self, first: int) -> None:
        """Pages of lower numbers."""
        for number in sorted(self.by_page):
            if number < first:
                self.by_page.pop(number, None)


Read: TypeAlias = Callable[[int, k.UInt64s], tuple[Int64s, Int64s, k.UInt64s]]
"""Of the rows of a page, by its place in a layout: `AskedBy.columns`; by what they leave, empty where they do not; and the hashes
of their strings: those that are given, or, where codes are others, these."""


@dataclass(frozen=True, slots=True)
class KeysOfPages:
    """Of a snapshot: of pages of rows from place `first` of its layout on, those of which `alive` tells the rows. `given`: so many
    of the pages that it stands for were full."""

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
        """`hashes` of the strings of the table, by code."""
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
        """Of each row of a page the half, and by what it leaves; nothing of the latter where none does."""
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
    """Those of a snapshot with this layout."""
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
    """Numbers of the key pages that stand for these pages of rows, `spans` for each."""
    found: Int64s = numbers // spans
    return found


def given_of(number: int, layout: Layout, spans: int) -> int:
    """`KeysOfPages.given` of the key page of that number in a snapshot with this layout."""
    return min(spans, int(layout.numbers[-1]) - number * spans)
