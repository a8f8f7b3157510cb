"""Identifies an attempt of a task to the other engines, and decides how it reacts to its driver's silence and answers.

Pure except for `new_run`: no clock, no socket.
"""

from __future__ import annotations

import secrets
import string
from enum import Enum

_RUN_LETTERS = 4


def new_run() -> str:
    """Returns a random id that distinguishes this driver process from other driver processes of the application."""
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(_RUN_LETTERS))


def engine_name(application: str, run: str, task: int, job: int, attempt: int) -> str:
    """Returns the name of an attempt among the engines of its groups. No two attempts share one: `run` identifies the driver's
    process, `job` the job that it started for the task, `attempt` Spark's attempt of that job. So a predecessor that still lives is
    another engine, also if the driver itself is a new one. No attempt is refused because of a predecessor, or waits for one."""
    return f"{application}-{run}-{task}.{job}.{attempt}"


class Answer(Enum):
    """A driver's answer to a hello or a report. The values are sent over the connection."""

    WELCOME = "welcome"
    HEARD = "answer"
    STOP = "stop"
    """The application is about to end: the task gives up its roles first."""
    TURNED_AWAY = "turned away"
    """The attempt was abandoned, or Spark has started the task again since: the attempt ends itself."""


class TaskOrder(Enum):
    """A task's reaction to an answer."""

    GO_ON = "go on"
    STOP = "stop"
    END = "end at once"


_ORDERS = {
    Answer.WELCOME: TaskOrder.GO_ON,
    Answer.HEARD: TaskOrder.GO_ON,
    Answer.STOP: TaskOrder.STOP,
    Answer.TURNED_AWAY: TaskOrder.END,
}


def order_of(said: str) -> TaskOrder:
    """Returns the order in an answer that was received. An answer that this version does not know counts as GO_ON."""
    return next((order for answer, order in _ORDERS.items() if answer.value == said), TaskOrder.GO_ON)


def has_lease(answered_ms: int, now_ms: int, lease_ms: int) -> bool:
    """Whether the driver's last answer is at most `lease_ms` old. Without a lease the task ends itself: its driver is dead or has
    abandoned it."""
    return now_ms - answered_ms <= lease_ms
