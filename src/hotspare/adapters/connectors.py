"""The running connectors of a project: only on the active engine, stopped when it gives up the role (SPEC I1, I12).

A publisher continues from the position in its record on the bus, a subscriber from the position file next to its output. So it does
not matter which engine runs them, or how the previous engine ended. A file is locked for each write only, and its record has the
group's epoch: a frozen active engine blocks no other one, and finds its successor's record when it thaws."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from hotspare.adapters.esp.connector_options import FILE_KIND, file_style, publish_options, subscribe_options
from hotspare.adapters.esp.connector_paths import with_absolute_paths
from hotspare.adapters.esp.generated_options import generator_factory
from hotspare.adapters.esp.socket_options import connector_address, line_format, line_options
from hotspare.adapters.esp.topic_options import topic_name, topic_publish_options, topic_send_options, topic_url
from hotspare.adapters.failover.bus_retries import REPORT_INTERVAL_S
from hotspare.adapters.failover.source_position import source_prefix
from hotspare.adapters.failover.turn import Turn
from hotspare.adapters.files.canonical import RowForm
from hotspare.adapters.files.output_rows import OutputRows
from hotspare.adapters.files.publisher import publish_file
from hotspare.adapters.files.row_routing import RowRouting
from hotspare.adapters.files.subscriber import SubscribeReport, subscribe_file
from hotspare.adapters.generated.publisher import publish_generated
from hotspare.adapters.sockets.publisher import publish_lines
from hotspare.adapters.sockets.subscriber import subscribe_lines
from hotspare.adapters.start_order import ConnectorState, StartOrder
from hotspare.adapters.state.open import open_look_ups, open_state_writer
from hotspare.adapters.state.records import RecordForm
from hotspare.adapters.topics.form import TopicForm
from hotspare.adapters.topics.publisher import TopicPublishOptions, publish_topic
from hotspare.adapters.topics.subscriber import SendOptions, send_topic
from hotspare.base.errors import BusError, HotspareError
from hotspare.base.places import absolute_path, absolute_url
from hotspare.base.retry import Retry
from hotspare.base.shard import WHOLE, Shard
from hotspare.bus.contract import Bus, Partition
from hotspare.bus.limits import partitions_of
from hotspare.bus.naming import inbound_topic, outbound_topic
from hotspare.bus.open import open_topic_reader, open_topic_writer
from hotspare.bus.topic_reader import BusTopicReader
from hotspare.formats.csv.rows import RowPrefix
from hotspare.ha.ports import ConnectorFacts
from hotspare.ha.rules.roles import Role
from hotspare.model.connector_groups import connector_path
from hotspare.model.connectors import BUS_KINDS, is_bus
from hotspare.model.project import Connector, ConnectorDirection, WindowId
from hotspare.model.resolved import Resolved, ResolvedWindow
from hotspare.model.statedb import RecordKeeping, RecordQuery
from hotspare.model.window_type import type_of
from hotspare.rows.routing import routing_of
from hotspare.telemetry.log import Log, LogEvent

_RETRY_S = 0.5
_WAIT_RETRY = Retry(pause_s=_RETRY_S)
CONNECTOR_STATES = tuple(state.value for state in ConnectorState)
"""The states that `ConnectorFacts.state` may have."""
FAILURE_RETRY = Retry(pause_s=1.0, pause_max_s=300.0)
"""Pauses before a failed connector is retried. After a try that lasted `RETRY_RESET_AFTER_S`, the first pause applies again."""
RETRY_RESET_AFTER_S = 60.0
STOP_TIMEOUT_S = 10.0
_TROUBLE_S = REPORT_INTERVAL_S + 5
"""The time for which a reported trouble counts as lasting, unless rows are moved before. It is reported again while it lasts."""
_RECORDS = "statedb"
"""The name, in place of a connector's, of a window's writer to a state database, or of its look-ups there."""


class ConnectorStatus:
    """State, rows and last error of a connector since its start. The connector's threads update it, and the engine's member record
    reads it. Thread-safe."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.state = ConnectorState.WAITING
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._rows = 0
        self._last_error = ""
        self._next_try_s: float | None = None
        self._troubled_s: float | None = None

    def record_start(self) -> None:
        """Records that the connector's work begins, for the first time or again."""
        self._set_state(ConnectorState.RUNNING)

    def record_end(self, state: ConnectorState) -> None:
        self._set_state(state)

    def record_failure(self, error: str, pause_s: float) -> None:
        """Records that the connector's work failed with `error`, and is tried again after `pause_s` seconds."""
        self._set_state(ConnectorState.FAILED, error, self._clock_s() + pause_s)

    def _set_state(self, state: ConnectorState, error: str = "", next_try_s: float | None = None) -> None:
        with self._lock:
            self.state, self._next_try_s, self._troubled_s = state, next_try_s, None
            self._last_error = error or self._last_error

    def record_trouble(self, error: str) -> None:
        """Records that the connector's work waits because of `error`. The caller repeats the call while the trouble lasts."""
        with self._lock:
            self._last_error, self._troubled_s = error, self._clock_s()

    def add_moved_rows(self, rows: int) -> None:
        self._set_rows(self._rows + rows)

    def moved_rows_counter(self) -> Callable[[int], None]:
        """Returns a callback for one attempt. Its argument is the total of rows that the attempt has moved so far, which is added
        to the rows moved before."""
        before = self._rows
        return lambda rows: self._set_rows(before + rows)

    def _set_rows(self, rows: int) -> None:
        with self._lock:
            if rows != self._rows:
                self._rows, self._troubled_s = rows, None

    def facts(self) -> ConnectorFacts:
        """Returns the facts for users. The state is WAITING for a running connector with a trouble."""
        with self._lock:
            now_s = self._clock_s()
            retry_in_ms = None if self._next_try_s is None else int(max(0.0, self._next_try_s - now_s) * 1000)
            is_troubled = self._troubled_s is not None and now_s - self._troubled_s < _TROUBLE_S
            state = ConnectorState.WAITING if is_troubled and self.state is ConnectorState.RUNNING else self.state
            return ConnectorFacts(state.value, self._rows, self._last_error, retry_in_ms)


