"""Runs of a group some of whose engines rebuild their state from recent input (SPEC F11): the same faults, the same checkers.

The small core here keeps only recent events. At least one engine is of the other kind, because an engine of this kind begins no
group and restores no snapshot. Once accepted, it may be the only one left.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hotspare.ha.events import HaEventKind
from hotspare.ha.rules.roles import ENDS, Reason, Role
from hotspare.rows.batch import RowKind
from tests.simulation.calm import Calm
from tests.simulation.checkers import Violation
from tests.simulation.coverage import covered
from tests.simulation.fast_core import EXPIRY_US, HEARTBEAT_US, FastCore, FastCores
from tests.simulation.faults import FaultKind
from tests.simulation.healing import End, Healing
from tests.simulation.kits import fast_kit
from tests.simulation.run import CLOCK_STEPS_MS, Outcome, drawn_world, failure_of, wild
from tests.simulation.world import World

_LONGER, _CALMER = 2, 3
_ALONE_STEPS, _PRELUDE_STEPS = 360, 620
_TICKS_IN_GAP = 8
_BUS_JUMPS_US = 100_000
"""Twice the maximum jump of the bus's clock."""
_ROUNDS_MAX, _STEPS_BETWEEN = 60, 60
_NUMBERS = 1 << 32
_MASK = 0xFFFFFF
_NOT_HERE = frozenset({FaultKind.PARTITIONS, FaultKind.QUALITY_CHANGE, FaultKind.TIME_LEAP, FaultKind.WRONG_ENGINE})
"""Leaps of append times are remembered for longer than a run lasts; wrong engines are covered by other runs."""
ACCEPTED, REFUSED, TOOK_OVER = "states from recent input that were accepted", "refused", "took over"


class RecentCore(FastCore):
    """A core whose outputs depend only on the events of the last `EXPIRY_US`, and on their order."""

    def _process(self, row: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
        time_us, topic, _, offset, _, kind, _, _ = row
        now_us = max(self.time_us, time_us)
        if kind == RowKind.TICK and now_us // HEARTBEAT_US > self.heartbeat_us // HEARTBEAT_US:
            self.heartbeat_us = now_us - HEARTBEAT_US  # heartbeats are counted from 1970, not from an earlier one
        elif kind == RowKind.TICK:
            self.heartbeat_us = now_us
        self.count, self.total = topic * _NUMBERS + offset - 1, 0
        for _, number in self.window:
            self.total = self.total * 3 + number & _MASK
        yield from super()._process(row)


@dataclass
class RecentWorld(World):
    """A world whose streams are all precise."""

    def __post_init__(self) -> None:
        self.qualities = {}
        super().__post_init__()


def run_recent(
    seed: int, folder: Path, trace: Callable[[str], None] = lambda _: None, favoured: frozenset[FaultKind] = frozenset()
) -> Outcome:
    """Runs one seed; never raises (`run.run_seed`)."""
    kit = fast_kit(FastCores(kind=RecentCore))
    world = drawn_world(seed, folder, trace, kit, None, favoured, _NOT_HERE, kind=RecentWorld)
    rng = random.Random(f"recent input of {seed}")
    fit = world.fit_names
    if len(fit) > 1:
        from_recent_input(world, rng.sample(fit, rng.randrange(1, len(fit))))
    world.settings = replace(world.settings, recent_matches=rng.choice((1, 2, 3)))
    trace(f"from recent input: {', '.join(world.lasting.recent)}")
    healing, steps = RecentHealing(world, CLOCK_STEPS_MS, End.ANY), 0

    def play() -> None:
        nonlocal steps
        begin_calmly(world)
        steps = wild(world, _LONGER, _CALMER)
        healing.run()

    failure = failure_of(play, trace)
    engines = world.describe()
    world.close()
    shutil.rmtree(world.folder, ignore_errors=True)
    counts = covered(world, Calm(world))
    told = [(name, event) for name, event in world.events if name in world.lasting.recent]
    counts[ACCEPTED] = sum(event.sentence.endswith(Reason.MATCHED.value) for _, event in told)
    counts[REFUSED] = sum("rebuilt from recent input differs from the group's" in event.sentence for _, event in told)
    if not failure and counts[REFUSED]:
        failure = f"refused: a state that is the group's is taken for another one; engines: {engines}"
    counts[TOOK_OVER] = sum(event.kind is HaEventKind.PROMOTED for _, event in told)
    delivered = sum(world.observer.delivered().values())
    steps += healing.steps
    return Outcome(seed, failure, steps, world.observer.commits, delivered, healing.longest, counts, " ARGS=--recent")


def from_recent_input(world: World, names: Sequence[str]) -> None:
    """Lets these engines rebuild their state at every start from now on, from the whole span that matters."""
    gap_us = _TICKS_IN_GAP * world.settings.tick_interval_ms * 1_000
    world.settings = replace(world.settings, recent_tick_gap_us=gap_us)
    span_us = EXPIRY_US + HEARTBEAT_US + gap_us + _BUS_JUMPS_US
    world.lasting.recent = {**world.lasting.recent, **dict.fromkeys(names, span_us)}


def begin_calmly(world: World) -> None:
    """Runs engines with a whole state for a while, then the others join: later faults find states of each kind."""
    rng, plan = world.rng, world.plan
    plan.quiet = True
    for step in range(_PRELUDE_STEPS):
        for name in world.names:
            if name not in world.processes and (step > _ALONE_STEPS or name not in world.lasting.recent):
                world.start(name)
        if rng.random() < 0.2:
            world.publish(rng.randrange(2), rng.randrange(100))
        for process in world.awake():
            world.advance(process)
        world.pass_time(1)
    plan.quiet = False


class RecentHealing(Healing):
    """An engine left alone, or with one that hangs, has a whole state. All that are warming must be accepted in the end."""

    def end_faults(self) -> None:
        super().end_faults()
        world = self.world
        process = world.processes.get(self.alone)
        has_state = process is not None and process.engine.role not in (Role.JOINING, Role.WARMING, *ENDS)
        if self.alone in world.lasting.recent and not has_state:
            self.alone = world.rng.choice(_hot_names(world))
            self.wake(world)

    def wake(self, world: World) -> None:
        super().wake(world)
        for process in world.processes.values():
            process.is_stuck = process.is_stuck and any(name != process.name for name in _hot_names(world))

    def _go_on(self) -> None:
        super()._go_on()
        rounds = 0
        while self._are_warming():
            if rounds == _ROUNDS_MAX:
                raise Violation(f"liveness: what is committed is enough for nobody; engines: {self.world.describe()}")
            super()._go_on()
            for _ in range(_STEPS_BETWEEN * self.sharing):
                self.step()
            rounds += 1

    def _are_warming(self) -> bool:
        return any(process.engine.role in (Role.JOINING, Role.WARMING) for process in self.world.awake() if not process.is_stuck)


def _hot_names(world: World) -> list[str]:
    return [name for name in world.fit_names if name not in world.lasting.recent]
