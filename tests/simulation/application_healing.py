"""The end of a run of applications: all are complete again, one alone is left, or each lacks other shards forever.

Due outputs are delivered shard by shard, orphaned processes end, and a restarted task disturbs no group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from hotspare.ha.events import HaEventKind
from hotspare.ha.rules.roles import Role
from tests.simulation.applications import Application, Applications
from tests.simulation.checkers import Violation
from tests.simulation.drivers import Attempt
from tests.simulation.healing import FOREVER_MS, End, Healing
from tests.simulation.run import CLOCK_STEPS_MS
from tests.simulation.shards import check_keys
from tests.simulation.world import SETTINGS, World

_STEPS_MAX = 8_000
_TURNS_MAX = 3_000
_PEACE_LEASES = 2
_EVENT_EVERY_MS = 7


class Left(Enum):
    """The applications that are left."""

    ALL = "all applications are complete again"
    ONE = "one application is left"
    FEWER = "each application has lost executors for good"


@dataclass
class Ending:
    """The end of a run, for all its shards."""

    applications: Applications
    left: Left = Left.ALL
    is_decided: bool = False
    asleep: set[str] = field(default_factory=set)
    """Attempts that sleep forever."""

    def decide(self) -> None:
        """Ends faults and draws which applications are left."""
        applications, rng = self.applications, self.applications.rng
        self.is_decided, self.left = True, rng.choice(list(Left))
        applications.first.trace(f"{applications.now_ms()} {self.left.value}")
        for attempt in applications.attempts.values():
            attempt.cut_until_ms = 0
        for application in applications.applications:
            if application.driver is not None:
                application.driver.cut_until_ms = 0
                for executor in application.driver.executors:
                    executor.back_ms = min(executor.back_ms, applications.now_ms())
        if self.left is Left.ONE:
            kept = rng.choice(applications.applications)
            for application in applications.applications:
                if application is not kept:
                    self._end(application)
        elif self.left is Left.FEWER:
            self._take_executors()

    def _end(self, application: Application) -> None:
        """Ends an application for good; its attempts die, or sleep forever."""
        applications = self.applications
        application.is_over = True
        sleeps = applications.rng.random() < 0.5
        for attempt in [each for each in applications.attempts.values() if each.driver.application == application.name]:
            if sleeps and attempt.has_begun:
                self.asleep.add(attempt.key)
                for process in applications.processes(attempt):
                    process.paused_until_ms = FOREVER_MS
            else:
                applications.kill(attempt)
        applications.end_driver(application)

    def _take_executors(self) -> None:
        """Removes some executors of each application for good; their shards must move to the others."""
        rng = self.applications.rng
        for application in self.applications.applications:
            driver = application.driver
            if driver is not None and (used := [each for each in driver.executors if each.is_used]):
                for executor in rng.sample(used, rng.randrange(len(used))):
                    driver.lose_for_good(executor)

    def is_settled(self) -> bool:
        """Whether every application that is left runs all its tasks, and nothing else runs."""
        applications, current = self.applications, set(self.asleep)
        for application in applications.applications:
            driver = application.driver
            if driver is None:
                if not application.is_over:
                    return False
                continue
            if not driver.is_complete() or not all(map(applications.has_joined, driver.current())):
                return False
            current |= {attempt.key for attempt in driver.current()}
        return set(applications.attempts) <= current

    def check(self) -> None:
        """Raises Violation unless all is settled, and stays so."""
        applications = self.applications
        for _ in range(_STEPS_MAX):
            if self.is_settled():
                break
            applications.step(lambda world, process: world.advance(process))
        if not self.is_settled():
            raise Violation(f"applications: they are not settled; {self.describe()}")
        check_keys(applications.worlds)
        if self.left is not Left.ONE and applications.first.settings.lease_ms == SETTINGS.lease_ms:
            self._restart_in_peace()  # with longer leases it would take many times as long
            self._grow_in_peace()

    def _restart_in_peace(self) -> None:
        """Checks that a restarted task takes no role, and does not disturb the active engines."""
        applications = self.applications
        self._let_leases_pass()
        self._turn_until(self.is_settled)
        if applications.rebalance_after_ms:
            self._turn_until(self._is_shared)
        spares = [each for each in applications.attempts.values() if each.key not in self.asleep and self._is_spare(each)]
        if not spares:
            return
        attempt = applications.rng.choice(spares)
        worlds = [applications.worlds[shard] for shard in attempt.wanted]
        before = {world.group: (_epoch(world), len(world.events)) for world in worlds}
        applications.first.trace(f"{applications.now_ms()} {attempt.name} is killed in peace")
        applications.kill(attempt)
        self._turn_until(self.is_settled)
        self._let_leases_pass()
        for world in worlds:
            epoch, count = before[world.group]
            fenced = [name for name, event in world.events[count:] if event.kind is HaEventKind.FENCED]
            if fenced or _epoch(world) != epoch:
                what = f"epoch {epoch} became {_epoch(world)}, fenced out: {', '.join(fenced) or 'nobody'}"
                raise Violation(f"peace: a spare's task was started again, and {world.group} was disturbed: {what}")
        for world in applications.worlds:
            due = {stream: count for stream, count in world.due().items() if world.observer.holds_all(stream)}
            come = world.observer.delivered
            self._turn_until(lambda due=due, come=come: all(come()[stream] >= count for stream, count in due.items()))
            world.check_end(due)

    def _is_shared(self) -> bool:
        """Whether every application has its share of the active roles."""
        applications = self.applications
        active = [role.active for role in applications.roles().values()]
        counts = [active.count(application.name) for application in applications.applications]
        return sum(counts) == len(active) and max(counts) - min(counts) <= 1

    def _grow_in_peace(self) -> None:
        """Adds an executor: shards move there, and each keeps a complete engine of its application meanwhile."""
        applications = self.applications
        able = [each.driver for each in applications.applications if each.driver and each.driver.slots < each.driver.shards]
        if not able:
            return
        driver = applications.rng.choice(able)
        applications.first.trace(f"{applications.now_ms()} an executor comes to {driver.application} in peace")
        driver.gain(1)

        def is_hosted_all_along() -> bool:
            found = {shard for attempt in driver.current() for shard in applications.complete(attempt)}
            if len(found) < driver.shards:
                raise Violation(f"moving: {driver.application} has shards {sorted(found)} alone; {self.describe()}")
            return self.is_settled()

        self._turn_until(is_hosted_all_along)

    def _is_spare(self, attempt: Attempt) -> bool:
        roles = {process.engine.role for process in self.applications.processes(attempt)}
        others = [
            any(p.engine.role is Role.ACTIVE for p in self.applications.worlds[shard].processes.values())
            for shard in attempt.wanted
        ]
        return roles == {Role.STANDBY} and all(others)

    def _turn(self) -> None:
        """Turns all, and publishes an event to a random shard every few ms."""
        applications = self.applications
        if applications.now_ms() % _EVENT_EVERY_MS == 0:
            world = applications.rng.choice(applications.worlds)
            world.publish(applications.rng.randrange(2), applications.rng.randrange(100))
        applications.turn()

    def _let_leases_pass(self) -> None:
        for _ in range(_PEACE_LEASES * self.applications.first.settings.lease_ms):
            self._turn()

    def _turn_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(_TURNS_MAX):
            if condition():
                return
            self._turn()
        raise Violation(f"applications: what should come in peace does not; {self.describe()}")

    def describe(self) -> str:
        tasks = [
            f"{each.name}: " + ", ".join(f"{n} {task.phase.value} {task.hosted}" for n, task in each.driver.tasks.items())
            for each in self.applications.applications
            if each.driver is not None
        ]
        return f"tasks of {'; '.join(tasks) or 'nobody'}; processes {', '.join(self.applications.attempts) or 'none'}"


def _epoch(world: World) -> int:
    return world.coordination.group(world.group).role.epoch


@dataclass
class ApplicationHealing(Healing):
    """The end of a run, seen from one of the shards; all others continue meanwhile."""

    ending: Ending = field(kw_only=True)

    @classmethod
    def of(cls, world: World, ending: Ending) -> ApplicationHealing:
        return cls(world, CLOCK_STEPS_MS, End.TOGETHER, ending=ending)

    @property
    def sharing(self) -> int:
        """Counts more engines than there are, because tasks have to restart first."""
        return 2 + len(self.ending.applications.applications)

    def end_faults(self) -> None:
        if self.ending.is_decided:
            return
        super().end_faults()
        for world in self.ending.applications.worlds[1:]:
            self.wake(world)
        self.ending.decide()

    def step(self) -> None:
        self.steps += 1
        self.ending.applications.step(lambda world, process: world.advance(process))
