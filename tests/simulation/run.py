"""Runs seeds: `python -m tests.simulation.run --seed N [--count K] [--core real] [--verbose]`.

A seed fixes everything: engines, events, faults and their moments. A run has a wild phase, then heals: faults end, and all engines,
or one alone while the others sleep for ever, must bring out all that was due.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hotspare.ha.roles import Role, Step
from tests.simulation.checkers import Violation
from tests.simulation.engines import Fencing, FencingKind, Process
from tests.simulation.faults import FaultKind, FaultPlan
from tests.simulation.kits import Kit, fast_kit, real_kit
from tests.simulation.world import GROUP, SETTINGS, World

_FOREVER_MS = 1 << 40
_HEALING_STEPS_MAX = 6_000
_CLOCK_STEPS_MS = (0, 0, 0, 1, 1, 3)


@dataclass(frozen=True)
class Outcome:
    """What one seed came to; `failure` is "" if nothing was violated."""

    seed: int
    failure: str
    steps: int
    commits: int
    delivered: int

    @property
    def repeat(self) -> str:
        return f"python -m tests.simulation.run --seed {self.seed} --verbose"


def run_seed(
    seed: int,
    folder: Path,
    trace: Callable[[str], None] = lambda _: None,
    kit: Kit | None = None,
    only: frozenset[FaultKind] | None = None,
) -> Outcome:
    """One run from one seed; never raises for a violation. `only` these faults, else the seed chooses."""
    rng = random.Random(seed)
    share = rng.choice((0.25, 0.5, 0.75))
    enabled = {kind for kind in FaultKind if rng.random() < share}
    if {FaultKind.DAMAGE, FaultKind.TRIM} <= enabled:
        enabled.discard(rng.choice((FaultKind.DAMAGE, FaultKind.TRIM)))  # together they may leave nothing to start from
    enabled = enabled if only is None else set(only)
    names = tuple(f"e{i}" for i in range(rng.choice((1, 2, 2, 2, 3, 3))))
    fencing = Fencing(rng.choice(list(FencingKind)))
    settings = replace(SETTINGS, commit_rows_max=rng.choice((2, 2, 16)))
    world = World(rng, names, FaultPlan(rng, frozenset(enabled)), folder, trace, fencing, settings, kit or fast_kit())
    kinds = ", ".join(sorted(kind.value for kind in enabled)) or "none"
    trace(f"seed {seed}: engines {', '.join(names)}; fencing {fencing.kind.value}; faults: {kinds}")
    steps = 0
    try:
        steps = _wild(world) + _heal(world)
        failure = ""
    except Violation as violation:
        failure = str(violation)
    return Outcome(seed, failure, steps, world.observer.commits, sum(world.observer.delivered().values()))


def _wild(world: World) -> int:
    rng = world.rng
    events_left, steps = rng.randrange(10, 50), rng.randrange(60, 340)
    speed = {name: rng.choice((1, 1, 3, 9)) for name in world.names}
    for _ in range(steps):
        _strike(world)
        for name in world.names:
            if name not in world.processes and rng.random() < 0.06:
                world.start(name)
        if events_left and rng.random() < 0.1:
            for _ in range(min(events_left, rng.choice((1, 1, 6)))):
                events_left -= 1
                world.publish(rng.randrange(2), rng.randrange(100))
        awake = world.awake()
        if awake:
            _advance(world, rng.choices(awake, [speed[p.name] for p in awake])[0])
        world.now_ms += rng.choice(_CLOCK_STEPS_MS)
    return steps


def _advance(world: World, process: Process) -> None:
    """Let one engine do a step. Within a promotion it falls asleep more often than elsewhere, most often before it fences, and
    others may take it for dead then."""
    world.advance(process)
    plan, engine = world.plan, process.engine
    if engine.role is not Role.PROMOTING or len(world.awake()) < len(world.processes):
        return  # one sleeper at a time, so that somebody else moves on
    if plan.happens(FaultKind.PAUSE, 0.5 if engine.status().step is Step.WON else 0.1):
        process.wakes_at_commit = world.rng.random() < 0.7
        world.pause(process.name, 250 if process.wakes_at_commit else world.rng.choice((20, 40, 80, 160)))
        if plan.happens(FaultKind.FALSE_SUSPICION, 0.7):
            world.suspicion_until_ms = world.now_ms + 10


def _crash(world: World, running: list[str]) -> None:
    world.kill(world.rng.choice(running))


def _all_dead(world: World, running: list[str]) -> None:
    for name in running:
        world.kill(name)


def _pause(world: World, running: list[str]) -> None:
    world.pause(world.rng.choice(running), world.rng.choice((5, 20, 60, 150)))


def _lag(world: World, running: list[str]) -> None:
    process = world.processes[world.rng.choice(running)]
    process.reads_seldom = not process.reads_seldom


def _suspect(world: World, _: list[str]) -> None:
    world.suspicion_until_ms = world.now_ms + world.rng.choice((1, 5, 20))


def _switch_over(world: World, _: list[str]) -> None:
    world.coordination.client("world").ask_switchover(GROUP, world.rng.choice(("", *world.names)))


def _stop(world: World, running: list[str]) -> None:
    process = world.processes[world.rng.choice(running)]
    if process.engine.role is not Role.JOINING:
        process.engine.ask_stop()


def _damage(world: World, _: list[str]) -> None:
    infos = world.store.list(GROUP)
    if infos:
        world.store.damage(GROUP, world.rng.choice(infos).name)


def _trim(world: World, _: list[str]) -> None:
    world.trim_input()


def _stick(world: World, running: list[str]) -> None:
    world.processes[world.rng.choice(running)].is_stuck = True


def _lose_progress(world: World, _: list[str]) -> None:
    world.bus.progress.clear()


_STRIKES: dict[FaultKind, tuple[float, Callable[[World, list[str]], None]]] = {
    FaultKind.CRASH: (0.015, _crash),
    FaultKind.ALL_DEAD: (0.006, _all_dead),
    FaultKind.PAUSE: (0.015, _pause),
    FaultKind.LAG: (0.03, _lag),
    FaultKind.FALSE_SUSPICION: (0.01, _suspect),
    FaultKind.SWITCHOVER: (0.01, _switch_over),
    FaultKind.STOP: (0.005, _stop),
    FaultKind.DAMAGE: (0.01, _damage),
    FaultKind.TRIM: (0.01, _trim),
    FaultKind.STUCK: (0.005, _stick),
    FaultKind.PROGRESS_LOST: (0.003, _lose_progress),
}
"""Faults that strike from outside an engine's calls: how likely each is at any step, and what it does."""


