"""SIGINT and SIGTERM as a request to stop, handled without a lock that could block.

A handler runs between any two instructions of the main thread, also while that thread holds the lock of an event: a handler that
sets the event would wait forever. So it writes to a queue that is safe to interrupt, and a thread does the rest."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

_IGNORES_REPEATED = threading.Event()


def ignore_repeated_signals() -> None:
    """Makes `stop_on_signals` ignore signals after the first, for a process whose parent forwards them: a signal
    to a group of processes arrives twice. The parent ends the process when a stop is requested again."""
    _IGNORES_REPEATED.set()


@contextlib.contextmanager
def stop_on_signals(ask: Callable[[], None]) -> Iterator[None]:
    """Calls `ask` in another thread on the first signal during the block; a second signal ends the process at once. Call it from
    the main thread. Restores the former handlers at the end, unless repeated signals are ignored: then they are until the process
    has ended."""
    requests: SimpleQueue[bool] = SimpleQueue()
    asked: list[int] = []

    def work() -> None:
        while requests.get():
            ask()

    def handle(number: int, _frame: object) -> None:
        if asked:
            if not _IGNORES_REPEATED.is_set():
                os._exit(128 + number)
            return
        asked.append(number)
        requests.put(True)  # noqa: FBT003 - SimpleQueue takes it by place only

    worker = threading.Thread(target=work, name="stop-signals", daemon=True)
    worker.start()
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        is_ending = bool(asked) and _IGNORES_REPEATED.is_set()
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if is_ending else handler)
        requests.put(False)  # noqa: FBT003
        worker.join()
