"""The engine process: loads the project, opens its resources, starts the runner, and runs until its end.

It hosts the project's group or, if the project is divided, the groups of all its shards (hosted_group.py). A task of Spark, which
hosts a changing part of the shards, is partitioned/task.py.

Threads: the main one starts and stops everything, and performs the first group's due actions between batches. Each other group has
a thread for its actions. The runner's threads feed batches; one thread for each group commits concurrently; the peer threads notice
a closed connection. All enter a group through its one lock.

    local     a runner for each group, which reads its partitions
    ordered   one query of Spark for all groups: a long-lived micro-batch has a task for each slot, and one for each shard would
              multiply memory and cores. Its rows are passed to the groups by partition.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NoReturn, TypeVar, cast

import hotspare
from hotspare.adapters.metadata import describe, publish_metadata
from hotspare.base.addresses import HostPort, address_towards, checked_host_port
from hotspare.base.choices import RunnerKind, SpareKind, StartWhen
from hotspare.base.errors import BusLocked, UsageError
from hotspare.base.inbound_role import InboundRole
from hotspare.base.interpreter import freeze_existing_objects, keep_freed_memory, shorten_switch_interval
from hotspare.base.retry import Retry
from hotspare.base.shard import shards_of
from hotspare.base.stop_signals import stop_on_signals
from hotspare.bus.contract import Readers
from hotspare.bus.naming import checked_prefix
from hotspare.bus.open import bus_servers, open_bus
from hotspare.coordination.contract import Coordination
from hotspare.coordination.open import coordination_servers, default_coordination_url, open_coordination
from hotspare.flow.head.head import Head
from hotspare.flow.plan import compile_plan
from hotspare.flow.semantics import SEMANTICS
from hotspare.ha.effects.joining import StartPlan
from hotspare.ha.effects.upgrading import OwnSnapshotGroup, agreement, has_any_cut_over
from hotspare.ha.group import GroupEngine
from hotspare.ha.peers import PeerServer
from hotspare.ha.process_watcher import ProcessWatcher
from hotspare.ha.rules.settings import GroupTopics
from hotspare.host.background import Background
from hotspare.host.clock import monotonic_ms
from hotspare.host.hosted_group import HostedGroup, SharedResources, runner_input
from hotspare.host.kernels import load_kernels, needs_compiling
from hotspare.host.metrics import ProcessMetrics, metrics_for_parent
from hotspare.host.options import EngineOptions
from hotspare.host.orders import StopWatch, await_start
from hotspare.host.project import checked_project
from hotspare.host.recent_input import check_join
from hotspare.host.starting import StartPhase, await_need, shown_start
from hotspare.host.topic_checks import check_at_start, check_message_sizes, check_settings, check_streams_read
from hotspare.host.watchdog.attach import UNWATCHED, EngineBoard, attach
from hotspare.host.watchdog.rule import EXIT_AGAIN
from hotspare.host.watchdog.rule import EXIT_RUNNER_DIED as EXIT_RUNNER_DIED
from hotspare.model.mistakes import brief
from hotspare.model.partitioning import refused_shards
from hotspare.projects.load import LoadedProject
from hotspare.runners.contract import EndCause, OnBatch, ReadPace, Runner, RunnerEnd
from hotspare.runners.reading import ShardedBatches
from hotspare.stores.open import default_store_url, open_store
from hotspare.stores.renamed_groups import RenamedGroupsStore
from hotspare.telemetry.log import Log, LogEvent

_WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104
EXIT_OK = 0
EXIT_FAILED = 1
_STOP_MS_MAX = 5_000
_JOINING_MAX = 8
"""Limit on groups that join at a time; each that restores briefly has its snapshot in memory twice."""
LOCKED_WAIT_S = 30.0
"""The longest wait for the lock of a bus: longer than a busy publisher delays one caller, also on a machine short of processors."""
_LOCKED = Retry(lasting_s=LOCKED_WAIT_S)
"""Retries without a pause: the bus itself waits for its lock before it raises BusLocked."""

_T = TypeVar("_T")


def run_engine(options: EngineOptions) -> int:
    """Runs until Ctrl-C, SIGTERM, or the end of a group or the runner; returns the exit status. Call it from the main thread."""
    checked_prefix(options.prefix)
    log = Log().bind(engine=options.engine)
    log.event(LogEvent.ENGINE_STARTING, project=str(options.project), bus=options.bus_url, version=hotspare.__version__)
    board = attach(options)
    with board.loading():
        loaded = checked_project(options.project, options.properties, options.home, options.project_name, options.bindings)
    for warning in brief(loaded.warnings):
        log.event(LogEvent.PROJECT_WARNING, str(warning))
    with contextlib.ExitStack() as stack:
        engine = EngineProcess(options, loaded, log, stack, board, metrics_for_parent(options.engine))
        return engine.run()
    return EXIT_FAILED


class EngineProcess:
    """The process that `run_engine` runs.

    Raises ProjectError if the project cannot be divided into `options.shards` shards, UsageError for the runner PARTITIONED or if
    `--join recent` contradicts other options.
    """

    def __init__(
        self,
        options: EngineOptions,
        loaded: LoadedProject,
        log: Log,
        stack: contextlib.ExitStack,
        board: EngineBoard = UNWATCHED,
        metrics: ProcessMetrics | None = None,
    ) -> None:
        if options.runner is RunnerKind.PARTITIONED:
            raise UsageError("an engine process cannot be a whole application", hint="`run_application` starts one")
        if (refusal := refused_shards(loaded.resolved, options.shards)) is not None:
            raise refusal
        check_join(options, loaded.project)
        self._options = options
        self._stop = threading.Event()
        self._end: RunnerEnd | None = None
        self._stop_asked = False
        self._failures: list[Exception] = []
        self._shared = replace(open_shared(options, loaded, log, stack, board), metrics=metrics)
        self._groups: list[HostedGroup] = []
        interval_s, shards = options.settings.read_interval_ms / 1_000, shards_of(options.shards)
        self._pace = ReadPace(interval_s, [shard.number for shard in shards])
        for shard in shards:
            pace = self._pace if self._is_reading_shared else ReadPace(interval_s, [shard.number], lambda: len(shards))
            self._groups.append(HostedGroup(self._shared, shard, pace, stack, len(shards)))
        self._log = log.bind(group=self._groups[0].name) if len(shards) == 1 else log.bind(shards=len(shards))

    @property
    def group(self) -> GroupEngine:
        """The engine of the first group, which is the only one if the project is not divided."""
        return self._groups[0].engine

    def roles(self) -> dict[int, str]:
        """Returns the role in each hosted shard's group, by shard. Callable from any thread."""
        return {group.shard.number: group.engine.role.value for group in self._groups}

    @property
    def end_reason(self) -> str:
        """Why groups or the runner ended by themselves; "" if none did."""
        if self._end is not None and self._end.error is not None:
            return str(self._end.error)
        return "; ".join(dict.fromkeys(group.engine.stopped_reason for group in self._groups if group.engine.stopped_reason))

    def hang_up(self) -> None:
        """Notifies the spares at once that this process is about to end. Callable from any thread."""
        self._shared.server.hang_up()

    @property
    def _is_reading_shared(self) -> bool:
        """Whether one runner reads for all groups."""
        return self._options.runner is RunnerKind.ORDERED

    def run(self) -> int:
        with self._shown(StartPhase.COMPILING if needs_compiling(self._shared.plan.resolved) else StartPhase.LOADING):
            make_ready(self._shared, self._log)
        if self._options.start is StartWhen.ASKED and not self._is_started():
            return EXIT_OK
        if self._options.spare is SpareKind.COLD and not self._is_needed():
            return EXIT_OK
        with self._shown(StartPhase.STATE):
            plans = self._joined()
        runners = self._runners(plans)
        try:
            with stop_on_signals(self.request_stop), contextlib.ExitStack() as stack:
                self._start(runners)
                freeze_existing_objects()  # including what the runners loaded
                watch = StopWatch(self._shared.coordination, self._groups[0].name, self._groups[0].member, self.request_stop)
                stack.callback(watch.close)
                for group in self._groups:
                    group.record_reading_started()
                self._log.event(LogEvent.ENGINE_STARTED, address=self._shared.server.address)
                self._run_ha_loops_until(lambda: self._stop.is_set() or any(group.has_ended for group in self._groups))
                for group in self._groups:
                    if group.engine.is_stalled:
                        self._abandon_runner(group.engine.stopped_reason)
                self._finish()
        finally:
            _stop_all([runner for runner, _ in runners])
        return self._exit_status()

    def _start(self, runners: Sequence[tuple[Runner, dict[tuple[int, int], int]]]) -> None:
        with contextlib.ExitStack() as stack:
            if self._is_reading_shared:
                self._log.event(LogEvent.SPARK_STARTING)
                stack.enter_context(self._shown(StartPhase.SPARK))
            for runner, plan in runners:
                runner.start(plan)
                if runner.notice:
                    self._log.event(LogEvent.RUNNER_WARNING, runner.notice)
                if runner.ui_url:
                    self._log.event(LogEvent.SPARK_UI, url=runner.ui_url)

    def _log_slots(self, slots: int, wanted: int) -> None:
        self._log.event(LogEvent.APPLICATION_WAITS, f"{slots} of {wanted} slots are available", slots=slots, wanted=wanted)

    def _shown(self, phase: StartPhase) -> contextlib.AbstractContextManager[None]:
        return shown_start(self._shared.coordination, [(group.name, group.member) for group in self._groups], phase)

    def _is_started(self) -> bool:
        """Waits until the start is ordered; returns False if a stop is requested first."""
        first = self._groups[0]
        self._log.event(LogEvent.ENGINE_WAITS)
        with stop_on_signals(self.request_stop):
            await_start(self._shared.coordination, first.name, first.member, self._stop)
        return not self._stop_asked

    def _is_needed(self) -> bool:
        """Waits until a group has no publishing engine; returns False if a stop is requested first."""
        self._log.event(LogEvent.ENGINE_COLD)
        groups, lease_ms = [(group.name, group.member) for group in self._groups], self._options.settings.lease_ms
        with stop_on_signals(self.request_stop):
            group = await_need(self._shared.coordination, groups, lease_ms, monotonic_ms, self._stop)
        if group is not None:
            self._log.event(LogEvent.ENGINE_NEEDED, group=group)
        return not self._stop_asked

    def _joined(self) -> list[StartPlan]:
        """Joins every group, and performs the checks and writes of a start. Waits while another process holds the bus lock."""
        shared, groups = self._shared, self._groups
        # Starts load this machine, and nothing waits for them: they may wait for a late answer.
        with shared.coordination.extended_timeouts():
            check_before_joining(shared, groups[0].topics)
            plans = _started(groups, shared.coordination)
            check_when_joined(shared, groups[0].topics, [group.name for group in groups])
        return plans

    def _finish(self) -> None:
        """Ends the connectors first; then the engine gives up its roles and leaves the groups."""
        self._log.event(LogEvent.ENGINE_STOPPING)
        for group in self._groups:
            group.connectors.request_stop()
        deadline_ms = monotonic_ms() + _STOP_MS_MAX
        self._run_ha_loops_until(
            lambda: all(g.connectors.is_idle for g in self._groups) or monotonic_ms() > deadline_ms or self._end is not None
        )
        for group in self._groups:
            group.engine.request_stop()
        for group in self._groups:
            group.engine.run_ha_loop()  # also if the runner has failed: outputs from before are valid
        deadline_ms = monotonic_ms() + _STOP_MS_MAX
        self._run_ha_loops_until(lambda: monotonic_ms() > deadline_ms or self._end is not None)

    def _exit_status(self) -> int:
        if self._failures:
            raise self._failures[0]
        if self._end is not None and self._end.cause is EndCause.FAILED:
            self._log.event(LogEvent.ENGINE_FAILED, str(self._end.error))
            return EXIT_FAILED
        if not self._stop_asked:
            self._log.event(LogEvent.ENGINE_FAILED, self.end_reason)
            return EXIT_AGAIN if any(group.engine.is_void for group in self._groups) else EXIT_FAILED
        self._log.event(LogEvent.ENGINE_STOPPED)
        return EXIT_OK

    def _runners(self, plans: list[StartPlan]) -> list[tuple[Runner, dict[tuple[int, int], int]]]:
        """Returns the runners, each with the offsets at which it begins."""
        if not self._is_reading_shared:
            from hotspare.runners.local import LocalRunner

            return [
                (
                    LocalRunner(group.source, group.process_batch, self._on_end, self._shared.shared_reading_bus),
                    dict(plan.next_offsets),
                )
                for group, plan in zip(self._groups, plans, strict=True)
            ]
        from hotspare.runners.spark.ordered import OrderedRunner

        source, take = self._groups[0].source, cast(OnBatch, self.group.on_batch)
        if len(self._groups) > 1:
            source = runner_input(self._shared, self._pace)
            take = ShardedBatches([group.process_batch for group in self._groups])
        positions = {key: offset for plan in plans for key, offset in plan.next_offsets.items()}
        runner = OrderedRunner(source, take, self._on_end, spark=self._options.spark, on_slots=self._log_slots)
        return [(runner, positions)]

    def _run_ha_loops_until(self, is_over: Callable[[], bool]) -> None:
        """Runs the HA loop of every group until `is_over` returns true or the group has ended: the first group's in the main
        thread, each other group's in a thread of its own."""
        first, *others = self._groups
        with _threads(lambda group: self._run_ha_loop(group, is_over), others):
            self._run_ha_loop(first, is_over)

    def _run_ha_loop(self, group: HostedGroup, is_over: Callable[[], bool]) -> None:
        try:
            group.run_ha_loop_until(is_over)
        except Exception as error:
            if len(self._groups) == 1:
                raise
            self._failures.append(error)
            self._stop.set()
        finally:
            self._wake_all()

    def _wake_all(self) -> None:
        for group in self._groups:
            group.wake.set()

    def request_stop(self) -> None:
        """Makes `run` give up the roles and return. Callable from any thread."""
        self._stop_asked = True
        self._stop.set()
        self._wake_all()

    def _on_end(self, end: RunnerEnd) -> None:
        """Stops this engine when a runner has ended: without a runner the engine is dead, and a spare takes over once the
        engine's sockets close."""
        self._end = end
        if end.cause is EndCause.PROCESS_DIED:
            self._abandon_runner(str(end.error))
        self._stop.set()
        self._wake_all()

    def _abandon_runner(self, why: str) -> NoReturn:
        """Ends the process at once: stopping a dead or hanging runner may hang, too. Its JVM ends with this process."""
        self._shared.server.hang_up()
        self._log.event(LogEvent.RUNNER_ENDED, why)
        sys.stderr.flush()
        os._exit(EXIT_RUNNER_DIED)


