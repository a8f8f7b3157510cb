"""Watches, in one thread, whether other processes have begun to end, for all groups that this process hosts.

A watched process costs a small read every few milliseconds. If each spare watched by itself, a process that hosts many shards would
use a tenth of a core. All its spares would also wake at the very moment at which they have to take over.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from hotspare.base.processes import is_process_ending_or_ended

_LOOK_S = 0.005
_Process = tuple[int, int]
"""The id and the start time of a process, which together identify it."""


class ProcessWatcher:
    """Watches processes. Thread-safe. The watching thread is a daemon, and sleeps while no process is watched."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked: list[tuple[_Process, Callable[[], None]]] = []
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def watch_process(self, process_id: int, started: int, on_end: Callable[[], None]) -> Iterator[None]:
        """Returns a context within which `on_end` is called once, from the watching thread, if the process ends or has already
        ended.

        `on_end` must not block or raise, and may still run when the block has ended.
        """
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
            ended = {process for process in processes if is_process_ending_or_ended(*process)}
            if ended:
                self._notify(ended)

    def _notify(self, ended: set[_Process]) -> None:
        with self._changed:
            told = [on_end for process, on_end in self._asked if process in ended]
            self._asked = [each for each in self._asked if each[0] not in ended]
        for on_end in told:
            on_end()
