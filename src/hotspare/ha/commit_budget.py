"""How much goes into one publishing transaction: less after one that failed, more again after those that did not.

The bus gives a transaction a certain time, whatever is in it. One that did not end in time would not the next time either, so the
next one is half as large, down to one row; it grows by a quarter with every one that succeeds, while more waits.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CommitBudget:
    """Over all streams of a group. `rows_max` and `bytes_max` are what the settings allow."""

    rows_max: int
    bytes_max: int
    _rows: int = 0
    _bytes: int = 0

    def __post_init__(self) -> None:
        self._rows, self._bytes = self.rows_max, self.bytes_max

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def bytes(self) -> int:
        return self._bytes

    def note_failed(self, rows: int, bytes_: int) -> None:
        """A transaction of so much failed, whatever the reason: that it was too large cannot be told from a bus that was away."""
        if rows:
            self._rows = max(1, min(self._rows, rows) // 2)
            self._bytes = max(1, min(self._bytes, bytes_) // 2)

    def note_succeeded(self) -> None:
        """A transaction succeeded that left something for the next one."""
        self._rows = min(self.rows_max, self._rows + max(1, self._rows // 4))
        self._bytes = min(self.bytes_max, self._bytes + max(1, self._bytes // 4))
