"""Work in the background of which there is never more than one at a time, and which is taken up again by itself."""

from __future__ import annotations

from collections.abc import Callable


class SingleJob:
    """Of one kind of work; used by one thread, beside those that do the work."""

    def __init__(self) -> None:
        self._is_running = False

    def begin(self, background: Callable[[Callable[[], None]], None], work: Callable[[], None]) -> None:
        """Hand `work` to `background`, unless it is still under way. Where no thread is to be had (RuntimeError), it is left for
        the next time: nothing that waits for it is urgent."""
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
