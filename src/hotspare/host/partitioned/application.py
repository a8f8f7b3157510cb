"""The driver of an application: starts Spark, assigns the shards to tasks, and watches the tasks until its end.

No event passes through the driver. About roles it decides only when to request its share (role_sharing.py): the engines of the
tasks decide the rest with each other, and with those of the group's other applications. Threads: the main one decides (watch.py,
shard_assignment.py) and acts. For each task, one thread waits for its job and one reads its connection; both only put calls for the
main thread into a queue."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, SimpleQueue

import hotspare
from hotspare.adapters.esp.connector_paths import absolute_bindings
from hotspare.base.choices import HeadPlace, SpareKind, StartWhen
from hotspare.base.errors import CoordinationError, RunnerError, StateError, UsageError
from hotspare.base.link import HANDSHAKE_S, Channel, LinkBrokenError, LinkServer, Message, new_secret
from hotspare.base.stop_signals import stop_on_signals
from hotspare.bus.naming import checked_prefix
from hotspare.host.clock import monotonic_ms
from hotspare.host.options import EngineOptions
from hotspare.host.partitioned import shard_assignment, watch
from hotspare.host.partitioned.ancestors import AncestorProcess
from hotspare.host.partitioned.attempt import Answer, new_run
from hotspare.host.partitioned.project_files import ProjectFiles
from hotspare.host.partitioned.role_sharing import RoleSharing
from hotspare.host.partitioned.shard_assignment import assigned_shards, tasks_for
from hotspare.host.partitioned.task import TaskEnd, TaskSpec, run_task
from hotspare.host.process import EXIT_FAILED, EXIT_OK, EXIT_RUNNER_DIED
from hotspare.host.project import checked_project
from hotspare.host.restoring import snapshot_url
from hotspare.host.watchdog.attach import attach
from hotspare.model.partitioning import refused_shards
from hotspare.projects.fingerprint import resolved_hash
from hotspare.runners.spark.partitioned.cluster import Master, SparkCluster, SparkClusterOptions, check_reachable, parse_master
from hotspare.runners.spark.partitioned.jobs import TaskJobs
from hotspare.runners.spark.partitioned.place import TaskPlace
from hotspare.telemetry.log import Level, Log, LogEvent, LogFormat

TASK_LEASE_MS = 10_000
REBALANCE_AFTER_MS = 60_000
APPLICATION_NAME_LENGTH_MAX = 40
"""The limit leaves room in an engine's name for its task and attempt."""
_STOP_MS_MAX = 20_000
_LOOK_MS_MAX = 1_000
_SLOTS_LOOK_MS = 2_000


@dataclass(frozen=True)
class ApplicationOptions:
    """The options of an application. `tasks`: the maximum of tasks, 0 for one per slot. `conf`: settings of Spark, which take
    precedence over hotspare's. `task_lease_ms`: how long a task and its driver may hear nothing from each other.
    `rebalance_after_ms`: how long the application must be complete before it takes back its share of the active roles; 0: never."""

    master: str
    tasks: int = 0
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    task_lease_ms: int = TASK_LEASE_MS
    rebalance_after_ms: int = REBALANCE_AFTER_MS
    log_format: LogFormat = LogFormat.HUMAN
    log_level: Level = Level.INFO


def run_application(options: EngineOptions, spark: ApplicationOptions) -> int:
    """Runs until Ctrl-C, SIGTERM, or an end of Spark; returns the exit status. Call it from the main thread.

    `options.engine` is the name of the application; the other options apply to the engines of its tasks. Raises
    UsageError or ProjectError before Spark is started, if the options or the project are invalid.
    """
    checked_prefix(options.prefix)
    master = parse_master(spark.master)
    _refuse_without_use(options, spark)
    _refuse_places(options, master)
    log = Log().bind(application=options.engine)
    log.event(LogEvent.APPLICATION_STARTING, project=str(options.project), master=spark.master, version=hotspare.__version__)
    with attach(replace(options, shards=1)).loading():
        loaded = checked_project(options.project, options.properties, options.home, options.project_name, options.bindings)
    if (refusal := refused_shards(loaded.resolved, options.shards)) is not None:
        raise refusal
    wanted = tasks_for(options.shards, master.slots or options.shards, spark.tasks)
    files = None if master.is_local else ProjectFiles.from_project(options.project, options.home)
    if files is not None:  # files that connectors read and write are not part of the copy
        bindings = absolute_bindings(loaded.resolved, options.folder, options.bindings)
        restore = options.restore or snapshot_url(loaded.project.restore, options.folder)
        options = replace(options, bindings=bindings, restore=restore)
    name = f"hotspare {options.prefix}.{loaded.project.name}"
    with contextlib.ExitStack() as stack:
        cluster = SparkCluster(SparkClusterOptions(master, name, wanted, spark.conf))
        stack.callback(cluster.stop)
        roles = RoleSharing(options, loaded.project.name, resolved_hash(loaded.resolved), spark.rebalance_after_ms, log)
        stack.callback(roles.close)
        application = Application(options, spark, cluster, roles, files, log)
        stack.callback(application.close)
        application.assign(tasks_for(options.shards, cluster.await_slots(partial(_log_slots, log)), wanted))
        return application.run()
    return EXIT_FAILED


