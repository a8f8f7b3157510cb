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
from hotspare.ha.settings import GroupSettings
from hotspare.ha.view import PeerStatus
from hotspare.stores.contract import SnapshotStatus
from hotspare.stores.memory import MemoryStore
from tests.simulation.checkers import Observer, Violation
from tests.simulation.codec import StreamCodec
from tests.simulation.engines import Fencing, FencingKind, Process, SimulatedPeers, WatchedBus, read_raw
from tests.simulation.faults import BusFaultSource, CoordinationFaultSource, FaultKind, FaultPlan
from tests.simulation.kits import Kit, Raw, fast_kit

GROUP = "sim.project"
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
    kit: Kit = field(default_factory=fast_kit)
    cores: dict[str, CoreFactory] = field(default_factory=dict)
    """Engines that compute something else: wrong ones."""
    now_ms: int = 1_000_000
    lives: dict[str, int] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    died_ms: dict[tuple[str, int], int] = field(default_factory=dict)
    suspicion_until_ms: int = 0
    archive: dict[tuple[int, int], list[Raw]] = field(default_factory=dict)
    events: list[tuple[str, HaEvent]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan.now_ms = lambda: self.now_ms
        self.bus = MemoryBus(lambda: self.now_ms * 1000, BusFaultSource(self.plan))
        self.coordination = MemoryCoordination(lambda: self.now_ms, CoordinationFaultSource(self.plan))
        self.store = MemoryStore(lambda: self.now_ms * 1000)
        self.outside = self.bus.client("world")
        self.codec = StreamCodec()
        self.observer = Observer({o.stream: o.topic for o in self.kit.topics.outbound}, self.codec.decode)
        for topic in self.kit.topics.inbound:
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
        definition = GroupDefinition(GROUP, self.kit.topics, project(), self.cores.get(name, self.kit.cores), self.settings)
        process = Process(name, life, definition, self.kit, ports, self.rng, self.folder / f"{name}-{life}", jobs=jobs)
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
        """Wake who sleeps until somebody else has published under a newer epoch."""
        for sleeper in self.processes.values():
            if sleeper.wakes_at_commit and not self.plan.quiet and self.observer.newest_epoch > sleeper.engine.status().epoch:
                sleeper.wakes_at_commit = False
                sleeper.paused_until_ms = self.now_ms

    def publish(self, topic: int, value: int) -> None:
        offset = self.outside.append(Partition(self.kit.topics.inbound[topic].name), [Outgoing(self.kit.encode(value))])
        self.trace(f"{self.now_ms} event {value} at {topic}/{offset}")

    def active(self) -> str:
        """Who believes to be active; "" if nobody does."""
        return next((p.name for p in self.processes.values() if p.engine.role is Role.ACTIVE), "")

    def trim_input(self) -> None:
        """What an operator may do: forget input that the newest confirmed snapshot no longer needs."""
        confirmed = [i for i in self.store.list(GROUP) if i.status is SnapshotStatus.CONFIRMED]
        if not confirmed:
            return
        stored = self.store.get(GROUP, confirmed[0].name)
        for (topic, number), offset in self.kit.cores.restore(stored.header, stored.pages).next_offsets.items():
            self._archive(topic, number, offset)
            self.outside.trim(Partition(self.kit.topics.inbound[topic].name, number), offset)
        self.trace(f"{self.now_ms} input is trimmed to snapshot {confirmed[0].name}")

    def _archive(self, topic: int, number: int, before: int) -> None:
        """Keep what is trimmed, for the reference."""
        messages = self.archive.setdefault((topic, number), [])
        messages += [m for m in self._recorded(topic, Partition(self.kit.topics.inbound[topic].name, number)) if m.offset < before]

    def _recorded(self, topic: int, partition: Partition) -> list[Raw]:
        offsets = {(topic, partition.number): self.outside.begin_offset(partition)}
        return read_raw(self.outside, topic, partition, offsets, 1 << 20)

    def reference(self) -> dict[str, list[tuple[object, ...]]]:
        """What an uninterrupted engine makes of the recorded input, ticks included."""
        core = self.kit.cores.fresh()
        core.set_partitions([(i, p.number) for i, p in self.kit.topics.partitions])
        messages: list[Raw] = []
        for index, partition in self.kit.topics.partitions:
            messages += self.archive.get((index, partition.number), [])
            messages += self._recorded(index, partition)
        outputs = core.feed(self.kit.decode(messages)) if messages else {}
        return {s: list(zip(*(c.to_pylist() for c in b.columns), strict=True)) for s, b in outputs.items()}

    def check_end(self, target: dict[str, int]) -> None:
        """After healing: everything that was due has come out, and it is what it should be."""
        self.observer.compare(self.reference())
        delivered = self.observer.delivered()
        if any(delivered[s] < target.get(s, 0) for s in delivered):
            raise Violation(f"liveness: delivered {delivered} of {target}; engines: {self.describe()}")

    def describe(self) -> str:
        return ", ".join(f"{p.name}#{p.life} {p.engine.role.value}" for p in self.processes.values()) or "none runs"
