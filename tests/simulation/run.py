"""Runs seeds: `python -m tests.simulation.run --seed N [--count K] [--core real] [--verbose]`.

A seed determines everything: engines, events, faults and their moments. A run has a wild phase, then heals: faults end, and all
engines, or one alone while the others sleep forever, must deliver all outputs that were due.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from hotspare.bus.memory import Fencing
from hotspare.ha.rules.roles import Role, Step
from hotspare.ha.rules.settings import OnDivergence
from hotspare.model.quality import PRECISE
from tests.simulation.calm import Calm
from tests.simulation.checkers import Violation
from tests.simulation.coverage import covered
from tests.simulation.engines import Process
from tests.simulation.faults import DAMAGES, IN_CALM, ON_REQUEST, PENDING, TRIMS, FaultKind, FaultPlan
from tests.simulation.healing import End, Healing
from tests.simulation.kits import Kit, fast_kit, real_kit
from tests.simulation.lasting import drawn
from tests.simulation.partitions import refuse_partitions
from tests.simulation.strikes import Striker, drawn_quality
from tests.simulation.traffic import Traffic, end_hung_calls
from tests.simulation.world import GROUP, SETTINGS, World
from tests.simulation.wrong_engines import Excused

CLOCK_STEPS_MS = (0, 0, 0, 1, 1, 3)
_SHORT_MEMORY_BYTES = 400
_MANY_ROWS = 16
_SLOW_LEASE_MS = 400
_PROMOTION_STEP_LEASES = 6
_FEW_WAITING_ROWS = 6
_CALM_SHARE = 0.08
_COLD_SHARE = 0.05
_LONG_SHARE = 0.003
_AWAY_STARTS = 0.01
"""With cold spares, hot engines stay down for longer, so that cold ones are needed."""
_COLD_SPARES_SHARE = 0.15
_PARTITIONS_SHARE = 0.05
_INBOUND_CHECK_MS = 40
_PERSIST_POLL_MS = 2
_PERSIST_TURN_MS = 5
_EVENTS_MEANWHILE = 6
_LONG = 20
"""The factor by which a long run is longer."""


@dataclass(frozen=True)
class Outcome:
    """The result of one seed; `failure` is "" if nothing was violated. `healing_steps`: the longest wait once faults had ended."""

    seed: int
    failure: str
    steps: int
    commits: int
    delivered: int
    healing_steps: int = 0
    covered: Counter[str] = field(default_factory=Counter)
    repeat_with: str = ""

    @property
    def repeat(self) -> str:
        return f"make sim SEED={self.seed}{self.repeat_with}"


def run_seed(
    seed: int,
    folder: Path,
    trace: Callable[[str], None] = lambda _: None,
    kit: Kit | None = None,
    only: frozenset[FaultKind] | None = None,
    favoured: frozenset[FaultKind] = frozenset(),
) -> Outcome:
    """Runs one seed. Never raises: an engine that breaks is a failure too. `only`: the faults, else the seed draws them; those
    `favoured` are among them and strike more often."""
    world = drawn_world(seed, folder, trace, kit, only, favoured)
    is_calm, is_cold = world.rng.random() < _CALM_SHARE or bool(favoured & IN_CALM), world.rng.random() < _COLD_SHARE
    world.lasting.cold = cold_spares(seed, world, is_calm)
    healing, calm = Healing(world, CLOCK_STEPS_MS, End.TOGETHER if is_calm else End.ANY), Calm(world)
    steps = 0

    def play() -> None:
        nonlocal steps
        if not is_cold:
            steps = wild(world)
        if world.has_added_partitions:
            refuse_partitions(healing)
        else:
            healing.run()
            if is_calm:
                calm.run()

    failure = failure_of(play, trace)
    world.close()
    shutil.rmtree(world.folder, ignore_errors=True)
    delivered = sum(world.observer.delivered().values())
    return Outcome(seed, failure, steps + healing.steps, world.observer.commits, delivered, healing.longest, covered(world, calm))


def cold_spares(seed: int, world: World, is_calm: bool) -> frozenset[str]:
    """Draws the cold spares from a seed of their own, so that runs without any are unchanged; so are runs that favour other faults.
    At least one engine stays hot. Calm groups, and groups whose engines must all end, have none."""
    rng, enabled, favoured = random.Random(f"cold spares of {seed}"), world.plan.enabled, world.plan.favoured
    share = rng.random()
    is_drawn = FaultKind.COLD in favoured if favoured else share < _COLD_SPARES_SHARE
    if not is_drawn or is_calm or FaultKind.PARTITIONS in enabled or len(world.fit_names) < 2:
        return frozenset()
    cold = frozenset(rng.sample(world.fit_names, rng.randrange(1, len(world.fit_names))))
    world.plan.enabled = enabled | {FaultKind.COLD}
    world.trace(f"cold spares: {', '.join(sorted(cold))}")
    return cold


def failure_of(play: Callable[[], None], trace: Callable[[str], None]) -> str:
    """Returns the failure of a run, "" if there is none; an engine that breaks is a failure too."""
    try:
        play()
    except Violation as violation:
        return str(violation)
    except Excused as excuse:
        trace(f"the rest says nothing: {excuse} is wrong and nobody could know it")
    except Exception as error:
        failure = f"broke: {type(error).__name__}: {error}"
        trace(failure)
        return failure
    return ""


def drawn_world(
    seed: int,
    folder: Path,
    trace: Callable[[str], None],
    kit: Kit | None,
    only: frozenset[FaultKind] | None,
    favoured: frozenset[FaultKind],
    without: frozenset[FaultKind] = frozenset(),
    group: str = GROUP,
    kind: type[World] = World,
) -> World:
    """Returns the world of a run, of class `kind`; `without`: kinds of faults that are excluded."""
    rng = random.Random(seed)
    enabled = (set(only) if only is not None else _drawn(rng, favoured)) - without
    names = tuple(f"e{i}" for i in range(rng.choice((1, 2, 2, 2, 2, 3, 3, 4, 5))))
    lease_ms = _SLOW_LEASE_MS if rng.random() < 0.1 else SETTINGS.lease_ms
    settings = replace(
        SETTINGS,
        lease_ms=lease_ms,
        heartbeat_ms=lease_ms // 3,
        skew_max_ms=max(SETTINGS.skew_max_ms, 5 * lease_ms),
        commit_rows_max=rng.choice((2, 2, _MANY_ROWS)),
        commit_wait_ms=rng.choice((0, 0, 25)),
        on_divergence=rng.choice(list(OnDivergence)),
        promotion_step_ms=rng.choice((SETTINGS.promotion_step_ms, SETTINGS.promotion_step_ms, _PROMOTION_STEP_LEASES * lease_ms)),
        waiting_rows_max=rng.choice((SETTINGS.waiting_rows_max, SETTINGS.waiting_rows_max, _FEW_WAITING_ROWS)),
        held_bytes_max=_SHORT_MEMORY_BYTES if FaultKind.SHORT_MEMORY in enabled else SETTINGS.held_bytes_max,
    )
    if FaultKind.ALWAYS_AT_HAND in favoured or (FaultKind.ALWAYS_AT_HAND in enabled and rng.random() < 0.3):
        settings = replace(settings, commit_rows_max=_MANY_ROWS, commit_wait_ms=25)
    if FaultKind.PERSIST in enabled:
        settings = replace(settings, persist_poll_ms=_PERSIST_POLL_MS, persist_turn_ms=_PERSIST_TURN_MS)
    if FaultKind.PARTITIONS in enabled:
        settings = replace(settings, inbound_check_ms=_INBOUND_CHECK_MS)
    if FaultKind.SMALL_MESSAGES in enabled:
        settings = replace(settings, message_rows_max=_MANY_ROWS, commit_rows_max=_MANY_ROWS)
    plan = FaultPlan(rng, frozenset(enabled), favoured)
    lasting = drawn(rng, plan.enabled, names)
    kit = kit or fast_kit()
    streams = [o.stream for o in kit.topics.outbound if not o.has_beats]
    qualities = {stream: quality for stream in streams if (quality := drawn_quality(rng, stream)) != PRECISE}
    fencing = rng.choice(list(Fencing))
    world = kind(rng, names, plan, folder / str(seed), trace, fencing, settings, lasting, kit, qualities, group=group)
    world.pace.draw()
    kinds = ", ".join(sorted(kind.value for kind in enabled)) or "none"
    told = "".join(f"; {stream} {quality}" for stream, quality in qualities.items())
    trace(f"seed {seed}: engines {', '.join(names)}; fencing {world.fencing.value}{told}; faults: {kinds}")
    return world


def _drawn(rng: random.Random, favoured: frozenset[FaultKind]) -> set[FaultKind]:
    """Draws the faults of a run."""
    share = rng.choice((0.1, 0.25, 0.5, 0.75))
    drawn_from = (kind for kind in FaultKind if kind not in ON_REQUEST)
    enabled = {kind for kind in drawn_from if rng.random() < share and kind not in PENDING} | favoured
    if enabled & TRIMS and enabled & DAMAGES:
        enabled -= DAMAGES if favoured & TRIMS or (rng.random() < 0.5 and not favoured & DAMAGES) else TRIMS
    return enabled


def wild(world: World, longer: int = 1, calmer: int = 1) -> int:
    """Runs the wild phase and returns its count of steps. `longer`: multiplies the steps; `calmer`: divides the faults."""
    rng, plan, striker = world.rng, world.plan, Striker(world, calmer)
    world.struck = striker.struck
    events_left, steps = rng.randrange(10, 50), int(rng.randrange(60, 340) * max(1.0, len(world.names) / 3))
    events_left, steps, blocks = events_left * longer * calmer, steps * longer, (1, 1, 6)
    if rng.random() < _LONG_SHARE:
        events_left, steps, blocks = events_left * _LONG * 3, steps * _LONG, (1, 6, 60)
    traffic = Traffic([world], events_left, blocks)
    speed = {name: rng.choice((1, 1, 3, 9)) for name in world.names}
    partitions = FaultKind.PARTITIONS
    is_extended = partitions in plan.enabled and (partitions in plan.favoured or rng.random() < _PARTITIONS_SHARE)
    extended = rng.randrange(steps) if is_extended else -1
    for step in range(steps):
        striker.strike()
        if step == extended:
            world.add_partition(rng.randrange(2))
            striker.struck[partitions] += 1
        end_hung_calls(world)
        for name in world.names:
            is_page_evicted = bool(world.lasting.cold) and name not in world.lasting.cold
            if name not in world.processes and rng.random() < (_AWAY_STARTS if is_page_evicted else 0.06):
                world.start(name)
        traffic.step()
        awake = world.awake()
        if awake:
            advance_in_wild(world, rng.choices(awake, [speed[p.name] for p in awake])[0])
        world.pass_time(rng.choice(CLOCK_STEPS_MS))
    return steps


def advance_in_wild(world: World, process: Process) -> None:
    """Steps one engine. Within a promotion it sleeps more often than elsewhere, most often before it fences, and others may take it
    for dead then. A suspended machine's clock does not count the sleep: only reading the epoch again reveals it."""
    step = world.advance(process)
    if world.processes.get(process.name) is not process:
        return  # it ended in this step
    plan, engine = world.plan, process.engine
    if any(other.paused_until_ms > world.now_ms for other in world.processes.values()):
        return  # one sleeper at a time, so that another engine continues
    if world.has_won_unknowing(process) and len(world.processes) > 1 and plan.happens(FaultKind.LATE_ANSWER, 0.4):
        _suspend(world, process)
        return
    if engine.role is not Role.PROMOTING:
        return
    if step.startswith("fences") and len(world.processes) > 1 and plan.happens(FaultKind.CLOCK_STALL, 0.2):
        _suspend(world, process)
        return
    state = process.state
    if not plan.happens(FaultKind.PAUSE, 0.5 if state is not None and state.role_state.step is Step.WON else 0.1):
        return
    process.wakes_at_commit = world.rng.random() < 0.7
    world.pause(process.name, 250 if process.wakes_at_commit else world.rng.choice((20, 40, 80, 160)))
    if plan.happens(FaultKind.FALSE_SUSPICION, 0.7):
        world.surroundings.suspicion_until_ms = world.now_ms + 10


