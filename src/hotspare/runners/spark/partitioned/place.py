"""Identifies an attempt of a task of Spark. A module of its own, so that naming one does not load Spark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """An attempt of a task: `attempt` counts within its job, `stage` and `id` are Spark's own."""

    attempt: int
    stage: int
    id: int


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """An attempt that has a slot. `runs_ms` since Spark gave it the slot, by the clock of the driver's machine."""

    executor: str
    runs_ms: int
