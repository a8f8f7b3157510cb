"""One engine process that runs one group: loads the project, opens the doors, starts the runner, and beats until it is to end.

Threads: the main one starts and stops everything and waits; the runner's feeds batches; the beat performs what falls due between
batches; one beside them commits; the peer threads notice a closed connection. All enter the group through its one lock.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NoReturn

import pyarrow as pa

import hotspare
from hotspare.adapters.connectors import ConnectorSet
from hotspare.adapters.metadata import describe, publish_metadata
from hotspare.bus.naming import bad_topic, checked_prefix, group_name, inbound_topic, outbound_topic
from hotspare.bus.open import call_timeout_ms, open_bus
from hotspare.choices import RunnerKind
from hotspare.coordination.contract import Member
from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.engine.codec import arrow_block
from hotspare.engine.codec.csv.rows import CsvStyle, row_texts
from hotspare.engine.codec.topic_format import inbound_format, outbound_format
from hotspare.engine.head.head import Head
from hotspare.engine.pipeline import Pipeline
from hotspare.engine.plan import Plan, compile_plan
from hotspare.engine.rows.batch import BAD_STREAM
from hotspare.engine.warm import warm_up
from hotspare.file_locks import end_if_stopped
from hotspare.ha.effects.joining import ProjectIdentity, StartPlan
from hotspare.ha.events import HaEvent, HaEventKind
from hotspare.ha.group import GroupDefinition, GroupEngine
from hotspare.ha.peers import PeerLink, PeerServer
from hotspare.ha.ports import Ports
from hotspare.ha.rules.roles import ENDS
from hotspare.ha.rules.settings import GroupSettings, GroupTopics, InboundTopic, OutputStream
from hotspare.host.address import peer_addresses
from hotspare.host.alive import is_alive
from hotspare.host.background import Background
from hotspare.host.beside import Beside
from hotspare.host.careful_core import CarefulCores, Recovery
from hotspare.host.clock import monotonic_ms, pause
from hotspare.host.locked_bus import outwait_lock
from hotspare.host.message_sizes import check_message_sizes
from hotspare.host.options import EngineOptions
from hotspare.host.project import checked_project
from hotspare.host.retention import check_at_start
from hotspare.host.topic_settings import check_settings, note_sources
from hotspare.model.fingerprint import differences, from_document, to_document
from hotspare.model.load import LoadedProject
from hotspare.model.project import Project
from hotspare.processes import process_space, process_start
from hotspare.runners import contract as runner_contract
from hotspare.runners.contract import EndCause, ReadPace, Runner, RunnerEnd, RunnerInput
from hotspare.scratch import make_scratch
from hotspare.stop_signals import stop_asked
from hotspare.stores.open import default_store_url, open_store
from hotspare.telemetry.log import Log, LogEvent

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_RUNNER_DIED = 70
_BEAT_MS_MAX = 1_000
_BEAT_MS_MIN = 1
"""Between two cycles, so that a batch that waits for the group's lock comes in between."""
_STOP_MS_MAX = 5_000
_HA_LOG: dict[HaEventKind, LogEvent] = {
    HaEventKind.STARTED: LogEvent.STATE_RESTORED,
    HaEventKind.SNAPSHOT_UNUSABLE: LogEvent.SNAPSHOT_REJECTED,
    HaEventKind.ROLE_CHANGED: LogEvent.ROLE_CHANGED,
    HaEventKind.DIFFERENCE_SEEN: LogEvent.DIVERGED,
    HaEventKind.SNAPSHOT_WRITTEN: LogEvent.SNAPSHOT_WRITTEN,
    HaEventKind.SNAPSHOT_CONFIRMED: LogEvent.SNAPSHOT_CONFIRMED,
    HaEventKind.SNAPSHOT_FAILED: LogEvent.HA_ALARM,
    HaEventKind.BUS_TROUBLE: LogEvent.HA_ALARM,
    HaEventKind.LOCK_HOLDER_ENDED: LogEvent.LOCK_HOLDER_ENDED,
    HaEventKind.OUTPUTS_LOST: LogEvent.HA_ALARM,
    HaEventKind.OUTPUT_TOO_LARGE: LogEvent.HA_ALARM,
    HaEventKind.COORDINATION_CHANGED: LogEvent.HA_ALARM,
    HaEventKind.RESULT_UNKNOWN: LogEvent.HA_ALARM,
}


def run_engine(options: EngineOptions) -> int:
    """Run until Ctrl-C, SIGTERM, or an end of the group or the runner; the exit status says which. From the main thread."""
    checked_prefix(options.prefix)
    log = Log().bind(engine=options.engine)
    log.event(LogEvent.ENGINE_STARTING, project=str(options.project), bus=options.bus_url, version=hotspare.__version__)
    loaded = checked_project(options.project, options.properties, options.home, options.project_name, options.bindings)
    for warning in loaded.warnings:
        log.event(LogEvent.PROJECT_WARNING, str(warning))
    with contextlib.ExitStack() as stack:
        engine = EngineProcess(options, loaded, log, stack)
        return engine.run()
    return EXIT_FAILED


