"""Runs in a task of Spark: the engine host of some shards, and the connection to the driver.

A task begins with the driver's welcome and hosts the groups of the shards that the driver's answers name. It reports twice a
second, and each report that the driver answers renews the task's lease. A task whose lease expires ends at once: its driver is dead
or has abandoned it, and another task may already run its shards. The lease only avoids conflicts; the groups' epochs prevent
an event from being published twice.

Each shard has a thread of its own, from joining its group to leaving it, and its runner has another. A shard that the driver no
longer names gives up its role and leaves, as an engine does that is asked to stop. The process and its other groups continue. A
shard that cannot join for a reason that passes by itself, such as a coordination time-out, retries while the others continue. If a
group ends by itself, the task ends, as any engine process does: the driver starts it again.

Every attempt has a name of its own among the engines of its groups (`attempt.engine_name`). A predecessor that still lives, also
one of a dead driver, is another engine, which loses its role by the group's own rules. No attempt waits for the end of a namesake,
and nothing durable is stored under that name.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NoReturn, TypeVar

from hotspare.base.addresses import HostPort
from hotspare.base.choices import RunnerKind
from hotspare.base.errors import HotspareError, is_retryable
from hotspare.base.interpreter import end_with_parent, fix_environment
from hotspare.base.link import Channel, LinkBrokenError, Message, connect_channel
from hotspare.base.retry import Retry
from hotspare.base.shard import Shard
from hotspare.base.stop_signals import stop_on_signals
from hotspare.ha.effects.joining import StartPlan
from hotspare.ha.rules.roles import Role
from hotspare.host.clock import monotonic_ms
from hotspare.host.hosted_group import HostedGroup
from hotspare.host.options import EngineOptions
from hotspare.host.partitioned.ancestors import AncestorProcess, executor_of_this_task, watching_ancestors
from hotspare.host.partitioned.attempt import Answer, TaskOrder, engine_name, has_lease, order_of
from hotspare.host.partitioned.project_files import ProjectFiles
from hotspare.host.process import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_RUNNER_DIED,
    check_before_joining,
    check_when_joined,
    make_ready,
    open_shared,
)
from hotspare.host.project import checked_project
from hotspare.host.watchdog.attach import UNWATCHED, EngineBoard, attach
from hotspare.model.partitioning import refused_shards
from hotspare.projects.load import LoadedProject
from hotspare.runners.contract import EndCause, ReadPace, RunnerEnd
from hotspare.runners.local import LocalRunner
from hotspare.runners.spark.partitioned.place import TaskPlace
from hotspare.telemetry.log import Level, Log, LogEvent, LogFormat, configure_logging

_T = TypeVar("_T")

_JOINING_MAX = 8
"""Limit on groups that join at a time; each that restores briefly has its snapshot in memory twice."""
_STOP_MS_MAX = 5_000
_JOIN_S_MAX = 15.0
_JOINS = Retry(lasting_s=60.0, pause_s=0.1, pause_max_s=0.5)
"""Retries of joining a group. After them the cause is not temporary: the task ends, and is started again, perhaps elsewhere."""
_LOOK_S = 1.0
_COMPLETE = (Role.STANDBY, Role.PROMOTING, Role.ACTIVE)


class ShardHost:
    """Hosts the engines of some shards. Call `run` from the main thread, all other methods from any. `stack` closes what the
    host opens. Raises ProjectError if the project cannot be divided into `options.shards` shards."""

    def __init__(
        self,
        options: EngineOptions,
        loaded: LoadedProject,
        log: Log,
        stack: contextlib.ExitStack,
        board: EngineBoard = UNWATCHED,
    ) -> None:
        if (refusal := refused_shards(loaded.resolved, options.shards)) is not None:
            raise refusal
        self.options = options
        self.log = log
        self.shared = open_shared(options, loaded, log, stack, board)
        self.joining = threading.BoundedSemaphore(_JOINING_MAX)
        self._wanted: frozenset[int] = frozenset()
        self._stays: dict[int, HostedShard] = {}
        self._checked: set[str] = set()
        self._checking = threading.Lock()
        self._changed = threading.Event()
        self._is_stop_asked = False
        self.end_reason = ""
        """Why groups ended by themselves, once `run` has returned; "" if none did."""

    def set_shards(self, shards: Iterable[int]) -> None:
        """Hosts exactly these shards from now on."""
        wanted = frozenset(shards)
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed.set()

    def request_stop(self) -> None:
        """Makes `run` give up the roles and return."""
        self._is_stop_asked = True
        self._changed.set()

    def hang_up(self) -> None:
        """Notifies the spares at once that this process is about to end."""
        self.shared.server.hang_up()

    def complete_shards(self) -> list[int]:
        """Returns the shards that stay hosted and whose engine has all its state and reads input."""
        return sorted(shard for shard, stay in dict(self._stays).items() if stay.is_complete)

    def caught_up_shards(self) -> list[int]:
        """Returns the complete shards whose engine has also read what its topics held when it joined. Such an engine can take
        over at once."""
        return sorted(shard for shard, stay in dict(self._stays).items() if stay.is_complete and stay.has_caught_up)

    def run(self) -> int:
        """Runs until a stop is requested or a group ends by itself; returns the exit status. Raises what a group raised."""
        make_ready(self.shared, self.log)
        with stop_on_signals(self.request_stop):
            while not self._is_stop_asked and not self._ended():
                self._follow()
                self._changed.wait(_LOOK_S)
                self._changed.clear()
            ended = self._ended()
            self.log.event(LogEvent.ENGINE_STOPPING)
            self._leave_all()
        return self._exit_status(ended)

    def _follow(self) -> None:
        for shard, stay in list(self._stays.items()):
            if stay.is_over:
                del self._stays[shard]  # it may be hosted again
            elif shard not in self._wanted:
                stay.start_leaving()
        for shard in sorted(self._wanted - self._stays.keys()):
            self._stays[shard] = HostedShard(self, Shard(shard, self.options.shards))

    def _ended(self) -> list[HostedShard]:
        return [stay for stay in self._stays.values() if stay.has_ended_itself]

    def _leave_all(self) -> None:
        for stay in self._stays.values():
            stay.start_leaving()
        for stay in self._stays.values():
            stay.join()

    def _exit_status(self, ended: list[HostedShard]) -> int:
        self.end_reason = "; ".join(dict.fromkeys(filter(None, (stay.end_reason for stay in ended))))
        failure = next((stay.failure for stay in ended if stay.failure is not None), None)
        if failure is not None:
            raise failure
        if ended:
            self.log.event(LogEvent.ENGINE_FAILED, self.end_reason)
            return EXIT_FAILED
        self.log.event(LogEvent.ENGINE_STOPPED)
        return EXIT_OK

    # --- for the stays ---------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Makes `run` check its due work at once."""
        self._changed.set()

    @property
    def group_count(self) -> int:
        """The count of groups that share the memory now; groups that run already retain their share."""
        return max(1, len(self._wanted))

    def check_once(self, name: str, check: Callable[[], None]) -> None:
        """Calls `check` in the first group that needs it; other groups wait for the call. It is repeated only after an error."""
        with self._checking:
            if name not in self._checked:
                check()
                self._checked.add(name)

    def end_at_once(self, why: str) -> NoReturn:
        """Ends the process: stopping a hanging runner would hang, too."""
        self.hang_up()
        self.log.event(LogEvent.RUNNER_ENDED, why)
        sys.stderr.flush()
        os._exit(EXIT_RUNNER_DIED)


