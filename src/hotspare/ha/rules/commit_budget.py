"""Determines the size of publishing transactions: smaller after a failure, larger again after successes.

The bus limits a transaction's time, whatever its size. One that did not end in time would not end in time when repeated, so the
next one is half as large, down to one row. It grows by a quarter with each success, while more outputs wait. A failure costs a
fence, so a size that failed is tried again only after RETRY_AFTER successes. Spares read what the active engine learned in its
description (`commit_sizes`). So a new active engine does not repeat the time-outs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

RETRY_AFTER = 32
"""The count of successful transactions before one is again as large as the last that failed."""


class CommitSizes(NamedTuple):
    """The size of the next transaction, and of the last that failed (`failed_rows` 0: that size no longer limits growth), for
    another engine to adopt."""

    rows: int
    bytes: int
    failed_rows: int
    failed_bytes: int


@dataclass(slots=True)
class CommitBudget:
    """The size of the next transaction over all streams of a group. `rows_max` and `bytes_max` are the limits of the settings."""

    rows_max: int
    bytes_max: int
    _rows: int = 0
    _bytes: int = 0
    _failed_rows: int = 0
    """The rows of the last transaction that failed; 0 once that size no longer limits growth."""
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
    def commit_sizes(self) -> CommitSizes:
        return CommitSizes(self._rows, self._bytes, self._failed_rows, self._failed_bytes)

    def adopt_sizes(self, lesson: CommitSizes) -> None:
        """Adopts the `commit_sizes` of another engine, cut to the limits of this engine."""
        self._rows, self._bytes = max(1, min(lesson.rows, self.rows_max)), max(1, min(lesson.bytes, self.bytes_max))
        self._failed_rows, self._failed_bytes = max(0, lesson.failed_rows), max(0, lesson.failed_bytes)
        self._held_back = 0

    def record_failure(self, rows: int, bytes_: int) -> None:
        """Halves the size after the failure of a transaction with `rows` and `bytes_`, whatever the error: an oversized transaction
        looks like an unreachable bus."""
        if rows:
            self._rows = max(1, min(self._rows, rows) // 2)
            self._bytes = max(1, min(self._bytes, bytes_) // 2)
            self._failed_rows, self._failed_bytes, self._held_back = rows, bytes_, 0

    def record_success(self) -> None:
        """Increases the size by a quarter after a successful transaction that left pending outputs, unless that reaches a size that
        failed lately."""
        rows = min(self.rows_max, self._rows + max(1, self._rows // 4))
        bytes_ = min(self.bytes_max, self._bytes + max(1, self._bytes // 4))
        if self._failed_rows and (rows >= self._failed_rows or bytes_ >= self._failed_bytes):
            self._held_back += 1
            if self._held_back < RETRY_AFTER:
                return
            self._failed_rows = 0
        self._rows, self._bytes = rows, bytes_
