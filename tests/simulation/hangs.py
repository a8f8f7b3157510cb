"""Runs of a group whose events include calls of user code that do not end: the same faults, the same checkers.

For some events a call hangs: in every engine, in one alone, in some, or in one life of an engine and not in the next. Other engines
pass the same event at once, or after a while. A hung call stops its whole process, because it has the interpreter's lock, until the
process's watch records an attempt and kills it. The watch counts processor time: a paused engine uses none. One seed of five is a
project in shards: the call in one group stops all groups of its process.

The reference refuses exactly what the group has decided to refuse.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
from greenlet import getcurrent

from hotspare.base.call_place import ATTEMPT_PREFIX, QUARANTINE_DECISIONS, CallAttempt, CallPlace, Decision, HangCause
from hotspare.base.errors import CoordinationError
from hotspare.bus.contract import Partition
from hotspare.bus.memory import LandedCommit
from hotspare.bus.naming import shard_group, snapshot_readers
from hotspare.ha.events import HaEventKind
from hotspare.ha.rules import hung_calls as rules
from hotspare.ha.rules.facts import HungCalls
from hotspare.ha.rules.roles import Reason
from hotspare.stores.contract import SnapshotStatus
from tests.simulation.calls import COORDINATION, CallKind, Fiber
from tests.simulation.calm import Calm
from tests.simulation.checkers import Violation
from tests.simulation.coverage import covered
from tests.simulation.doors import EngineClock, UnreliableCoordination
from tests.simulation.engines import Process
from tests.simulation.faults import FaultKind
from tests.simulation.healing import FOREVER_MS, End, Healing
from tests.simulation.hung_core import KIND_VALUES, WINDOW, EventKind, HungCores, place_of
from tests.simulation.kits import Raw, fast_kit
from tests.simulation.recorded import Recorded
from tests.simulation.run import CLOCK_STEPS_MS, Outcome, cold_spares, drawn_world, failure_of, wild
from tests.simulation.shards import NOT_HERE, ShardHealing, Shards, beside, kits_of, played
from tests.simulation.world import GROUP, World

_NOT_HERE = frozenset({FaultKind.PARTITIONS, FaultKind.PROGRESS_LOST, FaultKind.WRONG_ENGINE})
"""Decisions cannot be rebuilt from outputs, as progress is; the other two are covered by other runs."""
_SHARES = (0.05, 0.2, 0.5)
_PLACES_MAX = (1, 3, 9, 9)
_DEADLINES_MS = (5, 15, 40)
_SLOW_MS = (1, 3, 10, 80)
"""How long a call takes that ends; longer than the deadline only if the call is unlimited."""
_TRIES_MAX = 4
_RETRY_MS = 6
_WATCH_DIES_SHARE = 0.1
_LIFT_SHARE = 0.2
_LIFT_POLL_MS = 15
"""How often an active engine looks for requests to lift a quarantine."""
_SILENT_MS = (0, 0, 50, 200, 500)
_STARTED_AT_ONCE = 0.7
_SHARDED_EVERY = 5
_SHARD_COUNTS = (2, 2, 3)
_STEPS_PER_PLACE = 2_500
_LONGER, _CALMER = 2, 2
ATTEMPTS, DECISIONS, PASSED, VOID = "attempts recorded", "decisions", "places passed without a limit", "engines that were void"
LIFTS, QUARANTINES = "quarantines lifted", "runs with a quarantine"
UNUSED = "snapshots not restored as they are void"


class Who(Enum):
    """The engines in which the call for an event hangs."""

    ALL = "all engines"
    ONE = "one engine alone"
    SOME = "some engines, in every life"
    LIVES = "engines in some of their lives"


@dataclass(frozen=True)
class HungEvent:
    """An event whose calls hang in some engines. Whether they do is a function of `key` and the engine."""

    place: CallPlace
    who: Who
    engine: str
    key: str

    def hangs_in(self, process: Process) -> bool:
        if self.who is Who.ALL:
            return True
        if self.who is Who.ONE:
            return process.name == self.engine
        name = process.name if self.who is Who.SOME else process.door
        return random.Random(f"{self.key} in {name}").random() < 0.5


@dataclass
class EngineCode:
    """The calls of user code of one engine's life (`hung_core.UserCode`)."""

    world: HungWorld
    door: str

    def call(self, place: CallPlace, *, is_unlimited: bool) -> None:
        world, fiber = self.world, getcurrent()
        process, event = world.processes[self.door.partition("#")[0]], world.hung_events[place]
        assert isinstance(fiber, Fiber) and process.door == self.door
        if is_unlimited or not event.hangs_in(process):
            took_ms = random.Random(f"{event.key} takes").choice(_SLOW_MS)
            took_ms = took_ms if is_unlimited else min(took_ms, world.deadline_ms - 1)
            world.trace(f"{world.now_ms} {self.door} computes {place} for {took_ms} ms")
            self._hold_interpreter(world.now_ms + took_ms)
            fiber.parent.switch(f"calls user code for {place}")
            return
        self._hold_interpreter(FOREVER_MS)
        world.hung.append(HungCall(process, place))
        world.starts_hung.setdefault(place, set()).add(self.door)
        fiber.parent.switch(f"hangs at {place}")
        raise AssertionError(f"{self.door} goes on, though its call hangs")

    def _hold_interpreter(self, until_ms: int) -> None:
        """Stops all groups of the process."""
        name = self.door.partition("#")[0]
        for world in self.world.surroundings.worlds.values():
            if name in world.processes:
                world.processes[name].busy_until_ms = until_ms


