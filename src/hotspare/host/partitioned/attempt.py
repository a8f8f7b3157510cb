"""What an attempt of a task is to the others, and what it does about its driver's silence and answers.

Pure but for `new_run`: no clock, no socket.
"""

from __future__ import annotations

import secrets
import string
from enum import Enum

_RUN_LETTERS = 4


def new_run() -> str:
    """Tells one life of a driver from another one's; drawn at its start."""
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(_RUN_LETTERS))


def engine_name(application: str, run: str, task: int, job: int, attempt: int) -> str:
    """Among the engines of its groups. No two attempts have the same: `run` tells the life of the driver, `job` the jobs that it
    started for the task, `attempt` what Spark made of that job. So a predecessor that still lives is another engine, also where the
    driver itself is a new one; nobody is refused for it, and nobody waits for it."""
    return f"{application}-{run}-{task}.{job}.{attempt}"


class Answer(Enum):
    """What a driver says to a hello or a report. The values go over the connection."""

    WELCOME = "welcome"
    HEARD = "answer"
    STOP = "stop"
    """The application is to end: the task gives up its roles first."""
    TURNED_AWAY = "turned away"
    """It was abandoned, or Spark has started it again since: it ends itself."""


class TaskOrder(Enum):
    """What a task does about an answer."""

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
    """Of what came over the connection; what this version does not know is an answer all the same."""
    return next((order for answer, order in _ORDERS.items() if answer.value == said), TaskOrder.GO_ON)


def has_lease(answered_ms: int, now_ms: int, lease_ms: int) -> bool:
    """Whether the driver's last answer still counts. Without it the task ends itself: its driver is gone or has abandoned it."""
    return now_ms - answered_ms <= lease_ms
