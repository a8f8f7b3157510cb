"""Says how many events are due at a given rate, on a schedule that does not drift."""

from __future__ import annotations

import time
from collections.abc import Callable

_GROUP_S = 0.005
"""Events due within this time go out together, so that a high rate does not become as many transactions."""


class EventPace:
    """Event k is due at k / rate seconds after the first. `rate` 0 means as fast as possible. `clock` gives seconds."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._begin_s = clock()
        self._sent = 0

    def due(self, events_max: int) -> int:
        """How many events may go out now, at most `events_max`."""
        if not self._rate:
            return events_max
        return min(events_max, int((self._clock() - self._begin_s) * self._rate) + 1 - self._sent)

    def wait_s(self) -> float:
        """How long until more are due."""
        if not self._rate:
            return 0.0
        next_s = self._begin_s + self._sent / self._rate - self._clock()
        return max(next_s, _GROUP_S if self._rate * _GROUP_S > 1 else 0.0)

    def sent(self, events: int) -> None:
        self._sent += events

    def restart(self) -> None:
        """Begin a new schedule: nothing was there to send, and that is not to be made up for."""
        self._begin_s = self._clock()
        self._sent = 0
