"""A project in shards: every engine process hosts a group for each, over its partition of every topic.

Draws, faults and checks are those of a single group, shard by shard. The process is new: its death ends all its groups at once, and
if one of its groups ends, the others are stopped. So are the things that shards share: topics, the store, the clients of bus and
coordination, and a folder.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from hotspare.base.shard import shards_of
from hotspare.bus.naming import shard_group
from hotspare.ha.rules.roles import Role
from tests.simulation.checkers import Violation
from tests.simulation.engines import Process
from tests.simulation.fast_core import FastCores
from tests.simulation.faults import FaultKind
from tests.simulation.healing import End, Healing
from tests.simulation.kits import FastKit, Kit, fast_kit
from tests.simulation.run import CLOCK_STEPS_MS, Outcome, drawn_world, failure_of
from tests.simulation.strikes import Striker
from tests.simulation.traffic import Traffic, end_hung_calls
from tests.simulation.world import GROUP, World

AnyWorld = TypeVar("AnyWorld", bound=World)

_COUNTS = (2, 2, 3)
_KEY_STREAM, _KEY_COLUMN = "q/a", 9
_STOP_MS_MAX = 300
"""A process that is to stop has ended by then, whatever its groups do."""
NOT_HERE = frozenset(
    {
        FaultKind.PARTITIONS,
        FaultKind.OTHER_STORE,
        FaultKind.STUCK,
        FaultKind.BUS_LOCKED,
        FaultKind.FOREIGN_LOCK,
        FaultKind.WRONG_ENGINE,
        FaultKind.WRONG_ACTIVE,
        FaultKind.HUNG_SPARE,
        FaultKind.RETENTION,
        FaultKind.ALWAYS_AT_HAND,
    }
)
"""Kinds that concern one group, or how a whole run ends; runs of a single group have them."""


@dataclass
class Shards:
    """The groups of a project; the first has the surroundings of all. `alone`: the engine that is left once the world heals."""

    worlds: list[World]
    alone: str = ""
    is_healing: bool = False
    stopping_ms: dict[str, int] = field(default_factory=dict)
    """Processes with an ended group, and since when."""

    @property
    def first(self) -> World:
        return self.worlds[0]

    def start(self, name: str) -> None:
        """Starts a new life of an engine's process."""
        process = self.first.start(name)
        for world in self.worlds[1:]:
            world.begin(name, process.life, process.clock)

    def runs(self, name: str) -> bool:
        return any(name in world.processes for world in self.worlds)

    def step(self, clock_steps_ms: tuple[int, ...]) -> None:
        """Steps one process of each group, and advances time."""
        for world in self.worlds:
            awake = world.awake()
            if awake:
                self._advance(world, self.first.rng.choice(awake))
        self.first.pass_time(self.first.rng.choice(clock_steps_ms))
        for name, since_ms in list(self.stopping_ms.items()):
            if not self.runs(name):
                del self.stopping_ms[name]
            elif self.first.now_ms - since_ms > _STOP_MS_MAX:
                self._kill(name)

    def _advance(self, world: World, process: Process) -> None:
        world.advance(process)
        if not process.ended or not self.runs(process.name):
            return
        if process.ended.startswith("dies"):
            self._kill(process.name)
            return
        self.stopping_ms.setdefault(process.name, self.first.now_ms)
        for other in self.worlds:
            left = other.processes.get(process.name)
            if left is not None and left.engine.role is not Role.JOINING:
                left.engine.request_stop()

    def _kill(self, name: str) -> None:
        self.stopping_ms.pop(name, None)
        self.first.kill(name)


def check_keys(worlds: Sequence[World]) -> None:
    """Raises Violation if two shards generated the same key."""
    seen: dict[object, int] = {}
    for number, world in enumerate(worlds):
        for row in world.observer.rows.get(_KEY_STREAM, ()):
            if seen.setdefault(row[_KEY_COLUMN], number) != number:
                raise Violation(f"keys: shards {seen[row[_KEY_COLUMN]]} and {number} both generated {row[_KEY_COLUMN]}")


