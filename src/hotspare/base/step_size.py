"""The size of a step, adapted so that a step is short relative to a lease. It follows measured times, because a row of one project
may cost a thousand times another's.

An engine counts as alive by its finished steps. The cuts between steps do not change the outputs (law Cut).
"""

from __future__ import annotations

STEP_ROWS_MIN = 1_000
"""With fewer rows, the fixed cost of a step would be most of its time."""
STEP_ROWS_MAX = 100_000
"""An engine processes this many rows of a usual project in some hundredths of a second."""
PART_ROWS_MIN = 16
"""The outputs of one input row are published at least this many rows at a time, however slow they are."""
STEP_BYTES_MIN = 16 * 1024
STEP_BYTES_MAX = 2 * 1024 * 1024
"""An engine decodes this many bytes in some tens of milliseconds."""
STEP_MS = 100
"""The longest that a step should take: a tenth of a lease."""


class StepSize:
    """The size of the next step, from `least` to `most`, in any unit. The size begins low, and doubles after a step that used at
    least half of it in less than half of `step_ms`. After a step longer than `step_ms` it falls at once to the size that would
    have fitted."""

    def __init__(self, least: int, most: int, step_ms: float = STEP_MS) -> None:
        self._least, self._most, self._step_ms = least, most, step_ms
        self.next = max(least, most // 64)

    def record_step(self, amount: int, took_ms: float) -> None:
        """Records a step of size `amount` that took `took_ms`."""
        if took_ms > self._step_ms and amount > self._least:
            self.next = max(self._least, min(self.next, int(amount * self._step_ms / took_ms)))
        elif 2 * amount >= self.next and 2 * took_ms < self._step_ms:
            self.next = min(self._most, 2 * self.next)