class HostedShard:
    """The hosting of one shard, from the creation of this object until its engine has left the group; then `is_over`."""

    def __init__(self, host: ShardHost, shard: Shard) -> None:
        self.is_reading = False
        self.is_over = False
        self.failure: Exception | None = None
        self._host = host
        self._shard = shard
        self._group: HostedGroup | None = None
        self._end: RunnerEnd | None = None
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"shard-{shard.number}", daemon=True)
        self._thread.start()

    @property
    def is_leaving(self) -> bool:
        return self._leaving.is_set()

    @property
    def role(self) -> Role:
        return Role.JOINING if self._group is None else self._group.engine.role

    @property
    def is_complete(self) -> bool:
        return self.is_reading and not self.is_leaving and self.role in _COMPLETE

    @property
    def has_caught_up(self) -> bool:
        return self._group is not None and self._group.has_caught_up

    @property
    def has_ended_itself(self) -> bool:
        """Whether the shard failed, or ended without being asked to leave."""
        return self.failure is not None or (self.is_over and not self.is_leaving) or self._has_failed_reading

    @property
    def end_reason(self) -> str:
        if self._end is not None and self._end.error is not None:
            return str(self._end.error)
        return str(self.failure) if self.failure is not None else "" if self._group is None else self._group.engine.stopped_reason

    @property
    def _has_failed_reading(self) -> bool:
        return self._end is not None and self._end.cause is not EndCause.STOPPED

    def start_leaving(self) -> None:
        if not self._leaving.is_set():
            self._leaving.set()
            self._wake()

    def join(self) -> None:
        self._thread.join(_JOIN_S_MAX)

    def _wake(self) -> None:
        if self._group is not None:
            self._group.wake.set()

    def _run(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                self._host_group(stack)
        except Exception as error:
            if not (self.is_leaving and is_retryable(error)):
                self.failure = error
        finally:
            self.is_over = True
            self._host.wake()

    def _host_group(self, stack: contextlib.ExitStack) -> None:
        shared = self._host.shared
        interval_s = shared.options.settings.read_interval_ms / 1_000
        pace = ReadPace(interval_s, [self._shard.number], lambda: self._host.group_count)
        with self._host.joining:
            if self.is_leaving:
                return
            group = HostedGroup(shared, self._shard, pace, stack, self._host.group_count)
            with shared.coordination.extended_timeouts():
                plan = self._joined(group)
        self._group = group
        runner = LocalRunner(group.source, group.process_batch, self._on_end, shared.shared_reading_bus)
        stack.callback(runner.stop)
        runner.start(plan.next_offsets)
        self.is_reading = True
        group.record_reading_started()
        self._host.log.event(LogEvent.ENGINE_STARTED, address=shared.server.address, group=group.name)
        self._host.wake()
        group.run_ha_loop_until(lambda: self._leaving.is_set() or self._end is not None)
        if group.engine.is_stalled:
            self._host.end_at_once(group.engine.stopped_reason)
        self._give_up(group)

    def _joined(self, group: HostedGroup) -> StartPlan:
        """Joins the group. Calls may take seconds, because many groups join while earlier ones already work."""
        shared = self._host.shared
        self._retry_temporary(lambda: self._host.check_once("topics", lambda: check_before_joining(shared, group.topics)))
        plan = self._retry_temporary(group.start)
        self._retry_temporary(
            lambda: self._host.check_once("project", lambda: check_when_joined(shared, group.topics, [group.name]))
        )
        return plan

    def _retry_temporary(self, call: Callable[[], _T]) -> _T:
        """Returns the call's result. Retries the call while its error is temporary and the shard has no order to leave."""
        return _JOINS.call(call, lambda error: is_retryable(error) and not self.is_leaving, wait=self._leaving.wait)

    def _give_up(self, group: HostedGroup) -> None:
        """Ends the connectors first; then the engine gives up its role and leaves the group."""
        group.connectors.request_stop()
        self._run_ha_loop(group, lambda: group.connectors.is_idle)
        group.engine.request_stop()
        group.engine.run_ha_loop()  # also if the runner has failed: outputs from before are valid
        self._run_ha_loop(group, lambda: False)

    def _run_ha_loop(self, group: HostedGroup, is_over: Callable[[], bool]) -> None:
        deadline_ms = monotonic_ms() + _STOP_MS_MAX
        group.run_ha_loop_until(lambda: is_over() or monotonic_ms() > deadline_ms or self._end is not None)

    def _on_end(self, end: RunnerEnd) -> None:
        self._end = end
        self._wake()


EXIT_LEASE_OVER = 71
REPORT_S = 0.5
_CONNECT_S = 2.0
_RETRY_S = 0.2
_LOG_LINES_MAX = 1_000
_REJECTED = "the driver rejected this task"


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """The specification of one job's task. Spark sends it with the code, so its secrets are in no setting and are not displayed."""

    options: EngineOptions = field(repr=False)
    application: str
    run: str
    """Identifies this process of the driver (`attempt.new_run`)."""
    task: int
    job: int
    driver: HostPort
    secret: bytes = field(repr=False)
    lease_ms: int
    log_format: LogFormat
    log_level: Level
    driver_process: AncestorProcess
    files: ProjectFiles | None = None
    """Files of the project, if executors do not see them."""


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """The result of a task. `reason` is "" if a stop was requested. `is_final`: another start would end in the same way."""

    reason: str = ""
    is_final: bool = False


def run_task(spec: TaskSpec, place: TaskPlace) -> TaskEnd:
    """Runs the engines of some shards in the main thread of a process of its own, until they end."""
    fix_environment()
    # the parent is Spark's daemon, which ends with its executor, and if killed notifies no process
    end_with_parent(os.getppid(), EXIT_LEASE_OVER)
    link = TaskLink(spec, place)
    refusal = link.open()
    if refusal:
        return TaskEnd(refusal)
    configure_logging(spec.log_format, spec.log_level, link)  # type: ignore[arg-type]
    log = Log().bind(engine=_name(spec, place))
    try:
        with contextlib.ExitStack() as stack:
            options = _options(spec, place, link.executor, stack)
            board = attach(options)
            with board.loading():
                loaded = checked_project(options.project, options.properties, options.home, options.project_name, options.bindings)
            host = ShardHost(options, loaded, log, stack, board)
            link.attach_host(host)
            above = (spec.driver_process, executor_of_this_task())
            with watching_ancestors(above, host.shared.process_watcher, link.end_without):
                status = host.run()
            reason = "" if status == EXIT_OK else host.end_reason or f"the engines ended with status {status}"
    except HotspareError as error:
        log.event(LogEvent.ENGINE_FAILED, str(error))
        return TaskEnd(str(error), is_final=not error.retryable)
    finally:
        link.close()
    return TaskEnd(reason)


def _name(spec: TaskSpec, place: TaskPlace) -> str:
    return engine_name(spec.application, spec.run, spec.task, spec.job, place.attempt)


def _options(spec: TaskSpec, place: TaskPlace, executor: str, stack: contextlib.ExitStack) -> EngineOptions:
    shown = {"application": spec.application, "task": str(spec.task), "executor": executor}
    options = replace(spec.options, engine=_name(spec, place), runner=RunnerKind.LOCAL, place=shown)
    if spec.files is None:
        return options
    project, home = spec.files.unpack(stack)
    return replace(options, project=project, home=home)


class TaskLink:
    """A task's side of its connection: sends reports and lines of the log, renews the lease, and receives the order to stop.

    It serves as the text stream of the log, and also writes the lines to standard error. Lines that the driver does not accept in
    time are dropped."""

    def __init__(self, spec: TaskSpec, place: TaskPlace) -> None:
        self._spec = spec
        self._place = place
        self._own: Message = {"task": spec.task, "job": spec.job, "attempt": place.attempt}
        self.executor = ""
        """The executor that runs this task, as reported by the driver."""
        self._answered_s = time.monotonic()
        self._channel: Channel | None = None
        self._host: ShardHost | None = None
        self._shards: tuple[int, ...] = ()
        self._is_stop_asked = False
        self._is_over = threading.Event()
        self._lines: deque[str] = deque(maxlen=_LOG_LINES_MAX)
        self._lock = threading.Lock()

    def open(self) -> str:
        """Connects and waits for the driver's welcome. Returns "", or why it failed: no answer within the lease, or the driver
        turned this task away."""
        while self._has_lease():
            answer = self._greeted()
            if answer is None:
                self._is_over.wait(_RETRY_S)
                continue
            if answer.get("kind") != Answer.WELCOME.value:
                return _REJECTED
            threading.Thread(target=self._report_until_over, name="hotspare-task-link", daemon=True).start()
            return ""
        return "the driver did not answer in time"

    def attach_host(self, host: ShardHost) -> None:
        """Reports about the engines of `host` from now on, and makes it host the shards that the driver names."""
        with self._lock:
            self._host = host
            self._apply_orders()

    def _apply_orders(self) -> None:
        """Passes the driver's last orders to the host, if one is attached."""
        if self._host is not None:
            self._host.set_shards(self._shards)
            if self._is_stop_asked:
                self._host.request_stop()

    def close(self) -> None:
        """Closes the connection after sending the remaining lines, when the task ends in good order."""
        self._is_over.set()
        channel = self._channel
        if channel is not None:
            with contextlib.suppress(LinkBrokenError):
                self._send_lines(channel)
            channel.close()

    def end_without(self, what: str) -> None:
        """Ends the task because `what`, a process above this one, has begun to end."""
        if not self._is_over.is_set():
            self._end(f"the {what} has ended")

    def write(self, text: str) -> None:
        sys.stderr.write(text)
        self._lines.append(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def isatty(self) -> bool:
        return False

    def _has_lease(self) -> bool:
        return has_lease(int(self._answered_s * 1_000), int(time.monotonic() * 1_000), self._spec.lease_ms)

    def _greeted(self) -> Message | None:
        """Opens a connection and returns the driver's answer to the hello; None if no answer arrives."""
        hello = self._own | {
            "kind": "hello",
            "stage": self._place.stage,
            "id": self._place.id,
            "host": socket.gethostname(),
            "process_id": os.getpid(),
        }
        try:
            channel = connect_channel(self._spec.driver, self._spec.secret, _CONNECT_S, _CONNECT_S)
        except LinkBrokenError:
            return None
        try:
            channel.send(hello)
            answer = channel.receive(self._spec.lease_ms / 1_000)
        except LinkBrokenError:
            answer = None
        if answer is None:
            channel.close()
            return None
        self._answered_s = time.monotonic()
        self._record_orders(answer)
        self.executor = str(answer.get("executor", ""))
        self._channel = channel
        return answer

    def _report_until_over(self) -> None:
        """Reports until the task ends; ends the task once its lease is over."""
        while not self._is_over.is_set():
            try:
                self._converse()
            except LinkBrokenError:
                self._reconnect()
            if not self._has_lease() and not self._is_over.is_set():
                self._end(f"the driver has not answered for {self._spec.lease_ms} ms")

    def _converse(self) -> None:
        """Sends a report and the lines of the log, then handles the driver's messages until the next report is due."""
        channel = self._channel
        assert channel is not None
        channel.send(self._report())
        self._send_lines(channel)
        next_s = time.monotonic() + REPORT_S
        while (left_s := next_s - time.monotonic()) > 0 and not self._is_over.is_set():
            message = channel.receive(left_s)
            if message is not None:
                self._handle_message(message)

    def _send_lines(self, channel: Channel) -> None:
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        if lines:
            channel.send({"kind": "log", "lines": lines})

    def _report(self) -> Message:
        host = self._host
        able = (
            {"complete": [], "caught_up": []}
            if host is None
            else {"complete": host.complete_shards(), "caught_up": host.caught_up_shards()}
        )
        return self._own | {"kind": "report"} | able

    def _handle_message(self, message: Message) -> None:
        self._answered_s = time.monotonic()
        order = order_of(str(message.get("kind")))
        if order is TaskOrder.END:
            self._end("the driver has abandoned this task")
        self._record_orders(message)

    def _record_orders(self, answer: Message) -> None:
        """Updates which shards to host, and whether to stop."""
        with self._lock:
            if "shards" in answer:
                self._shards = tuple(int(shard) for shard in answer["shards"])
            self._is_stop_asked = self._is_stop_asked or order_of(str(answer.get("kind"))) is TaskOrder.STOP
            self._apply_orders()

    def _reconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
        while self._has_lease() and not self._is_over.is_set():
            answer = self._greeted()
            if answer is not None and answer.get("kind") != Answer.WELCOME.value:
                self._end(_REJECTED)
            if answer is not None:
                return
            self._is_over.wait(_RETRY_S)

    def _end(self, why: str) -> NoReturn:
        """Ends the process at once: stopping a hanging runner may hang, too."""
        if self._host is not None:
            self._host.hang_up()
        sys.stderr.write(f"hotspare: task {self._spec.task} of {self._spec.application} ends: {why}\n")
        sys.stderr.flush()
        os._exit(EXIT_LEASE_OVER)
