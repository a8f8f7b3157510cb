"""One simulated engine process: the real GroupEngine, stepped from outside, able to die or sleep between any two of its effects."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import pyarrow as pa

from hotspare.bus.contract import Bus, Commit, Partition, Producer, Progress
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.coordination.contract import Leader, Member
from hotspare.errors import BusError, BusUnavailable, CoordinationError, Fenced, UnknownResult
from hotspare.ha.group import GroupDefinition, GroupEngine
from hotspare.ha.ports import Ports
from hotspare.ha.roles import ENDS
from hotspare.ha.view import PeerStatus
from tests.simulation.checkers import Observer
from tests.simulation.kits import Kit, Raw

_BYTES_MAX = 1 << 20


class FencingKind(Enum):
    """How a bus keeps old epochs out."""

    BY_EPOCH = "by epoch"
    """It knows epochs and refuses an older one, as the SQLite bus does."""
    BY_ORDER = "by order"
    """Whoever fenced last may publish, whatever its epoch, as Kafka's transactional producers do: weaker, so rechecking counts."""


@dataclass
class Fencing:
    """Shared by all producers of a simulated bus: who fenced last."""

    kind: FencingKind
    newest: int = 0


@dataclass
class WatchedProducer:
    """A producer whose commits the observer sees when they land, whatever the engine is told."""

    inner: Producer
    bus: MemoryBus
    group: str
    engine: str
    observer: Observer
    fencing: Fencing
    own: int = -1

    def fence(self, epoch: int) -> None:
        if self.fencing.kind is FencingKind.BY_ORDER:
            epoch = max(epoch, self.bus.epochs.get(self.group, 0))
        try:
            self.inner.fence(epoch)
        except UnknownResult:
            self.fencing.newest += 1
            raise
        self.fencing.newest += 1
        self.own = self.fencing.newest

    def progress(self) -> Mapping[str, Progress]:
        return self.inner.progress()

    def publish(self, epoch: int, commit: Commit) -> None:
        if self.fencing.kind is FencingKind.BY_ORDER:
            if self.own != self.fencing.newest:
                raise Fenced("another producer fenced this one")
            epoch = self.bus.epochs.get(self.group, 0)
        logs = {topic: self.bus.logs[topic][0] for topic in self.observer.topics.values()}
        ends = {topic: log.end for topic, log in logs.items()}
        try:
            self.inner.publish(epoch, commit)
        finally:
            appended = {topic: log.messages[ends[topic] - log.begin :] for topic, log in logs.items()}
            if any(appended.values()):
                self.observer.landed(self.engine, commit, appended, self.bus.progress.get(self.group, {}))

    def close(self) -> None:
        self.inner.close()


class WatchedBus(MemoryBusClient):
    """An engine's door to the bus."""

    def __init__(self, bus: MemoryBus, name: str, observer: Observer, fencing: Fencing) -> None:
        super().__init__(bus, name)
        self._observer = observer
        self._fencing = fencing

    def producer(self, group: str, output_topics: Sequence[str]) -> WatchedProducer:  # type: ignore[override]
        inner = super().producer(group, output_topics)
        return WatchedProducer(inner, self._bus, group, self._name, self._observer, self._fencing)


@dataclass
class SimulatedPeers:
    """What a spare's connection to the holder says; `judge` is the world, which may lie."""

    judge: Callable[[str, int], PeerStatus]
    leader: Leader | None = None

    def watch(self, leader: Leader) -> None:
        self.leader = leader

    def status(self) -> PeerStatus:
        if self.leader is None or not self.leader.holder:
            return PeerStatus.UNKNOWN
        return self.judge(self.leader.holder, self.leader.process_start)


@dataclass
class Process:
    """An engine process in one of its lives. `advance` lets it do one step; between two steps anything may happen to it."""

    name: str
    life: int
    definition: GroupDefinition
    kit: Kit
    ports: Ports
    rng: random.Random
    folder: Path
    skew_ms: int = 0
    paused_until_ms: int = -1
    wakes_at_commit: bool = False
    """A pause of it ends as soon as another engine has published under a newer epoch: the worst moment."""
    reads_seldom: bool = False
    is_stuck: bool = False
    """Its pipeline does not move, while its timers go on."""
    jobs: list[Callable[[], None]] = field(default_factory=list)
    engine: GroupEngine = field(init=False)
    steps: Iterator[object] = field(init=False)
    ended: str = ""

    def __post_init__(self) -> None:
        member = Member(self.name, f"{self.name}:1", 1, self.life, "host", self.definition.project.hash, "", "", "", {}, {})
        self.engine = GroupEngine(self.definition, member, self.ports, self.folder)
        self.steps = self._live()

    def advance(self) -> str:
        """Do one step and say which comes next; `ended` is set when the process is over."""
        if self.jobs and self.rng.random() < 0.3:
            self.jobs.pop(0)()
            return "background job"
        try:
            step = next(self.steps)
        except StopIteration:
            self.ended = self.engine.stopped_reason or "ended"
            return self.ended
        except (BusError, CoordinationError) as error:
            self.ended = f"dies of {error.message}"
            return self.ended
        return getattr(step, "sentence", str(step))

    def _live(self) -> Iterator[object]:
        plan = yield from self.engine.start_steps()
        offsets = dict(plan.next_offsets)
        while self.engine.role not in ENDS:
            waits = self.is_stuck or (self.reads_seldom and self.rng.random() < 0.9)
            batch = None if waits else self._read(offsets)
            if batch is not None:
                yield f"takes {batch.num_rows} messages"
                yield from self.engine.batch_steps(batch)
            else:
                yield from self.engine.steps()
                yield "idles"

    def _read(self, offsets: dict[tuple[int, int], int]) -> pa.RecordBatch | None:
        """A batch cut at random places."""
        messages: list[Raw] = []
        for index, partition in self.definition.topics.partitions:
            count = self.rng.choice((0, 1, 2, 4, 9))
            if count:
                try:
                    messages += read_raw(self.ports.bus, index, partition, offsets, count)
                except BusUnavailable:
                    continue
        return self.kit.decode(messages) if messages else None


def read_raw(bus: Bus, index: int, partition: Partition, offsets: dict[tuple[int, int], int], count: int) -> list[Raw]:
    """Read at most `count` messages of one partition, moving its place in `offsets`."""
    key = (index, partition.number)
    messages = bus.read(partition, offsets[key], messages_max=count, bytes_max=_BYTES_MAX)
    if messages:
        offsets[key] = messages[-1].offset + 1
    return [Raw(index, partition.number, m.offset, m.append_time_us, m.is_tick, m.value) for m in messages]