def _log_slots(log: Log, slots: int, wanted: int) -> None:
    log.event(LogEvent.APPLICATION_WAITS, f"{slots} of {wanted} slots are available", slots=slots, wanted=wanted)


def _refuse_without_use(options: EngineOptions, spark: ApplicationOptions) -> None:
    said = {
        "--address": options.address,
        "--listen": options.listen,
        "--start": options.start is not StartWhen.AT_ONCE,
        "--spare": options.spare is not SpareKind.HOT,
        "--head": options.head_place is not HeadPlace.WORKERS,
    }
    if names := [name for name, is_said in said.items() if is_said]:
        hint = "leave it out: every task chooses its own address and reads by itself"
        raise UsageError(f"{', '.join(names)} with --runner partitioned has no effect", hint=hint)
    if len(options.engine) > APPLICATION_NAME_LENGTH_MAX:
        hint = f"use up to {APPLICATION_NAME_LENGTH_MAX} characters: --engine NAME"
        raise UsageError(f"application name {options.engine!r} is too long", hint=hint)
    if spark.tasks < 0 or spark.task_lease_ms < 2_000 or spark.rebalance_after_ms < 0:
        what = "--tasks, task-lease-ms or rebalance-after-ms is too small"
        raise UsageError(what, hint="use 0 or more tasks, a lease of 2000 ms or more, and 0 ms or more")


def _refuse_places(options: EngineOptions, master: Master) -> None:
    """Raises UsageError for a place that tasks cannot reach."""
    for what, url in {"bus": options.bus_url, "coordination": options.coordination_url, "store": options.store_url}.items():
        check_reachable(what, url, master)


