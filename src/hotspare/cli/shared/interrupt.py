"""Ctrl-C and SIGTERM as a request: what runs finishes what it has begun and ends; a second one ends the process at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from hotspare.base.stop_signals import stop_asked


@contextlib.contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """An event that is set by the first signal. From the main thread; the handlers from before are put back."""
    stop = threading.Event()
    with stop_asked(stop.set):
        yield stop
