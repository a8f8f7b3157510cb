"""Does something again and again while a call is under way: how a promotion keeps its lease while the bus takes its time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def meanwhile(task: Callable[[], bool], every_ms: int) -> Iterator[None]:
    """While the block runs, call `task` every so often in another thread, for the first time after `every_ms`, until it returns
    False. It may still be under way when the block has ended, and must not raise."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(every_ms / 1000) and task():
            pass

    threading.Thread(target=repeat, name="hotspare-meanwhile", daemon=True).start()
    try:
        yield
    finally:
        over.set()
