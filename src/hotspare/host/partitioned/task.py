"""What runs in a task of Spark: the engine host of some shards, and the connection to the driver beside it.

A task begins with the driver's welcome and hosts the groups of the shards that the driver's answers name (shard_host.py). It
reports twice a second, and each report that the driver answers renews the task's lease. Without an answer for as long as the lease,
the task ends itself, at once: its driver is gone or has abandoned it, and another one may run its shards already. That is for order
alone; that no event is published twice is seen to by the groups' epochs, as ever.

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
from dataclasses import dataclass, field, replace
from typing import NoReturn

from hotspare.base.addresses import HostPort
from hotspare.base.choices import RunnerKind
from hotspare.base.errors import HotspareError
from hotspare.base.interpreter import fix_environment
from hotspare.host.options import EngineOptions
from hotspare.host.partitioned.above import ProcessAbove, ended_with, executor_of_this_task
from hotspare.host.partitioned.attempt import Answer, TaskOrder, engine_name, has_lease, order_of
from hotspare.host.partitioned.link import Channel, LinkBrokenError, Message, connected
from hotspare.host.partitioned.project_files import ProjectFiles
from hotspare.host.partitioned.shard_host import ShardHost
from hotspare.host.process import EXIT_OK
from hotspare.host.project import checked_project
from hotspare.runners.spark.partitioned.place import TaskPlace
from hotspare.telemetry.log import Level, Log, LogEvent, LogFormat, configure_logging

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
