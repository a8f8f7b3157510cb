"""Makes calls beside the engine's threads, in a thread that stays: a bus keeps a connection for each thread that uses it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from hotspare.host.background import CLOSE_WAIT_S

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
