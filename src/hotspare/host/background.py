"""Runs what may take long (encoding and writing a snapshot) beside the engine, one job at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class Background:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hotspare-background")
        self._closed = threading.Event()

    def run(self, job: Callable[[], None]) -> None:
        """Run `job` later; jobs given after `close` are dropped. A job reports its own failure."""
        if not self._closed.is_set():
            self._pool.submit(job)

    def close(self) -> None:
        """Wait for the job under way; those that have not begun are dropped."""
        self._closed.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
