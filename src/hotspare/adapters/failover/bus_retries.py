"""Retries a call of the bus while that is unreachable, and reports the error if it lasts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from hotspare.adapters.failover.turn import Turn
from hotspare.base.errors import BusError, BusLocked, UnknownResult
from hotspare.base.retry import Retry

_T = TypeVar("_T")

UNREACHABLE_RETRY = Retry(tries_max=1200, pause_s=0.05)
"""Tries of a call while the bus is unreachable, about a minute, before an adapter gives up."""
REPORT_AFTER_S = 2.0
"""The time for which a trouble lasts before it is reported."""
REPORT_INTERVAL_S = 60.0
"""The time between reports of a lasting trouble."""


class StopRequested(Exception):
    """Raised by `BusRetries` if a stop is requested while it waits for the bus."""


class BusRetries:
    """The retries of one adapter. `told` gets the error of a trouble that lasts `report_after_s` without a call of
    `clear_trouble`. A lock that blocks the adapter is reported to `stop`, if that is a Turn (`Turn.record_lock_blocked`)."""

    def __init__(
        self, stop: threading.Event, told: Callable[[BusError], None] = lambda error: None, report_after_s: float = REPORT_AFTER_S
    ) -> None:
        self._stop, self._silent_s = stop, report_after_s
        self._told = told
        self._since_s: float | None = None
        self._tell_at_s = 0.0

    def __call__(self, call: Callable[[], _T]) -> _T:
        """Returns the call's result. StopRequested on a stop; the call's own error if it is not retryable, or all tries of
        UNREACHABLE_RETRY failed."""
        result = UNREACHABLE_RETRY.call(call, self._passes, self._wait)
        if isinstance(self._stop, Turn):
            self._stop.record_lock_free()
        return result

    def try_append(self, append: Callable[[], bool]) -> bool:
        """Returns whether the append is known to be written. False also if no answer arrived: the caller then reads the position
        from the bus. Raises StopRequested on a stop, and other errors as `__call__` does."""
        try:
            if not self(append):
                return False
        except UnknownResult as error:
            self.pause(error)
            return False
        self.clear_trouble()
        return True

    def pause(self, trouble: BusError) -> None:
        """Pauses shortly after a failure, and reports the failure if it lasts. StopRequested on a stop."""
        self._report_if_lasting(trouble)
        self._wait(UNREACHABLE_RETRY.pause_s)

    def _passes(self, error: Exception) -> bool:
        if not isinstance(error, BusError) or not error.retryable:
            return False
        self._record_blocked(error)
        self._report_if_lasting(error)
        return True

    def _wait(self, pause_s: float) -> None:
        if self._stop.wait(pause_s):
            raise StopRequested

    def _report_if_lasting(self, trouble: BusError) -> None:
        now_s = time.monotonic()
        self._since_s = now_s if self._since_s is None else self._since_s
        if now_s - self._since_s >= self._silent_s and now_s >= self._tell_at_s:
            self._told(trouble)
            self._tell_at_s = now_s + REPORT_INTERVAL_S

    def clear_trouble(self) -> None:
        """Records that the work continues, so that no trouble lasts."""
        self._since_s, self._tell_at_s = None, 0.0

    def _record_blocked(self, error: BusError) -> None:
        if isinstance(error, BusLocked) and isinstance(self._stop, Turn):
            self._stop.record_lock_blocked(lambda: error.holder)
