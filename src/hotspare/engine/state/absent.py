"""Pages of rows that a restore left in the store: they are read when a key of theirs is asked for, or a few after each step.

An absent page counts as any other: its rows are alive, its place in memory is its own. But what it holds was not read, and no index
names its rows. So before a chunk is taken, pages that may hold one of its keys are brought (`key_pages` tell which), and before an
event clears a page, that one. Nothing else asks for rows that no event names; relations of which that is not so are read whole.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from hotspare.engine.kernels import absent as k
from hotspare.engine.rows.chunk import Bools, Int64s, UInt8s
from hotspare.engine.state.key_pages import Halves, KeyColumns, group_of
from hotspare.engine.state.pages import Columns
from hotspare.engine.state.row_index import empty_index, grown_index
from hotspare.engine.state.row_layout import StoredRows, Times, stored_rows
from hotspare.engine.state.strings import FrozenStrings
from hotspare.errors import SnapshotDamaged


class WhenRead(Enum):
    """When a relation is read after a restore."""

    WHOLE = "whole"
    AT_USE = "at use"


class KeptPages(Mapping[int, Columns]):
    """Row pages of a part by number, which can be read at any later time. What comes of it raises what a store does."""

    @abstractmethod
    def unbound(self, number: int) -> tuple[Columns, FrozenStrings]:
        """A page whose codes are those of these strings; from any thread."""

    @property
    @abstractmethod
    def stay(self) -> bool:
        """Whether that is so: pages that are in memory anyway are read at once."""

    @property
    @abstractmethod
    def key_numbers(self) -> Sequence[int]:
        """Of its key pages; none where row pages cannot be read later."""

    @abstractmethod
    def key_page(self, number: int) -> Columns: ...

    @abstractmethod
    def expect(self, numbers: Sequence[int]) -> None:
        """These row pages are read soon; best effort."""

    @abstractmethod
    def expect_keys(self) -> None:
        """All key pages are read soon; best effort."""

    @abstractmethod
    def known(self, number: int) -> object:
        """What the store knows a row page by; None: nothing is said."""

    @abstractmethod
    def key_page_known(self, number: int) -> object: ...

    @property
    @abstractmethod
    def hashes(self) -> k.UInt64s:
        """Of the strings of the table, by code."""


@dataclass(frozen=True, slots=True)
class PageReader:
    """Reads row pages of a snapshot in which so many rows had arrived. `added` as `Shape.added`."""

    kept: KeptPages
    width: int
    times: Times
    added: tuple[int, ...]
    keys: tuple[int, ...]
    arrivals: int

    def rows(self, number: int, alive: Bools) -> StoredRows:
        """SnapshotDamaged where they cannot be had."""
        return self._checked(self.kept[number], number, alive)

    def unbound_rows(self, number: int, alive: Bools) -> tuple[StoredRows, FrozenStrings]:
        """As `rows`, from any thread; codes are those of these strings."""
        columns, strings = self.kept.unbound(number)
        return self._checked(columns, number, alive), strings

    def _checked(self, columns: Columns, number: int, alive: Bools) -> StoredRows:
        stored = stored_rows(columns, number, alive, self.width, self.times, self.added)
        stored.check(self.keys, self.arrivals)
        return stored


@dataclass(frozen=True, slots=True)
class FrozenAbsent:
    """What was absent when a snapshot was taken."""

    is_absent: UInt8s
    numbers: Int64s
    reader: PageReader


class AbsentPages:
    """Pages by their place in memory, which is that in `numbers` at first. Those at `places` are absent."""

    def __init__(self, reader: PageReader, numbers: Int64s, places: Int64s, key: KeyColumns) -> None:
        self.is_absent: UInt8s = np.zeros(len(numbers), np.uint8)
        self.is_absent[places] = 1
        self.left = len(places)
        self._reader, self._numbers, self._key = reader, numbers, key
        self._groups = np.unique(group_of(numbers[places])).tolist()
        self._read: list[tuple[Halves, Int64s]] | None = None
        """Halves and places of their pages, of key pages that are not in the index yet; None before they were read."""
        self._index = empty_index()
        """Places of absent pages, and of those that were, by halves."""

    @classmethod
    def of(cls, reader: PageReader, numbers: Int64s, counts: Int64s, key: KeyColumns) -> AbsentPages | None:
        """All but the page that is being filled, where key pages tell of them; None where none is left."""
        full = numbers[:-1]
        is_told = np.isin(group_of(full), np.array(reader.kept.key_numbers, np.int64)) & (counts[:-1] > 0)
        return cls(reader, numbers, np.flatnonzero(is_told), key) if is_told.any() else None

    def rows(self, place: int, alive: Bools) -> StoredRows:
        return self._reader.rows(int(self._numbers[place]), alive)

    def expect(self, places: Sequence[int]) -> None:
        """These are read soon."""
        self._reader.kept.expect(self._numbers[places].tolist())

    def came(self, place: int) -> None:
        """It is in memory from now on."""
        self.is_absent[place] = 0
        self.left -= 1

    def asked(self, lanes: Int64s) -> list[int]:
        """Places of pages that may hold a row with a key of these."""
        halves, asked = (
            np.unique(self._key.halves(lanes[:, list(self._key.keys)], self._reader.kept.hashes)),
            np.zeros(len(self._numbers), np.uint8),
        )
        k.look_up_pages(self._index, halves, self.is_absent, asked)
        filter_ = np.zeros(1 << k.FILTER_BITS >> 6, np.uint64)
        for told, places in self._to_enter():
            k.look_through(told.halves, told.ends, places, self.is_absent, halves, filter_, asked)
        return np.flatnonzero(asked).tolist()

    def _to_enter(self) -> list[tuple[Halves, Int64s]]:
        if self._read is None:
            self._reader.kept.expect_keys()
            self._read = [self._told(number) for number in self._groups]
        return self._read

    def _told(self, number: int) -> tuple[Halves, Int64s]:
        halves, numbers = Halves.load(self._reader.kept.key_page(number)), self._numbers
        at = np.minimum(np.searchsorted(numbers, halves.numbers), len(numbers) - 1)
        places = np.where(numbers[at] == halves.numbers, at, -1)
        missing = np.setdiff1d(np.flatnonzero(self.is_absent & (group_of(numbers) == number)), places)
        if len(missing):
            raise SnapshotDamaged("a page of keys lacks a page of rows")
        return halves, places

    def enter_some(self) -> bool:
        """Let the index tell what one more key page tells; False where it tells all."""
        waiting = self._to_enter()
        if not waiting:
            return False
        (told, places), at = waiting.pop(), 0
        while at < len(told.halves):
            at = int(k.enter_halves(self._index, told.halves, told.ends, places, self.is_absent, at))
            if at < len(told.halves):
                self._index = grown_index(self._index)
        return True

    def first(self, count: int) -> list[int]:
        """Of those that are absent."""
        found: list[int] = np.flatnonzero(self.is_absent)[:count].tolist()
        return found

    @property
    def bytes(self) -> int:
        """Of memory for telling which page is asked for."""
        waiting = sum(told.halves.nbytes for told, _ in self._read or ())
        return waiting + self._index.table.itemsize * len(self._index.scratch) * int(self._index.sizes[1])

    def freeze(self) -> FrozenAbsent:
        return FrozenAbsent(self.is_absent.copy(), self._numbers, self._reader)
