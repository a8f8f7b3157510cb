"""What runs in a task of Spark: the engine host of some shards, and the connection to the driver beside it.

A task begins with the driver's welcome and hosts the groups of the shards that the driver's answers name. It
reports twice a second, and each report that the driver answers renews the task's lease. Without an answer for as long as the lease,
the task ends itself, at once: its driver is gone or has abandoned it, and another one may run its shards already. That is for order
alone; that no event is published twice is seen to by the groups' epochs, as ever.

Each shard has a thread of its own, from joining its group to leaving it, next to that of its runner. A shard that the driver no
longer names gives up its role and leaves, as an engine does that is asked to stop; the process and its other groups continue. A
shard that cannot join for a reason that passes by itself, such as a coordination that does not answer in time, retries, and the
others continue, too. If a group ends by itself, the task ends, as any engine process does: the driver starts it again.

Every attempt has a name of its own among the engines of its groups (`attempt.engine_name`): a predecessor that still lives, also
one of a driver that is gone, is another engine, which loses its role by the group's own rules, and nobody waits for a namesake to
be gone. Nothing that lasts is kept by that name.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
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
from hotspare.base.interpreter import fix_environment
from hotspare.base.retry import Retry
from hotspare.base.shard import Shard
from hotspare.base.stop_signals import stop_asked
from hotspare.ha.effects.joining import StartPlan
from hotspare.ha.rules.roles import Role
from hotspare.host.clock import monotonic_ms
from hotspare.host.hosted_group import HostedGroup
from hotspare.host.options import EngineOptions
from hotspare.host.partitioned.above import ProcessAbove, ended_with, executor_of_this_task
from hotspare.host.partitioned.attempt import Answer, TaskOrder, engine_name, has_lease, order_of
from hotspare.host.partitioned.link import Channel, LinkBrokenError, Message, connected
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
from hotspare.model.partitioning import refused_shards
from hotspare.projects.load import LoadedProject
from hotspare.runners.contract import EndCause, ReadPace, RunnerEnd
from hotspare.runners.local import LocalRunner
from hotspare.runners.spark.partitioned.place import TaskPlace
from hotspare.telemetry.log import Level, Log, LogEvent, LogFormat, configure_logging

_T = TypeVar("_T")

_JOINING_MAX = 8
"""Groups that join at a time; each that restores has its snapshot in memory twice for a moment."""
_STOP_MS_MAX = 5_000
_JOIN_S_MAX = 15.0
_JOINS = Retry(lasting_s=60.0, pause_s=0.1, pause_max_s=0.5)
"""For longer nothing passes by itself: the task ends, and is started again, perhaps elsewhere."""
_LOOK_S = 1.0
_COMPLETE = (Role.STANDBY, Role.PROMOTING, Role.ACTIVE)


class ShardHost:
    """`run` from the main thread; everything else from any. What it opens is closed with `stack`. ProjectError where the project
    cannot be divided so."""

    def __init__(self, options: EngineOptions, loaded: LoadedProject, log: Log, stack: contextlib.ExitStack) -> None:
        if (refusal := refused_shards(loaded.resolved, options.shards)) is not None:
            raise refusal
        self.options = options
        self.log = log
        self.shared = open_shared(options, loaded, log, stack)
        self.joining = threading.BoundedSemaphore(_JOINING_MAX)
        self._wanted: frozenset[int] = frozenset()
        self._stays: dict[int, ShardStay] = {}
        self._checked: set[str] = set()
        self._checking = threading.Lock()
        self._changed = threading.Event()
        self._is_stop_asked = False
        self.end_reason = ""
        """Why groups ended by themselves, once `run` has returned; "" where none did."""

    def host(self, shards: Iterable[int]) -> None:
        """From now on these and no others."""
        wanted = frozenset(shards)
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed.set()

    def ask_stop(self) -> None:
        """`run` gives up the roles and returns."""
        self._is_stop_asked = True
        self._changed.set()

    def hang_up(self) -> None:
        """Tell the spares at once that this process is about to end."""
        self.shared.server.hang_up()

    def complete(self) -> list[int]:
        """The shards that it hosts for longer, and whose engine has all its state and reads input."""
        return sorted(shard for shard, stay in dict(self._stays).items() if stay.is_complete)

    def caught_up(self) -> list[int]:
        """Of these, whose engine has also taken what its topics held when it joined: it can take over at once."""
        return sorted(shard for shard, stay in dict(self._stays).items() if stay.is_complete and stay.has_caught_up)

    def run(self) -> int:
        """Until it is asked to stop or a group ends by itself: the exit status. Raises what a group raised."""
        make_ready(self.shared, self.log)
        with stop_asked(self.ask_stop):
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
                del self._stays[shard]  # it may come again
            elif shard not in self._wanted:
                stay.leave()
        for shard in sorted(self._wanted - self._stays.keys()):
            self._stays[shard] = ShardStay(self, Shard(shard, self.options.shards))

    def _ended(self) -> list[ShardStay]:
        return [stay for stay in self._stays.values() if stay.has_ended_itself]

    def _leave_all(self) -> None:
        for stay in self._stays.values():
            stay.leave()
        for stay in self._stays.values():
            stay.join()

    def _exit_status(self, ended: list[ShardStay]) -> int:
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
        """Something ended: look what is to be done."""
        self._changed.set()

    @property
    def groups(self) -> int:
        """How many share the memory as it is now; those that are there already keep what they have."""
        return max(1, len(self._wanted))

    def check_once(self, name: str, check: Callable[[], None]) -> None:
        """What is checked by whichever group comes to it first; the others wait for it."""
        with self._checking:
            if name not in self._checked:
                check()
                self._checked.add(name)

    def end_at_once(self, why: str) -> NoReturn:
        """A runner that hangs would hang when it is stopped, too."""
        self.hang_up()
        self.log.event(LogEvent.RUNNER_ENDED, why)
        sys.stderr.flush()
        os._exit(EXIT_RUNNER_DIED)


class ShardStay:
    """One shard, from the time on at which this is made until it has left; then `is_over`."""

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
        """It failed, or it ended though nobody told it to leave."""
        return self.failure is not None or (self.is_over and not self.is_leaving) or self._has_failed_reading

    @property
    def end_reason(self) -> str:
        if self._end is not None and self._end.error is not None:
            return str(self._end.error)
        return str(self.failure) if self.failure is not None else "" if self._group is None else self._group.engine.stopped_reason

    @property
    def _has_failed_reading(self) -> bool:
        return self._end is not None and self._end.cause is not EndCause.STOPPED

    def leave(self) -> None:
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
                self._live(stack)
        except Exception as error:
            if not (self.is_leaving and is_retryable(error)):
                self.failure = error
        finally:
            self.is_over = True
            self._host.wake()

    def _live(self, stack: contextlib.ExitStack) -> None:
        shared = self._host.shared
        interval_s = shared.options.settings.read_interval_ms / 1_000
        pace = ReadPace(interval_s, [self._shard.number], lambda: self._host.groups)
        with self._host.joining:
            if self.is_leaving:
                return
            group = HostedGroup(shared, self._shard, pace, stack, self._host.groups)
            with shared.coordination.patiently():
                plan = self._joined(group)
        self._group = group
        runner = LocalRunner(group.source, group.engine.on_batch, self._on_end, shared.read_together)
        stack.callback(runner.stop)
        runner.start(plan.next_offsets)
        self.is_reading = True
        group.note_reading()
        self._host.log.event(LogEvent.ENGINE_STARTED, address=shared.server.address, group=group.name)
        self._host.wake()
        group.beat_until(lambda: self._leaving.is_set() or self._end is not None)
        if group.engine.is_stalled:
            self._host.end_at_once(group.engine.stopped_reason)
        self._give_up(group)

    def _joined(self, group: HostedGroup) -> StartPlan:
        """Many join while those that came before are at work already: calls may take seconds."""
        shared = self._host.shared
        self._patient(lambda: self._host.check_once("topics", lambda: check_before_joining(shared, group.topics)))
        plan = self._patient(group.start)
        self._patient(lambda: self._host.check_once("project", lambda: check_when_joined(shared, group.topics, [group.name])))
        return plan

    def _patient(self, call: Callable[[], _T]) -> _T:
        """Its result, as soon as what keeps it from that has passed, unless this is to leave meanwhile."""
        return _JOINS.call(call, lambda error: is_retryable(error) and not self.is_leaving, wait=self._leaving.wait)

    def _give_up(self, group: HostedGroup) -> None:
        """Connectors end first, then the group gives up its role and leaves."""
        group.connectors.end()
        self._beat(group, lambda: group.connectors.is_idle)
        group.engine.ask_stop()
        group.engine.cycle()  # also where the runner has failed: what it brought out before is right
        self._beat(group, lambda: False)

    def _beat(self, group: HostedGroup, is_over: Callable[[], bool]) -> None:
        deadline_ms = monotonic_ms() + _STOP_MS_MAX
        group.beat_until(lambda: is_over() or monotonic_ms() > deadline_ms or self._end is not None)

    def _on_end(self, end: RunnerEnd) -> None:
        self._end = end
        self._wake()


EXIT_LEASE_OVER = 71
REPORT_S = 0.5
_CONNECT_S = 2.0
_RETRY_S = 0.2
_LOG_LINES_MAX = 1_000
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One job's task. Spark brings it with the code; it is in no setting, and nothing shows it."""

    options: EngineOptions = field(repr=False)
    application: str
    run: str
    """Of the driver's lives, this one (`attempt.new_run`)."""
    task: int
    job: int
    driver: HostPort
    secret: bytes = field(repr=False)
    lease_ms: int
    log_format: LogFormat
    log_level: Level
    driver_process: ProcessAbove
    files: ProjectFiles | None = None
    """Of the project, where executors do not see them."""


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """`reason` is "" where it was asked to stop. `is_final`: another start would end likewise."""

    reason: str = ""
    is_final: bool = False


