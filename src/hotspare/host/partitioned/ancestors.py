"""Ends a task at once when its driver or its executor, the processes above it, begins to end.

Spark's own detection takes longer. Spark notices a closed connection, which the system closes after freeing the memory of the dead
process; an executor whose driver died first ends in good order. Meanwhile the task's engines continue, and their spares notice
nothing. Only processes on this machine are watched; the end of processes elsewhere is left to Spark's
detection.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from hotspare.base.processes import parent_of, process_space, process_start
from hotspare.ha.process_watcher import ProcessWatcher


@dataclass(frozen=True, slots=True)
class AncestorProcess:
    """A process above a task. `process_label` names it in messages; `id` is valid only in its `space`
    (`processes.process_space`)."""

    process_label: str
    space: str
    id: int
    started: int

    @classmethod
    def for_process_id(cls, what: str, process_id: int) -> AncestorProcess:
        return cls(what, process_space(), process_id, process_start(process_id))


def executor_of_this_task() -> AncestorProcess | None:
    """Returns the JVM whose daemon started this process; None if it is not visible."""
    executor = parent_of(os.getppid())
    return AncestorProcess.for_process_id("executor", executor) if executor > 1 else None


@contextlib.contextmanager
def watching_ancestors(
    processes: Iterable[AncestorProcess | None], endings: ProcessWatcher, on_end: Callable[[str], None]
) -> Iterator[None]:
    """Calls `on_end` with the label of each process that ends during the block, if it is visible from here."""
    space = process_space()
    with contextlib.ExitStack() as stack:
        for each in processes:
            if each is not None and each.space == space:
                stack.enter_context(endings.watch_process(each.id, each.started, partial(on_end, each.process_label)))
        yield
