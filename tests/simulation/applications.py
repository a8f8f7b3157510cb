"""Several applications, each a driver whose tasks host the engines of shards, as `host.partitioned` decides.

Draws and checks are those of a project in shards, but engines start and end with tasks. Executors end with their tasks, or are only
cut off. A task freezes, is abandoned and replaced, and thaws. A driver is cut off, or dies, and another one starts while tasks of
the previous one still run. Each application may lack other shards. No two attempts have the same name, so an orphan is one engine
more, and fencing ends it.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from hotspare.base.errors import HotspareError, StateError, UsageError
from hotspare.bus.naming import shard_group
from hotspare.ha.rules.roles import Role
from hotspare.host.hosted_group import CatchUp
from hotspare.host.partitioned.role_sharing import role_of
from hotspare.host.partitioned.sharing import RequestRole, ShardRole, WithdrawRequest
from hotspare.host.partitioned.watch import JobEnd
from tests.simulation.application_world import HostedWorld
from tests.simulation.checkers import Violation
from tests.simulation.doors import EngineClock
from tests.simulation.drivers import DRIVER_MS, Attempt, Driver, Executor
from tests.simulation.engines import Process
from tests.simulation.faults import FaultKind, Reach
from tests.simulation.run import CLOCK_STEPS_MS, Outcome, advance_in_wild, drawn_world, failure_of
from tests.simulation.shards import NOT_HERE, beside, kits_of
from tests.simulation.strikes import Striker
from tests.simulation.traffic import Traffic, end_hung_calls
from tests.simulation.world import CLOCK_RATES, GROUP, World

NAMES = ("east", "north", "west")
_SHARDS = (2, 3, 3, 4)
_LEASES_MS = (80, 160)
_REBALANCE_AFTER_MS = (0, 4_000, 16_000)
_STOP_MS_MAX = 300
_TALK_SHARE = 0.5
_START_SHARE = 0.06


class AppFault(Enum):
    """Faults of applications."""

    EXECUTOR_ENDS = "an executor ends"
    EXECUTOR_CUT_OFF = "an executor is cut off for good"
    TASK_FREEZES = "a task freezes"
    TASK_CUT_OFF = "a task is cut off from its driver"
    DRIVER_CUT_OFF = "a driver is cut off from its tasks"
    DRIVER_DIES = "a driver dies"
    NO_COORDINATION = "an application is cut off from coordination"
    EXECUTOR_MISSING = "an executor ends, and no other one comes"
    EXECUTOR_COMES = "an executor comes"


_STRIKES = {
    AppFault.EXECUTOR_ENDS: 0.006,
    AppFault.EXECUTOR_CUT_OFF: 0.005,
    AppFault.TASK_FREEZES: 0.01,
    AppFault.TASK_CUT_OFF: 0.006,
    AppFault.DRIVER_CUT_OFF: 0.004,
    AppFault.DRIVER_DIES: 0.005,
    AppFault.NO_COORDINATION: 0.004,
    AppFault.EXECUTOR_MISSING: 0.004,
    AppFault.EXECUTOR_COMES: 0.006,
}
NOT_OF_APPLICATIONS = NOT_HERE | {
    FaultKind.VERDICT_UNKNOWN,
    FaultKind.VERDICT_CONNECTED,
    FaultKind.VERDICT_CLOSED,
    FaultKind.STEADY_LAG,
    FaultKind.NO_STORE,
}
"""Also without faults that last for an engine's name: here no name lasts."""


@dataclass(eq=False)
class Application:
    """`is_over`: it is never started again. `executors`: the slots of each."""

    name: str
    executors: tuple[int, ...]
    driver: Driver | None = None
    runs: int = 0
    is_over: bool = False