def make_ready(shared: SharedResources, log: Log) -> None:
    """Prepares a process once, before its engines work: loads machine code, and configures the interpreter for them."""
    if needs_compiling(shared.plan.resolved):
        log.event(LogEvent.KERNELS_COMPILING)
    load_kernels(shared.plan.resolved)
    shorten_switch_interval()
    keep_freed_memory()
    freeze_existing_objects()


def open_shared(
    options: EngineOptions, loaded: LoadedProject, log: Log, stack: contextlib.ExitStack, board: EngineBoard = UNWATCHED
) -> SharedResources:
    """Opens the resources that all groups of a process use; `stack` closes them. `board` shows their calls. Raises UsageError if an
    option contradicts `shards`, or a URL cannot be used."""
    with board.loading():
        plan = compile_plan(loaded.resolved)
    bus = open_bus(options.bus_url, Readers.MANY if options.shards > 1 else Readers.ONE)
    stack.callback(bus.close)
    coordination_url = options.coordination_url or default_coordination_url(options.bus_url)
    board.name_places(options, plan, coordination_url)
    coordination = open_coordination(coordination_url)
    stack.callback(coordination.close)
    kept = open_store(options.store_url or default_store_url(options.bus_url))
    stack.callback(kept.close)
    store = RenamedGroupsStore(kept, OwnSnapshotGroup(coordination, plan.project_hash, SEMANTICS))
    server = PeerServer(options.engine, *peer_addresses(options, coordination_url))
    stack.callback(server.close)
    background = Background()
    stack.callback(background.close)
    head = Head.from_plan(plan, shards=options.shards)
    resources = (bus, coordination, store, server, ProcessWatcher(), background, log, board)
    return SharedResources(options, loaded.project, plan, head, *resources)


