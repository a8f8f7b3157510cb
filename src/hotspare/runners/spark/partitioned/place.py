"""Which attempt of a task of Spark this is, and what is known of one. Apart, so that who only names it does not load Spark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """`attempt` counts within its job, `stage` and `id` are Spark's own."""

    attempt: int
    stage: int
    id: int


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """`runs_ms` since Spark gave it its slot, by the clock of the driver's machine."""

    executor: str
    runs_ms: int