class Application:
    """The tasks of one application, once `assign` is called. Call `run` from the main thread."""

    def __init__(
        self,
        options: EngineOptions,
        spark: ApplicationOptions,
        cluster: SparkCluster,
        roles: RoleSharing,
        files: ProjectFiles | None,
        log: Log,
    ) -> None:
        self._options = options
        self._spark = spark
        self._roles = roles
        self._files = files
        self._log = log
        self._secret = new_secret()
        self._run = new_run()
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._cluster = cluster
        self._tasks_max = tasks_for(options.shards, options.shards, spark.tasks)
        self._slots = self._slots_due_ms = 0
        self._jobs = TaskJobs(cluster)
        self._server = LinkServer(cluster.host, self._secret, self._on_message, HANDSHAKE_S)
        self._tasks: dict[int, watch.WatchedTask] = {}
        self._channels: dict[int, Channel] = {}
        self._places: dict[int, TaskPlace] = {}
        """By task, the place in Spark of the attempt that was welcomed last."""
        self._underway: set[tuple[int, int]] = set()
        self._stop_by_ms: int | None = None
        self._failure = ""
        self._is_closed = False
        threading.Thread(target=self._watch_jvm, args=(cluster,), name="watch-jvm", daemon=True).start()

    def assign(self, tasks: int) -> None:
        """Assigns the shards to `tasks` tasks; `run` starts them."""
        self._slots = tasks
        for number, shards in enumerate(assigned_shards(self._options.shards, tasks)):
            self._tasks[number] = watch.WatchedTask(number, shards)

    def run(self) -> int:
        self._log.event(
            LogEvent.APPLICATION_STARTED, address=str(self._server.address), tasks=len(self._tasks), shards=self._options.shards
        )
        with stop_on_signals(lambda: self._events.put(self._request_stop)):
            while not self._is_over():
                wait_ms = self._act()
                with contextlib.suppress(Empty):
                    self._events.get(timeout=wait_ms / 1_000)()
        if self._failure:
            self._log.event(LogEvent.APPLICATION_ENDED, self._failure)
            return EXIT_FAILED
        self._log.event(LogEvent.APPLICATION_ENDED, "stopped on request")
        return EXIT_OK

    def close(self) -> None:
        self._is_closed = True
        self._server.close()

    # --- deciding: what time makes due ------------------------------------------------------------------------------------------

    def _act(self) -> int:
        """Performs the due actions. Returns the ms until the next action may be due."""
        now_ms = monotonic_ms()
        if self._stop_by_ms is not None:
            return max(1, min(_LOOK_MS_MAX, self._stop_by_ms - now_ms))
        self._rebalance(now_ms)
        dues = [_LOOK_MS_MAX + now_ms]
        for number, before in list(self._tasks.items()):
            known = self._query_spark(before, watch.pending_question(before, now_ms, self._spark.task_lease_ms))
            task, actions = watch.due_actions(before, now_ms, self._spark.task_lease_ms, known)
            self._tasks[number] = task
            for action in actions:
                self._perform(action)
            due_ms = watch.next_due_ms(task, self._spark.task_lease_ms)
            dues += [] if due_ms is None else [due_ms]
        return max(1, min(dues) - now_ms)

    def _query_spark(self, task: watch.WatchedTask, question: watch.Question | None) -> watch.SparkAnswer:
        if question is watch.Question.IS_OVER:
            return watch.AttemptState.OVER if self._jobs.is_over(self._places[task.number]) else watch.AttemptState.RUNS
        if question is watch.Question.SINCE_WHEN:
            return self._jobs.running(self._job_name(task.number, task.job))
        return None

    def _rebalance(self, now_ms: int) -> None:
        """Moves shards as the number of slots changes."""
        if now_ms >= self._slots_due_ms:
            self._slots, self._slots_due_ms = self._cluster.slots(), now_ms + _SLOTS_LOOK_MS
        for number, task in shard_assignment.rebalanced_tasks(self._tasks, self._slots, self._tasks_max, now_ms).items():
            before = self._tasks.get(number)
            self._tasks[number] = task
            if before is None or before.shards != task.shards:
                shards = ", ".join(map(str, task.shards)) or "none"
                self._log.event(LogEvent.SHARDS_MOVED, f"assigned shards: {shards}", task=number)
        self._roles.set_hosting(shard_assignment.hosting_of(self._tasks, self._options.shards))

    def _is_over(self) -> bool:
        if self._stop_by_ms is None:
            return False
        if self._underway and monotonic_ms() > self._stop_by_ms:
            for task, job in self._underway:
                self._jobs.cancel(self._job_name(task, job))
            return True
        return not self._underway

    # --- acting ----------------------------------------------------------------------------------------------------------------

    def _perform(self, action: watch.Action) -> None:
        if isinstance(action, watch.StartJob):
            self._start(action)
        elif isinstance(action, watch.AbandonJob):
            self._abandon(action)
        else:
            self._await(action)

    def _start(self, action: watch.StartJob) -> None:
        task = self._tasks[action.task]
        spec = TaskSpec(
            options=self._options,
            application=self._options.engine,
            run=self._run,
            task=task.number,
            job=action.job,
            driver=self._server.address,
            secret=self._secret,
            lease_ms=self._spark.task_lease_ms,
            log_format=self._spark.log_format,
            log_level=self._spark.log_level,
            driver_process=AncestorProcess.for_process_id("driver", os.getpid()),
            files=self._files,
        )
        shards = ", ".join(map(str, task.hosted))
        self._underway.add((task.number, action.job))

        def on_end(returned: object, error: RunnerError | None) -> None:
            end = returned if isinstance(returned, TaskEnd) else TaskEnd(str(error))
            self._events.put(partial(self._on_end, task.number, action.job, end))

        name = self._job_name(task.number, action.job)
        self._jobs.start(name, f"{self._options.engine} task {task.number}: shards {shards}", partial(run_task, spec), on_end)

    def _await(self, action: watch.AwaitAttempt) -> None:
        self._hang_up(action.task)
        self._log.event(LogEvent.TASK_AWAITED, f"no report for {action.silent_ms} ms", task=action.task)

    def _abandon(self, action: watch.AbandonJob) -> None:
        self._log.event(LogEvent.TASK_ABANDONED, f"no report for {action.silent_ms} ms", task=action.task, executor=action.executor)
        self._hang_up(action.task)
        self._jobs.cancel(self._job_name(action.task, action.job))
        if action.executor:
            self._jobs.end_executor(action.executor)

    def _job_name(self, task: int, job: int) -> str:
        return f"hotspare-{self._options.engine}-{task}-{job}"

    def _request_stop(self) -> None:
        """Requests the end of the tasks; cancels those that never began."""
        self._stop_by_ms = monotonic_ms() + _STOP_MS_MAX
        for task, job in self._underway:
            channel = self._channels.get(task)
            if self._tasks[task].job != job or channel is None or not _try_send(channel, {"kind": Answer.STOP.value}):
                self._jobs.cancel(self._job_name(task, job))

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        if self._stop_by_ms is None:
            self._request_stop()

    def _hang_up(self, task: int) -> None:
        channel = self._channels.pop(task, None)
        if channel is not None:
            channel.close()

    # --- messages of the tasks --------------------------------------------------------------------------------------------------

    def _on_message(self, channel: Channel, message: Message) -> None:
        """Handles a message, in the connection's thread."""
        kind = message.get("kind")
        if kind == "log":
            sys.stderr.write("".join(map(str, message.get("lines", ()))))
            sys.stderr.flush()
        elif kind == "hello":
            place = TaskPlace(int(message["attempt"]), int(message["stage"]), int(message["id"]))
            executor = self._jobs.executor_of(place)
            self._events.put(partial(self._on_hello, channel, message, place, executor))
        elif kind == "report":
            self._events.put(partial(self._on_report, channel, message))

    def _on_hello(self, channel: Channel, message: Message, place: TaskPlace, executor: str) -> None:
        number, job, attempt = int(message["task"]), int(message["job"]), place.attempt
        task = self._tasks.get(number)
        answer = Answer.TURNED_AWAY
        if task is not None and self._stop_by_ms is None:
            known = (task.job, task.attempt) if task.phase is watch.TaskPhase.RUNNING else None
            self._tasks[number], answer = watch.after_hello(task, job, attempt, executor, monotonic_ms())
            if answer is Answer.WELCOME and (job, attempt) != known:
                where = f"on {message.get('host', '')}, process {message.get('process_id', '')}"
                self._log.event(LogEvent.TASK_RUNS, where, task=number, executor=executor, shards=len(task.hosted))
        if answer is Answer.WELCOME:
            self._hang_up(number)
            self._channels[number], self._places[number] = channel, place
        _try_send(channel, self._answer(number, answer) | {"executor": executor})

    def _on_report(self, channel: Channel, message: Message) -> None:
        number, job, attempt = (int(message[name]) for name in ("task", "job", "attempt"))
        task, answer = self._tasks.get(number), Answer.TURNED_AWAY
        if task is not None:
            complete, caught_up = ([int(shard) for shard in message.get(name, ())] for name in ("complete", "caught_up"))
            self._tasks[number], answer = watch.after_report(task, job, attempt, monotonic_ms(), complete, caught_up)
        if answer is Answer.HEARD and self._stop_by_ms is not None:
            answer = Answer.STOP
        _try_send(channel, self._answer(number, answer))

    def _answer(self, number: int, answer: Answer) -> Message:
        task = self._tasks.get(number)
        return {"kind": answer.value, "shards": [] if task is None else list(task.hosted)}

    def _on_end(self, number: int, job: int, end: TaskEnd) -> None:
        self._underway.discard((number, job))
        if self._stop_by_ms is not None or self._tasks[number].job != job:
            return
        task, failure = watch.after_job_end(self._tasks[number], job, watch.JobEnd(end.reason, end.is_final), monotonic_ms())
        self._tasks[number] = task
        self._hang_up(number)
        self._log.event(LogEvent.TASK_ENDED, end.reason, task=number)
        if failure:
            self._fail(failure)
        elif end.reason:
            threading.Thread(target=self._check_left_out, name="left-out", daemon=True).start()

    def _check_left_out(self) -> None:
        """Ends the application if an upgrade excluded its project: its tasks would be refused again and again. If coordination does
        not answer, the next end of a task repeats this."""
        with contextlib.suppress(CoordinationError, StateError):
            if reason := self._roles.exclusion_reason():
                self._events.put(partial(self._fail, reason))

    def _watch_jvm(self, cluster: SparkCluster) -> None:
        error = cluster.session.wait_for_death()
        if self._stop_by_ms is not None or self._is_closed:
            return
        self._log.event(LogEvent.RUNNER_ENDED, str(error))
        sys.stderr.flush()
        os._exit(EXIT_RUNNER_DIED)  # without it nothing can be done, and the tasks end by themselves


def _try_send(channel: Channel, message: Message) -> bool:
    """Sends a message, best effort; returns whether it was sent."""
    try:
        channel.send(message)
    except LinkBrokenError:
        return False
    return True
