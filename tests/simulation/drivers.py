"""A simulated Spark application: its driver, Spark, and the attempts of its tasks with their side of the connection.

The driver decides as the real one does (`host.partitioned`). Spark is simulated as far as it matters here: it restarts a task whose
process or executor is lost, and does not see processes that are cut off from it. Processes that it ends may live on. A driver's
time runs `DRIVER_MS` times as fast as that of the groups, whose settings are as much shorter than real ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from hotspare.host.partitioned import attempt as rules
from hotspare.host.partitioned import shard_assignment, sharing, watch
from hotspare.host.partitioned.attempt import Answer, TaskOrder
from hotspare.host.partitioned.shard_assignment import assigned_shards, tasks_for
from hotspare.host.partitioned.sharing import RequestRole, RoleSharingState, ShardRole, WithdrawRequest
from hotspare.host.partitioned.watch import TaskPhase, WatchedTask
from hotspare.runners.spark.partitioned.place import RunningAttempt
from tests.simulation.doors import EngineClock

DRIVER_MS = 40
"""A driver's milliseconds per millisecond of the groups."""
_REPORT_MS = 500
_RETRY_MS = (1, 5, 20)
"""Delays after which Spark restarts a lost task, in simulated ms."""
_REPLACE_MS = (5, 30, 80)
_FOREVER_MS = 1 << 40
_KILLED_SHARE = 0.6
"""The share of processes really killed when Spark ends them without seeing the result."""


class Cluster(Protocol):
    """The simulated run, in which processes run."""

    rng: random.Random

    def now_ms(self) -> int: ...

    def launch(self, attempt: Attempt) -> None:
        """Starts its process, without engines."""

    def begin(self, attempt: Attempt) -> None:
        """Starts its engines."""

    def kill(self, attempt: Attempt) -> None: ...

    def is_frozen(self, attempt: Attempt) -> bool: ...

    def complete(self, attempt: Attempt) -> list[int]:
        """Returns the shards that it has hosted for long enough, with complete state."""

    def caught_up(self, attempt: Attempt, complete: list[int]) -> list[int]:
        """Returns those of them that have taken all input that was there at the first call for them."""

    def follow(self, attempt: Attempt, shards: tuple[int, ...]) -> None:
        """Sets the shards that it is to host."""

    def roles(self) -> dict[int, ShardRole]: ...

    def ask(self, action: RequestRole | WithdrawRequest) -> None:
        """Requests a role, or withdraws the request."""


@dataclass(eq=False)
class Executor:
    """An executor. `is_seen`: whether Spark's driver and it reach each other."""

    host: str
    slots: int
    is_gone: bool = False
    is_seen: bool = True
    back_ms: int = 0
    """When another executor replaces it, once it is gone or not seen."""

    @property
    def is_used(self) -> bool:
        return self.is_seen and not self.is_gone


@dataclass(eq=False)
class Attempt:
    """A process of a task. `key` identifies it among all processes of the run; `name` is its engine name in the groups."""

    driver: Driver
    task: WatchedTask
    job: int
    number: int
    executor: Executor
    name: str
    begun_ms: int = 0
    """When it got its slot, by its driver's time."""
    key: str = ""
    life: int = 0
    clock: EngineClock = field(default_factory=lambda: EngineClock(lambda: 0, 0.0))
    answered_ms: int = 0
    reported_ms: int = -1 << 40
    cut_until_ms: int = 0
    is_welcome: bool = False
    has_begun: bool = False
    wanted: frozenset[int] = frozenset()
    """The shards that it is to host."""
    leaving_ms: dict[int, int] = field(default_factory=dict)
    """Since when it gives up shards that it is no longer to host."""
    stopping_ms: int | None = None
    """Since when it ends, because one of its groups has ended."""
    end: watch.JobEnd = field(default_factory=watch.JobEnd)

    def now_ms(self) -> int:
        """Returns the time as a task's connection measures it."""
        return self.clock() * DRIVER_MS

    @property
    def is_reached(self) -> bool:
        """Whether it and its driver reach each other."""
        driver, now_ms = self.driver, self.driver.cluster.now_ms()
        return not driver.is_dead and self.executor.is_used and max(self.cut_until_ms, driver.cut_until_ms) <= now_ms

    def converse(self) -> None:
        """Runs the thread of its connection once."""
        cluster, now_ms = self.driver.cluster, self.now_ms()
        if cluster.is_frozen(self):
            return
        if now_ms - self.reported_ms >= _REPORT_MS and self.is_reached:
            self.reported_ms = self.answered_ms = now_ms
            answer = self.driver.reported(self) if self.is_welcome else self.driver.greeted(self)
            if rules.order_of(answer.value) is TaskOrder.END:
                cluster.kill(self)
                return
            if not self.is_welcome:
                self.is_welcome = True
                cluster.begin(self)
            cluster.follow(self, self.driver.tasks[self.task.number].hosted)
        if not rules.has_lease(self.answered_ms, now_ms, self.driver.lease_ms):
            cluster.kill(self)


