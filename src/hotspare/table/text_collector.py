"""Forgets strings that no row holds, a little after each step: mark and sweep, in pieces that are bounded whatever there is.

    rest ─► mark: codes in rows ─► purge: the index ─► free: codes without a mark ─► move: text out of sparse pages ─► rest

- **Mark** goes through the rows of each window in the order in which they were written. Rows do not change once they are written,
  and new ones come behind all others, so when it is behind the newest row of every window, every code in a row is marked. Codes
  that come in with new text meanwhile, or were known already, are marked at once.
- **Purge** takes strings without a mark out of the index that finds them. One that comes again before that is marked, and stays;
  one that comes later is a new one.
- **Free** goes through all codes, and gives those without a mark free. A code in use never changes, so rows, their indexes and what
  waits are left alone.
- **Move** brings pages of text that are less than half full together, and gives their memory back.

A round begins when codes in use, or the bytes of their strings, are twice as many as at the end of the round before, and as
`collect_codes_min` or `collect_bytes_min` of `Tuning`; where strings left memory a quarter more is enough. So strings that nothing
holds are at most as many as those that something holds, or those bounds, and what comes in while a round goes on: each new string
pays for looking at `looks_a_string` codes. When a round is over, text takes at most twice the memory of the strings that there are.

When it happens shows nowhere: codes are in no output, no digest and no snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol, runtime_checkable

import numpy as np

from hotspare.rows import tuning
from hotspare.rows.chunk import UInt8s
from hotspare.table.strings import StringTable

TIMES_WHERE_SHORT = 1.25
"""A round begins where there are so many times as many as at the end of the one before, if there is no memory for all of them."""


@runtime_checkable
class HoldsCodes(Protocol):
    """A part of a page whose rows hold codes. Rows have positions, rising as they are written; each is written once."""

    @property
    def codes_per_row(self) -> int: ...

    @property
    def written(self) -> int:
        """The position behind the newest row."""

    def mark(self, marks: UInt8s, mark: int, since: int, rows: int) -> int:
        """Mark the codes in rows from position `since` on, in so many or a few more; the position up to which that is done."""


class _Phase(Enum):
    REST = "rest"
    MARK = "mark"
    PURGE = "purge"
    FREE = "free"
    MOVE = "move"


class TextCollector:
    """How far the round is. A copy, or one that is sent, is at rest: what it would have forgotten the next round finds."""

    def __init__(self) -> None:
        self._tuning = tuning.current()
        self._phase = _Phase.REST
        self._marked: dict[str, tuple[int, int]] = {}
        """By part, the position up to which rows are marked, and that behind the newest row then."""
        self._next = 0
        """The next segment of the index, or code, to look at."""
        self._sparse: UInt8s = np.zeros(0, np.uint8)
        self._live_codes = self._live_bytes = 0
        """When the last round was over."""
        self._given = 0
        """How many strings had been given a code when this was called last."""

    @property
    def is_resting(self) -> bool:
        return self._phase is _Phase.REST

    def wants_round(self, strings: StringTable) -> bool:
        """Whether forgetting is likely to halve the table, or to make a fifth of it free where memory is short."""
        times = TIMES_WHERE_SHORT if strings.has_left else 2
        codes_min, bytes_min = self._tuning.collect_codes_min, self._tuning.collect_bytes_min
        is_long = strings.live > max(codes_min, times * self._live_codes) or strings.staying.wants_round(bytes_min)
        return is_long or strings.bytes > max(bytes_min, times * self._live_bytes)

    def go_on(self, strings: StringTable, parts: Callable[[], Mapping[str, HoldsCodes]], rows: int) -> None:
        """After a step of so many rows: begin a round where that is worth it, and go on with the one that is under way. `parts`:
        all that hold codes, always under the same names."""
        strings.give_free()
        sizes = self._tuning
        looks = sizes.looks_min + sizes.looks_a_row * rows + sizes.looks_a_string * (strings.given - self._given)
        self._given = strings.given
        if self.is_resting:
            if not self.wants_round(strings):
                return
            self.begin(strings)
        if self._phase is _Phase.MARK:
            looks = self._mark(strings, parts(), looks)
        if self._phase is _Phase.PURGE and looks > 0:
            looks = self._purge(strings, looks)
        if self._phase is _Phase.FREE and looks > 0:
            self._free(strings, looks)
        elif self._phase is _Phase.MOVE:
            self._move(strings, looks)

    def begin(self, strings: StringTable) -> None:
        """Begin a round, at rest."""
        strings.begin_round()
        self._phase, self._marked = _Phase.MARK, {}

    def finish(self, strings: StringTable, parts: Callable[[], Mapping[str, HoldsCodes]]) -> None:
        """End the round that is under way."""
        while not self.is_resting:
            self.go_on(strings, parts, 0)

    def __reduce__(self) -> tuple[type[TextCollector], tuple[()]]:
        return TextCollector, ()

    def _mark(self, strings: StringTable, parts: Mapping[str, HoldsCodes], looks: int) -> int:
        """The looks that are left. What was written since the last call is marked beside them: so marking ends, however much is
        written."""
        is_done = True
        for name, part in parts.items():
            position, written_before = self._marked.get(name, (0, part.written))
            written, width = part.written, part.codes_per_row
            if width and position < written:
                extra = written - written_before
                rows = extra + max(0, looks) // width
                reached = part.mark(strings.marks, strings.round, position, rows)
                if name in strings.staying:
                    part.mark(strings.staying.marks, strings.staying.round, position, rows)
                looks -= max(0, reached - position - extra) * width
                position = reached
            self._marked[name] = position, written
            is_done = is_done and (not width or position == written)
        if is_done:
            self._phase, self._next = _Phase.PURGE, 0
        return looks

    def _purge(self, strings: StringTable, looks: int) -> int:
        """The looks that are left."""
        self._next, looks = strings.purge(self._next, looks)
        if self._next < 0:
            self._phase, self._next = _Phase.FREE, 1
        return looks

    def _free(self, strings: StringTable, looks: int) -> None:
        self._next = strings.free_unmarked(self._next, looks)
        if self._next < strings.count:
            return
        strings.end_round()
        self._live_codes, self._live_bytes = strings.live, strings.bytes
        self._sparse, self._next = strings.sparse_pages(), 1
        self._phase = _Phase.MOVE if self._sparse.any() else _Phase.REST

    def _move(self, strings: StringTable, looks: int) -> None:
        self._next = strings.move_text(self._sparse, self._next, looks)
        if self._next >= strings.count:
            self._phase, self._sparse = _Phase.REST, np.zeros(0, np.uint8)
