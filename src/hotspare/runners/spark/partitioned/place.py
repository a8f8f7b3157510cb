"""Which attempt of a task of Spark this is. Apart, so that who only names it does not load Spark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """`attempt` counts within its job, `stage` and `id` are Spark's own."""

    attempt: int
    stage: int
    id: int