def check_before_joining(shared: SharedResources, topics: GroupTopics) -> None:
    """Startup checks, run once before any group joins. Waits while another process holds the bus lock."""
    options, bus = shared.options, shared.bus
    inbound = [topic.name for topic in topics.inbound if topic.kind is not InboundRole.OUTPUTS]
    retry_while_locked(lambda: check_settings(bus, inbound, topics.output_topics, options.create_time, shared.log))
    retry_while_locked(lambda: check_streams_read(bus, options.prefix, shared.plan.resolved))


def check_when_joined(shared: SharedResources, topics: GroupTopics, names: Sequence[str]) -> None:
    """Performs the checks and writes of a process's start, after its first groups, with these names, have joined."""
    options, plan, bus, prefix = shared.options, shared.plan, shared.bus, shared.options.prefix
    schemas = plan.stream_schemas
    outputs = [(output, schemas[output.stream]) for output in topics.outbound]
    retry_while_locked(lambda: check_message_sizes(bus, outputs))
    if _is_leading_project(shared, names[0]):
        document = describe(plan.resolved, prefix, options.shards, plan.prefixes)
        retry_while_locked(lambda: publish_metadata(bus, prefix, document))
    retry_while_locked(lambda: check_at_start(bus, shared.store, prefix, plan, options.settings, shared.log, names))


