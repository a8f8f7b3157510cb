"""Decides a driver's actions for its tasks: a table of states and events. Pure: no clock, no Spark, no socket.

    state      event                         next state   action
    RESTING    its pause is over             WAITING      a job is started
    WAITING    it says hello                 RUNNING
    WAITING    runs long without a hello     WAITING      its job is abandoned, another one started; from the second time on its
                                                          executor is ended, too, and each time it may take twice as long
    RUNNING    silent for longer than lease  WAITING      the job is abandoned, the executor ended, another job started
    RUNNING    likewise, its attempt over    WAITING      its connection is closed: Spark starts it again, in the same job
    any        message of another job        the same     it is turned away, and ends itself
    any        message of an older attempt   the same     likewise
    any        its job ended with a reason   RESTING      the pause doubles each time, unless it has run for a while
    any        likewise, before it ran once  the same     the application ends with that reason, if another start cannot help
    any        the job was cancelled         RESTING      likewise

A closed connection decides nothing. Spark starts a killed task again in the same job, and it says hello as another attempt; a
disconnected task reconnects or loses its lease. If Spark knows that the attempt has ended, with its process or its executor, it is
already starting the task again. The new process or executor may take longer than the lease, and another job would only restart
that. A task without a slot is WAITING for as long as that takes; shard_assignment.py decides which shards it hosts meanwhile, and
later."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum

from hotspare.host.partitioned.attempt import Answer
from hotspare.runners.spark.partitioned.place import RunningAttempt

PAUSE_FIRST_MS = 1_000
PAUSE_MAX_MS = 60_000
HELLO_MS = 120_000
"""The longest run of an attempt before it says hello: Python and packages may have to be copied to its executor first."""
_HELLO_DOUBLED_MAX = 6
_SPARK_QUERY_MS = 10_000
"""The pause between two questions to Spark about an attempt whose hello is overdue."""
STEADY_MS = 60_000
"""A task that ran this long is started again without counting earlier failures."""


class AttemptState(Enum):
    """The state, according to Spark, of a task's attempt that was heard of last."""

    RUNS = "runs"
    OVER = "over"


class Question(Enum):
    """The question about a task that Spark has to answer before `due_actions` decides."""

    IS_OVER = "whether the attempt that was heard of last has ended"
    SINCE_WHEN = "whether an attempt of its job runs, where, and for how long"


SparkAnswer = AttemptState | RunningAttempt | None
"""Spark's answer; None if there was no question, or Spark does not know."""


class TaskPhase(Enum):
    RESTING = "resting"
    WAITING = "waiting"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class WatchedTask:
    """The state of one task. `job` counts the jobs that were started for it; `attempt` is Spark's attempt within the newest.
    `executor` is "" while unknown. `due_ms` is when a resting task is started, `waiting_since_ms` since when a waiting task waits,
    and `spark_query_ms` when Spark may be asked about it again. `failures` counts failures in a row; `silent_attempts`: attempts in
    a row that never said hello.

    `shards` are the shards that it owns; it hosts `handover_shards` until the tasks that own them are ready. `complete`: the hosted
    shards whose engine has all its state and reads input, according to the last report; `caught_up`: those of them whose engine
    could take over at once. `has_connected`: whether the task ever said hello; `has_run`: whether all its shards were complete
    once.
    """

    number: int
    shards: tuple[int, ...]
    phase: TaskPhase = TaskPhase.RESTING
    job: int = 0
    attempt: int = -1
    executor: str = ""
    last_report_ms: int = 0
    began_ms: int = 0
    due_ms: int = 0
    waiting_since_ms: int = 0
    spark_query_ms: int = 0
    failures: int = 0
    silent_attempts: int = 0
    handover_shards: frozenset[int] = frozenset()
    complete: frozenset[int] = frozenset()
    caught_up: frozenset[int] = frozenset()
    has_connected: bool = False
    has_run: bool = False

    @property
    def hello_ms(self) -> int:
        """The longest run of an attempt of this task before it says hello."""
        return HELLO_MS << min(self.silent_attempts, _HELLO_DOUBLED_MAX)

    @property
    def hosted(self) -> tuple[int, ...]:
        """The shards that the task is ordered to host."""
        return tuple(sorted({*self.shards, *self.handover_shards}))


@dataclass(frozen=True, slots=True)
class StartJob:
    """Starts the job `job` of a task."""

    task: int
    job: int


@dataclass(frozen=True, slots=True)
class AbandonJob:
    """Cancels the job, and ends its executor if one is named. Attempts of the job that still run are turned away."""

    task: int
    job: int
    executor: str
    silent_ms: int


@dataclass(frozen=True, slots=True)
class AwaitAttempt:
    """Closes the connection: Spark starts the next attempt of its job by itself."""

    task: int
    silent_ms: int


