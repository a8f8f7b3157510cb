"""A group in an engine process: its resources, and the HA loop that performs its due actions.

A process hosts one group, or that of every shard. All groups of a process share its `SharedResources`. Each group has its own role,
connection to the active engine, held outputs, and thread that commits concurrently. With the local runner, a slow call of one group
delays no other. With the ordered runner, one thread delivers the batches of all groups, so a group that is slow to take one delays
the others. `CatchUp` measures how an engine that has started catches up with its topics: how far, how fast, and how long it will
still take (SPEC H8)."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

import hotspare
from hotspare.adapters.connectors import ConnectorSet
from hotspare.base.file_locks import end_if_stopped
from hotspare.base.processes import process_space, process_start
from hotspare.base.scratch import make_scratch
from hotspare.base.shard import Shard
from hotspare.bus.contract import Bus, Partition
from hotspare.bus.naming import group_name
from hotspare.bus.open import bus_servers
from hotspare.coordination.contract import Coordination, Member
from hotspare.flow.head.head import Head
from hotspare.flow.plan import Plan
from hotspare.flow.window_meter import WindowMeter
from hotspare.formats import arrow_block
from hotspare.ha.effects.joining import StartPlan
from hotspare.ha.effects.restoring import RestoreTarget
from hotspare.ha.events import HaDuration, HaEvent, HaEventKind
from hotspare.ha.group import GroupDefinition, GroupEngine
from hotspare.ha.peers import PeerLink, PeerServer
from hotspare.ha.ports import Ports
from hotspare.ha.process_watcher import ProcessWatcher
from hotspare.ha.rules.roles import ENDS, Role
from hotspare.ha.rules.settings import GroupTopics
from hotspare.host.alive import is_alive
from hotspare.host.background import Background, ConcurrentCalls
from hotspare.host.clock import monotonic_ms, pause
from hotspare.host.definition import PipelineFactory, project_identity
from hotspare.host.metrics import WINDOWS_MAX, GroupInput, GroupMetrics, ProcessMetrics, WindowSamples
from hotspare.host.options import EngineOptions
from hotspare.host.recent_input import settings_of
from hotspare.host.recovering_core import RecoveringCoreFactory, Recovery
from hotspare.host.restoring import restore_named, snapshot_url
from hotspare.host.topics import group_topics, source_topics
from hotspare.host.watchdog.attach import EngineBoard
from hotspare.model.project import Project
from hotspare.rows.batch import NextInput, RowKind
from hotspare.runners.contract import ReadPace, RunnerInput
from hotspare.stores.contract import Store
from hotspare.stores.open import open_store
from hotspare.table.memory import NO_BUDGET
from hotspare.table.page_cache.open import page_cache_for
from hotspare.telemetry.log import Log, LogEvent

PartitionKey = tuple[int, int]
CATCH_UP_REPORT_MS = 1_000
_SHORT_MS = 2_000
"""A catch-up that takes at most this long reports only its end."""
_QUIET_MS = 2_000
"""After this long without a message, the last offset of a partition counts as empty: the mark that ends a transaction occupies an
offset, and no reader receives it."""
_TRANSACTION_MARKERS_MAX = 1


@dataclass(slots=True)
class CatchUp:
    """Progress of an engine from `begin` to `ends`, the ends of the topics when it started. Both are offsets by (topic index,
    partition)."""

    begin: Mapping[PartitionKey, int]
    ends: Mapping[PartitionKey, int]
    begun_ms: int
    is_done: bool = False
    _reported_ms: int = field(init=False)
    _left: int = field(init=False)
    _moved_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self._reported_ms = self._moved_ms = self.begun_ms
        self._left = self.total
        self.is_done = self.total == 0

    @property
    def total(self) -> int:
        """The count of messages that were left to read when the engine started."""
        return sum(self.messages_left({}))

    def messages_left(self, offsets: Mapping[PartitionKey, int]) -> list[int]:
        """Returns how many messages are left in each partition."""
        return [max(0, end - max(self.begin.get(key, 0), offsets.get(key, 0))) for key, end in self.ends.items()]

    def due_report(self, offsets: Mapping[PartitionKey, int], now_ms: int) -> tuple[str, dict[str, int]] | None:
        """Returns the sentence and the numbers to log now, or None if no report is due."""
        if self.is_done:
            return None
        each = self.messages_left(offsets)
        left, took_ms = sum(each), max(1, now_ms - self.begun_ms)
        per_s = (self.total - left) * 1_000 // took_ms
        if left != self._left:
            self._left, self._moved_ms = left, now_ms
        if not left or (now_ms - self._moved_ms >= _QUIET_MS and max(each) <= _TRANSACTION_MARKERS_MAX):
            self.is_done = True
            return f"caught up: {self.total} messages in {took_ms / 1_000:.1f} s", {"messages": self.total, "per_s": per_s}
        if now_ms - self._reported_ms < CATCH_UP_REPORT_MS or took_ms < _SHORT_MS:
            return None
        self._reported_ms = now_ms
        left_s = -(-left // per_s) if per_s else -1
        told = f"{left_s} s left" if per_s else "time left unknown"
        percent = 100 * (self.total - left) // self.total
        sentence = f"catches up: {percent} % of {self.total} messages, {per_s} per second, {told}"
        return sentence, {"messages_left": left, "per_s": per_s, "left_s": left_s}


_HA_LOOP_MS_MAX = 1_000
_HA_LOOP_MS_MIN = 1
"""Pause between two runs of the HA loop, in which a batch that waits for the group's lock gets it."""
_HA_LOG: dict[HaEventKind, LogEvent] = {
    HaEventKind.STARTED: LogEvent.STATE_RESTORED,
    HaEventKind.SNAPSHOT_UNUSABLE: LogEvent.SNAPSHOT_REJECTED,
    HaEventKind.ROLE_CHANGED: LogEvent.ROLE_CHANGED,
    HaEventKind.ACTED: LogEvent.HA_ACTION,
    HaEventKind.DIFFERENCE_SEEN: LogEvent.DIVERGED,
    HaEventKind.SNAPSHOT_WRITTEN: LogEvent.SNAPSHOT_WRITTEN,
    HaEventKind.SNAPSHOT_CONFIRMED: LogEvent.SNAPSHOT_CONFIRMED,
    HaEventKind.SNAPSHOT_FAILED: LogEvent.HA_ALARM,
    HaEventKind.BUS_TROUBLE: LogEvent.HA_ALARM,
    HaEventKind.LOCK_HOLDER_ENDED: LogEvent.LOCK_HOLDER_ENDED,
    HaEventKind.OUTPUTS_LOST: LogEvent.HA_ALARM,
    HaEventKind.OUTPUT_TOO_LARGE: LogEvent.HA_ALARM,
    HaEventKind.COORDINATION_CHANGED: LogEvent.HA_ALARM,
    HaEventKind.COORDINATION_LATE: LogEvent.COORDINATION_LATE,
    HaEventKind.RESULT_UNKNOWN: LogEvent.HA_ALARM,
    HaEventKind.MEMBERS_UNKNOWN: LogEvent.SOURCE_WARNING,
    HaEventKind.HUNG_CALL: LogEvent.HUNG_CALL,
}


