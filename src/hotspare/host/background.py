"""Runs calls that may take long, or never return (calls to a store), concurrently with the engine. Each job has a thread of its
own; calls to the bus reuse threads, because a bus opens a connection for each thread that uses it.

The caller bounds how many jobs run or hang at a time (`ha.rules.decide`). The threads are daemons: a thread that hangs in a call
does not keep the process from ending.
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
        """Runs `job` in another thread; after `close` it drops the job. The job itself reports its end and its error.

        Raises RuntimeError if no thread can be started.
        """
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
        """Waits for the running jobs, at most `close_wait_s`, and drops later ones."""
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


_Calls = SimpleQueue["_ConcurrentCall"]


class _ConcurrentCall:
    """A call that runs in another thread (`ha.calls.pending_call.PendingCall`)."""

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


class ConcurrentCalls:
    """Makes calls in other threads. Thread-safe. `on_end` is called in the other thread after each call, and must not block or
    raise.

    A call that hangs does not delay later calls: they get another thread. The threads are daemons.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._lock = threading.Lock()
        self._idle: list[_Calls] = []
        self._newest: _ConcurrentCall | None = None

    def start_call(self, call: Callable[[], None]) -> _ConcurrentCall:
        """Starts the call in another thread. Raises RuntimeError if no thread can be started."""
        made = _ConcurrentCall(call)
        with self._lock:
            calls = self._idle.pop() if self._idle else self._started()
            self._newest = made
        calls.put(made)
        return made

    def close(self) -> None:
        """Waits for the newest call, at most CLOSE_WAIT_S, so that a bus can be closed afterwards. Older calls that still run
        count as hung."""
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