Action = StartJob | AbandonJob | AwaitAttempt


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The end of a job: `reason` as its task reported it, "" if it reported none, as after a cancellation. `is_final`: another
    start would end in the same way."""

    reason: str = ""
    is_final: bool = False


def is_silent(task: WatchedTask, now_ms: int, lease_ms: int) -> bool:
    """Whether the task runs and did not report for longer than `lease_ms`."""
    return task.phase is TaskPhase.RUNNING and now_ms - task.last_report_ms > lease_ms


def pending_question(task: WatchedTask, now_ms: int, lease_ms: int) -> Question | None:
    """Returns the question that `due_actions` needs an answer to, or None."""
    if is_silent(task, now_ms, lease_ms):
        return Question.IS_OVER
    is_awaited = task.phase is TaskPhase.WAITING and now_ms >= max(task.waiting_since_ms + task.hello_ms, task.spark_query_ms)
    return Question.SINCE_WHEN if is_awaited else None


def due_actions(task: WatchedTask, now_ms: int, lease_ms: int, known: SparkAnswer = None) -> tuple[WatchedTask, list[Action]]:
    """Returns the task and the actions due now. `known` answers the current `pending_question`."""
    if task.phase is TaskPhase.RESTING and now_ms >= task.due_ms:
        started = _waiting(task, now_ms, task.job + 1)
        return started, [StartJob(task.number, started.job)]
    asked = pending_question(task, now_ms, lease_ms)
    if asked is Question.SINCE_WHEN:
        return _awaited(task, now_ms, known if isinstance(known, RunningAttempt) else None)
    if asked is None:
        return task, []
    if known is AttemptState.OVER:
        return _waiting(task, now_ms, task.job, task.attempt + 1), [AwaitAttempt(task.number, now_ms - task.last_report_ms)]
    started = _waiting(task, now_ms, task.job + 1)
    return started, [
        AbandonJob(task.number, task.job, task.executor, now_ms - task.last_report_ms),
        StartJob(task.number, started.job),
    ]


def _awaited(task: WatchedTask, now_ms: int, running: RunningAttempt | None) -> tuple[WatchedTask, list[Action]]:
    """Lets a task that waits for a slot wait on, and abandons the job of one that has run for `hello_ms` without a hello. The first
    time its executor is not ended, because it may have other tasks."""
    if running is None or running.runs_ms < task.hello_ms:
        return replace(task, spark_query_ms=now_ms + _SPARK_QUERY_MS), []
    started = replace(_waiting(task, now_ms, task.job + 1), silent_attempts=task.silent_attempts + 1)
    executor = running.executor if task.silent_attempts else ""
    return started, [AbandonJob(task.number, task.job, executor, running.runs_ms), StartJob(task.number, started.job)]


def _waiting(task: WatchedTask, now_ms: int, job: int, attempt: int = -1) -> WatchedTask:
    """Returns the task waiting for an attempt of this job with this number or a later one. Earlier attempts that still live are
    turned away."""
    waiting = replace(task, phase=TaskPhase.WAITING, job=job, attempt=attempt, executor="", waiting_since_ms=now_ms)
    return _without_engines(waiting)


def _without_engines(task: WatchedTask) -> WatchedTask:
    """Returns the task without complete and caught-up shards: no engine of it is known to run."""
    return replace(task, complete=frozenset(), caught_up=frozenset())


def next_due_ms(task: WatchedTask, lease_ms: int) -> int | None:
    """Returns the time of the next due action if no message or job end occurs before; None for a waiting task."""
    if task.phase is TaskPhase.RESTING:
        return task.due_ms
    return task.last_report_ms + lease_ms + 1 if task.phase is TaskPhase.RUNNING else None


def after_hello(task: WatchedTask, job: int, attempt: int, executor: str, now_ms: int) -> tuple[WatchedTask, Answer]:
    """Handles the hello of an attempt, on its first or on another connection. Returns the task and the answer: WELCOME, or
    TURNED_AWAY for a resting task, another job or an older attempt."""
    if task.phase is TaskPhase.RESTING or job != task.job or attempt < task.attempt:
        return task, Answer.TURNED_AWAY
    if attempt == task.attempt and task.phase is TaskPhase.RUNNING:
        return replace(task, last_report_ms=now_ms), Answer.WELCOME
    running = replace(task, phase=TaskPhase.RUNNING, attempt=attempt, executor=executor, last_report_ms=now_ms, began_ms=now_ms)
    return _without_engines(replace(running, has_connected=True, silent_attempts=0)), Answer.WELCOME


def after_report(
    task: WatchedTask, job: int, attempt: int, now_ms: int, complete: Collection[int], caught_up: Collection[int]
) -> tuple[WatchedTask, Answer]:
    """Handles the report of an attempt, which names its shards that are complete and that have caught up. Returns the task and the
    answer: HEARD, or TURNED_AWAY unless it is the task's running attempt."""
    if task.phase is not TaskPhase.RUNNING or (job, attempt) != (task.job, task.attempt):
        return task, Answer.TURNED_AWAY
    found = frozenset(complete) & {*task.hosted}
    has_run = task.has_run or found == {*task.hosted}
    return replace(task, last_report_ms=now_ms, complete=found, caught_up=found & {*caught_up}, has_run=has_run), Answer.HEARD


def after_job_end(task: WatchedTask, job: int, end: JobEnd, now_ms: int) -> tuple[WatchedTask, str]:
    """Handles the end of a job. Returns the task, and the reason for which the application ends, "" if it continues."""
    if job != task.job or task.phase is TaskPhase.RESTING:
        return task, ""
    if end.is_final and not task.has_run:
        return task, end.reason
    was_steady = task.phase is TaskPhase.RUNNING and now_ms - task.began_ms >= STEADY_MS
    failures = 1 if was_steady else task.failures + 1
    pause_ms = min(PAUSE_MAX_MS, PAUSE_FIRST_MS << min(failures - 1, 10))
    resting = replace(task, phase=TaskPhase.RESTING, attempt=-1, executor="", failures=failures, due_ms=now_ms + pause_ms)
    return _without_engines(resting), ""
