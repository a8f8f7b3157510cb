"""Repeats a task in the background while a slow call is under way: an engine keeps its lease during a slow call of the bus."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

IDLE_THREAD_S = 2.0


class BackgroundRepeater:
    """Calls `task` every `every_ms` in another thread while the block of `with repeater(task, every_ms)` runs, until the task
    returns False.

    The first call follows after `every_ms`. The task must not raise, and may still run when the block has ended. Only one block may
    run at a time. Most blocks end before the first call, so the thread waits for the next block and need not be woken. The thread
    ends after `rest_s` seconds without a task; the next block starts another one.
    """

    def __init__(self, rest_s: float = IDLE_THREAD_S) -> None:
        self._rest_s = rest_s
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._task: Callable[[], bool] | None = None
        self._every_s = 0.0
        self._due_s = 0.0

    @contextlib.contextmanager
    def __call__(self, task: Callable[[], bool], every_ms: int) -> Iterator[None]:
        with self._lock:
            is_sooner = every_ms / 1000 < self._every_s
            self._task, self._every_s = task, every_ms / 1000
            self._due_s = time.monotonic() + self._every_s
            if self._thread is None:
                self._thread = threading.Thread(target=self._repeat, name="hotspare-meanwhile", daemon=True)
                self._thread.start()
            elif is_sooner:
                self._changed.notify()
        try:
            yield
        finally:
            with self._lock:
                self._task = None

    def _repeat(self) -> None:
        try:
            while (task := self._next()) is not None:
                continues = task()
                with self._lock:
                    if self._task is task:
                        self._task = task if continues else None
                        self._due_s = time.monotonic() + self._every_s
        finally:
            with self._lock:  # even if a task raises: the next block gets a thread
                if self._thread is threading.current_thread():
                    self._thread = None

    def _next(self) -> Callable[[], bool] | None:
        """Waits until a task is due and returns it. Returns None after `rest_s` seconds without a task; the thread then ends."""
        with self._lock:
            rests_s = time.monotonic() + self._rest_s
            while True:
                now_s = time.monotonic()
                if self._task is not None and now_s >= self._due_s:
                    return self._task
                if self._task is not None:
                    rests_s = now_s + self._rest_s
                elif now_s >= rests_s:
                    self._thread = None
                    return None
                # a task set meanwhile is due no sooner than this, or notifies
                wait_s = self._every_s if self._task is None else self._due_s - now_s
                self._changed.wait(max(0.0, min(wait_s, rests_s - now_s)))
