"""Watches, in one thread, whether other processes have begun to end, for all groups that this process hosts.

A watched process costs a small read every few milliseconds. If each spare watched by itself, a process that hosts many shards would
use a tenth of a core. All its spares would also wake at the very moment at which they have to take over.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator

from hotspare.base.processes import EndProbe

_LOOK_S = 0.002
_REST_LOOK_S = 0.02
"""The pause between two looks while no events arrive: the 500 looks per second would be a third of what a spare costs at rest."""
_OFTEN_S = 2.0
_Process = tuple[int, int]
"""The id and the start time of a process, which together identify it."""


class ProcessWatcher:
    """Watches processes. Thread-safe. The watching thread is a daemon, and sleeps while no process is watched."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked: tuple[tuple[_Process, Callable[[], None]], ...] = ()
        """Replaced at each change, so that a look finds without the lock that nothing changed."""
        self._thread: threading.Thread | None = None
        self._often_until_s = 0.0

    def look_often(self) -> None:
        """Makes the watcher look every 2 ms for the next two seconds. Otherwise it looks every 20 ms."""
        self._often_until_s = time.monotonic() + _OFTEN_S

    @contextlib.contextmanager
    def watch_process(self, process_id: int, started: int, on_end: Callable[[], None]) -> Iterator[None]:
        """Returns a context within which `on_end` is called once, from the watching thread, if the process ends or has already
        ended.

        `on_end` must not block or raise, and may still run when the block has ended.
        """
        asked = ((process_id, started), on_end)
        with self._changed:
            self._asked = (*self._asked, asked)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="hotspare-endings", daemon=True)
                self._thread.start()
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._asked = tuple(each for each in self._asked if each is not asked)

    def _look(self) -> None:
        probes: dict[_Process, EndProbe] = {}
        known = self._asked
        while True:
            if not probes or self._asked is not known:
                known = self._renew_probes(probes)
            ended = [process for process, probe in probes.items() if probe.is_ending_or_ended()]
            if ended:
                self._notify(ended)
            elif probes:
                # a sleep costs half of a wait with a time limit
                time.sleep(_LOOK_S if time.monotonic() < self._often_until_s else _REST_LOOK_S)

    def _renew_probes(self, probes: dict[_Process, EndProbe]) -> tuple[tuple[_Process, Callable[[], None]], ...]:
        """Makes `probes` those of the processes to watch, and waits for the first such process; returns `_asked`."""
        with self._changed:
            if not self._asked and not probes:
                self._changed.wait()
            asked = self._asked
        processes = {process for process, _ in asked}
        for process in probes.keys() - processes:
            probes.pop(process).close()
        for process in processes - probes.keys():
            probes[process] = EndProbe(*process)
        return asked

    def _notify(self, ended: Collection[_Process]) -> None:
        with self._changed:
            told = [on_end for process, on_end in self._asked if process in ended]
            self._asked = tuple(each for each in self._asked if each[0] not in ended)
        for on_end in told:
            on_end()
