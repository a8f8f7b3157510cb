"""A plugin of pytest: an interrupt ends the run, even if Python or the code under test discards its exception.

Python discards what a garbage collection's callback raises, and Hypothesis installs such a callback. So a SIGINT that arrived
during a collection failed one test as an unraisable exception, and the run continued. A command under test that installs its own
handlers takes the signal for itself. This plugin repeats the interrupt until pytest reports it.
"""

from __future__ import annotations

import _thread
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import psutil
import pytest

REPEAT_S = 1.0
"""The time between two attempts. A test that closes its processes on an interrupt needs some of it."""
EXIT_S = 10.0
"""The time after the summary for which threads and pools left by an interrupted test may keep the process."""


class Interrupts:
    """The interrupts of one run of pytest, from `pytest_configure` to `pytest_unconfigure`, in the main thread."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_worker = hasattr(config, "workerinput")
        self._is_requested = self._is_due = False
        self._reported = threading.Event()
        self._before = signal.signal(signal.SIGINT, self._handle)
        self._seen, self._wakeup = socket.socketpair()
        for end in (self._seen, self._wakeup):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Raises KeyboardInterrupt for the first interrupt and for each of `_repeat`, which may not wait for any lock."""
        if self._reported.is_set():
            if not self._is_worker:  # a worker is interrupted by its terminal, by its controller, and by execnet
                raise KeyboardInterrupt
        elif not self._is_requested:
            self._is_requested = True
            _thread.start_new_thread(self._repeat, ())
            raise KeyboardInterrupt
        elif self._is_due:
            self._is_due = False
            raise KeyboardInterrupt

    def _repeat(self) -> None:
        while not self._reported.wait(REPEAT_S):
            self._is_due = True
            os.kill(os.getpid(), signal.SIGINT)

    def _was_taken_by_another_handler(self) -> bool:
        """Whether a SIGINT arrived for which `_handle` was not called."""
        numbers = b""
        try:
            while some := self._seen.recv(4096):
                numbers += some
        except BlockingIOError:
            return signal.SIGINT in numbers and not self._is_requested
        return False

    def pytest_sessionstart(self) -> None:
        """Keeps a discarded interrupt out of pytest's list of unraisable exceptions, which would fail the test for it."""
        collect = sys.unraisablehook
        sys.unraisablehook = lambda found: None if found.exc_type is KeyboardInterrupt else collect(found)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        result = yield
        if self._was_taken_by_another_handler():
            raise KeyboardInterrupt
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Passes it on: otherwise workers run on for five seconds if only their controller got the interrupt."""
        self._reported.set()
        if self._config.pluginmanager.hasplugin("dsession"):
            for worker in psutil.Process().children():  # a controller runs no tests, and starts nothing else
                worker.send_signal(signal.SIGINT)

    @pytest.hookimpl(tryfirst=True)
    def pytest_unconfigure(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, self._before)
        self._seen.close()
        self._wakeup.close()
        if self._reported.is_set():
            exit_at_last = threading.Timer(EXIT_S, os._exit, (int(pytest.ExitCode.INTERRUPTED),))
            exit_at_last.daemon = True
            exit_at_last.start()


def pytest_configure(config: pytest.Config) -> None:
    """Installs the handler in place of Python's own, or of none: the shell starts background jobs with SIGINT ignored."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_IGN):
        config.pluginmanager.register(Interrupts(config))
