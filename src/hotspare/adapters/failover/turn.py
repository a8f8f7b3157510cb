"""A turn is the right of an adapter to work; it ends on a stop request or with the lease (SPEC C14).

The adapter stops when its turn ends, so a turn is an event that is set at its end, like the stop event of Ctrl-C. A turn also
expires by this process's own clock: an instance that was frozen past its lease finds the turn over at its first check, without a
message from other processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from hotspare.base.file_locks import end_if_stopped
from hotspare.telemetry.log import Log, LogEvent

LOCK_BLOCKED_S_MAX = 1.0
"""The time for which a lock may block the work before its holder is ended if it is stopped."""


class Turn(threading.Event):
    """An event that is set once the right to work is over. `epoch` rises from turn to turn of a group; 0 is an adapter without a
    group.

    The worker checks it repeatedly, which shows that the work makes progress (`unchecked_s`).
    """

    def __init__(self, epoch: int = 0, clock: Callable[[], float] = time.monotonic, locked_s: float = LOCK_BLOCKED_S_MAX) -> None:
        super().__init__()
        self.epoch = epoch
        self._locked_s = locked_s
        self._clock = clock
        self._until_s = float("inf")
        self._locked_since_s: float | None = None
        self._seen_s: float | None = clock()
        """The time of the work's last check; None while it waits in `wait`."""

    def extend(self, until_s: float) -> None:
        """Extends the right until `until_s`, in seconds of the clock; a turn that is over stays over."""
        if not self.is_over():
            self._until_s = until_s

    def is_set(self) -> bool:
        self._seen_s = self._clock()
        return self.is_over()

    def is_over(self) -> bool:
        """Whether the turn is over, for other callers than the work: does not count as a check of the work."""
        if not super().is_set() and self._clock() >= self._until_s:
            self.set()
        return super().is_set()

    def unchecked_s(self) -> float:
        """Returns the time since the work's last check; 0 while it waits in `wait`."""
        seen_s = self._seen_s
        return 0.0 if seen_s is None else self._clock() - seen_s

    def wait(self, timeout: float | None = None) -> bool:
        """Waits as an event does, but no longer than the right lasts. Returns whether the turn is over."""
        self._seen_s = None
        left_s = self._until_s - self._clock()
        limit_s = left_s if timeout is None else min(timeout, left_s)
        super().wait(None if limit_s == float("inf") else max(0.0, limit_s))
        return self.is_set()

    def record_lock_blocked(self, holder: Callable[[], tuple[int, int] | None]) -> None:
        """Records that a lock still blocks the work; call `record_lock_free` once it does not. `holder` returns its holder (process
        id, start), None if unknown. A holder that is stopped is killed after `locked_s`, because it might never continue, and no
        other process would get the lock."""
        now_s = self._clock()
        if self._locked_since_s is None:
            self._locked_since_s = now_s
        elif now_s - self._locked_since_s >= self._locked_s:
            self._locked_since_s = now_s
            found = holder()
            if found is not None and end_if_stopped(*found):
                Log().event(LogEvent.LOCK_HOLDER_ENDED, process_id=found[0])

    def record_lock_free(self) -> None:
        self._locked_since_s = None
