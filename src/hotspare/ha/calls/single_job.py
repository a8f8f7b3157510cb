"""Runs periodic background work so that two runs never overlap."""

from __future__ import annotations

from collections.abc import Callable


class SingleJob:
    """Runs one kind of work in the background, at most once at a time. Only one thread may use it."""

    def __init__(self) -> None:
        self._is_running = False

    def start_unless_running(self, background: Callable[[Callable[[], None]], None], work: Callable[[], None]) -> None:
        """Passes `work` to `background`, unless the previous run has not ended. If no thread can be started (RuntimeError), this
        run is skipped: the work is never urgent."""
        if self._is_running:
            return
        self._is_running = True

        def run() -> None:
            try:
                work()
            finally:
                self._is_running = False

        try:
            background(run)
        except RuntimeError:
            self._is_running = False
