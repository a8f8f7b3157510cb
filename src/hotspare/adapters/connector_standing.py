"""What one connector of an engine is doing: noted by the threads that do its work, read by the engine's member record."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from hotspare.adapters.start_order import ConnectorState
from hotspare.ha.ports import ConnectorFacts


class ConnectorStanding:
    """State, rows and last error of a connector since it was started. Thread-safe."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.state = ConnectorState.WAITING
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._rows = 0
        self._last_error = ""
        self._next_try_s: float | None = None

    def began(self) -> None:
        """The work begins, for the first time or again."""
        with self._lock:
            self.state, self._next_try_s = ConnectorState.RUNNING, None

    def ended(self, state: ConnectorState) -> None:
        with self._lock:
            self.state, self._next_try_s = state, None

    def failed(self, error: str, pause_s: float) -> None:
        """The work failed, and begins again after `pause_s`."""
        with self._lock:
            self.state, self._last_error, self._next_try_s = ConnectorState.FAILED, error, self._clock_s() + pause_s

    def troubled(self, error: str) -> None:
        """The work waits until what keeps it from going on has passed."""
        with self._lock:
            self._last_error = error

    def add(self, rows: int) -> None:
        with self._lock:
            self._rows += rows

    def counter(self) -> Callable[[int], None]:
        """Returns a callable that gets how many rows an attempt has moved so far, again and again."""
        before = self._rows

        def count(rows: int) -> None:
            with self._lock:
                self._rows = before + rows

        return count

    def facts(self) -> ConnectorFacts:
        with self._lock:
            again_s = None if self._next_try_s is None else max(0.0, self._next_try_s - self._clock_s())
            retry_in_ms = None if again_s is None else int(again_s * 1000)
            return ConnectorFacts(self.state.value, self._rows, self._last_error, retry_in_ms)