@dataclass
class Applications:
    """The applications of a run, and a world for each shard; implements `Cluster` for their drivers."""

    worlds: list[HostedWorld]
    applications: list[Application]
    lease_ms: int
    faults: frozenset[AppFault] = frozenset()
    rebalance_after_ms: int = 0
    attempts: dict[str, Attempt] = field(default_factory=dict)
    """All living attempts by their key, including those that their driver does not know."""
    lives: int = 0

    def __post_init__(self) -> None:
        for world in self.worlds:
            world.on_end, world.on_kill, world.runs = self._on_end, self._on_kill, self._runs

    @property
    def first(self) -> HostedWorld:
        return self.worlds[0]

    @property
    def rng(self) -> random.Random:
        return self.first.rng

    def now_ms(self) -> int:
        return self.first.now_ms

    # --- a cluster of drivers --------------------------------------------------------------------------------------------------

    def launch(self, attempt: Attempt) -> None:
        self.lives += 1
        first, rate = self.first, 1.0
        if FaultKind.CLOCK_RATE in first.plan.enabled:
            rate = self.rng.choice(CLOCK_RATES)
        attempt.life, attempt.key = self.lives, attempt.name
        if attempt.name in self.attempts:
            attempt.key = f"{attempt.name}@{self.lives}"
        attempt.clock = EngineClock(lambda: first.now_ms, 7919.0 * self.lives, rate)
        attempt.answered_ms = attempt.now_ms()
        self.attempts[attempt.key] = attempt

    def begin(self, attempt: Attempt) -> None:
        attempt.has_begun = True

    def follow(self, attempt: Attempt, shards: tuple[int, ...]) -> None:
        attempt.wanted = frozenset(shards)

    def _host(self, attempt: Attempt) -> None:
        """Hosts shards as `host.partitioned.task` does: new ones join, unwanted ones give up their role and leave."""
        if not attempt.has_begun or attempt.stopping_ms is not None or self.is_frozen(attempt):
            return
        for shard, world in enumerate(self.worlds):
            process = world.processes.get(attempt.key)
            if process is None:
                attempt.leaving_ms.pop(shard, None)
                if shard in attempt.wanted:
                    world.begin(attempt.key, attempt.life, attempt.clock, attempt.name, attempt.executor.host)
            elif shard not in attempt.wanted or shard in attempt.leaving_ms:
                since_ms = attempt.leaving_ms.setdefault(shard, self.now_ms())
                if process.engine.role is not Role.JOINING:
                    process.engine.request_stop()
                if self.now_ms() - since_ms > _STOP_MS_MAX:
                    world.let_go(attempt.key)
        self._tell_names()

    def kill(self, attempt: Attempt) -> None:
        self.first.trace(f"{self.now_ms()} the process of {attempt.name} ends")
        self.first.kill(attempt.key)

    def _on_kill(self, key: str) -> None:
        attempt = self.attempts.pop(key, None)
        if attempt is not None:
            attempt.driver.lost(attempt)
            self._tell_names()

    def _runs(self, life: int) -> bool:
        return any(attempt.life == life for attempt in self.attempts.values())

    def _tell_names(self) -> None:
        for world in self.worlds:
            world.names = tuple(world.processes)

    def processes(self, attempt: Attempt) -> list[Process]:
        return [world.processes[attempt.key] for world in self.worlds if attempt.key in world.processes]

    def is_frozen(self, attempt: Attempt) -> bool:
        return any(process.paused_until_ms > self.now_ms() for process in self.processes(attempt))

    def complete(self, attempt: Attempt) -> list[int]:
        joined = (Role.STANDBY, Role.PROMOTING, Role.ACTIVE)
        return [
            shard
            for shard, world in enumerate(self.worlds)
            if attempt.key in world.processes
            and shard in attempt.wanted
            and shard not in attempt.leaving_ms
            and world.processes[attempt.key].engine.role in joined
        ]

    def caught_up(self, attempt: Attempt, complete: list[int]) -> list[int]:
        return [shard for shard in complete if self._has_caught_up(self.worlds[shard], self.worlds[shard].processes[attempt.key])]

    def _has_caught_up(self, world: World, process: Process) -> bool:
        taken = {(index, p.number): process.engine.next_offset((index, p.number)) for index, p in world.topics.partitions}
        if process.catch_up is None:
            ends = {(index, p.number): world.outside.end_offset(p) for index, p in world.topics.partitions}
            process.catch_up = CatchUp(taken, ends, self.now_ms())
        process.catch_up.due_report(taken, self.now_ms())
        return process.engine.role is Role.ACTIVE or process.catch_up.is_done

    def has_joined(self, attempt: Attempt) -> bool:
        """Whether it hosts exactly the shards that its driver wants, completely."""
        wanted, complete = attempt.driver.tasks[attempt.task.number].shards, self.complete(attempt)
        return len(self.processes(attempt)) == len(wanted) == len(complete) and not any(
            process.engine.role is Role.PROMOTING for process in self.processes(attempt)
        )

    def roles(self) -> dict[int, ShardRole]:
        service = self.first.coordination.client("drivers")
        found = {}
        for shard, world in enumerate(self.worlds):
            members = [
                replace(each, detail={"application": each.engine.partition("-")[0]}) for each in service.members(world.group)
            ]
            found[shard] = role_of(members, service.leader(world.group).holder)
        return found

    def ask(self, action: RequestRole | WithdrawRequest) -> None:
        service, group = self.first.coordination.client("drivers"), self.worlds[action.shard].group
        self.first.trace(f"{self.now_ms()} {action}")
        if isinstance(action, RequestRole):
            service.request_switchover(group, action.engine)
        else:
            service.withdraw_switchover(group)

    # --- steps -----------------------------------------------------------------------------------------------------------------

    def step(self, advance: Callable[[World, Process], object]) -> None:
        """Steps one process of each group, lets drivers and tasks act at random, and advances time."""
        for world in self.worlds:
            if awake := world.awake():
                advance(world, self.rng.choice(awake))
        self.first.pass_time(self.rng.choice(CLOCK_STEPS_MS))
        self._sweep()
        if self.rng.random() < _TALK_SHARE:
            self._manage()
            if self.attempts:
                self.rng.choice(list(self.attempts.values())).converse()

    def turn(self) -> None:
        """Lets all processes, drivers and tasks do all that they can, and advances time by a millisecond."""
        for world in self.worlds:
            world.turn(clock_ms=0)
        self.first.pass_time(1)
        self._sweep()
        self._manage()
        for attempt in list(self.attempts.values()):
            attempt.converse()

    def _manage(self) -> None:
        for application in self.applications:
            if application.driver is not None:
                application.driver.act()
            elif not application.is_over and self.rng.random() < _START_SHARE:
                self._start(application)

    def _start(self, application: Application) -> None:
        application.runs += 1
        hosts = [Executor(f"{application.name}{application.runs}.{n}", slots) for n, slots in enumerate(application.executors)]
        run = f"r{application.runs}"
        times_ms = (self.lease_ms * DRIVER_MS, self.rebalance_after_ms)
        application.driver = Driver(self, application.name, run, len(self.worlds), hosts, *times_ms)
        self.first.trace(f"{self.now_ms()} the driver of {application.name} starts, run {run}")

    def end_driver(self, application: Application) -> None:
        """Ends the driver; its tasks end later, or do not notice yet."""
        driver = application.driver
        if driver is None:
            return
        application.driver, driver.is_dead = None, True
        self.first.trace(f"{self.now_ms()} the driver of {application.name} dies")

    def _on_end(self, process: Process) -> None:
        """Handles a group that ended by itself: its process stops, with the other groups."""
        attempt = self.attempts.get(process.name)
        if attempt is None:
            return
        if process.error is None and process.ended.startswith("dies"):
            self.kill(attempt)
            return
        if process.error is None and self._shard_of(process) in attempt.leaving_ms:
            return
        if attempt.stopping_ms is None:
            attempt.stopping_ms = self.now_ms()
            attempt.end = JobEnd(process.ended, is_final=_is_final(process.error))
        if isinstance(process.error, (UsageError, StateError)):
            raise Violation(f"refused: {process.engine_name} {process.ended}; its application would end")
        for left in self.processes(attempt):
            if left.engine.role is not Role.JOINING:
                left.engine.request_stop()

    def _shard_of(self, process: Process) -> int:
        return next(n for n, world in enumerate(self.worlds) if world.group == process.definition.group)

    def _sweep(self) -> None:
        """Reports processes that have ended, and kills those that take too long to stop."""
        now_ms = self.now_ms()
        for attempt in list(self.attempts.values()):
            self._host(attempt)
            if attempt.stopping_ms is None:
                continue
            if not self.processes(attempt):
                attempt.driver.returned(attempt)
                self.kill(attempt)
            elif now_ms - attempt.stopping_ms > _STOP_MS_MAX:
                self.kill(attempt)
        for application in self.applications:
            if application.driver is not None and application.driver.failure:
                self.first.trace(f"{now_ms} {application.name} ends: {application.driver.failure}")
                for attempt in [each for each in self.attempts.values() if each.driver is application.driver]:
                    self.kill(attempt)
                self.end_driver(application)

    # --- faults ----------------------------------------------------------------------------------------------------------------

    def strike(self) -> None:
        """Lets at most one of the run's faults strike."""
        drawn = self.rng.random()
        for fault, probability in _STRIKES.items():
            drawn -= probability if fault in self.faults else 0.0
            if drawn < 0:
                self._strike(fault)
                return

    def _strike(self, fault: AppFault) -> None:
        running = [each for each in self.applications if each.driver is not None]
        if not running:
            return
        application = self.rng.choice(running)
        driver = application.driver
        assert driver is not None
        attempts = [each for each in driver.current() if each.key in self.attempts]
        self.first.trace(f"{self.now_ms()} {application.name}: {fault.value}")
        lasts_ms = self.rng.choice((self.lease_ms // 2, self.lease_ms + 10, 2 * self.lease_ms))
        if fault is AppFault.DRIVER_DIES:
            for attempt in attempts:
                if self.rng.random() < 0.5:
                    self.kill(attempt)
            self.end_driver(application)
        elif fault is AppFault.DRIVER_CUT_OFF:
            driver.cut_until_ms = self.now_ms() + lasts_ms
        elif fault is AppFault.NO_COORDINATION:
            until_ms = self.now_ms() + lasts_ms
            self.first.plan.cut_off |= {each.key: (until_ms, Reach.COORDINATION) for each in attempts}
        elif fault is AppFault.EXECUTOR_MISSING:
            driver.lose_for_good(self.rng.choice(driver.executors))
        elif fault is AppFault.EXECUTOR_COMES:
            driver.gain(self.rng.choice((1, 2)))
        elif attempts:
            self._strike_attempt(fault, self.rng.choice(attempts), lasts_ms)

    def _strike_attempt(self, fault: AppFault, attempt: Attempt, lasts_ms: int) -> None:
        if fault is AppFault.EXECUTOR_ENDS:
            attempt.driver.lose(attempt.executor, executor_ends=self.kill)
        elif fault is AppFault.EXECUTOR_CUT_OFF:
            attempt.driver.lose(attempt.executor)
        elif fault is AppFault.TASK_CUT_OFF:
            attempt.cut_until_ms = self.now_ms() + lasts_ms
        elif self.processes(attempt):
            world = next(world for world in self.worlds if attempt.key in world.processes)
            (world.suspend if self.rng.random() < 0.5 else world.pause)(attempt.key, lasts_ms)


def _is_final(error: HotspareError | None) -> bool:
    return error is not None and not error.retryable


def run_applications(
    seed: int, folder: Path, trace: Callable[[str], None] = lambda _: None, favoured: frozenset[FaultKind] = frozenset()
) -> Outcome:
    """Runs one seed; never raises (`run.run_seed`)."""
    from tests.simulation.application_healing import ApplicationHealing, Ending

    applications = drawn(seed, folder, trace, favoured)
    ending = Ending(applications)
    healings = [ApplicationHealing.of(world, ending) for world in applications.worlds]
    steps = 0

    def play() -> None:
        nonlocal steps
        steps = _wild(applications)
        for healing in healings:
            healing.run()
        ending.check()

    failure = failure_of(play, trace)
    for world in applications.worlds:
        world.close()
    shutil.rmtree(applications.first.folder, ignore_errors=True)
    commits = sum(world.observer.commits for world in applications.worlds)
    delivered = sum(sum(world.observer.delivered().values()) for world in applications.worlds)
    longest, healed = max(healing.longest for healing in healings), sum(healing.steps for healing in healings)
    return Outcome(seed, failure, steps + healed, commits, delivered, longest, repeat_with=" ARGS=--applications")


def drawn(seed: int, folder: Path, trace: Callable[[str], None], favoured: frozenset[FaultKind]) -> Applications:
    """Returns the applications of a run, before any has started."""
    kit, *kits = kits_of(random.Random(seed).choice(_SHARDS))
    group = shard_group(GROUP, 0)
    first = drawn_world(seed, folder, trace, kit, None, favoured, NOT_OF_APPLICATIONS, group, HostedWorld)
    assert isinstance(first, HostedWorld)
    rng, count = first.rng, 1 + len(kits)
    worlds = [first, *(beside(first, each) for each in kits)]
    for world in worlds:
        world.names = ()
    made = [Application(name, _executors(rng, count)) for name in NAMES[: rng.choice((2, 2, 3))]]
    share = rng.choice((0.2, 0.5, 0.8))
    faults = frozenset(fault for fault in AppFault if rng.random() < share)
    lease_ms = rng.choice(_LEASES_MS)
    told = ", ".join(f"{each.name} {each.executors}" for each in made)
    after_ms = rng.choice(_REBALANCE_AFTER_MS)
    trace(f"{count} shards; {told}; tasks have a lease of {lease_ms} ms; {', '.join(sorted(f.value for f in faults))}")
    trace(f"active roles are shared after {after_ms} ms of a driver")
    return Applications(worlds, made, lease_ms, faults, after_ms)


def _executors(rng: random.Random, shards: int) -> tuple[int, ...]:
    """Returns the slots of each executor: for as many tasks as there are shards, or for fewer."""
    slots = rng.randint(1, shards)
    return tuple(2 if slots - begun > 1 else 1 for begun in range(0, slots, 2))


def _wild(applications: Applications) -> int:
    first, worlds = applications.first, applications.worlds
    rng, strikers = first.rng, [Striker(world) for world in worlds]
    traffic, steps = Traffic(worlds, rng.randrange(20, 60)), rng.randrange(200, 700)
    for _ in range(steps):
        rng.choice(strikers).strike()
        applications.strike()
        end_hung_calls(first)
        traffic.step()
        applications.step(advance_in_wild)
    return steps
