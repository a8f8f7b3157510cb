"""Background work that never runs twice at a time, and that is repeated periodically."""

from __future__ import annotations

from collections.abc import Callable


class SingleJob:
    """Runs one kind of work in the background, at most once at a time. Used by one thread."""

    def __init__(self) -> None:
        self._is_running = False

    def start_unless_running(self, background: Callable[[Callable[[], None]], None], work: Callable[[], None]) -> None:
        """Passes `work` to `background`, unless it is still under way. If no thread can be started (RuntimeError), skips it until
        the next call: the work is never urgent."""
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