def _strike(world: World) -> None:
    """Let at most one of the enabled faults happen."""
    drawn = world.rng.random()
    if drawn > 0.15:
        return
    running = list(world.processes)
    for kind, (probability, strike) in _STRIKES.items():
        drawn -= probability
        if drawn < 0:
            if kind in world.plan.enabled and running:
                strike(world, running)
            return


def _heal(world: World) -> int:
    """Faults end; what is due by now must come out."""
    rng, plan = world.rng, world.plan
    plan.quiet, plan.lock_holder, world.suspicion_until_ms = True, "", 0
    target = {stream: len(rows) for stream, rows in world.reference().items()}
    alone = rng.choice(world.names) if rng.random() < 0.5 else ""
    stuck = world.active() if len(world.names) > 1 and not alone and FaultKind.STUCK in plan.enabled else ""
    world.trace(f"{world.now_ms} the world heals; due: {target}; {f'{alone} alone' if alone else 'all'} must bring it out")
    for process in list(world.processes.values()):
        process.reads_seldom, process.is_stuck = False, process.name == stuck
        process.paused_until_ms = _FOREVER_MS if alone and process.name != alone else -1
    steps = 0
    while steps < _HEALING_STEPS_MAX:
        steps += 1
        for name in world.names:
            if name not in world.processes and name in (alone or name):
                world.start(name)
        world.advance(rng.choice(world.awake()))
        world.now_ms += rng.choice(_CLOCK_STEPS_MS)
        delivered = world.observer.delivered()
        if all(delivered[s] >= target.get(s, 0) for s in delivered):
            break
    world.check_end(target)
    return steps


def run_many(first: int, count: int) -> list[Outcome]:
    """The failures among `count` seeds from `first` on."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes = (run_seed(seed, Path(folder)) for seed in range(first, first + count))
        return [outcome for outcome in outcomes if outcome.failure]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--core", choices=("fast", "real"), default="fast", help="a small core, or the engine's own")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    trace: Callable[[str], None] = print if options.verbose else lambda _: None
    kit = real_kit() if options.core == "real" else fast_kit()
    started, failed, steps, commits, delivered = time.perf_counter(), 0, 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + options.count):
            outcome = run_seed(seed, Path(folder), trace, kit)
            steps, commits, delivered = steps + outcome.steps, commits + outcome.commits, delivered + outcome.delivered
            if outcome.failure:
                failed += 1
                print(f"seed {seed}: {outcome.failure}\n  repeat with: {outcome.repeat}")
    seconds = time.perf_counter() - started
    print(f"{options.count} seeds, {failed} failed; {steps} steps, {commits} commits, {delivered} outputs, {seconds:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