@dataclass(eq=False)
class HungCall:
    """A call that hangs, as seen by the watch of its engine."""

    process: Process
    place: CallPlace
    used_ms: int = 0
    """The processor time of the call."""
    tries: int = 0
    retry_ms: int = -1


@dataclass
class HungRecorded(Recorded):
    """The recorded input, and what is expected for it with the decisions of the group."""

    decisions: Callable[[], tuple[Decision, ...]] = lambda: ()

    def _computed(self, messages: list[Raw], skew_max_ms: int) -> dict[str, list[tuple[object, ...]]]:
        core = self.kit.cores.fresh()
        core.set_partitions([(i, p.number) for i, p in self.kit.topics.partitions], skew_max_ms * 1000)
        core.set_decisions(self.decisions())
        outputs: Mapping[str, pa.RecordBatch] = core.feed(self.kit.decode(messages)) if messages else {}  # type: ignore[attr-defined]
        return {stream: self._rows(batch) for stream, batch in outputs.items()}


@dataclass
class HungWorld(World):
    """A world in which some events hang. `hang_rng`: chooses them."""

    code_versions: ClassVar[Mapping[str, str]] = {WINDOW: ""}
    coordination_kinds: ClassVar[Mapping[str, CallKind]] = {**COORDINATION, "fact_names": CallKind.COORDINATION}

    hang_rng: random.Random = field(default_factory=random.Random)
    share: float = 0.0
    """The share of events that hang, as long as there are at most `places_max`."""
    places_max: int = 0
    deadline_ms: int = 1
    ways: tuple[Who, ...] = tuple(Who)
    hung_events: dict[CallPlace, HungEvent] = field(default_factory=dict)
    hung: list[HungCall] = field(default_factory=list)
    starts_hung: dict[CallPlace, set[str]] = field(default_factory=dict)
    attempts: int = 0
    silent_until_ms: int = 0
    """Until when nothing is published, so that no output shows who has passed the last event."""

    def draw_hangs(self, key: str) -> None:
        rng = self.hang_rng = random.Random(f"hung events of {key}")
        self.share, self.places_max, self.deadline_ms = rng.choice(_SHARES), rng.choice(_PLACES_MAX), rng.choice(_DEADLINES_MS)
        self.settings = replace(self.settings, quality_poll_ms=_LIFT_POLL_MS)
        self.ways = tuple(rng.sample(list(Who), rng.randint(1, len(Who))))
        ways = ", ".join(each.value for each in self.ways)
        self.trace(f"up to {self.places_max} events hang, in {ways}; deadline {self.deadline_ms} ms")

    def recording(self) -> Recorded:
        return HungRecorded(self.kit, self.outside, decisions=self.decisions)

    def decisions(self) -> tuple[Decision, ...]:
        """Returns the decisions on the bus."""
        return rules.parsed_decisions(self.bus.progress.get(self.group, {}))

    def begin(self, name: str, life: int, clock: EngineClock, engine: str = "", host: str = "host") -> Process:
        cores = self.kit.cores
        assert isinstance(cores, HungCores)
        self.cores[name] = replace(cores, code=EngineCode(self, f"{name}#{life}"))
        return super().begin(name, life, clock, engine, host)

    def publish(self, topic: int, value: int, skew_ms: int = 0) -> None:
        rng = self.hang_rng
        if rng.random() < _LIFT_SHARE:
            self.request_lifts()
        if self.now_ms < self.silent_until_ms and not self.plan.quiet:
            return
        if rng.random() >= self.share or len(self.hung_events) >= self.places_max:
            super().publish(topic, value, skew_ms)
            return
        kind = rng.choice((EventKind.TOLD, EventKind.SILENT, EventKind.MUTE))
        super().publish(topic, value + kind * KIND_VALUES, skew_ms)
        partition = Partition(self.kit.topics.inbound[topic].name, self.topics.shard.number)
        place = place_of(topic, partition.number, self.bus.log(partition).messages[-1].offset)
        engine = self.active() if rng.random() < 0.5 else ""
        event = HungEvent(place, rng.choice(self.ways), engine or rng.choice(self.fit_names), f"{place} {rng.random()}")
        self.silent_until_ms = self.now_ms + rng.choice(_SILENT_MS)
        self.hung_events[place] = event
        self.trace(f"{self.now_ms} it hangs in {event.who.value}" + (f", {event.engine}" if event.who is Who.ONE else ""))

    def request_lifts(self) -> None:
        """Requests, as a user does, that the quarantine be lifted, if there is one."""
        for request in rules.lift_requests(HungCalls(self.code_versions, self.decisions())):
            self.trace(f"{self.now_ms} a user requests {request.fact_name}")
            with suppress(CoordinationError):
                self.coordination.client("user").set_fact_once(self.group, request.fact_name, b"")

    def advance(self, process: Process) -> str:
        """Trims the input at the worst moment: when a snapshot was just confirmed that may become void."""
        confirmed = self._confirmed()
        step = super().advance(process)
        if self._confirmed() - confirmed and self.plan.happens(FaultKind.TRIM, 0.2):
            self.trim_input()
        return step

    def trim_input(self) -> None:
        """Trims the input to the newest snapshot that the bus knows as a reader: one that cannot become void."""
        for partition, offset in self.bus.readers.get(snapshot_readers(self.group)[0], {}).items():
            index = next(i for i, topic in enumerate(self.kit.topics.inbound) if topic.name == partition.topic)
            self.recorded.archive_before(index, partition.number, offset)
            self.outside.trim(partition, offset)
            self.trace(f"{self.now_ms} input of {partition} is trimmed to {offset}")

    def _confirmed(self) -> set[str]:
        return {info.name for info in self.store.list(self.group) if info.status is SnapshotStatus.CONFIRMED}

    def pass_time(self, ms: int) -> None:
        super().pass_time(ms)
        for world in self.surroundings.worlds.values():
            assert isinstance(world, HungWorld)
            world.watch_calls(ms)

    def watch_calls(self, ms: int) -> None:
        """Does what the watches of the engines do within `ms` milliseconds."""
        for call in list(self.hung):
            if self.processes.get(call.process.name) is not call.process:
                self.hung.remove(call)
            elif call.process.paused_until_ms <= self.now_ms:
                call.used_ms += ms
                if call.used_ms >= self.deadline_ms and call.retry_ms <= self.now_ms:
                    self._end_hung(call)

    def _end_hung(self, call: HungCall) -> None:
        """Does what the watch of an engine does: records an attempt, then kills the engine. It may give up, or be killed first."""
        process = call.process
        is_told = not self.plan.quiet and self.rng.random() < _WATCH_DIES_SHARE
        if not is_told:
            attempt = CallAttempt(call.place, HangCause.DEADLINE, process.door, 1, process.name, process.host, call.used_ms)
            try:
                door = UnreliableCoordination(self.coordination.client(f"{process.door}.watch"), self.plan, self.roles)
                door.set_fact_once(self.group, attempt.fact_name, attempt.to_bytes())
                self.attempts += 1
                self.trace(f"{self.now_ms} an attempt of {process.door} is recorded: {call.place}")
            except CoordinationError:
                call.tries += 1
                call.retry_ms = self.now_ms + _RETRY_MS
                if call.tries < _TRIES_MAX:
                    return
                self.trace(f"{self.now_ms} an attempt of {process.door} cannot be recorded: {call.place}")
        self.hung.remove(call)
        self.kill(process.name)
        if len(self.surroundings.worlds) == 1 and not self.plan.quiet and self.hang_rng.random() < _STARTED_AT_ONCE:
            self.start(process.name)

    def landed(self, landed: LandedCommit) -> None:
        made = rules.parsed_decisions(landed.commit.progress)
        for decision in made:
            self._check_decision(decision, landed)
        super().landed(landed)

    def _check_decision(self, decision: Decision, landed: LandedCommit) -> None:
        """Checks that a decision is the only one about its place, and that starts failed there, or a user requested it."""
        self.trace(f"{self.now_ms} {landed.client} decides, {decision.number}: {decision.place}")
        others = [each for each in rules.parsed_decisions(landed.progress) if each != decision]
        if any(each.place == decision.place or each.number == decision.number for each in others):
            raise Violation(f"decisions: {landed.client} adds {decision} to {others}")
        facts = self.coordination.client("world").facts(self.group)
        if decision.cause is HangCause.LIFTED:
            if not any(each.fact_name in facts for each in rules.lift_requests(HungCalls(self.code_versions, tuple(others)))):
                raise Violation(f"decisions: {landed.client} lifts without a request: {decision} after {others}")
            return
        starts = self.starts_hung.get(decision.place, set())
        told = [each for name, each in facts.items() if name.startswith(ATTEMPT_PREFIX)]
        known = {found.start for each in told if (found := CallAttempt.from_bytes(each)) and found.place == decision.place}
        if len(known & starts) < rules.STARTS_MAX:
            raise Violation(
                f"decisions: {landed.client} decides about {decision.place}, where only {sorted(known & starts)} failed"
            )

    def due_by(self, now_ms: int, ends: Mapping[tuple[int, int], int]) -> dict[str, int]:
        return dict.fromkeys(self.observer.topics, 0) | super().due_by(now_ms, ends)

    def open_places(self) -> int:
        """Returns the count of places that are not decided."""
        return len(self.hung_events.keys() - {each.place for each in self.decisions()})

    def told(self, kind: HaEventKind, part: str) -> int:
        """Returns the count of events of this kind whose sentence contains `part`."""
        return sum(event.kind is kind and part in event.sentence for _, event in self.events)