def run_task(spec: TaskSpec, place: TaskPlace) -> TaskEnd:
    """Runs the engines of some shards, in the main thread of a process of its own, to its end."""
    fix_environment()
    _end_with_parent()
    link = TaskLink(spec, place)
    refusal = link.open()
    if refusal:
        return TaskEnd(refusal)
    configure_logging(spec.log_format, spec.log_level, link)  # type: ignore[arg-type]
    log = Log().bind(engine=_name(spec, place))
    try:
        with contextlib.ExitStack() as stack:
            options = _options(spec, place, link.executor, stack)
            loaded = checked_project(options.project, options.properties, options.home, options.project_name, options.bindings)
            host = ShardHost(options, loaded, log, stack)
            link.follow(host)
            above = (spec.driver_process, executor_of_this_task())
            with ended_with(above, host.shared.endings, link.end_without):
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


def _end_with_parent() -> None:
    """Spark's daemon, which started this process, ends with its executor; a daemon that is killed tells nobody."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:
            os._exit(EXIT_LEASE_OVER)


class TaskLink:
    """A task's side of its connection: reports, keeps the lease, takes the order to stop, and sends the lines of the log.

    It is a text stream for them: they go to standard error, too. Lines that the driver does not take in time are not kept.
    """

    def __init__(self, spec: TaskSpec, place: TaskPlace) -> None:
        self._spec = spec
        self._place = place
        self._own: Message = {"task": spec.task, "job": spec.job, "attempt": place.attempt}
        self.executor = ""
        """Which one runs this task, as the driver says."""
        self._answered_s = time.monotonic()
        self._channel: Channel | None = None
        self._host: ShardHost | None = None
        self._shards: tuple[int, ...] = ()
        self._is_stop_asked = False
        self._is_over = threading.Event()
        self._lines: deque[str] = deque(maxlen=_LOG_LINES_MAX)
        self._lock = threading.Lock()

    def open(self) -> str:
        """Connect and be welcomed. Returns why not: nobody answered within the lease, or the driver has turned this task away."""
        while self._has_lease():
            answer = self._greeted()
            if answer is None:
                self._is_over.wait(_RETRY_S)
                continue
            if answer.get("kind") != Answer.WELCOME.value:
                return "the driver has turned this task away"
            threading.Thread(target=self._keep, name="hotspare-task-link", daemon=True).start()
            return ""
        return "the driver does not answer"

    def follow(self, host: ShardHost) -> None:
        """From now on reports are about these engines, and the driver says which."""
        with self._lock:
            self._host = host
            self._pass_on()

    def _pass_on(self) -> None:
        """What the driver said last."""
        if self._host is not None:
            self._host.host(self._shards)
            if self._is_stop_asked:
                self._host.ask_stop()

    def close(self) -> None:
        """The task ends in good order."""
        self._is_over.set()
        channel = self._channel
        if channel is not None:
            with contextlib.suppress(LinkBrokenError):
                self._send_lines(channel)
            channel.close()

    def end_without(self, what: str) -> None:
        """A process above this one has begun to end."""
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
        """A new connection, and the driver's answer to the hello; None where there is none."""
        hello = self._own | {
            "kind": "hello",
            "stage": self._place.stage,
            "id": self._place.id,
            "host": socket.gethostname(),
            "process_id": os.getpid(),
        }
        try:
            channel = connected(self._spec.driver, self._spec.secret, _CONNECT_S)
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
        self._heed(answer)
        self.executor = str(answer.get("executor", ""))
        self._channel = channel
        return answer

    def _keep(self) -> None:
        """Until the task ends, or its lease does, and the task with it."""
        while not self._is_over.is_set():
            try:
                self._converse()
            except LinkBrokenError:
                self._reconnect()
            if not self._has_lease() and not self._is_over.is_set():
                self._end(f"the driver has not answered for {self._spec.lease_ms} ms")

    def _converse(self) -> None:
        """Report once, send what was logged, and take what the driver says until the next report is due."""
        channel = self._channel
        assert channel is not None
        channel.send(self._report())
        self._send_lines(channel)
        next_s = time.monotonic() + REPORT_S
        while (left_s := next_s - time.monotonic()) > 0 and not self._is_over.is_set():
            message = channel.receive(left_s)
            if message is not None:
                self._take(message)

    def _send_lines(self, channel: Channel) -> None:
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        if lines:
            channel.send({"kind": "log", "lines": lines})

    def _report(self) -> Message:
        host = self._host
        able = {"complete": [], "caught_up": []} if host is None else {"complete": host.complete(), "caught_up": host.caught_up()}
        return self._own | {"kind": "report"} | able

    def _take(self, message: Message) -> None:
        self._answered_s = time.monotonic()
        order = order_of(str(message.get("kind")))
        if order is TaskOrder.END:
            self._end("the driver has abandoned this task")
        self._heed(message)

    def _heed(self, answer: Message) -> None:
        """Which shards to host, and whether to stop."""
        with self._lock:
            if "shards" in answer:
                self._shards = tuple(int(shard) for shard in answer["shards"])
            self._is_stop_asked = self._is_stop_asked or order_of(str(answer.get("kind"))) is TaskOrder.STOP
            self._pass_on()

    def _reconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
        while self._has_lease() and not self._is_over.is_set():
            answer = self._greeted()
            if answer is not None and answer.get("kind") != Answer.WELCOME.value:
                self._end("the driver has turned this task away")
            if answer is not None:
                return
            self._is_over.wait(_RETRY_S)

    def _end(self, why: str) -> NoReturn:
        """At once: what hangs may hang when it is stopped, too."""
        if self._host is not None:
            self._host.hang_up()
        sys.stderr.write(f"hotspare: task {self._spec.task} of {self._spec.application} ends: {why}\n")
        sys.stderr.flush()
        os._exit(EXIT_LEASE_OVER)