@dataclass
class ShardHealing(Healing):
    """The end of a run of shards, seen from one of them; all others continue meanwhile."""

    shards: Shards = field(kw_only=True)

    def end_faults(self) -> None:
        shards = self.shards
        if not shards.is_healing:
            super().end_faults()
            shards.is_healing, shards.alone = True, self.alone
            for world in shards.worlds[1:]:
                self.alone = shards.alone
                self.wake(world)
        self.alone = shards.alone

    def step(self) -> None:
        self.steps += 1
        for name in self.world.names:
            if not self.shards.runs(name) and name in (self.alone or name):
                self.shards.start(name)
        self.shards.step(self.clock_steps_ms)


def run_shards(
    seed: int, folder: Path, trace: Callable[[str], None] = lambda _: None, favoured: frozenset[FaultKind] = frozenset()
) -> Outcome:
    """Runs one seed; never raises (`run.run_seed`)."""
    return played(seed, _drawn(seed, folder, trace, favoured), ShardHealing, trace, " ARGS=--shards")


def played(seed: int, shards: Shards, healing: type[ShardHealing], trace: Callable[[str], None], repeat_with: str) -> Outcome:
    """Plays a run of these shards, which the outcome's `covered` leaves out; never raises."""
    healings = [healing(world, CLOCK_STEPS_MS, End.ANY, shards=shards) for world in shards.worlds]
    steps = 0

    def play() -> None:
        nonlocal steps
        steps = _wild(shards)
        for healing in healings:
            healing.run()
        check_keys(shards.worlds)

    failure = failure_of(play, trace)
    for world in shards.worlds:
        world.close()
    shutil.rmtree(shards.first.folder, ignore_errors=True)
    commits = sum(world.observer.commits for world in shards.worlds)
    delivered = sum(sum(world.observer.delivered().values()) for world in shards.worlds)
    longest = max(healing.longest for healing in healings)
    return Outcome(seed, failure, steps + sum(h.steps for h in healings), commits, delivered, longest, repeat_with=repeat_with)


def _drawn(seed: int, folder: Path, trace: Callable[[str], None], favoured: frozenset[FaultKind]) -> Shards:
    kit, *kits = kits_of(random.Random(seed).choice(_COUNTS))
    first = drawn_world(seed, folder, trace, kit, None, favoured, NOT_HERE, shard_group(GROUP, 0))
    trace(f"{1 + len(kits)} shards")
    return Shards([first, *(beside(first, each) for each in kits)])


def kits_of(count: int) -> list[FastKit]:
    """Returns the kit of each shard's group."""
    kits = []
    for shard in shards_of(count):
        kit = fast_kit(FastCores(shard=shard.number))
        inbound = tuple(replace(topic, partitions=count) for topic in kit.topics.inbound)
        kits.append(replace(kit, topics=replace(kit.topics, inbound=inbound, shard=shard)))
    return kits


def beside(first: AnyWorld, kit: Kit) -> AnyWorld:
    """Returns the group of another shard, in the same surroundings."""
    return type(first)(
        first.rng,
        first.names,
        first.plan,
        first.folder,
        first.trace,
        first.fencing,
        first.settings,
        first.lasting,
        kit,
        first.qualities,
        around=first.surroundings,
        group=shard_group(GROUP, kit.topics.shard.number),
    )


def _wild(shards: Shards) -> int:
    first, worlds = shards.first, shards.worlds
    rng, strikers = first.rng, [Striker(world) for world in worlds]
    traffic, steps = Traffic(worlds, rng.randrange(10, 50)), int(rng.randrange(60, 340) * max(1.0, len(first.names) / 3))
    for _ in range(steps):
        rng.choice(strikers).strike()
        end_hung_calls(first)
        for name in first.names:
            if not shards.runs(name) and rng.random() < 0.06:
                shards.start(name)
        traffic.step()
        shards.step(CLOCK_STEPS_MS)
    return steps