@dataclass
class HungHealing(Healing):
    """The outputs that are due depend on the decisions, which may still be made."""

    _decided: int = -1

    def more_steps(self) -> int:
        worlds = [world for world in self.world.surroundings.worlds.values() if isinstance(world, HungWorld)]
        return _STEPS_PER_PLACE * sum(world.open_places() for world in worlds) * self.sharing

    def _is_delivered(self) -> bool:
        world = self.world
        assert isinstance(world, HungWorld)
        if self._decided != len(world.decisions()):
            self._decided, self.target = len(world.decisions()), self._due()
        return super()._is_delivered()


def run_hangs(
    seed: int, folder: Path, trace: Callable[[str], None] = lambda _: None, favoured: frozenset[FaultKind] = frozenset()
) -> Outcome:
    """Runs one seed; never raises (`run.run_seed`)."""
    if seed % _SHARDED_EVERY == 0:
        return _run_shards(seed, folder, trace, favoured)
    world = drawn_world(seed, folder, trace, fast_kit(HungCores()), None, favoured, _NOT_HERE, kind=HungWorld)
    assert isinstance(world, HungWorld)
    world.draw_hangs(str(seed))
    world.lasting.cold = cold_spares(seed, world, is_calm=False)
    healing, steps = HungHealing(world, CLOCK_STEPS_MS, End.ANY), 0

    def play() -> None:
        nonlocal steps
        steps = wild(world, _LONGER, _CALMER)
        healing.run()

    failure = failure_of(play, trace)
    world.close()
    shutil.rmtree(world.folder, ignore_errors=True)
    counts = covered(world, Calm(world)) + _covered(world)
    delivered = sum(world.observer.delivered().values())
    steps += healing.steps
    return Outcome(seed, failure, steps, world.observer.commits, delivered, healing.longest, counts, " ARGS=--hangs")


