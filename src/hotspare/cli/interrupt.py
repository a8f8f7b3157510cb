"""Ctrl-C and SIGTERM as a request: what runs finishes what it has begun and ends; a second one ends the process at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """An event that is set by the first signal. From the main thread; the handlers from before are put back."""
    stop = threading.Event()

    def ask(number: int, _frame: object) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
