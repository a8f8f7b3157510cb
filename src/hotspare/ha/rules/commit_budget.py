"""How much goes into one publishing transaction: less after one that failed, more again after those that did not.

The bus gives a transaction a certain time, whatever is in it. One that did not end in time would not the next time either, so the
next one is half as large, down to one row; it grows by a quarter with every one that succeeds, while more waits. A failure costs a
fence, so a size that failed is tried again only after many that succeeded. What the active engine learned its spares read in its
description (`lesson`), so that whoever takes over does not learn it anew, at the price of a time-out for each try.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

RETRY_AFTER = 32
"""So many transactions succeed before one is as large again as the last that failed."""


class Lesson(NamedTuple):
    """What another engine goes on with as this one would: how much the next transaction takes, and how much the last one had that
    failed (0 rows: that is no bound any more)."""

    rows: int
    bytes: int
    failed_rows: int
    failed_bytes: int


@dataclass(slots=True)
class CommitBudget:
    """Over all streams of a group. `rows_max` and `bytes_max` are what the settings allow."""

    rows_max: int
    bytes_max: int
    _rows: int = 0
    _bytes: int = 0
    _failed_rows: int = 0
    """Of the last transaction that failed; 0 where it is no bound any more."""
    _failed_bytes: int = 0
    _held_back: int = 0

    def __post_init__(self) -> None:
        self._rows, self._bytes = self.rows_max, self.bytes_max

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def lesson(self) -> Lesson:
        return Lesson(self._rows, self._bytes, self._failed_rows, self._failed_bytes)

    def follow(self, lesson: Lesson) -> None:
        """Go on with another engine's `lesson`."""
        self._rows, self._bytes = max(1, min(lesson.rows, self.rows_max)), max(1, min(lesson.bytes, self.bytes_max))
        self._failed_rows, self._failed_bytes = max(0, lesson.failed_rows), max(0, lesson.failed_bytes)
        self._held_back = 0

    def note_failed(self, rows: int, bytes_: int) -> None:
        """A transaction of so much failed, whatever the reason: that it was too large cannot be told from a bus that was away."""
        if rows:
            self._rows = max(1, min(self._rows, rows) // 2)
            self._bytes = max(1, min(self._bytes, bytes_) // 2)
            self._failed_rows, self._failed_bytes, self._held_back = rows, bytes_, 0

    def note_succeeded(self) -> None:
        """A transaction succeeded that left something for the next one."""
        rows = min(self.rows_max, self._rows + max(1, self._rows // 4))
        bytes_ = min(self.bytes_max, self._bytes + max(1, self._bytes // 4))
        if self._failed_rows and (rows >= self._failed_rows or bytes_ >= self._failed_bytes):
            self._held_back += 1
            if self._held_back < RETRY_AFTER:
                return
            self._failed_rows = 0
        self._rows, self._bytes = rows, bytes_