@dataclass
class HungShardHealing(HungHealing, ShardHealing):
    """The end of a run of shards in which some events hang, seen from one of them."""


def _run_shards(seed: int, folder: Path, trace: Callable[[str], None], favoured: frozenset[FaultKind]) -> Outcome:
    kits = [
        replace(kit, cores=HungCores(shard=kit.topics.shard.number)) for kit in kits_of(random.Random(seed).choice(_SHARD_COUNTS))
    ]
    first = drawn_world(seed, folder, trace, kits[0], None, favoured, _NOT_HERE | NOT_HERE, shard_group(GROUP, 0), kind=HungWorld)
    assert isinstance(first, HungWorld)
    worlds = [first, *(beside(first, kit) for kit in kits[1:])]
    for number, world in enumerate(worlds):
        world.draw_hangs(f"{seed}, shard {number}")
    outcome = played(seed, Shards(list[World](worlds)), HungShardHealing, trace, " ARGS=--hangs")
    return replace(outcome, covered=sum((_covered(world) for world in worlds), Counter[str]()))


def _covered(world: HungWorld) -> Counter[str]:
    return Counter(
        {
            ATTEMPTS: world.attempts,
            DECISIONS: len(world.decisions()),
            LIFTS: sum(each.cause is HangCause.LIFTED for each in world.decisions()),
            QUARANTINES: len(world.decisions()) >= QUARANTINE_DECISIONS,
            PASSED: world.told(HaEventKind.HUNG_CALL, "another engine has passed it"),
            VOID: world.told(HaEventKind.ROLE_CHANGED, Reason.STATE_VOID.value),
            UNUSED: world.told(HaEventKind.SNAPSHOT_UNUSABLE, "lacks the decision"),
        }
    )
