"""Ctrl-C and SIGTERM as a request: the running work finishes and ends; a second signal ends the process at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from hotspare.base.stop_signals import stop_on_signals


@contextlib.contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Context manager for the main thread: yields an event that the first signal sets. Restores the earlier handlers at the end."""
    stop = threading.Event()
    with stop_on_signals(stop.set):
        yield stop