def group_topics(project: Project, plan: Plan, prefix: str) -> GroupTopics:
    """The names of everything that a group reads and writes (SPEC B1)."""
    inbound = [inbound_topic(prefix, project.name, w.query, w.window) for w in plan.resolved.sources]
    outbound = [
        OutputStream(
            str(w),
            outbound_topic(prefix, project.name, w.query, w.window),
            plan.resolved.quality(w),
            outbound_format(plan.resolved.window(w).window),
        )
        for w in plan.resolved.streams
    ]
    bad = OutputStream(BAD_STREAM, bad_topic(prefix, project.name))
    return GroupTopics(tuple(InboundTopic(name) for name in inbound), (*outbound, bad))


def _patient(options: EngineOptions) -> GroupSettings:
    """A promotion keeps its lease for longer than one call of the bus may take: else a slow one could never end."""
    settings = options.settings
    least_ms = call_timeout_ms(options.bus_url) + settings.lease_ms
    return replace(settings, promotion_step_ms=max(settings.promotion_step_ms, least_ms))


class PipelineFactory:
    """Makes cores of one plan (`ha.core.CoreFactory`), whose traced events are logged."""

    def __init__(self, plan: Plan, log: Log) -> None:
        self._plan = plan
        self._log = log

    def fresh(self) -> Pipeline:
        return Pipeline.fresh(self._plan, self._trace)

    def restore(self, header: bytes, pages: Mapping[str, bytes]) -> Pipeline:
        return Pipeline.restore(self._plan, header, pages, self._trace)

    def _trace(self, window: str, events: pa.RecordBatch) -> None:
        for row in row_texts(events, CsvStyle.EXACT):
            self._log.event(LogEvent.TRACE, window=window, row=row)


def project_identity(project: Project, plan: Plan) -> ProjectIdentity:
    return ProjectIdentity(
        hash=plan.project_hash,
        document=to_document(project),
        differences=lambda stored: differences(from_document(stored), project),
    )


