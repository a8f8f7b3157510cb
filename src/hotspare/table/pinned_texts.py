"""Texts that are never evicted: those in rows of windows with `resident: always`.

A text is stored once for all windows, and text pages hold texts in order of arrival. So a page to be evicted may hold pinned texts.
If these are at least half of the page, the page is not evicted; else they are first moved after the newest texts
(`StringTable.evict_coldest`). Texts are pinned by marks: those of new rows are marked after each step. The collector marks all rows
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
    """The marks of pinned texts. `marks`, by code: 0 if the text may be evicted, else the last round, 1 or 2, in which a row with
    the text was seen."""

    def __init__(self) -> None:
        self.marks: UInt8s = np.zeros(64, np.uint8)
        self.round = 1
        self.are_any = False
        self._written: dict[str, int] = {}
        """The position up to which the codes of new rows are marked, by part."""
        self._bytes: int | None = None
        """Bytes of the pinned texts at the last `find_pinned`; None if it was not called since the last round."""
        self._bytes_before = 0
        """Bytes of the pinned texts at the first `find_pinned` after the last round."""

    def __contains__(self, part: object) -> bool:
        """Whether the part of this name belongs to a window whose texts are pinned."""
        return part in self._written

    def reserve(self, count: int) -> None:
        """Makes room for codes below `count`."""
        self.marks = with_room(self.marks, len(self.marks), count)

    def mark_written(self, parts: Mapping[str, HasRows], count: int) -> None:
        """Marks the texts of the rows that a step wrote. `parts`: all parts of windows whose texts are pinned, always under the
        same names. All codes are below `count`."""
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
        """Marks these codes, which a restore gave to rows that `mark_written` does not reach. All codes are below `count`."""
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
        """Whether many pinned texts are likely to be of removed rows: their bytes exceed `bytes_min` and have doubled since the
        first `find_pinned` after the last round."""
        return self._bytes is not None and self._bytes > max(bytes_min, 2 * self._bytes_before)

    def find_pinned(self, texts: InternedTexts) -> TextPlaces:
        """Returns the places of all pinned texts except the empty one."""
        count = int(texts.state[COUNT])
        marks, in_use = self.marks[:count], texts.marks[:count]
        standing = TextPlaces.from_codes(texts, np.flatnonzero((marks != 0) & (in_use[: len(marks)] != 0)))
        size = int(standing.sizes.sum())
        self._bytes_before, self._bytes = size if self._bytes is None else self._bytes_before, size
        return standing


@dataclass(frozen=True, slots=True)
class TextPlaces:
    """The texts of `codes`, none of which is empty. `first`, `last`: the pages in which each begins and ends; `sizes`: bytes of
    each.
    """

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
