"""One batch is worked on while Spark reads the next: what foreachBatch gives is handed to a thread, one at a time, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Relay:
    """At most one task is being worked on, and nothing waits behind it. `give` and `idle` may be called from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._task: Callable[[], None] | None = None
        self._closed = False
        threading.Thread(target=self._work, name="relay", daemon=True).start()

    def give(self, task: Callable[[], None]) -> None:
        """Returns when the task before this one is done. `task` must not raise. After `close` nothing is worked on."""
        with self._changed:
            self._changed.wait_for(lambda: self._task is None or self._closed)
            if not self._closed:
                self._task = task
                self._changed.notify_all()

    def idle(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing is worked on; False where that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: self._task is None, timeout_s)

    def close(self) -> None:
        """What is worked on is finished; whoever waits to give something need not wait any longer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._task is not None or self._closed)
                task = self._task
            if task is None:
                return
            task()
            with self._changed:
                self._task = None
                self._changed.notify_all()
