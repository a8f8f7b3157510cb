"""Runs what may take long, or never end (a call to a store), beside the engine: each job in a thread of its own.

How many may be under way or stuck is the caller's to bound (`ha.rules.decide`). The threads are daemons: one that hangs in a call
keeps the process from nothing, not from its end either.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

CLOSE_WAIT_S = 10.0


class Background:
    def __init__(self, close_wait_s: float = CLOSE_WAIT_S) -> None:
        self._close_wait_s = close_wait_s
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._is_closed = False

    def run(self, job: Callable[[], None]) -> None:
        """Run `job` in another thread; jobs given after `close` are dropped. A job tells its own end.

        RuntimeError where no thread can be had."""
        with self._lock:
            if self._is_closed:
                return
            thread = threading.Thread(target=self._run, args=(job,), name="hotspare-background", daemon=True)
            self._threads.add(thread)
            try:
                thread.start()
            except RuntimeError:
                self._threads.discard(thread)
                raise

    def close(self) -> None:
        """Wait for the jobs under way, but not for ever."""
        with self._lock:
            self._is_closed = True
            threads = list(self._threads)
        deadline_s = time.monotonic() + self._close_wait_s
        for thread in threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _run(self, job: Callable[[], None]) -> None:
        try:
            job()
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