class EngineProcess:
    """What `run_engine` holds while it runs."""

    def __init__(self, options: EngineOptions, loaded: LoadedProject, log: Log, stack: contextlib.ExitStack) -> None:
        self._options = options
        self._project = loaded.project
        self._plan = compile_plan(loaded.resolved)
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._end: RunnerEnd | None = None
        self._stop_asked = False
        self._pace = ReadPace(options.settings.read_interval_ms / 1_000)
        self.topics = group_topics(self._project, self._plan, options.prefix)
        group = group_name(options.prefix, self._project.name)
        self._log = log.bind(group=group)
        self._bus = open_bus(options.bus_url)
        stack.callback(self._bus.close)
        coordination_url = options.coordination_url or default_coordination_url(options.bus_url)
        coordination = open_coordination(coordination_url)
        stack.callback(coordination.close)
        self._store = open_store(options.store_url or default_store_url(options.bus_url))
        stack.callback(self._store.close)
        self._server = PeerServer(options.engine, *peer_addresses(options, coordination_url))
        stack.callback(self._server.close)
        peers = PeerLink(options.engine, process_space(), self._wake.set)
        stack.callback(peers.close)
        self._background = Background()
        stack.callback(self._background.close)
        spill = make_scratch("held")
        stack.callback(shutil.rmtree, spill, ignore_errors=True)
        beside = Beside(self._wake.set)
        stack.callback(beside.close)
        ports = Ports(
            bus=self._bus,
            coordination=coordination,
            store=self._store,
            peers=peers,
            codec=arrow_block,
            clock_ms=monotonic_ms,
            report=self._report,
            background=self._background.run,
            end_process=end_if_stopped,
            is_alive=is_alive,
            pause=pause,
            begin=beside.begin,
            read_every_ms=lambda interval_ms: self._pace.set(interval_ms / 1_000),
            read_only=lambda partition: setattr(self._pace, "only", partition),
        )
        self._recovery = Recovery(group, self.topics, self._bus, self._store, coordination, self._source(), self._tell_of_poison)
        cores = CarefulCores(PipelineFactory(self._plan, self._log), self._recovery)
        identity = project_identity(self._project, self._plan)
        definition = GroupDefinition(group, self.topics, identity, cores, _patient(options))
        self.group = GroupEngine(definition, self._identity(), ports, spill)
        stack.callback(self.group.close)
        home = options.home or options.project.parent
        self._connectors = ConnectorSet(self._plan.resolved, self._bus, options.prefix, home, self._log, self._wake.set)
        stack.callback(self._connectors.stop)

    def _identity(self) -> Member:
        versions = f"hotspare {hotspare.__version__} python {platform.python_version()}"
        return Member(
            engine=self._options.engine,
            address=self._server.address,
            process_id=os.getpid(),
            process_start=process_start(os.getpid()),
            host=socket.gethostname(),
            project_hash=self._plan.project_hash,
            versions=versions,
            cpu=platform.processor() or platform.machine(),
            role="joining",
            sequences={},
            detail={},
            process_space=process_space(),
        )

    def _join(self) -> StartPlan:
        """Joins the group, and checks and writes what an engine does once. Who keeps the bus locked is waited for."""
        topics, options, bus, log = self.topics, self._options, self._bus, self._log
        inbound = [topic.name for topic in topics.inbound]
        outwait_lock(lambda: check_settings(bus, inbound, topics.output_topics, options.create_time, log))
        start = outwait_lock(self.group.start)
        self._recovery.on_poison = start.on_poison
        schemas = self._plan.stream_schemas
        outputs = [(output, schemas[output.stream]) for output in topics.outbound]
        outwait_lock(lambda: check_message_sizes(bus, outputs))
        document = describe(self._plan.resolved, options.prefix)
        outwait_lock(lambda: publish_metadata(bus, options.prefix, document))
        outwait_lock(lambda: check_at_start(bus, self._store, options.prefix, self._plan, options.settings, log))
        outwait_lock(lambda: note_sources(bus, [partition for _, partition in topics.partitions]))
        return start

    def run(self) -> int:
        warm_up()
        start = self._join()
        runner = self._runner()
        try:
            with stop_asked(self._ask_stop):
                runner.start(start.next_offsets)
                if runner.notice:
                    self._log.event(LogEvent.RUNNER_WARNING, runner.notice)
                self._log.event(LogEvent.ENGINE_STARTED, address=self._server.address)
                self._beat_until(self._stop.is_set)
                if self.group.is_stalled:
                    self._abandon_runner(self.group.stopped_reason)
                self._log.event(LogEvent.ENGINE_STOPPING)
                self._connectors.end()
                deadline_ms = monotonic_ms() + _STOP_MS_MAX
                self._beat_until(lambda: self._connectors.is_idle or monotonic_ms() > deadline_ms or self._end is not None)
                self.group.ask_stop()
                self.group.cycle()  # also where the runner has failed: what it brought out before is right
                deadline_ms = monotonic_ms() + _STOP_MS_MAX
                self._beat_until(lambda: monotonic_ms() > deadline_ms or self._end is not None)
        finally:
            runner.stop()
        return self._exit_status()

    def _exit_status(self) -> int:
        if self._end is not None and self._end.cause is EndCause.FAILED:
            self._log.event(LogEvent.ENGINE_FAILED, str(self._end.error))
            return EXIT_FAILED
        if not self._stop_asked:
            self._log.event(LogEvent.ENGINE_FAILED, self.group.stopped_reason)
            return EXIT_FAILED
        self._log.event(LogEvent.ENGINE_STOPPED)
        return EXIT_OK

    def _source(self) -> RunnerInput:
        options = self._options
        return RunnerInput(
            bus_url=options.bus_url,
            topics=tuple(
                runner_contract.SourceTopic(topic.name, topic.partitions, inbound_format(self._plan.resolved.window(source).window))
                for topic, source in zip(self.topics.inbound, self._plan.resolved.sources, strict=True)
            ),
            head=Head.of(self._plan),
            head_place=options.head_place,
            kafka_reader=options.kafka_reader,
            limits=options.limits,
            pace=self._pace,
        )

    def _runner(self) -> Runner:
        source = self._recovery.source
        if self._options.runner is RunnerKind.LOCAL:
            from hotspare.runners.local import LocalRunner

            return LocalRunner(source, self.group.on_batch, self._on_end)
        from hotspare.runners.spark.ordered import OrderedRunner

        return OrderedRunner(source, self.group.on_batch, self._on_end)

    def _tell_of_poison(self, sentence: str) -> None:
        self._log.event(LogEvent.EVENT_POISONOUS, sentence)

    def _beat_until(self, is_over: Callable[[], bool]) -> None:
        """Perform what falls due, in the main thread, until `is_over` or the group's end."""
        while not is_over() and self.group.role not in ENDS:
            due_ms = self.group.next_due_ms()
            wait_ms = _BEAT_MS_MAX if due_ms is None else min(_BEAT_MS_MAX, max(_BEAT_MS_MIN, due_ms - monotonic_ms()))
            self._wake.wait(wait_ms / 1000)
            self._wake.clear()
            self.group.cycle()
            self._connectors.follow(self.group.role, self.group.epoch)

    def _ask_stop(self) -> None:
        self._stop_asked = True
        self._stop.set()
        self._wake.set()

    def _on_end(self, end: RunnerEnd) -> None:
        """The runner is gone: without it this engine is dead, and the sooner its sockets close, the sooner a spare goes on."""
        self._end = end
        if end.cause is EndCause.PROCESS_DIED:
            self._abandon_runner(str(end.error))
        self._stop.set()
        self._wake.set()

    def _abandon_runner(self, why: str) -> NoReturn:
        """End at once: a runner that died or hangs may hang when it is stopped, too. Its JVM ends with this process."""
        self._server.hang_up()
        self._log.event(LogEvent.RUNNER_ENDED, why)
        sys.stderr.flush()
        os._exit(EXIT_RUNNER_DIED)

    def _report(self, event: HaEvent) -> None:
        self._log.event(_HA_LOG.get(event.kind, LogEvent.HA_NOTICE), event.sentence, kind=event.kind.value, **event.numbers)
