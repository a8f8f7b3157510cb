"""The right of an adapter to work: asked to stop, or its lease over, it has none (SPEC C14).

A turn is what ends an adapter's work, so it is an event like the one that Ctrl-C sets. It ends by itself on this process's own
clock: an instance that was frozen past its lease finds it over with its first look, before anybody has told it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from hotspare.base.file_locks import end_if_stopped
from hotspare.telemetry.log import Log, LogEvent

LOCKED_S = 1.0
"""How long a lock may hinder before something is done about its holder."""


class Turn(threading.Event):
    """Set once the right is over. `epoch` rises from turn to turn of a group; 0 stands for an adapter without a group.

    Whoever works looks at it again and again: that is the sign that the work goes on (`unseen_s`).
    """

    def __init__(self, epoch: int = 0, clock: Callable[[], float] = time.monotonic, locked_s: float = LOCKED_S) -> None:
        super().__init__()
        self.epoch = epoch
        self._locked_s = locked_s
        self._clock = clock
        self._until_s = float("inf")
        self._locked_since_s: float | None = None
        self._seen_s: float | None = clock()
        """When the work last looked here; None while it waits here."""

    def extend(self, until_s: float) -> None:
        """The right lasts until then, in seconds of the clock; a turn that is over stays over."""
        if not self.is_over():
            self._until_s = until_s

    def is_set(self) -> bool:
        self._seen_s = self._clock()
        return self.is_over()

    def is_over(self) -> bool:
        """The same, asked by somebody else than the work."""
        if not super().is_set() and self._clock() >= self._until_s:
            self.set()
        return super().is_set()

    def unseen_s(self) -> float:
        """For how long the work has not looked here; 0 while it waits here."""
        seen_s = self._seen_s
        return 0.0 if seen_s is None else self._clock() - seen_s

    def wait(self, timeout: float | None = None) -> bool:
        """As an event's, but never longer than the right lasts."""
        self._seen_s = None
        left_s = self._until_s - self._clock()
        limit_s = left_s if timeout is None else min(timeout, left_s)
        super().wait(None if limit_s == float("inf") else max(0.0, limit_s))
        return self.is_set()

    def hindered(self, holder: Callable[[], tuple[int, int] | None]) -> None:
        """A lock is in the way, again; call `unhindered` when it is not. `holder` tells who holds it (process id, start), if that
        is known. Whoever is stopped with it is ended after a while: it may never go on, and nobody else gets the lock."""
        now_s = self._clock()
        if self._locked_since_s is None:
            self._locked_since_s = now_s
        elif now_s - self._locked_since_s >= self._locked_s:
            self._locked_since_s = now_s
            found = holder()
            if found is not None and end_if_stopped(*found):
                Log().event(LogEvent.LOCK_HOLDER_ENDED, process_id=found[0])

    def unhindered(self) -> None:
        self._locked_since_s = None