@dataclass(frozen=True, slots=True)
class _Source:
    """The source that a publisher writes: its stable name, and the partition, or the routing of rows to all partitions.
    `on_trouble` gets the error of a bus that is unreachable for now, `on_skipped` a sentence for each gap that was skipped."""

    name: str
    partition: Partition
    routing: RowRouting | None
    connector_status: ConnectorStatus
    on_trouble: Callable[[BusError], None]
    warn: Callable[[str], None]
    on_skipped: Callable[[str], None]


_Publish: TypeAlias = Callable[[WindowId, Connector, _Source, threading.Event], None]


@dataclass(frozen=True, slots=True)
class _Task:
    """A connector, `query/window/connector`, and its work during one turn."""

    name: str
    work: Callable[[Turn, ConnectorStatus], None]


class ConnectorSet:
    """The connectors of a valid project that run in an engine. `home` is the folder of relative file names, by default the
    current one.

    `follow_role`, `start`, `request_stop` and `stop` are called from one thread, repeatedly; only `stop` waits, at most
    `stop_timeout_s`. A connector that fails is logged and retried after a pause that grows; it never ends the engine. Bus
    connectors for the project's own topics are not run: the engine reads and writes these itself. `ended` is called from a
    connector's thread when the connector has ended.

    Connector groups start in the project's order (`start_order`): each call of `follow_role` starts the connectors that may start
    then. `taken` returns the offset up to which the engine has processed a partition, None for one that it does not read.

    In a divided project, the first shard's connectors publish, to all partitions. Each shard's subscribers write its outputs to
    files of their own (`shard_file`). `prefixes` are `Plan.prefixes`.
    """

    def __init__(
        self,
        resolved: Resolved,
        bus: Bus,
        prefix: str,
        home: Path | None = None,
        log: Log | None = None,
        ended: Callable[[], None] = lambda: None,
        shard: Shard = WHOLE,
        taken: Callable[[Partition], int | None] = lambda partition: None,
        stop_timeout_s: float = STOP_TIMEOUT_S,
        after_failure: Retry = FAILURE_RETRY,
        prefixes: Mapping[str, RowPrefix] | None = None,
    ) -> None:
        self._resolved = resolved
        self._stop_timeout_s = stop_timeout_s
        self._after_failure = after_failure
        self._bus = bus
        self._prefix = prefix
        self._prefixes = prefixes or {}
        self._home = absolute_path(home or "")
        self._log = log or Log()
        self._run: _Run | None = None
        self._threads: dict[str, threading.Thread] = {}
        """The newest thread of each connector. A thread waits for the connector's previous one, which may hang."""
        self._standings: Mapping[str, ConnectorStatus] = {}
        self._ends: dict[str, Mapping[Partition, int]] = {}
        """For each finished publisher, the end offsets of its topic's partitions at that time."""
        self._is_over = False
        self._tell_ended = ended
        self._shard = shard
        self._taken = taken
        self._lock = threading.Lock()
        self._busy = 0

    def states(self) -> Mapping[str, ConnectorState]:
        """Returns the state per `query/window/connector`."""
        return {name: standing.state for name, standing in sorted(self._standings.items())}

    def facts(self) -> Mapping[str, ConnectorFacts]:
        """Returns the facts per `query/window/connector`; empty before the first start. Thread-safe."""
        return {name: standing.facts() for name, standing in sorted(self._standings.items())}

    def follow_role(self, role: Role, epoch: int = 0) -> None:
        """Runs the connectors while the engine is active, under the group's epoch. They do not write files that a newer epoch has
        written."""
        if self._run is not None and (role is not Role.ACTIVE or epoch != self._run.epoch):
            self._stop_run()
        if role is Role.ACTIVE:
            self.start(epoch)
            self._start_due()

    def start(self, epoch: int = 0) -> None:
        """Starts each connector that may start, in a thread of its own. Does nothing if connectors run, or after `request_stop`."""
        if self._run is not None or self._is_over:
            return
        tasks = {task.name: task for task in self._tasks()}
        self._run = _Run(epoch, tasks, StartOrder(self._resolved.project.connector_groups, tasks))
        self._standings = self._run.standings
        self._start_due()

    def _start_due(self) -> None:
        """Starts the connectors that may start now, and logs once why the others wait."""
        run = self._run
        if run is None or not run.waiting:
            return
        while due := [
            name for name in run.order.startable_connectors(self._states_of(run), self._is_processed) if name in run.waiting
        ]:
            for name in due:
                self._start_task(run.waiting.pop(name), run)
        if not run.is_wait_told:
            run.is_wait_told = True
            for name in run.waiting:
                reason = "its group starts after " + ", ".join(
                    run.order.blocking_connectors(name, self._states_of(run), self._is_processed)
                )
                self._log.event(LogEvent.CONNECTOR_WAITS, reason, connector=name)

    def _states_of(self, run: _Run) -> Mapping[str, ConnectorState]:
        return {name: standing.state for name, standing in run.standings.items()}

    def _start_task(self, task: _Task, run: _Run) -> None:
        run.standings[task.name].record_start()
        before, name = self._threads.get(task.name), f"connector-{task.name.rpartition('/')[2]}"
        thread = threading.Thread(target=self._run_connector, args=(task, run, before), name=name, daemon=True)
        self._threads[task.name] = thread
        with self._lock:
            self._busy += 1
        thread.start()

    def _is_processed(self, name: str) -> bool:
        """Whether the engine has processed all events that publisher `name`, which has finished, appended."""
        taken = {partition: self._taken(partition) for partition in self._ends.get(name, {})}
        return all(offset is None or offset >= self._ends[name][partition] for partition, offset in taken.items())

    def request_stop(self) -> None:
        """Requests the end of all connectors; none is started again. Their writes are durable once `is_idle`."""
        self._is_over = True
        self._stop_run()

    @property
    def is_idle(self) -> bool:
        """Whether all connector threads have finished their work."""
        return not self._busy

    def stop(self) -> None:
        """Requests the end of all connectors and waits for it, at most `stop_timeout_s` in total. Does nothing if none runs."""
        self._stop_run()
        deadline_s = time.monotonic() + self._stop_timeout_s
        for thread in self._threads.values():
            thread.join(timeout=max(0.0, deadline_s - time.monotonic()))

    def _stop_run(self) -> None:
        if self._run is not None:
            self._run.stop()
            self._run = None

    def _tasks(self) -> list[_Task]:
        tasks = []
        for window in self._resolved.windows:
            kept = type_of(window.window).record_keeping(window.window, window.schema)
            if kept is not None and window.id in self._resolved.streams:
                tasks.append(_Task(f"{window.id}/{_RECORDS}", partial(self._write_records, window.id, kept)))
            query = type_of(window.window).record_query(window.window, window.schema)
            if query is not None and window.requesting_window in self._resolved.streams and not self._shard.number:
                tasks.append(_Task(f"{window.id}/{_RECORDS}", partial(self._publish_look_ups, window, query)))
            for connector in window.window.connectors:
                if connector.direction is ConnectorDirection.PUBLISH and self._shard.number:
                    continue
                if not is_bus(connector):
                    tasks.append(_Task(connector_path(window.id, connector), self._task_work(window.id, connector)))
                else:
                    does = "reads" if connector.direction is ConnectorDirection.PUBLISH else "writes"
                    what = f"{connector.kind} is the bus: the engine itself {does} the topic of window {window.id}"
                    self._log.event(LogEvent.CONNECTOR_BUILT_IN, what, connector=f"{window.id}/{connector.name}")
        return tasks

    def _task_work(self, window: WindowId, connector: Connector) -> Callable[[Turn, ConnectorStatus], None]:
        if connector.direction is ConnectorDirection.PUBLISH:
            ways = {FILE_KIND: self._publish, **dict.fromkeys(BUS_KINDS, self._copy_external_topic)}
            return partial(self._run_publisher, window, connector, ways.get(connector.kind, self._generate))
        return partial(self._run_subscriber, window, connector)

    def _run_publisher(
        self, window: WindowId, connector: Connector, publish: _Publish, stop: threading.Event, standing: ConnectorStatus
    ) -> None:
        connector = with_absolute_paths(connector, self._home)
        project, path = self._resolved.project.name, connector_path(window, connector)
        topic = inbound_topic(self._prefix, project, window.query, window.window)
        log, waits = self._log.bind(connector=path), self._trouble_callback(path, standing)
        way = routing_of(self._resolved, window, self._shard.count)
        routing = None if way is None else RowRouting(self._resolved.schema(window), way)
        source = _Source(
            name=f"connector:{project}/{path}",
            partition=Partition(topic),
            routing=routing,
            connector_status=standing,
            on_trouble=waits,
            warn=partial(log.event, LogEvent.SOURCE_WARNING),
            on_skipped=partial(log.event, LogEvent.INPUT_LOST),
        )
        publish(window, connector, source, stop)
        self._ends[path] = {each: self._bus.end_offset(each) for each in partitions_of(self._bus.topics(), topic)}

    def _publish(self, window: WindowId, connector: Connector, source: _Source, stop: threading.Event) -> None:
        schema, address = self._resolved.schema(window), connector_address(connector)
        if address is not None:
            lines, add = line_options(connector, schema), source.connector_status.add_moved_rows
            publish_lines(self._bus, source.partition, address, lines, stop, routing=source.routing, report=add, warn=source.warn)
            return
        declared = self._resolved.window(window).window
        options = publish_options(connector, schema, source.name, type_of(declared).row_defaults(declared))
        file = Path(connector.get("fsname"))
        count = source.connector_status.moved_rows_counter()
        publish_file(
            self._bus,
            source.partition,
            file,
            options,
            stop,
            report=lambda done: count(done.events),
            troubled=source.on_trouble,
            routing=source.routing,
            warn=source.warn,
        )

    def _generate(self, window: WindowId, connector: Connector, source: _Source, stop: threading.Event) -> None:
        make = generator_factory(connector, self._resolved.window(window).window, self._resolved.schema(window), self._home)
        troubled, routing = source.on_trouble, source.routing
        publish_generated(
            self._bus, source.partition, source.name, make, stop, troubled, routing, report=source.connector_status.add_moved_rows
        )

    def _copy_external_topic(self, window: WindowId, connector: Connector, source: _Source, stop: threading.Event) -> None:
        options = topic_publish_options(connector, self._resolved.schema(window), source.name)
        count = source.connector_status.moved_rows_counter()
        with contextlib.closing(open_topic_reader(topic_url(connector), topic_name(connector))) as reader:
            publish_topic(
                self._bus,
                source.partition,
                reader,
                options,
                stop,
                report=lambda done: count(done.events - done.events_before),
                troubled=source.on_trouble,
                routing=source.routing,
                warn=source.warn,
                skipped=source.on_skipped,
            )

    def _write_records(self, window: WindowId, kept: RecordKeeping, turn: Turn, standing: ConnectorStatus) -> None:
        """Writes a window's outputs into a state database. In a divided project, each shard's outputs count as one stream."""
        topic, number = self._stream(window), None if self._shard.is_whole else self._shard.number
        stream = topic if number is None else f"{topic}/{number}"
        options = SendOptions(stream, RecordForm(kept, self._resolved.schema(window)))
        kept = replace(kept, server=absolute_url(kept.server, self._home))
        with contextlib.closing(open_state_writer(kept, stream, turn.epoch)) as writer:
            send_topic(self._bus, topic, writer, options, turn, self._report(topic, f"{window}/{_RECORDS}", standing), number)

    def _publish_look_ups(self, window: ResolvedWindow, query: RecordQuery, turn: Turn, standing: ConnectorStatus) -> None:
        """Publishes the records that a window looks up for the outputs of another window: each answer once, also after a
        fail-over."""
        assert window.requesting_window is not None
        project, path = self._resolved.project.name, f"{window.id}/{_RECORDS}"
        inbound = inbound_topic(self._prefix, project, window.id.query, window.id.window)
        waits, asks = self._trouble_callback(path, standing), self._resolved.schema(window.requesting_window)
        query = replace(query, server=absolute_url(query.server, self._home))
        with contextlib.closing(open_look_ups(query, asks, window.schema, window.window.index)) as look_ups:
            options = TopicPublishOptions(
                f"connector:{project}/{path}", TopicForm(rows=RowForm(schema=window.schema)), outputs=look_ups
            )
            reader, count = BusTopicReader(self._bus, self._stream(window.requesting_window)), standing.moved_rows_counter()
            publish_topic(
                self._bus, Partition(inbound), reader, options, turn, lambda done: count(done.events - done.events_before), waits
            )

    def _stream(self, window: WindowId) -> str:
        return outbound_topic(self._prefix, self._resolved.project.name, window.query, window.window)

    def _trouble_callback(self, path: str, standing: ConnectorStatus) -> Callable[[HotspareError], None]:
        """Returns a callback that records and logs an error of an unreachable bus."""
        log = self._log.bind(connector=path)

        def report_trouble(error: HotspareError) -> None:
            standing.record_trouble(error.in_one_line)
            log.event(LogEvent.CONNECTOR_WAITS, str(error), code=error.code)

        return report_trouble

    def _report(self, topic: str, path: str, standing: ConnectorStatus) -> SubscribeReport:
        log, count = self._log.bind(connector=path), standing.moved_rows_counter()
        return SubscribeReport(
            on_progress=lambda progress: count(progress.rows),
            on_sequence_break=lambda place: log.event(LogEvent.SEQUENCE_BROKEN, str(place), topic=topic),
            on_incomplete=lambda first: log.event(LogEvent.OUTPUT_NOT_FROM_BEGINNING, topic=topic, first_sequence=first),
            on_trouble=self._trouble_callback(path, standing),
        )

    def _run_subscriber(self, window: WindowId, connector: Connector, stop: threading.Event, standing: ConnectorStatus) -> None:
        connector, topic = with_absolute_paths(connector, self._home), self._stream(window)
        report = self._report(topic, f"{window}/{connector.name}", standing)
        if connector.kind in BUS_KINDS:
            self._send(window, connector, topic, report, stop)
        else:
            self._subscribe(window, connector, topic, report, stop, standing)

    def _send(self, window: WindowId, connector: Connector, topic: str, report: SubscribeReport, stop: threading.Event) -> None:
        path, number = connector_path(window, connector), None if self._shard.is_whole else self._shard.number
        name = f"connector:{self._resolved.project.name}/{path}" + ("" if number is None else f"/{number}")
        options = topic_send_options(connector, self._resolved.schema(window), name)
        with contextlib.closing(open_topic_writer(topic_url(connector), topic_name(connector), source_prefix(name))) as writer:
            send_topic(self._bus, topic, writer, options, stop, report, number)

    def _subscribe(
        self,
        window: WindowId,
        connector: Connector,
        topic: str,
        report: SubscribeReport,
        stop: threading.Event,
        standing: ConnectorStatus,
    ) -> None:
        style = file_style(connector, self._prefixes.get(str(window), RowPrefix.EVENT))
        rows = OutputRows(style, self._resolved.schema(window))
        address, partition = connector_address(connector), None if self._shard.is_whole else self._shard.number
        if address is not None:
            subscribe_lines(
                self._bus, topic, address, rows, line_format(connector), stop, partition=partition, report=standing.add_moved_rows
            )
            return
        file = shard_file(Path(connector.get("fsname")), self._shard)
        subscribe_file(self._bus, topic, file, rows, subscribe_options(connector), stop, report, partition)

    def _run_connector(self, task: _Task, run: _Run, before: threading.Thread | None) -> None:
        log = self._log.bind(connector=task.name)
        while before is not None and before.is_alive() and not run.stopped.is_set():
            before.join(_RETRY_S)
        log.event(LogEvent.CONNECTOR_STARTED)
        self._perform(task, run, log)
        with self._lock:
            self._busy -= 1
        self._tell_ended()

    def _perform(self, task: _Task, run: _Run, log: Log) -> None:
        """Runs the task's work. Repeats it after each failure and a growing pause, until it ends or the connectors are stopped."""
        standing, failure = run.standings[task.name], dict[str, str]()

        def pause(pause_s: float) -> None:
            standing.record_failure(failure["message"], pause_s)
            log.event(LogEvent.CONNECTOR_FAILED, **failure, retry_s=pause_s)
            run.stopped.wait(pause_s)

        while True:
            for _ in self._after_failure.tries(pause):
                standing.record_start()
                begun_s = time.monotonic()
                failure = self._run_once(task, run, standing, log)
                if not failure:
                    return
                if time.monotonic() - begun_s >= RETRY_RESET_AFTER_S:
                    break
            pause(
                self._after_failure.pause_s
            )  # the work lasted RETRY_RESET_AFTER_S before it failed: pauses begin with the first again

    def _run_once(self, task: _Task, run: _Run, standing: ConnectorStatus, log: Log) -> dict[str, str]:
        """Runs the work once. Returns its error as fields of the log; empty without an error."""
        try:
            self._until_done(task, run, standing, log)
        except HotspareError as error:
            return {"message": str(error), "code": error.code}
        except Exception as error:
            return {"message": f"{type(error).__name__}: {error}"}
        stopped = run.stopped.is_set()
        standing.record_end(ConnectorState.STOPPED if stopped else ConnectorState.FINISHED)
        log.event(LogEvent.CONNECTOR_STOPPED if stopped else LogEvent.CONNECTOR_FINISHED)
        return {}

    def _until_done(self, task: _Task, run: _Run, standing: ConnectorStatus, log: Log) -> None:
        """Runs the task's work until it ends or the connectors are stopped. Repeats it after each retryable error, for example
        while another engine has the file, and after the end of its turn. Logs each new reason once."""
        told = ""
        for _ in _WAIT_RETRY.tries(run.stopped.wait):
            if run.stopped.is_set():
                return
            turn, reason = run.turn(), "a newer epoch of the group has written the file"
            try:
                task.work(turn, standing)
            except HotspareError as error:
                if not error.retryable:
                    raise
                reason = str(error)
            else:
                if run.stopped.is_set() or not turn.is_set():
                    return
            standing.record_trouble(reason)
            if reason != told and not run.stopped.is_set():
                log.event(LogEvent.CONNECTOR_WAITS, reason)
                told = reason


def shard_file(file: Path, shard: Shard) -> Path:
    """Returns the shard's own file: `out-3.csv` for `out.csv` and shard 3; the file itself if the project is not divided."""
    return file if shard.is_whole else file.with_name(f"{file.stem}-{shard.number}{file.suffix}")


class _Run:
    """The connectors between a start and a stop. Each try of each connector has its own turn, all under one epoch."""

    def __init__(self, epoch: int, tasks: Mapping[str, _Task], order: StartOrder) -> None:
        self.epoch = epoch
        self.tasks = tasks
        self.order = order
        self.standings = {name: ConnectorStatus() for name in tasks}
        self.waiting = dict(tasks)
        """Tasks that are not started yet."""
        self.is_wait_told = False
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._turns: weakref.WeakSet[Turn] = weakref.WeakSet()

    def turn(self) -> Turn:
        turn = Turn(self.epoch)
        with self._lock:
            self._turns.add(turn)
        if self.stopped.is_set():
            turn.set()
        return turn

    def stop(self) -> None:
        self.stopped.set()
        with self._lock:
            turns = list(self._turns)
        for turn in turns:
            turn.set()