def _suspend(world: World, process: Process) -> None:
    """Suspends its machine until another engine has taken over and has more to publish than one commit."""
    for number in range(_EVENTS_MEANWHILE):
        world.publish(number % 2, world.rng.randrange(100))
    process.wakes_at_commit = True
    world.suspend(process.name, 250)
    world.pass_time(world.settings.lease_ms)  # the others are slow, too, and then find its lease over


def main() -> int:
    from tests.simulation.applications import run_applications  # which build on this
    from tests.simulation.cascade import run_cascade
    from tests.simulation.hangs import run_hangs
    from tests.simulation.recent import run_recent
    from tests.simulation.shards import run_shards

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--core", choices=("fast", "real"), default="fast", help="a small core, or the engine's own")
    parser.add_argument("--shards", action="store_true", help="a project in shards")
    parser.add_argument("--recent", action="store_true", help="engines whose state is made from recent input")
    parser.add_argument("--hangs", action="store_true", help="calls of user code that do not end")
    parser.add_argument("--cascade", action="store_true", help="two projects, one behind the other")
    parser.add_argument("--applications", action="store_true", help="applications whose tasks host the engines of shards")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    trace: Callable[[str], None] = print if options.verbose else lambda _: None
    kit = real_kit() if options.core == "real" else fast_kit()
    started, failed, steps, commits, delivered = time.perf_counter(), 0, 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + options.count):
            others = {run_applications: options.applications, run_cascade: options.cascade, run_shards: options.shards}
            others |= {run_recent: options.recent, run_hangs: options.hangs}
            run = next((run for run, is_asked in others.items() if is_asked), None)
            outcome = run_seed(seed, Path(folder), trace, kit) if run is None else run(seed, Path(folder), trace)
            steps, commits, delivered = steps + outcome.steps, commits + outcome.commits, delivered + outcome.delivered
            if outcome.failure:
                failed += 1
                print(f"seed {seed}: {outcome.failure}\n  repeat with: {outcome.repeat}")
    seconds = time.perf_counter() - started
    print(f"{options.count} seeds, {failed} failed; {steps} steps, {commits} commits, {delivered} outputs, {seconds:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