@dataclass
class Job:
    """The job of one task; Spark starts attempts of it until it ends."""

    attempts: int = 0
    running: Attempt | None = None
    retry_ms: int = 0


@dataclass(eq=False)
class Driver:
    """A life of an application's driver."""

    cluster: Cluster
    application: str
    run: str
    shards: int
    executors: list[Executor]
    lease_ms: int
    rebalance_after_ms: int = 0
    cut_until_ms: int = 0
    is_dead: bool = False
    sharing: RoleSharingState = field(default_factory=RoleSharingState)
    failure: str = ""
    tasks: dict[int, WatchedTask] = field(default_factory=dict)
    jobs: dict[tuple[int, int], Job] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = tasks_for(self.shards, sum(executor.slots for executor in self.executors))
        for number, shards in enumerate(assigned_shards(self.shards, count)):
            self.tasks[number] = WatchedTask(number, shards)

    @property
    def now_ms(self) -> int:
        return self.cluster.now_ms() * DRIVER_MS

    def act(self) -> None:
        """Runs the driver's main thread once, and then Spark."""
        self.tasks |= shard_assignment.rebalanced_tasks(self.tasks, self.slots, self.shards, self.now_ms)
        for number in self.tasks:
            task = self.tasks[number]
            known = self._query_spark(task, watch.pending_question(task, self.now_ms, self.lease_ms))
            self.tasks[number], actions = watch.due_actions(task, self.now_ms, self.lease_ms, known)
            for action in actions:
                if isinstance(action, watch.StartJob):
                    self.jobs[number, action.job] = Job()
                elif isinstance(action, watch.AbandonJob):
                    self._abandon(action)
        self._share_roles()
        self._replace_executors()
        for (number, _), job in self.jobs.items():
            if job.running is None and job.retry_ms <= self.cluster.now_ms():
                self._start(number, job)

    def _query_spark(self, task: WatchedTask, question: watch.Question | None) -> watch.SparkAnswer:
        job = self.jobs.get((task.number, task.job))
        running = None if job is None else job.running
        if question is watch.Question.IS_OVER:
            runs = running is not None and running.number == task.attempt
            return watch.AttemptState.RUNS if runs else watch.AttemptState.OVER
        if question is watch.Question.SINCE_WHEN and running is not None:
            return RunningAttempt(running.executor.host, self.now_ms - running.begun_ms)
        return None

    def _share_roles(self) -> None:
        self.sharing = sharing.with_hosting(self.sharing, shard_assignment.hosting_of(self.tasks, self.shards), self.now_ms)
        if sharing.is_poll_due(self.sharing, self.now_ms, self.rebalance_after_ms):
            self.sharing, action = sharing.after_roles_read(self.sharing, self.application, self.cluster.roles(), self.now_ms)
            if action is not None:
                self.cluster.ask(action)

    @property
    def slots(self) -> int:
        return sum(executor.slots for executor in self.executors if executor.is_used)

    def _abandon(self, action: watch.AbandonJob) -> None:
        job = self.jobs.pop((action.task, action.job), None)
        attempt = job.running if job is not None else None
        if attempt is None:
            return
        executor = attempt.executor
        if attempt.is_reached and self.cluster.rng.random() < _KILLED_SHARE:
            self.cluster.kill(attempt)
            self.lose(executor, executor_ends=self.cluster.kill)
        else:
            self.lose(executor)

    def lose(self, executor: Executor, executor_ends: Callable[[Attempt], None] | None = None) -> None:
        """Loses an executor: it ends with all its processes, or is only unreachable and its processes live on."""
        executor.is_seen, executor.is_gone = executor_ends is not None, executor_ends is not None
        executor.back_ms = self.cluster.now_ms() + self.cluster.rng.choice(_REPLACE_MS)
        for job in self.jobs.values():
            if job.running is not None and job.running.executor is executor:
                attempt = job.running
                if executor_ends is not None:
                    executor_ends(attempt)
                self.lost(attempt)

    def lose_for_good(self, executor: Executor) -> None:
        """Ends an executor that the cluster cannot replace."""
        self.lose(executor, executor_ends=self.cluster.kill)
        executor.back_ms = _FOREVER_MS

    def gain(self, slots: int) -> None:
        """Adds an executor to the cluster, or brings a lost one back."""
        gone = next((each for each in self.executors if each.back_ms == _FOREVER_MS), None)
        if gone is not None:
            gone.back_ms = 0
        else:
            self.executors.append(Executor(f"{self.executors[0].host}+{len(self.executors)}", slots))

    def lost(self, attempt: Attempt) -> None:
        """Marks the attempt's process as lost; Spark restarts the task."""
        job = self.jobs.get((attempt.task.number, attempt.job))
        if job is not None and job.running is attempt:
            job.running, job.retry_ms = None, self.cluster.now_ms() + self.cluster.rng.choice(_RETRY_MS)

    def _replace_executors(self) -> None:
        for place, executor in enumerate(self.executors):
            if not executor.is_used and executor.back_ms <= self.cluster.now_ms():
                self.executors[place] = Executor(f"{executor.host}'", executor.slots)

    def _start(self, number: int, job: Job) -> None:
        running = [other.running.executor for other in self.jobs.values() if other.running is not None]
        free = next((each for each in self.executors if each.is_used and running.count(each) < each.slots), None)
        if free is None:
            return
        task = self.tasks[number]
        name = rules.engine_name(self.application, self.run, number, task.job, job.attempts)
        job.running = Attempt(self, task, task.job, job.attempts, free, name, begun_ms=self.now_ms)
        job.attempts += 1
        self.cluster.launch(job.running)

    # --- messages of the tasks -------------------------------------------------------------------------------------------------

    def greeted(self, attempt: Attempt) -> Answer:
        number = attempt.task.number
        task, answer = watch.after_hello(self.tasks[number], attempt.job, attempt.number, attempt.executor.host, self.now_ms)
        self.tasks[number] = task
        return answer

    def reported(self, attempt: Attempt) -> Answer:
        number, complete = attempt.task.number, self.cluster.complete(attempt)
        able = complete, self.cluster.caught_up(attempt, complete)
        self.tasks[number], answer = watch.after_report(self.tasks[number], attempt.job, attempt.number, self.now_ms, *able)
        return answer

    def returned(self, attempt: Attempt) -> None:
        """Handles a task process that ended by itself; its driver gets the reason if it is reachable."""
        if not attempt.is_reached:
            self.lost(attempt)
            return
        number = attempt.task.number
        job = self.jobs.get((number, attempt.job))
        if job is None or job.running is not attempt:
            return
        del self.jobs[number, attempt.job]
        self.tasks[number], failure = watch.after_job_end(self.tasks[number], attempt.job, attempt.end, self.now_ms)
        self.failure = self.failure or failure

    def current(self) -> list[Attempt]:
        """Returns the attempts that run, as far as the driver knows."""
        return [job.running for job in self.jobs.values() if job.running is not None]

    def is_complete(self) -> bool:
        """Whether every useful slot has a running task, and these host all shards evenly."""
        current = {attempt.task.number for attempt in self.current()}
        running = [task for task in self.tasks.values() if task.phase is TaskPhase.RUNNING and task.number in current]
        counts = [len(task.shards) for task in running]
        is_even = sum(counts) == self.shards and max(counts) - min(counts) <= 1 and len(counts) == min(self.slots, self.shards)
        return not self.is_dead and is_even and not any(task.handover_shards for task in running)
