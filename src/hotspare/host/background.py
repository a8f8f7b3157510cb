"""Runs what may take long, or never end (a call to a store), beside the engine: each job in a thread of its own, calls to the bus
in threads that stay, as a bus keeps a connection for each thread that uses it.

How many may be under way or stuck is the caller's to bound (`ha.rules.decide`). The threads are daemons: one that hangs in a call
keeps the process from nothing, not from its end either.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

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


_Calls = SimpleQueue["_CallBeside"]


class _CallBeside:
    """One that was begun (`ha.calls.underway.Underway`)."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._error: Exception | None = None
        self.over = threading.Event()

    def run(self) -> None:
        try:
            self._call()
        except Exception as error:
            self._error = error

    @property
    def is_over(self) -> bool:
        return self.over.is_set()

    def wait(self) -> None:
        self.over.wait()
        if self._error is not None:
            raise self._error


class Beside:
    """Thread-safe. `on_end` is called in the other thread behind each call, and must not block or raise.

    A call that hangs keeps none behind it waiting: they have another thread. The threads are daemons.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._lock = threading.Lock()
        self._idle: list[_Calls] = []
        self._newest: _CallBeside | None = None

    def begin(self, call: Callable[[], None]) -> _CallBeside:
        """Make the call in another thread. RuntimeError where none can be had."""
        made = _CallBeside(call)
        with self._lock:
            calls = self._idle.pop() if self._idle else self._started()
            self._newest = made
        calls.put(made)
        return made

    def close(self) -> None:
        """Wait for the newest call, but not for ever: behind it a bus can be closed. Older ones hang."""
        if self._newest is not None:
            self._newest.over.wait(CLOSE_WAIT_S)

    def _started(self) -> _Calls:
        calls: _Calls = SimpleQueue()
        threading.Thread(target=self._work, args=(calls,), name="hotspare-beside", daemon=True).start()
        return calls

    def _work(self, calls: _Calls) -> None:
        while True:
            made = calls.get()
            made.run()
            with self._lock:
                self._idle.append(calls)
            made.over.set()
            self._on_end()
