"""The standing of one connector of an engine: noted by the threads that do its work, read by the engine's member record."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from hotspare.adapters.failover.patience import TOLD_EACH_S
from hotspare.adapters.start_order import ConnectorState
from hotspare.ha.ports import ConnectorFacts

_TROUBLE_S = TOLD_EACH_S + 5
"""How long after it was reported a trouble counts as lasting, unless rows are moved before: it is reported again while it does."""


class ConnectorStanding:
    """State, rows and last error of a connector since it was started. Thread-safe."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.state = ConnectorState.WAITING
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._rows = 0
        self._last_error = ""
        self._next_try_s: float | None = None
        self._troubled_s: float | None = None

    def began(self) -> None:
        """The work begins, for the first time or again."""
        self._now(ConnectorState.RUNNING)

    def ended(self, state: ConnectorState) -> None:
        self._now(state)

    def failed(self, error: str, pause_s: float) -> None:
        """The work failed, and begins again after `pause_s`."""
        self._now(ConnectorState.FAILED, error, self._clock_s() + pause_s)

    def _now(self, state: ConnectorState, error: str = "", next_try_s: float | None = None) -> None:
        with self._lock:
            self.state, self._next_try_s, self._troubled_s = state, next_try_s, None
            self._last_error = error or self._last_error

    def troubled(self, error: str) -> None:
        """The work waits until what keeps it from going on has passed. Called again while it lasts."""
        with self._lock:
            self._last_error, self._troubled_s = error, self._clock_s()

    def add(self, rows: int) -> None:
        self._moved(self._rows + rows)

    def counter(self) -> Callable[[int], None]:
        """Returns a callable that gets how many rows an attempt has moved so far, again and again."""
        before = self._rows
        return lambda rows: self._moved(before + rows)

    def _moved(self, rows: int) -> None:
        with self._lock:
            if rows != self._rows:
                self._rows, self._troubled_s = rows, None

    def facts(self) -> ConnectorFacts:
        """Returns what people are shown: a connector that runs, but has a trouble, is waiting."""
        with self._lock:
            now_s = self._clock_s()
            retry_in_ms = None if self._next_try_s is None else int(max(0.0, self._next_try_s - now_s) * 1000)
            is_troubled = self._troubled_s is not None and now_s - self._troubled_s < _TROUBLE_S
            state = ConnectorState.WAITING if is_troubled and self.state is ConnectorState.RUNNING else self.state
            return ConnectorFacts(state.value, self._rows, self._last_error, retry_in_ms)
