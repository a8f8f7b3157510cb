"""How large a step may be so that it is short beside a lease: measured, as rows of one project cost a thousand times another's.

An engine counts as alive by the steps that it has done. Where input is cut changes nothing in what comes of it (law Cut).
"""

from __future__ import annotations

STEP_ROWS_MIN = 1_000
"""Fewer rows are not worth a step: what comes with every step would be most of it."""
STEP_ROWS_MAX = 100_000
"""An engine works on so many rows of a usual project in some hundredths of a second."""
PART_ROWS_MIN = 16
"""What one row causes is put out at least so many rows at a time, however slow they are."""
STEP_BYTES_MIN = 16 * 1024
STEP_BYTES_MAX = 2 * 1024 * 1024
"""And it decodes so much in some tens of milliseconds."""
STEP_MS = 100
"""How long a step should take at most: a tenth of a lease."""


class StepSize:
    """What the next step takes: between `least` and `most`, of whatever unit. It begins low, doubles after a step that used
    it well and took less than half of `step_ms`, and falls at once to what would have fitted."""

    def __init__(self, least: int, most: int, step_ms: float = STEP_MS) -> None:
        self._least, self._most, self._step_ms = least, most, step_ms
        self.next = max(least, most // 64)

    def note(self, amount: int, took_ms: float) -> None:
        """A step with `amount` took so long."""
        if took_ms > self._step_ms and amount > self._least:
            self.next = max(self._least, min(self.next, int(amount * self._step_ms / took_ms)))
        elif 2 * amount >= self.next and 2 * took_ms < self._step_ms:
            self.next = min(self._most, 2 * self.next)
