"""Texts that are never evicted: those in rows of windows with `resident: always`.

A text is stored once for all windows, and text pages hold texts in order of arrival. So a page to be evicted may hold texts that
must stay. If they are half of the page, all of it stays; else they are first moved after the newest texts
(`StringTable.evict_coldest`). Marks show which they are: those of new rows are set after each step. The collector marks all rows
again in each of its rounds, after which the texts of removed rows may be evicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.table.loops.interning import BEGIN, COUNT, PAGE_BITS, SIZE, InternedTexts
from hotspare.table.memory import with_room


class HasRows(Protocol):
    """A part that holds codes, as `strings.HoldsCodes`."""

    @property
    def codes_per_row(self) -> int: ...

    @property
    def write_position(self) -> int: ...

    def mark(self, marks: UInt8s, mark: int, since: int, rows: int) -> int: ...


class PinnedTexts:
    """Marks by code. `marks`: 0 if a text may be evicted, else the last round, 1 or 2, in which a row with it was seen."""

    def __init__(self) -> None:
        self.marks: UInt8s = np.zeros(64, np.uint8)
        self.round = 1
        self.are_any = False
        self._written: dict[str, int] = {}
        """The position up to which the codes of new rows are marked, by part."""
        self._bytes: int | None = None
        """Bytes of these texts at the last search; None if not searched since the last round."""
        self._bytes_before = 0
        """Bytes at the first search after the last round."""

    def __contains__(self, part: object) -> bool:
        """Whether the part of this name is of a window whose texts stay."""
        return part in self._written

    def reserve(self, count: int) -> None:
        """Makes room for codes below `count`."""
        self.marks = with_room(self.marks, len(self.marks), count)

    def mark_written(self, parts: Mapping[str, HasRows], count: int) -> None:
        """Marks what a step wrote. `parts`: all of windows whose texts stay, always under the same names."""
        if not parts:
            return
        self.reserve(count)
        self.are_any = True
        for name, part in parts.items():
            since, written = self._written.get(name, 0), part.write_position
            if part.codes_per_row and since < written:
                part.mark(self.marks, self.round, since, written - since)
            self._written[name] = written

    def pin_codes(self, codes: Int64s, count: int) -> None:
        """Marks codes that a restore gave to rows which are not marked by position."""
        self.reserve(count)
        self.marks[codes] = self.round
        self.are_any = True

    def begin_round(self) -> None:
        self.round = 3 - self.round

    def end_round(self, count: int) -> None:
        """Drops the marks that were not set since the round began. Codes are below `count`; the array may be much longer."""
        marks = self.marks[:count]
        marks[marks != self.round] = 0
        self._bytes = None

    def is_round_due(self, bytes_min: int) -> bool:
        """Whether many of these texts are likely to be of removed rows."""
        return self._bytes is not None and self._bytes > max(bytes_min, 2 * self._bytes_before)

    def find_pinned(self, texts: InternedTexts) -> TextPlaces:
        """Returns all of them except the empty one."""
        count = int(texts.state[COUNT])
        marks, in_use = self.marks[:count], texts.marks[:count]
        standing = TextPlaces.from_codes(texts, np.flatnonzero((marks != 0) & (in_use[: len(marks)] != 0)))
        size = int(standing.sizes.sum())
        self._bytes_before, self._bytes = size if self._bytes is None else self._bytes_before, size
        return standing


@dataclass(frozen=True, slots=True)
class TextPlaces:
    """Texts, none of which is empty, by code: the pages in which each begins and ends, and its bytes."""

    codes: Int64s
    first: Int64s
    last: Int64s
    sizes: Int64s

    @classmethod
    def from_codes(cls, texts: InternedTexts, codes: Int64s) -> TextPlaces:
        bits, places = texts.state[PAGE_BITS], texts.places[codes]
        begins, sizes = places[:, BEGIN], places[:, SIZE]
        standing = cls(codes, begins >> bits, (begins + sizes - 1) >> bits, sizes)
        return standing if sizes.all() else standing.select_texts(sizes > 0)

    def select_texts(self, chosen: Bools) -> TextPlaces:
        return TextPlaces(self.codes[chosen], self.first[chosen], self.last[chosen], self.sizes[chosen])

    def bytes_by_page(self, texts: InternedTexts, pages: int) -> Int64s:
        """Returns the bytes of these texts in each of `pages` pages. No text is longer than a page."""
        bits, is_over = int(texts.state[PAGE_BITS]), self.first != self.last
        behind = np.zeros(len(self.codes), np.int64)
        behind[is_over] = texts.places[self.codes[is_over]].sum(axis=1) - (self.last[is_over] << bits)
        held = np.bincount(self.first, self.sizes - behind, pages) + np.bincount(self.last[is_over], behind[is_over], pages)
        return held.astype(np.int64)