@dataclass(frozen=True, slots=True)
class SharedResources:
    """The resources that all groups of a process use."""

    options: EngineOptions
    project: Project
    plan: Plan
    head: Head
    bus: Bus
    coordination: Coordination
    store: Store
    server: PeerServer
    process_watcher: ProcessWatcher
    background: Background
    log: Log
    board: EngineBoard
    metrics: ProcessMetrics | None = None
    """None if no parent answers requests."""

    @property
    def shared_reading_bus(self) -> Bus | None:
        """The bus that the runners of all shards share, with its connections, if it is on servers. None if each runner opens its
        own bus."""
        return self.bus if self.options.shards > 1 and bus_servers(self.options.bus_url) else None


class HostedGroup:
    """A group of this process. `engine` runs it, `member` is this process's record in it, and `source` is the input of a runner
    that reads for it alone. `pace` belongs to whichever runner reads for the group. Everything that is opened is closed with
    `stack`. The `groups` groups of this process share its memory evenly."""

    def __init__(self, shared: SharedResources, shard: Shard, pace: ReadPace, stack: contextlib.ExitStack, groups: int) -> None:
        options, number = shared.options, shard.number
        self._shared = shared
        self.shard = shard
        self.name = group_name(options.prefix, shared.project.name, shard)
        self.topics = _topics(shared, shard)
        self.wake = threading.Event()
        self.source = runner_input(shared, pace, shard)
        self._log = shared.log.bind(group=self.name)
        peers = PeerLink(options.engine, process_space(), self.wake.set, shared.process_watcher)
        stack.callback(peers.close)
        spill = make_scratch("held")
        stack.callback(shutil.rmtree, spill, ignore_errors=True)
        beside = ConcurrentCalls(self.wake.set)
        stack.callback(beside.close)
        ports = Ports(
            bus=shared.bus,
            coordination=shared.coordination,
            store=shared.store,
            peers=peers,
            codec=arrow_block,
            clock_ms=monotonic_ms,
            report=self._report,
            background=shared.background.run,
            end_process=end_if_stopped,
            is_alive=is_alive,
            pause=pause,
            start_call=beside.start_call,
            open_store=open_store,
            set_read_interval_ms=lambda interval_ms: pace.set_interval(interval_ms / 1_000, number),
            restrict_reading=lambda partitions: pace.restrict_reading(partitions, number),
            connectors=lambda: self.connectors.facts(),
            observe_ms=self._observe_ms,
            after_actions=self._after_actions,
        )
        self.recovery = Recovery(
            self.name, self.topics, shared.bus, shared.store, shared.coordination, self.source, self._log_poison
        )
        residence = page_cache_for(options.memory_bytes, options.page_folder, groups) or NO_BUDGET
        self._catch_up: CatchUp | None = None
        meter = None if shared.metrics is None else WindowMeter(shared.plan, time.perf_counter_ns)
        self._is_reading, self._kept_back = False, list[HaEvent]()
        pipelines = PipelineFactory(shared.plan, self._log, shard, residence, meter)
        cores = RecoveringCoreFactory(pipelines, self.recovery, shared.board.slot(number))
        self.member = _member(shared)
        self._metrics = self._new_metrics(beside, meter, groups)
        self.engine = GroupEngine(_definition(shared, self.name, self.topics, cores), self.member, ports, spill)
        stack.callback(self.engine.close)
        self.connectors = ConnectorSet(
            shared.plan.resolved,
            shared.bus,
            options.prefix,
            options.folder,
            self._log,
            self.wake.set,
            shard,
            self._next_offset_of,
            prefixes=shared.plan.prefixes,
        )
        stack.callback(self.connectors.stop)

    def _new_metrics(self, beside: ConcurrentCalls, meter: WindowMeter | None, groups: int) -> GroupMetrics | None:
        if self._shared.metrics is None or meter is None:
            return None
        return GroupMetrics(
            self._shared.metrics,
            self.name,
            self.shard,
            self.member,
            GroupInput(self.topics, self._shared.bus.end_offset, beside.start_call, monotonic_ms),
            status=lambda: self.engine.status(),
            connectors=lambda: self.connectors.facts(),
            has_caught_up=lambda: self.has_caught_up,
            windows=WindowSamples(meter, max(1, WINDOWS_MAX // groups)),
        )

    def _observe_ms(self, kind: HaDuration, duration_ms: int) -> None:
        if self._metrics is not None:
            self._metrics.durations.observe_ms(kind, duration_ms)

    def _after_actions(self) -> None:
        if self._metrics is not None:
            self._metrics.after_actions(self.engine.role, self.engine.epoch)

    def start(self) -> StartPlan:
        """Joins the group, after restoring the persisted snapshot that the options or the project name. Raises what
        `GroupEngine.start` and `restore_named` raise."""
        shared, options = self._shared, self._shared.options
        named = options.restore or snapshot_url(shared.project.restore, options.folder)
        if named:
            to = RestoreTarget(
                self.name,
                self.topics,
                PipelineFactory(shared.plan, self._log, self.shard),
                shared.bus,
                shared.coordination,
                shared.store,
            )
            self._log.event(LogEvent.STATE_RESTORED, restore_named(named, to))
        plan = self.engine.start()
        self.recovery.on_poison = plan.on_poison
        ends = {key: shared.bus.end_offset(partition) for key, partition in self._partitions()}
        self._catch_up = CatchUp(dict(plan.next_offsets), ends, monotonic_ms())
        return plan

    def _partitions(self) -> list[tuple[tuple[int, int], Partition]]:
        return [((index, partition.number), partition) for index, partition in self.topics.partitions]

    def _log_catch_up(self) -> None:
        """Logs how far the group has caught up with what its topics held when it started."""
        if self._catch_up is None or self._catch_up.is_done:
            return
        offsets = {key: self.engine.next_offset(key) for key, _ in self._partitions()}
        told = self._catch_up.due_report(offsets, monotonic_ms())
        if told is not None:
            self._log.event(LogEvent.CATCHING_UP, told[0], **told[1])

    @property
    def has_caught_up(self) -> bool:
        """Whether the group has read what its topics held when it joined. An active engine counts as caught up."""
        return self.engine.role is Role.ACTIVE or (self._catch_up is not None and self._catch_up.is_done)

    @property
    def has_ended(self) -> bool:
        return self.engine.role in ENDS

    def run_ha_loop_until(self, is_over: Callable[[], bool]) -> None:
        """Runs the HA loop whenever an action is due, until `is_over` returns true or the group has ended."""
        while not is_over() and not self.has_ended:
            due_ms = self.engine.next_due_ms()
            wait_ms = _HA_LOOP_MS_MAX if due_ms is None else min(_HA_LOOP_MS_MAX, max(_HA_LOOP_MS_MIN, due_ms - monotonic_ms()))
            self.wake.wait(wait_ms / 1000)
            self.wake.clear()
            self.engine.run_ha_loop()
            self._log_catch_up()
            self.connectors.follow_role(self.engine.role, self.engine.epoch)

    def process_batch(self, decoded: pa.RecordBatch | pa.Table, next_input: NextInput = NextInput.AWAITED) -> None:
        """Computes a batch (`GroupEngine.on_batch`). While events arrive, the end of the active engine is noticed sooner."""
        if (decoded.column("kind").to_numpy() == int(RowKind.EVENT)).any():
            self._shared.process_watcher.look_often()
        self.engine.on_batch(decoded, next_input)

    def _next_offset_of(self, partition: Partition) -> int | None:
        """Returns the next offset that the engine reads from a partition; None if it does not read that partition."""
        keys = (key for key, each in self.topics.partitions if each == partition)
        return next((self.engine.next_offset((key, partition.number)) for key in keys), None)

    def _log_poison(self, sentence: str) -> None:
        self._log.event(LogEvent.EVENT_POISONOUS, sentence)

    def record_reading_started(self) -> None:
        """Records that the runner delivers input, and logs the role changes until now: before, the engine could not act in these
        roles."""
        self._is_reading = True
        while self._kept_back:
            self._log_event(self._kept_back.pop(0))

    def _report(self, event: HaEvent) -> None:
        if self._metrics is not None:
            self._metrics.record_event(event)
        self._log_event(event)

    def _log_event(self, event: HaEvent) -> None:
        if event.kind is HaEventKind.ROLE_CHANGED and not self._is_reading:
            self._kept_back.append(event)
            return
        self._log.event(_HA_LOG.get(event.kind, LogEvent.HA_NOTICE), event.sentence, kind=event.kind.value, **event.numbers)


def runner_input(shared: SharedResources, pace: ReadPace, shard: Shard | None = None) -> RunnerInput:
    """Returns the input of a runner for one shard, or for all shards if `shard` is None."""
    options, resolved = shared.options, shared.plan.resolved
    topics = _topics(shared, shard or Shard(0, options.shards))
    only = None if shard is None or shard.is_whole else shard.number
    return RunnerInput(
        bus_url=options.bus_url,
        topics=source_topics(resolved, topics, only),
        head=shared.head,
        head_place=options.head_place,
        limits=options.limits,
        pace=pace,
        shards=1 if shard is not None else options.shards,
    )


def _topics(shared: SharedResources, shard: Shard) -> GroupTopics:
    """Returns the topics of a group. The bus supplies the partition counts of other projects' streams."""
    resolved = shared.plan.resolved
    reads_others = any(resolved.reads(source) is not None for source in resolved.sources)
    found = shared.bus.topics() if reads_others else {}
    return group_topics(shared.project, shared.plan, shared.options.prefix, shard, found)


def _definition(shared: SharedResources, name: str, topics: GroupTopics, cores: RecoveringCoreFactory) -> GroupDefinition:
    identity, settings = project_identity(shared.project, shared.plan), settings_of(shared.options, shared.plan)
    return GroupDefinition(name, topics, identity, cores, settings, shared.plan.code_versions)


def _member(shared: SharedResources) -> Member:
    """Returns the record of this process for each of its groups."""
    return Member(
        engine=shared.options.engine,
        address=shared.server.address,
        process_id=os.getpid(),
        process_start=process_start(os.getpid()),
        host=socket.gethostname(),
        project_hash=shared.plan.project_hash,
        versions=f"hotspare {hotspare.__version__} python {platform.python_version()}",
        cpu=platform.processor() or platform.machine(),
        role="joining",
        sequences={},
        detail=dict(shared.options.place),
        process_space=process_space(),
    )
