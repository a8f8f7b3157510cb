"""The processes above a task: when its driver or its executor begins to end, so does the task, at once.

Spark's own way takes its time. What it is told by is a connection that closes, once the system has freed the memory of whoever
died; an executor whose driver died first ends in good order. The task's engines go on meanwhile, and their spares have nothing to
notice. Seen is only what runs on this machine; elsewhere Spark's way is the one there is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from hotspare.base.processes import parent_of, process_space, process_start
from hotspare.ha.endings import Endings


@dataclass(frozen=True, slots=True)
class ProcessAbove:
    """One by its id, which means something in its `space` only (`processes.process_space`)."""

    what: str
    space: str
    id: int
    started: int

    @classmethod
    def of(cls, what: str, process_id: int) -> ProcessAbove:
        return cls(what, process_space(), process_id, process_start(process_id))


def executor_of_this_task() -> ProcessAbove | None:
    """The JVM whose daemon started this process; None where there is none to be seen."""
    executor = parent_of(os.getppid())
    return ProcessAbove.of("executor", executor) if executor > 1 else None


@contextlib.contextmanager
def ended_with(processes: Iterable[ProcessAbove | None], endings: Endings, on_end: Callable[[str], None]) -> Iterator[None]:
    """While it lasts `on_end` is told which of them ends, where it is seen from here."""
    space = process_space()
    with contextlib.ExitStack() as stack:
        for each in processes:
            if each is not None and each.space == space:
                stack.enter_context(endings.told(each.id, each.started, partial(on_end, each.what)))
        yield
