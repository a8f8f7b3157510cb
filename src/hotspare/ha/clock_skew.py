"""How far an engine's clock is ahead of a bus's, seen by the messages that it reads: for people; nothing is decided by it.

A message is read some time after it was appended, so the difference of the clocks is at most the least of what its reader's clock
shows beyond its append time. Only messages that were read as they came say anything.
"""

from __future__ import annotations

from dataclasses import dataclass

WINDOW_MS = 10_000


@dataclass(slots=True)
class ClockSkew:
    """Of one inbound partition: the least of the last one to two windows."""

    _least_us: int | None = None
    _before_us: int | None = None
    _since_ms: int = 0

    def note(self, now_ms: int, read_time_us: int, append_time_us: int) -> None:
        """A message that was read at `read_time_us` by this engine's clock. `now_ms` only rises."""
        late_us = read_time_us - append_time_us
        if self._least_us is None or now_ms - self._since_ms >= WINDOW_MS:
            self._before_us = self._least_us if now_ms - self._since_ms < 2 * WINDOW_MS else None
            self._least_us, self._since_ms = late_us, now_ms
        self._least_us = min(self._least_us, late_us)

    @property
    def ahead_ms(self) -> int | None:
        """By how much this engine's clock is ahead, at most; negative where the bus's is. None while nothing is known."""
        if self._least_us is None:
            return None
        least_us = self._least_us if self._before_us is None else min(self._least_us, self._before_us)
        return least_us // 1000