def _is_leading_project(shared: SharedResources, group: str) -> bool:
    """Whether the streams on the bus are this project's. If two projects run during an upgrade, the streams are those of the
    leading project."""
    known = agreement(shared.coordination, group) if has_any_cut_over(shared.coordination, group) else None
    return known is None or known.leading.is_run_by(shared.plan.project_hash, SEMANTICS)


def _stop_all(runners: Sequence[Runner]) -> None:
    """Stops all runners concurrently: each runner waits for its current work."""
    with ThreadPoolExecutor(max(1, len(runners))) as pool:
        list(pool.map(lambda runner: runner.stop(), runners))


def _started(groups: list[HostedGroup], coordination: Coordination) -> list[StartPlan]:
    """Starts the groups, at most _JOINING_MAX at a time. Each may wait until an engine of the same name shows whether it lives."""

    def start(group: HostedGroup) -> StartPlan:
        with coordination.extended_timeouts():
            return retry_while_locked(group.start)

    with ThreadPoolExecutor(min(_JOINING_MAX, len(groups)), "hotspare-join") as pool:
        return list(pool.map(start, groups))


@contextlib.contextmanager
def _threads(work: Callable[[HostedGroup], None], groups: list[HostedGroup]) -> Iterator[None]:
    """Runs `work` for each group in a thread of its own, concurrently with the block. The threads have ended when the block
    exits."""
    threads = [threading.Thread(target=work, args=(group,), name=f"beat-{group.name}", daemon=True) for group in groups]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()


def peer_addresses(options: EngineOptions, coordination_url: str) -> tuple[HostPort, HostPort]:
    """Returns (where to listen, where the other engines reach this one). Raises UsageError if the second cannot be determined.

    By default it is reachable from this machine alone if bus and coordination are on this machine. Otherwise it is the address by
    which this machine reaches the first remote server of coordination, or else of the bus.
    """
    listen = checked_host_port(options.listen, "--listen") if options.listen else None
    if options.address:
        address = checked_host_port(options.address, "--address")
    elif listen is not None and listen.host not in _WILDCARDS:
        address = listen
    else:
        own = address_towards((*coordination_servers(coordination_url), *bus_servers(options.bus_url)))
        address = HostPort(own, listen.port if listen is not None else 0)
    return listen or address, address


def retry_while_locked(call: Callable[[], _T], clock_s: Callable[[], float] = time.monotonic) -> _T:
    """Returns the call's result; repeats the call while it raises BusLocked. Raises BusLocked after LOCKED_WAIT_S (30 s). The
    call must be repeatable.

    An engine that starts has no role yet that a spare would have to take over, so it may wait.
    """
    return _LOCKED.call(call, lambda error: isinstance(error, BusLocked), clock_s=clock_s)
