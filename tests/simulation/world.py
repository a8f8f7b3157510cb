"""A simulated group: engines, bus, coordination, store, time and faults in one thread, from one seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.memory import MemoryBus
from hotspare.coordination.contract import Leader
from hotspare.coordination.memory import MemoryCoordination
from hotspare.ha.core import CoreFactory
from hotspare.ha.events import HaEvent
from hotspare.ha.group import GroupDefinition
from hotspare.ha.joining import ProjectIdentity
from hotspare.ha.ports import Ports
from hotspare.ha.roles import Role
from hotspare.ha.settings import GroupSettings, GroupTopics, InboundTopic, OutputStream
from hotspare.ha.view import PeerStatus
from hotspare.stores.contract import SnapshotStatus
from hotspare.stores.memory import MemoryStore
from tests.simulation.checkers import Observer, Violation
from tests.simulation.codec import StreamCodec
from tests.simulation.engines import Fencing, FencingKind, Process, SimulatedPeers, WatchedBus, batch_of, read_rows
from tests.simulation.fast_core import STREAMS, FastCores, positions_in
from tests.simulation.faults import BusFaultSource, CoordinationFaultSource, FaultKind, FaultPlan

GROUP = "sim.project"
TOPICS = GroupTopics(
    (InboundTopic("in0"), InboundTopic("in1")),
    tuple(OutputStream(stream, f"out{i}") for i, stream in enumerate(STREAMS)),
)
SETTINGS = GroupSettings(
    lease_ms=60,
    heartbeat_ms=20,
    candidate_wait_ms=10,
    merge_wait_ms=5,
    leader_poll_ms=15,
    progress_poll_ms=15,
    member_refresh_ms=30,
    snapshot_interval_ms=40,
    retry_ms=2,
    coordination_retry_ms=4,
    divergence_wait_ms=90,
    message_rows_max=4,
    commit_rows_max=16,
    confirmed_snapshots_max=2,
)
DETECTION_MS = 3


def project(text: str = "project") -> ProjectIdentity:
    return ProjectIdentity(f"hash of {text}", text, lambda other: [f"{other} became {text}"])


@dataclass
class World:
    """`names` of the engines that may run. Everything random comes from `rng`. `trace` receives what happens, line by line."""

    rng: random.Random
    names: tuple[str, ...]
    plan: FaultPlan
    folder: Path
    trace: Callable[[str], None] = lambda _: None
    fencing: Fencing = field(default_factory=lambda: Fencing(FencingKind.BY_EPOCH))
    settings: GroupSettings = SETTINGS
    cores: dict[str, CoreFactory] = field(default_factory=dict)
    now_ms: int = 1_000_000
    lives: dict[str, int] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    died_ms: dict[tuple[str, int], int] = field(default_factory=dict)
    suspicion_until_ms: int = 0
    events: list[tuple[str, HaEvent]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan.now_ms = lambda: self.now_ms
        self.bus = MemoryBus(lambda: self.now_ms * 1000, BusFaultSource(self.plan))
        self.coordination = MemoryCoordination(lambda: self.now_ms, CoordinationFaultSource(self.plan))
        self.store = MemoryStore(lambda: self.now_ms * 1000)
        self.outside = self.bus.client("world")
        self.codec = StreamCodec()
        self.observer = Observer({o.stream: o.topic for o in TOPICS.outbound}, self.codec.decode)
        for topic in TOPICS.inbound:
            self.outside.create_topic(topic.name)

    def start(self, name: str) -> Process:
        """A new life of an engine."""
        life = self.lives[name] = self.lives.get(name, 0) + 1
        jobs: list[Callable[[], None]] = []
        skew_ms = 7919 * len(self.lives)
        ports = Ports(
            bus=WatchedBus(self.bus, f"{name}#{life}", self.observer, self.fencing),
            coordination=self.coordination.client(f"{name}#{life}"),
            store=self.store,
            peers=SimulatedPeers(self._judge),
            codec=self.codec,
            clock_ms=lambda: self.now_ms + skew_ms,
            report=lambda event: self._report(name, event),
            background=jobs.append,
            end_process=self._end_process,
        )
        definition = GroupDefinition(GROUP, TOPICS, project(), self.cores.get(name, FastCores()), self.settings)
        process = Process(name, life, definition, ports, self.rng, self.folder / f"{name}-{life}", jobs=jobs)
        self.processes[name] = process
        self.trace(f"{self.now_ms} {name} starts its life {life}")
        return process

    def _report(self, name: str, event: HaEvent) -> None:
        self.events.append((name, event))
        self.trace(f"{self.now_ms} {name}   ({event.kind.value}: {event.sentence})")

    def _judge(self, holder: str, life: int) -> PeerStatus:
        """The truth, a little late; or, during a false suspicion, a lie."""
        process = self.processes.get(holder)
        if process is None or process.life != life:
            died_ms = self.died_ms.get((holder, life), self.now_ms)
            return PeerStatus.CLOSED if self.now_ms - died_ms >= DETECTION_MS else PeerStatus.CONNECTED
        return PeerStatus.CLOSED if self.now_ms < self.suspicion_until_ms else PeerStatus.CONNECTED

    def _end_process(self, leader: Leader) -> bool:
        process = self.processes.get(leader.holder)
        if process is None or process.life != leader.process_start:
            return False
        self.kill(leader.holder)
        return True

    def kill(self, name: str) -> None:
        """SIGKILL: what was in memory is gone, what was durable stays."""
        process = self.processes.pop(name)
        self.died_ms[name, process.life] = self.now_ms
        process.steps = iter(())
        if self.plan.lock_holder == name:
            self.plan.lock_holder = ""
        self.trace(f"{self.now_ms} {name} is killed")

    def pause(self, name: str, duration_ms: int) -> None:
        """SIGSTOP."""
        self.processes[name].paused_until_ms = self.now_ms + duration_ms
        self.trace(f"{self.now_ms} {name} is paused for {duration_ms} ms")
        if self.plan.happens(FaultKind.BUS_LOCKED, 0.3) and not self.plan.lock_holder:
            self.plan.lock_holder = name
            self.trace(f"{self.now_ms} {name} keeps the bus locked")

    def awake(self) -> list[Process]:
        if self.plan.lock_holder:
            holder = self.processes.get(self.plan.lock_holder)
            if holder is None or holder.paused_until_ms <= self.now_ms:
                self.plan.lock_holder = ""
        return [p for p in self.processes.values() if p.paused_until_ms <= self.now_ms]

    def advance(self, process: Process) -> str:
        commits = self.observer.commits
        step = process.advance()
        if self.observer.commits != commits:
            self._wake_at_commit()
        if step != "idles":
            self.trace(f"{self.now_ms} {process.name} {step}")
        if process.ended:
            self.processes.pop(process.name, None)
            self.died_ms[process.name, process.life] = self.now_ms
        return step

    def _wake_at_commit(self) -> None:
        for sleeper in self.processes.values():
            if sleeper.wakes_at_commit and sleeper.paused_until_ms > self.now_ms and not self.plan.quiet:
                sleeper.paused_until_ms = self.now_ms

    def publish(self, topic: int, value: int) -> None:
        offset = self.outside.append(Partition(TOPICS.inbound[topic].name), [Outgoing(str(value).encode())])
        self.trace(f"{self.now_ms} event {value} at {topic}/{offset}")

    def active(self) -> str:
        """Who believes to be active; "" if nobody does."""
        return next((p.name for p in self.processes.values() if p.engine.role is Role.ACTIVE), "")

    def trim_input(self) -> None:
        """What an operator may do: forget input that the newest confirmed snapshot no longer needs."""
        confirmed = [i for i in self.store.list(GROUP) if i.status is SnapshotStatus.CONFIRMED]
        if not confirmed:
            return
        for (topic, number), offset in positions_in(self.store.get(GROUP, confirmed[0].name).header).items():
            self._archive(topic, number, offset)
            self.outside.trim(Partition(TOPICS.inbound[topic].name, number), offset)
        self.trace(f"{self.now_ms} input is trimmed to snapshot {confirmed[0].name}")

    archive: dict[tuple[int, int], list[tuple[int, ...]]] = field(default_factory=dict)

    def _archive(self, topic: int, number: int, before: int) -> None:
        """Keep what is trimmed, for the reference."""
        partition = Partition(TOPICS.inbound[topic].name, number)
        rows = self.archive.setdefault((topic, number), [])
        offsets = {(topic, number): self.outside.begin_offset(partition)}
        rows += [r for r in read_rows(self.outside, topic, partition, offsets, 1 << 20) if r[2] < before]

    def reference(self) -> dict[str, list[tuple[object, ...]]]:
        """What an uninterrupted engine makes of the recorded input, ticks included."""
        core = FastCores().fresh()
        core.set_partitions([(i, p.number) for i, p in TOPICS.partitions])
        rows: list[tuple[int, ...]] = []
        for index, partition in TOPICS.partitions:
            rows += self.archive.get((index, partition.number), [])
            offsets = {(index, partition.number): self.outside.begin_offset(partition)}
            rows += read_rows(self.outside, index, partition, offsets, 1 << 20)
        outputs = core.feed(batch_of(rows)) if rows else {}
        return {s: list(zip(*(c.to_pylist() for c in b.columns), strict=True)) for s, b in outputs.items()}

    def check_end(self, target: dict[str, int]) -> None:
        """After healing: everything that was due has come out, and it is what it should be."""
        self.observer.compare(self.reference())
        delivered = self.observer.delivered()
        if any(delivered[s] < target.get(s, 0) for s in delivered):
            raise Violation(f"liveness: delivered {delivered} of {target}; engines: {self.describe()}")

    def describe(self) -> str:
        return ", ".join(f"{p.name}#{p.life} {p.engine.role.value}" for p in self.processes.values()) or "none runs"
