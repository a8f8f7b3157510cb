"""What a driver does about its tasks: a table of states and happenings. Pure: no clock, no Spark, no socket.

    state      happening                     next state   what is done
    RESTING    its pause is over             WAITING      a job is started
    WAITING    it says hello                 RUNNING
    WAITING    runs for long without one     WAITING      its job is abandoned, another one started; from the second time on its
                                                          executor is ended, too, and each time it may take twice as long
    RUNNING    silent for longer than lease  WAITING      the job is abandoned, the executor ended, another job started
    RUNNING    likewise, its attempt over    WAITING      it is hung up on: Spark starts it again, in the same job
    any        word of another job           the same     it is turned away, and ends itself
    any        word of an older attempt      the same     likewise
    any        its job ended with a reason   RESTING      after a pause that doubles each time, but for a run of a while
    any        likewise, before it ran once  the same     the application ends with that reason, where another start cannot help
    any        the job was broken off        RESTING      likewise

A connection that closes decides nothing: who is killed is started again by Spark, in the same job, and says hello as another
attempt; who is cut off comes back or loses its lease. Where Spark itself knows that the attempt has ended, with its process or with
its executor, it is starting the task again already, in a process or an executor that may take longer than the lease to come up:
another job would only begin that anew. A task that Spark has no slot for is WAITING for as long as it takes; which shards it hosts
meanwhile, and later, placing.py says.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum

from hotspare.host.partitioned.attempt import Answer
from hotspare.runners.spark.partitioned.place import RunningAttempt

PAUSE_FIRST_MS = 1_000
PAUSE_MAX_MS = 60_000
HELLO_MS = 120_000
"""So long an attempt may run before it says hello: Python and packages may have to be copied to its executor first."""
_HELLO_DOUBLED_MAX = 6
_ASK_MS = 10_000
"""Between two questions since when an attempt runs that is awaited for so long."""
STEADY_MS = 60_000
"""After so long a task that ends is started again as if it were for the first time."""


class AttemptState(Enum):
    """Of the attempt that a task was heard of last, as Spark has it."""

    RUNS = "runs"
    OVER = "over"


class Question(Enum):
    """What Spark has to be asked of a task before it is decided what is due."""

    IS_OVER = "whether the attempt that was heard of last has ended"
    SINCE_WHEN = "whether an attempt of its job runs, where, and for how long"


Known = AttemptState | RunningAttempt | None
"""Spark's answer; None where nothing was asked, or it cannot be told."""


class TaskPhase(Enum):
    RESTING = "resting"
    WAITING = "waiting"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class WatchedTask:
    """`job` counts the jobs that were started for it; `attempt` is that of Spark within the newest. `executor` is "" while unknown.
    `due_ms` is when a resting one is started, `waits_since_ms` since when a waiting one does, and `ask_ms` when Spark may be asked
    of it again. `failures` in a row; `mutes`: attempts in a row that never said hello.

    `shards` are its own; `keeps` are those of others that it hosts until these are ready to. `complete`: of all these, whose engine
    has all its state and reads input, as it said last; `caught_up`: of these, whose engine could take over at once. `has_come`:
    whether it ever said hello; `has_run`: whether all were complete once.
    """

    number: int
    shards: tuple[int, ...]
    phase: TaskPhase = TaskPhase.RESTING
    job: int = 0
    attempt: int = -1
    executor: str = ""
    heard_ms: int = 0
    began_ms: int = 0
    due_ms: int = 0
    waits_since_ms: int = 0
    ask_ms: int = 0
    failures: int = 0
    mutes: int = 0
    keeps: frozenset[int] = frozenset()
    complete: frozenset[int] = frozenset()
    caught_up: frozenset[int] = frozenset()
    has_come: bool = False
    has_run: bool = False

    @property
    def hello_ms(self) -> int:
        """For how long an attempt of it may run before it says hello."""
        return HELLO_MS << min(self.mutes, _HELLO_DOUBLED_MAX)

    @property
    def hosted(self) -> tuple[int, ...]:
        """What it is told to host."""
        return tuple(sorted({*self.shards, *self.keeps}))


@dataclass(frozen=True, slots=True)
class StartJob:
    """Begin the job `job` of a task."""

    task: int
    job: int


@dataclass(frozen=True, slots=True)
class AbandonJob:
    """Cancel it, and end its executor where one is named: whatever of it still lives answers nobody."""

    task: int
    job: int
    executor: str
    silent_ms: int


@dataclass(frozen=True, slots=True)
class AwaitAttempt:
    """Hang up: Spark starts the next attempt of its job by itself."""

    task: int
    silent_ms: int


