"""Identifies an attempt of a Spark task. A separate module, so that importing it does not load Spark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """An attempt of a task. `attempt`: its number within the job; `stage`, `id`: Spark's stage id and task attempt id."""

    attempt: int
    stage: int
    id: int


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """An attempt of a Spark task that runs now. `executor`: the id of its executor. `runs_ms`: the time since Spark launched it, by
    the clock of the driver's machine."""

    executor: str
    runs_ms: int
