"""One thread of a process looks whether others have begun to end: for all groups that it hosts, and for what else asks.

A small read for each process every few milliseconds. Each spare looking for itself would cost a process that hosts many shards a
tenth of a core, and all of them would wake at the very moment at which they are to take over.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from hotspare.base.processes import is_process_over

_LOOK_S = 0.005
_Process = tuple[int, int]
"""Its id and its start."""


class Endings:
    """Thread-safe. The thread is a daemon, and waits while nobody asks."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked: list[tuple[_Process, Callable[[], None]]] = []
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def told(self, process_id: int, started: int, on_end: Callable[[], None]) -> Iterator[None]:
        """While the block runs: `on_end` is called once, from the looking thread, when that very process ends or has ended. It must
        not block or raise, and may still be under way when the block has ended."""
        asked = ((process_id, started), on_end)
        with self._changed:
            self._asked.append(asked)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="hotspare-endings", daemon=True)
                self._thread.start()
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed, contextlib.suppress(ValueError):
                self._asked.remove(asked)

    def _look(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(_LOOK_S if self._asked else None)
                processes = {process for process, _ in self._asked}
            ended = {process for process in processes if is_process_over(*process)}
            if ended:
                self._tell(ended)

    def _tell(self, ended: set[_Process]) -> None:
        with self._changed:
            told = [on_end for process, on_end in self._asked if process in ended]
            self._asked = [each for each in self._asked if each[0] not in ended]
        for on_end in told:
            on_end()