Action = StartJob | AbandonJob | AwaitAttempt


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job ended: `reason` as its task gave it, "" where it gave none, as one that was cancelled. `is_final`: another start
    would end likewise."""

    reason: str = ""
    is_final: bool = False


def is_silent(task: WatchedTask, now_ms: int, lease_ms: int) -> bool:
    """Whether it runs and did not report for longer than it may."""
    return task.phase is TaskPhase.RUNNING and now_ms - task.heard_ms > lease_ms


def question(task: WatchedTask, now_ms: int, lease_ms: int) -> Question | None:
    """What `due` has to know."""
    if is_silent(task, now_ms, lease_ms):
        return Question.IS_OVER
    is_awaited = task.phase is TaskPhase.WAITING and now_ms >= max(task.waits_since_ms + task.hello_ms, task.ask_ms)
    return Question.SINCE_WHEN if is_awaited else None


def due(task: WatchedTask, now_ms: int, lease_ms: int, known: Known = None) -> tuple[WatchedTask, list[Action]]:
    """What is to be done about it now. `known` answers the `question` that there is."""
    if task.phase is TaskPhase.RESTING and now_ms >= task.due_ms:
        started = _waiting(task, now_ms, task.job + 1)
        return started, [StartJob(task.number, started.job)]
    asked = question(task, now_ms, lease_ms)
    if asked is Question.SINCE_WHEN:
        return _awaited(task, now_ms, known if isinstance(known, RunningAttempt) else None)
    if asked is None:
        return task, []
    if known is AttemptState.OVER:
        return _waiting(task, now_ms, task.job, task.attempt + 1), [AwaitAttempt(task.number, now_ms - task.heard_ms)]
    started = _waiting(task, now_ms, task.job + 1)
    return started, [AbandonJob(task.number, task.job, task.executor, now_ms - task.heard_ms), StartJob(task.number, started.job)]


def _awaited(task: WatchedTask, now_ms: int, running: RunningAttempt | None) -> tuple[WatchedTask, list[Action]]:
    """One that waits for a slot goes on waiting. One that has a slot for so long and says nothing holds it for nothing; the first
    time its executor stays, which may have other tasks."""
    if running is None or running.runs_ms < task.hello_ms:
        return replace(task, ask_ms=now_ms + _ASK_MS), []
    started = replace(_waiting(task, now_ms, task.job + 1), mutes=task.mutes + 1)
    executor = running.executor if task.mutes else ""
    return started, [AbandonJob(task.number, task.job, executor, running.runs_ms), StartJob(task.number, started.job)]


def _waiting(task: WatchedTask, now_ms: int, job: int, attempt: int = -1) -> WatchedTask:
    """For an attempt of this job, of that number or later; one before is turned away should it live."""
    waiting = replace(task, phase=TaskPhase.WAITING, job=job, attempt=attempt, executor="", waits_since_ms=now_ms)
    return _with_nothing(waiting)


def _with_nothing(task: WatchedTask) -> WatchedTask:
    """No engine of it is known to run."""
    return replace(task, complete=frozenset(), caught_up=frozenset())


def next_due_ms(task: WatchedTask, lease_ms: int) -> int | None:
    """When `due` has something to say if nothing happens before; None where it never has."""
    if task.phase is TaskPhase.RESTING:
        return task.due_ms
    return task.heard_ms + lease_ms + 1 if task.phase is TaskPhase.RUNNING else None


def greeted(task: WatchedTask, job: int, attempt: int, executor: str, now_ms: int) -> tuple[WatchedTask, Answer]:
    """An attempt of a job says hello, for the first time or on another connection."""
    if task.phase is TaskPhase.RESTING or job != task.job or attempt < task.attempt:
        return task, Answer.TURNED_AWAY
    if attempt == task.attempt and task.phase is TaskPhase.RUNNING:
        return replace(task, heard_ms=now_ms), Answer.WELCOME
    running = replace(task, phase=TaskPhase.RUNNING, attempt=attempt, executor=executor, heard_ms=now_ms, began_ms=now_ms)
    return _with_nothing(replace(running, has_come=True, mutes=0)), Answer.WELCOME


def heard(
    task: WatchedTask, job: int, attempt: int, now_ms: int, complete: Collection[int], caught_up: Collection[int]
) -> tuple[WatchedTask, Answer]:
    """An attempt of a job reports, and which shards are complete and have caught up there."""
    if task.phase is not TaskPhase.RUNNING or (job, attempt) != (task.job, task.attempt):
        return task, Answer.TURNED_AWAY
    found = frozenset(complete) & {*task.hosted}
    has_run = task.has_run or found == {*task.hosted}
    return replace(task, heard_ms=now_ms, complete=found, caught_up=found & {*caught_up}, has_run=has_run), Answer.HEARD


def ended(task: WatchedTask, job: int, end: JobEnd, now_ms: int) -> tuple[WatchedTask, str]:
    """A job is over; also the reason for which the application ends, "" where it goes on."""
    if job != task.job or task.phase is TaskPhase.RESTING:
        return task, ""
    if end.is_final and not task.has_run:
        return task, end.reason
    was_steady = task.phase is TaskPhase.RUNNING and now_ms - task.began_ms >= STEADY_MS
    failures = 1 if was_steady else task.failures + 1
    pause_ms = min(PAUSE_MAX_MS, PAUSE_FIRST_MS << min(failures - 1, 10))
    resting = replace(task, phase=TaskPhase.RESTING, attempt=-1, executor="", failures=failures, due_ms=now_ms + pause_ms)
    return _with_nothing(resting), ""
