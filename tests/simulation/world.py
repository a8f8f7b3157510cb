"""A simulated group: its engines and their surroundings, its own or shared, run in one thread from one seed."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from hotspare.base.inbound_role import InboundRole
from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.memory import Fencing, LandedCommit, PartitionLog
from hotspare.coordination.contract import Member
from hotspare.flow.semantics import SEMANTICS
from hotspare.ha.core import CoreFactory
from hotspare.ha.effects.joining import ProjectIdentity
from hotspare.ha.effects.upgrading import OwnSnapshotGroup
from hotspare.ha.events import HaEvent, HaEventKind
from hotspare.ha.group import GroupDefinition
from hotspare.ha.ports import Ports
from hotspare.ha.rules.roles import Reason, Role
from hotspare.ha.rules.settings import GroupSettings
from hotspare.ha.rules.view import PeerStatus
from hotspare.model.quality import PRECISE, Quality
from hotspare.stores.contract import SnapshotStatus, Store
from hotspare.stores.renamed_groups import RenamedGroupsStore
from tests.exact_rows import exact_rows
from tests.simulation.calls import COORDINATION, STORE, CallKind, Timed, TimedBus
from tests.simulation.checkers import Gap, Observer, Violation
from tests.simulation.codec import StreamCodec
from tests.simulation.doors import (
    STORE_TROUBLE,
    EngineClock,
    RoleHistory,
    SimulatedPeers,
    UnreliableBus,
    UnreliableCoordination,
)
from tests.simulation.engines import Process
from tests.simulation.fast_core import STREAMS
from tests.simulation.faults import FaultKind, FaultPlan, engine_of
from tests.simulation.kits import Kit, fast_kit
from tests.simulation.lasting import Lasting
from tests.simulation.recorded import Recorded
from tests.simulation.surroundings import Surroundings
from tests.simulation.wrong_engines import check_landed, note_candidates

GROUP = "sim.project"
SETTINGS = GroupSettings(
    lease_ms=60,
    heartbeat_ms=20,
    candidate_wait_ms=10,
    first_start_wait_ms=60,
    merge_wait_ms=5,
    leader_poll_ms=15,
    switchover_poll_ms=15,
    progress_poll_ms=15,
    member_refresh_ms=30,
    persist_poll_ms=0,
    persist_turn_ms=60,
    snapshot_interval_ms=40,
    retry_ms=2,
    coordination_retry_ms=4,
    divergence_wait_ms=90,
    message_rows_max=4,
    commit_rows_max=16,
    commit_wait_ms=0,
    confirmed_snapshots_max=2,
    store_wait_ms=120,
    oversized_retry_ms=40,
    skew_max_ms=300,
)
STRANGER = (99, 99)
"""Id and start of a process that is not an engine."""
_STEPS_PER_TURN = 24
CLOCK_RATES = (0.6, 1.0, 1.7)


def project(text: str = "project") -> ProjectIdentity:
    return ProjectIdentity(f"hash of {text}", text, lambda other: [f"{other} became {text}"])


@dataclass
class World:
    """A simulated group. `names`: the engines that may run. All randomness comes from `rng`. `trace` receives each event as a
    line."""

    rng: random.Random
    names: tuple[str, ...]
    plan: FaultPlan
    folder: Path
    trace: Callable[[str], None] = lambda _: None
    fencing: Fencing = Fencing.BY_EPOCH
    settings: GroupSettings = SETTINGS
    lasting: Lasting = field(default_factory=Lasting)
    kit: Kit = field(default_factory=fast_kit)
    qualities: dict[str, Quality] = field(default_factory=dict)
    """Qualities of the streams that are not precise."""
    cores: dict[str, CoreFactory] = field(default_factory=dict)
    """Cores of engines that compute wrong outputs."""
    identity: ProjectIdentity = field(default_factory=lambda: project())
    """The project of engines that start from now on."""
    around: Surroundings | None = None
    """Surroundings shared with the groups of other shards; None: the group has its own."""
    group: str = GROUP
    processes: dict[str, Process] = field(default_factory=dict)
    """The processes of this group by engine. With shards, a process belongs to all groups."""
    wrong_from: dict[str, dict[str, int]] = field(default_factory=dict)
    """Per door of a wrong engine and per stream: the first sequence that may be wrong; for the first stream, that is wrong."""
    wrong_candidates: dict[str, tuple[Process, int]] = field(default_factory=dict)
    """Snapshots of wrong engines, with the time at which they were taken, by the engine's clock."""
    reads_as_told: bool = False
    """Whether runners read only the partitions that too many rows wait for, while they do."""
    is_judged_outside: bool = False
    """Whether the active is wrong on purpose: the code that made it wrong judges the result."""
    events: list[tuple[str, HaEvent]] = field(default_factory=list)

    short_of_window: set[int] = field(default_factory=set)
    """Epochs whose engine first published before its state covered a window of every stream."""
    struck: Counter[FaultKind] = field(default_factory=Counter)
    forgotten: int = 0
    """The count of messages that retention has deleted from the bus."""
    has_added_partitions: bool = False
    was_persisted: bool = False
    """Whether a snapshot has just been persisted: the worst moment for all engines to die and be restored from it."""
    told_to_go_on: set[str] = field(default_factory=set)
    """Doors of engines that took over though they differ, because no other could and `on_divergence` allows it."""
    code_versions: ClassVar[Mapping[str, str]] = {}
    coordination_kinds: ClassVar[Mapping[str, CallKind]] = COORDINATION
    """The calls to coordination that take time."""

    def __post_init__(self) -> None:
        around = self.surroundings = self.around or Surroundings(self.rng, self.plan, self.fencing)
        around.worlds[self.group] = self
        self.pace, self.calls, self.lives, self.died_ms = around.pace, around.calls, around.lives, around.died_ms
        self.bus, self.coordination, self.store = around.bus, around.coordination, around.store
        self.bus.lock_holder = self._lock_holder
        self.roles = RoleHistory(self.coordination, self.group)
        self.outside = self.bus.client("world")
        self.recorded = self.recording()
        self.codec = StreamCodec()
        outbound = tuple(replace(o, quality=self.qualities.get(o.stream, PRECISE)) for o in self.kit.topics.outbound)
        self.topics = replace(self.kit.topics, outbound=outbound)
        qualities = {stream: [quality] for stream, quality in self.qualities.items()}
        self.observer = self.watching({o.stream: o.topic for o in outbound}, qualities)
        self.take_messages_as_ever()
        for topic in self.kit.topics.inbound:
            self.outside.create_topic(topic.name, topic.partitions)
        if self.lasting.astray:
            self.coordination.client("world").set_fact_once(self.group, "store-0", self.store.identity().encode())

    def recording(self) -> Recorded:
        return Recorded(self.kit, self.outside)

    def watching(self, topics: Mapping[str, str], qualities: dict[str, list[Quality]]) -> Observer:
        return Observer(topics, lambda message: exact_rows(self.codec.decode(message.value)), qualities)

    @property
    def now_ms(self) -> int:
        return self.surroundings.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self.surroundings.now_ms = now_ms

    @property
    def fit_names(self) -> tuple[str, ...]:
        """The engines that can take part."""
        return tuple(name for name in self.names if name != self.lasting.astray)

    @property
    def has_small_core(self) -> bool:
        return self.kit.topics.outbound[0].stream in STREAMS

    def take_messages_as_ever(self) -> None:
        """Resets the message size limit of the output topics to that of this run."""
        bytes_max = self.lasting.message_bytes if self.has_small_core else 0
        self.bus.message_bytes = {output.topic: bytes_max for output in self.topics.outbound if bytes_max}

    def add_partition(self, topic: int) -> None:
        """Adds a partition to an inbound topic."""
        self.has_added_partitions = True
        self.bus.logs[self.kit.topics.inbound[topic].name].append(PartitionLog())
        self.trace(f"{self.now_ms} inbound topic {topic} gets another partition")

    def bus_ms(self) -> int:
        """Returns the bus's time."""
        return self.now_ms + self.surroundings.bus_jump_ms

    def start(self, name: str) -> Process:
        """Starts a new life of an engine."""
        life = self.lives[name] = self.lives.get(name, 0) + 1
        rate = self.rng.choice(CLOCK_RATES) if FaultKind.CLOCK_RATE in self.plan.enabled else 1.0
        return self.begin(name, life, EngineClock(lambda: self.now_ms, 7919.0 * len(self.lives) + 13 * life, rate))

    def begin(self, name: str, life: int, clock: EngineClock, engine: str = "", host: str = "host") -> Process:
        """Creates this group's part of a starting engine process; `engine` is the engine's name in the group, if not `name`."""
        jobs: list[Callable[[], None]] = []
        door = f"{name}#{life}"
        coordination = UnreliableCoordination(self.coordination.client(door), self.plan, self.roles)
        ports = Ports(
            bus=TimedBus(UnreliableBus(self.bus, door, self.plan, self.lasting), self.calls, door),  # type: ignore[arg-type]
            coordination=Timed(coordination, self.calls, door, self.coordination_kinds),  # type: ignore[arg-type]
            store=Timed(self._placed(self.store.of(name, self.lasting)), self.calls, door, STORE),  # type: ignore[arg-type]
            peers=SimulatedPeers(lambda holder, holder_life: self._judge(name, holder, holder_life)),
            codec=self.codec,
            clock_ms=clock,
            wall_us=lambda: self.now_ms * 1000,
            report=lambda event: self._report(name, event),
            background=jobs.append,
            end_process=self._end_process,
            is_alive=lambda member: member.host == host and member.process_start != life and self._is_alive(member),
            open_store=lambda _: Timed(self.surroundings.elsewhere, self.calls, door, STORE),  # type: ignore[arg-type,return-value]
        )
        settings = replace(self.settings, recent_span_us=self.lasting.recent.get(name, 0))
        cores = self.cores.get(name, self.kit.cores)
        definition = GroupDefinition(self.group, self.topics, self.identity, cores, settings, self.code_versions)
        process = Process(
            name,
            life,
            definition,
            self.kit,
            ports,
            self.rng,
            self.scratch(door),
            clock,
            self.bus_ms,
            jobs=jobs,
            may_be_refused=lambda: name == self.lasting.astray or self.has_added_partitions,
            reads_as_told=self.reads_as_told,
            engine_name=engine or name,
            host=host,
        )
        process.is_cold, process.on_needed = name in self.lasting.cold, lambda: self.struck.update((FaultKind.COLD,))
        process.lag_ms = self.lasting.lags_ms.get(name, 0)
        self.processes[name] = process
        self.trace(f"{self.now_ms} {name} starts its life {life}")
        return process

    def _placed(self, store: Store) -> Store:
        """Returns the store as the engines of a project use it."""
        return RenamedGroupsStore(store, OwnSnapshotGroup(self.coordination.client("world"), self.identity.hash, SEMANTICS))

    def scratch(self, door: str) -> Path:
        """Returns the folder in which a process spills held outputs of this group."""
        return self.folder / door / str(self.topics.shard.number)

    def _report(self, name: str, event: HaEvent) -> None:
        self.events.append((name, event))
        is_made = STORE_TROUBLE in event.sentence
        if event.kind is HaEventKind.SNAPSHOT_FAILED and not is_made and re.search(r": \w+(Error|Exception): ", event.sentence):
            raise Violation(f"broke: {event.sentence}")
        if event.kind is HaEventKind.ROLE_CHANGED and event.sentence.endswith(Reason.NOBODY_ELSE.value):
            self.told_to_go_on.add(self.processes[name].door)
        self.trace(f"{self.now_ms} {name}   ({event.kind.value}: {event.sentence})")

    def landed(self, landed: LandedCommit) -> None:
        check_landed(self, landed)
        epoch = self.observer.newest_change_epoch
        self.observer.landed(landed)
        if self.observer.newest_change_epoch > epoch and not self._is_warm(landed.client):
            self.short_of_window.add(self.observer.newest_change_epoch)
        while self.observer.gaps:
            self._check_window(self.observer.gaps.pop())

    def _is_warm(self, client: str) -> bool:
        """Whether an engine has itself computed at least a window of every stream."""
        process = self.processes.get(engine_of(client))
        if process is None or process.door != client or process.warm_from is None or process.state is None:
            return False
        began_ms, began = process.warm_from
        known = [(s, q) for s in began for q in self.observer.all_qualities(s)]
        held = process.state.held.streams
        return all(
            held[stream].last_sequence - began[stream] >= quality.window_events and process.clock() - began_ms >= quality.window_ms
            for stream, quality in known
        )

    def _check_window(self, gap: Gap) -> None:
        """Checks that what an engine of a buffered stream omitted was outside its window, or older than its state."""
        process = self.processes.get(engine_of(gap.client))
        quality, *changed = self.observer.all_qualities(gap.stream)
        if process is None or process.door != gap.client or process.state is None or changed:
            return  # a commit of the dead arrived, or several qualities were at work
        held = process.state.held
        through = held.streams[gap.stream].last_sequence - quality.window_events
        if quality.window_ms:
            now_ms = process.clock()
            through = max((n for n, ms in process.computed_ms.get(gap.stream, ()) if ms <= now_ms - quality.window_ms), default=0)
        if gap.last > max(through, held.bases[gap.stream].sequence):
            raise Violation(f"window: {gap.client} left out {gap.first} to {gap.last} of stream {gap.stream}, {quality}")

    def _judge(self, watcher: str, holder: str, life: int) -> PeerStatus:
        """Returns the true status, a little late; or, during a false suspicion, a false one. UNKNOWN if either engine is cut
        off."""
        if self.plan.is_cut_off(watcher) or self.plan.is_cut_off(holder):
            return PeerStatus.UNKNOWN
        if watcher in self.lasting.verdicts:
            return self.lasting.verdicts[watcher]
        if not self.lives_on(holder, life):
            died_ms = self.died_ms.get((holder, life), self.now_ms)
            if self.now_ms - died_ms < self.lasting.detection_ms:
                return PeerStatus.CONNECTED
            return PeerStatus.ENDED if watcher in self.lasting.sees_the_end else PeerStatus.CLOSED
        return PeerStatus.CLOSED if self.now_ms < self.surroundings.suspicion_until_ms else PeerStatus.CONNECTED

    def lives_on(self, name: str, life: int) -> bool:
        """Whether this life of an engine's process continues, in any of its groups."""
        found = (world.processes.get(name) for world in self.surroundings.worlds.values())
        return any(process is not None and process.life == life for process in found)

    def _lock_holder(self) -> tuple[int, int] | None:
        """The process that keeps the bus locked: an engine's, by its life, or a stranger's."""
        process = self.processes.get(self.plan.lock_holder)
        return STRANGER if process is None and self.plan.lock_holder else (1, process.life) if process is not None else None

    def _end_process(self, process_id: int, started: int) -> bool:
        """Ends the process only if it is stopped while it holds the bus's lock; returns whether it did."""
        name = self.plan.lock_holder
        if self._lock_holder() != (process_id, started):
            return False
        if (process_id, started) == STRANGER:
            if self.plan.lock_until_ms:
                return False  # it is busy, not stopped
            self.trace(f"{self.now_ms} {name} is killed")
            self.plan.lock_holder = ""
            return True
        if self.processes[name].paused_until_ms <= self.now_ms:
            return False
        self.kill(name)
        return True

    def _is_alive(self, member: Member) -> bool:
        return self.lives_on(member.engine, member.process_start)

    def kill(self, name: str) -> None:
        """Kills the process as SIGKILL does: memory is lost, durable data remains."""
        for world in self.surroundings.worlds.values():
            process = world.processes.pop(name, None)
            if process is None:
                continue
            self.died_ms[name, process.life] = self.now_ms
            if process.engine.role is Role.ACTIVE:
                self.bus.transactions.left_open(process.definition.group)
            process.end()
            self.calls.forget(process.door, self.rng)
        if self.plan.lock_holder == name:
            self.plan.lock_holder = ""
        self.trace(f"{self.now_ms} {name} is killed")

    def pause(self, name: str, duration_ms: int) -> None:
        """Stops the process as SIGSTOP does."""
        for world in self.surroundings.worlds.values():
            if name in world.processes:
                world.processes[name].paused_until_ms = self.now_ms + duration_ms
        self.trace(f"{self.now_ms} {name} is paused for {duration_ms} ms")
        if self.plan.happens(FaultKind.BUS_LOCKED, 0.3) and not self.plan.lock_holder:
            self.plan.lock_holder = name
            self.trace(f"{self.now_ms} {name} keeps the bus locked")

    def suspend(self, name: str, duration_ms: int) -> None:
        """Suspends the engine's machine: its clock does not count the time until it resumes."""
        process = self.processes[name]
        process.clock()  # counts the time until now
        self.pause(name, duration_ms)
        process.clock.stalled_until_ms = process.paused_until_ms

    def awake(self) -> list[Process]:
        if self.plan.lock_holder:
            holder = self.processes.get(self.plan.lock_holder)
            is_engine = self.plan.lock_holder in self.names
            is_done = not is_engine and 0 < self.plan.lock_until_ms <= self.now_ms
            if is_done or (is_engine and (holder is None or holder.paused_until_ms <= self.now_ms)):
                self.plan.lock_holder = ""
        return [p for p in self.processes.values() if p.is_ready(self.now_ms)]

    def pass_time(self, ms: int) -> None:
        """Advances time, and lets calls in flight take effect meanwhile."""
        until_ms = self.now_ms + ms
        while self.calls.underway and (call := self.calls.next_due(until_ms)):
            self.now_ms = max(self.now_ms, call.due_ms)
            commits = self.observer.commits
            call.take_effect()
            if self.observer.commits != commits:
                self._wake_at_commit()
        self.now_ms = until_ms

    def advance(self, process: Process) -> str:
        commits = self.observer.commits
        step = process.advance(self.now_ms)
        if self.observer.commits != commits:
            self._wake_at_commit()
        if process.warm_from is None and process.state is not None:
            bases = process.state.held.bases
            process.warm_from = (process.clock(), {stream: base.sequence for stream, base in bases.items()})
        self._note_computed(process)
        note_candidates(self, process)
        self._check_memory(process)
        if process.name == self.lasting.astray and process.state is not None:
            raise Violation(f"store: {process.door} takes part, though its store is not the group's")
        if step.startswith(("restore", "check that")) and self.plan.happens(FaultKind.TRIM_AT_START, 0.3):
            self.trim_input()
        if step != "idles":
            self.trace(f"{self.now_ms} {process.name} {step}")
        if process.ended:
            process.end()
            self.processes.pop(process.name, None)
            self.died_ms[process.name, process.life] = self.now_ms
        return step

    def close(self) -> None:
        """Ends the run and all engines."""
        for process in self.processes.values():
            process.end()

    def turn(self, *names: str, clock_ms: int = 1) -> None:
        """Steps every engine, or each of these, until it idles; then advances time."""
        for process in self.awake():
            for _ in range(_STEPS_PER_TURN):
                is_there = self.processes.get(process.name) is process
                if (names and process.name not in names) or not is_there or not process.is_ready(self.now_ms):
                    break
                if self.advance(process) == "idles":
                    break
        self.pass_time(clock_ms)

    def _note_computed(self, process: Process) -> None:
        """Records when an engine computed the outputs of streams with a window of time."""
        for stream, quality in self.qualities.items():
            if quality.window_ms and process.state is not None:
                computed, last = process.computed_ms.setdefault(stream, []), process.state.held.streams[stream].last_sequence
                if not computed or computed[-1][0] < last:
                    computed.append((last, process.clock()))

    def _check_memory(self, process: Process) -> None:
        state = process.state
        if state is not None and state.held.memory_bytes > self.settings.held_bytes_max:
            raise Violation(f"memory: {process.door} holds {state.held.memory_bytes} bytes of {self.settings.held_bytes_max}")

    def _wake_at_commit(self) -> None:
        """Wakes the engines that sleep until another engine has published under a newer epoch."""
        for sleeper in self.processes.values():
            if (
                sleeper.wakes_at_commit
                and not self.plan.quiet
                and self.observer.newest_change_epoch > sleeper.engine.status().epoch
            ):
                sleeper.wakes_at_commit = False
                sleeper.paused_until_ms = self.now_ms
                sleeper.clock.stalled_until_ms = min(sleeper.clock.stalled_until_ms, self.now_ms)

    def publish(self, topic: int, value: int, skew_ms: int = 0) -> None:
        """Publishes an event. `skew_ms`: difference of its append time from the bus's time, as set by publishers."""
        partition = Partition(self.kit.topics.inbound[topic].name, self.topics.shard.number)
        offset = self.outside.append(partition, [Outgoing(self.kit.encode(value))])
        if skew_ms:
            messages = self.bus.log(partition).messages
            messages[-1] = messages[-1]._replace(append_time_us=max(0, messages[-1].append_time_us + skew_ms * 1_000))
        self.trace(f"{self.now_ms} event {value} at {topic}/{offset}" + (f", {skew_ms} ms off" if skew_ms else ""))

    def has_won_unknowing(self, process: Process) -> bool:
        """Whether an engine has won an epoch, and the answer is still in flight."""
        role = self.coordination.group(self.group).role
        return role.holder == process.name and role.epoch > process.engine.epoch and role.process_start == process.life

    def active(self) -> str:
        """Returns the engine that believes to be active, or ""."""
        return next((p.name for p in self.processes.values() if p.engine.role is Role.ACTIVE), "")

    def trim_input(self) -> None:
        """Trims input that the newest confirmed snapshot no longer needs, as an operator may."""
        confirmed = [i for i in self.store.list(self.group) if i.status is SnapshotStatus.CONFIRMED]
        if not confirmed:
            return
        stored = self.store.get(self.group, confirmed[0].name)
        for (topic, number), offset in self.kit.cores.restore(stored.header, stored.pages).next_offsets.items():
            if self.kit.topics.inbound[topic].kind is InboundRole.OUTPUTS:
                continue  # of another group
            self.recorded.archive_before(topic, number, offset)
            self.outside.trim(Partition(self.kit.topics.inbound[topic].name, number), offset)
        self.trace(f"{self.now_ms} input is trimmed to snapshot {confirmed[0].name}")

    def reference(self) -> dict[str, list[tuple[object, ...]]]:
        """Returns the outputs of an uninterrupted engine for the recorded input, ticks included."""
        return self.recorded.reference(self.settings.skew_max_ms)

    def due(self) -> dict[str, int]:
        """Returns the count of outputs per stream due for the recorded input at the current time."""
        return self.due_by(self.now_ms, self.recorded.ends())

    def due_by(self, now_ms: int, ends: Mapping[tuple[int, int], int]) -> dict[str, int]:
        """Returns the count of outputs due at an earlier time for the input that ended at `ends` then."""
        return self.recorded.due_by(now_ms + self.surroundings.bus_jump_ms, ends, self.settings.skew_max_ms)

    def has_ticked(self, now_ms: int, ends: Mapping[tuple[int, int], int]) -> bool:
        """Whether every partition has a tick after `ends` with a time of at least `now_ms`."""
        return self.recorded.has_ticked(now_ms + self.surroundings.bus_jump_ms, ends)

    def check_end(self, target: dict[str, int]) -> None:
        """Checks after healing that all outputs that were due are delivered, and are correct."""
        self.observer.compare(self.reference(), frozenset(self.short_of_window))
        delivered = self.observer.delivered()
        if any(delivered[s] < target.get(s, 0) for s in delivered):
            raise Violation(f"liveness: delivered {delivered} of {target}; engines: {self.describe()}")

    def describe(self) -> str:
        return ", ".join(f"{p.name}#{p.life} {p.engine.role.value}" for p in self.processes.values()) or "none runs"
