"""A group is upgraded, goes back, and is upgraded for good, while its participants are killed at random instants: the active
engine, engines of either project, and the upgrade command (SPEC Z6; law Failover).

Events arrive all the time. A killed engine is restarted at once, with its own project, and the command is repeated until it reports
success: as its users would do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from operator import add
from pathlib import Path
from random import Random

from hotspare.base.errors import ClusterError
from hotspare.demo.scenario import DemoReport
from hotspare.demo.site import Site as DemoSite
from hotspare.testing.cluster import SpawnedEngine, wait_until
from tests.e2e.chaos.scenarios import TIMEOUT_S, Needs, pass_time
from tests.e2e.shop import NEW, OLD, UNCHANGED, Shop, check_changed, verdicts
from tests.e2e.site import Site

OPTIONS = ("--runner", "local", "--snapshots", "300 milliseconds")
ENGINES = {"one": OLD, "two": OLD, "three": NEW, "four": NEW}
"""The project of each engine; the first two start the group."""
STEPS = ("--beside", "--lead", "--back", "--beside", "--lead", "--finish")
_MORE = 30
"""The number of outputs before the next step, which shows that all go on."""
_TRIES_MAX = 10
_WITHIN_S = 0.25
"""The longest time to an instant, counted from the command's first output or the strike before: the command hardly runs longer."""


class Victim(Enum):
    COMMAND = "the command"
    ACTIVE = "the active engine"
    CHANGED = "an engine of the changed project"
    BEFORE = "an engine of the project before"


@dataclass(frozen=True, slots=True)
class UpgradeScenario:
    """`strikes`: the number in each step; one is at the command itself. `engines`: the project of each."""

    row: str
    strikes: int
    engines: Mapping[str, str] = field(default_factory=lambda: ENGINES)
    needs: Needs = Needs.NOTHING

    @property
    def name(self) -> str:
        return f"{self.row}: an upgrade, back and on, with kills in the middle"

    def run(self, site: Site, random: Random, say: Callable[[str], None]) -> DemoReport:
        """Runs the upgrade. The verdict is about the streams that are equal in both projects; the others are checked here."""
        with closing(Shop(site)) as shop:
            upgrade = KilledUpgrade(shop, random, say, self.strikes, self.engines)
            try:
                return upgrade.run()
            except ClusterError as error:
                raise AssertionError(f"{error}\n{site.cluster.state_report()}") from error


@dataclass
class KilledUpgrade:
    """`strikes`: the number in each step."""

    shop: Shop
    random: Random
    say: Callable[[str], None]
    strikes: int
    engines: Mapping[str, str]
    killed: Counter[Victim] = field(default_factory=Counter)

    def run(self) -> DemoReport:
        shop = self.shop
        shop.start(OLD, *(name for name, project in self.engines.items() if project == OLD))
        publisher = shop.begin()
        shop.wait_for_more("sales/kept", 100)
        for step in STEPS:
            self._take(step)
            shop.wait_for_more("sales/numbered", _MORE)
        shop.end(publisher)
        check_changed(shop)
        verdict = reduce(add, verdicts(shop).values())
        fell = sum(shop.readers[stream].has_epoch_regression() for stream in UNCHANGED)
        events = shop.readers["sales/numbered"].rows
        return DemoReport(events, events, verdict, epoch_regressions=fell, kills=self.killed.total())

    # --- a step ---------------------------------------------------------------------------------------------------------------

    def _take(self, step: str) -> None:
        """Runs a step with all its strikes, to its end."""
        options = (step, "--empty") if step == "--beside" and self.random.random() < 0.5 else (step,)
        victims = [Victim.COMMAND, *self.random.choices(list(Victim), k=self.strikes - 1)]
        self.random.shuffle(victims)
        self.say(f"{' '.join(options)}: {', '.join(victim.value for victim in victims)}")
        for _ in range(_TRIES_MAX):
            command = self._begun(*options)
            while victims and command.is_running:
                pass_time(self.random.uniform(0, _WITHIN_S))
                self._strike(victims.pop(), command)
            if self._is_done(command) and not victims:
                return self._settled(step)
            if step == "--finish" and "use --lead" in command.log_tail():
                self._is_done(self._begun("--lead"))
        raise ClusterError(f"{step} does not come to an end", detail=command.log_tail())

    def _begun(self, *options: str) -> SpawnedEngine:
        """Starts the command, and waits until it has reported the effect of the change."""
        command = self.shop.begin_upgrade(NEW, *options)
        wait_until(lambda: not command.is_running or bool(command.log_tail()), "what the change means", TIMEOUT_S)
        return command

    def _is_done(self, command: SpawnedEngine) -> bool:
        status = command.wait_stopped(TIMEOUT_S)
        assert "Traceback" not in command.log_tail(200), command.log_tail(200)
        return status == 0

    def _settled(self, step: str) -> None:
        """Waits until all engines that should take part do, and the others have ended."""
        cluster = self.shop.site.cluster
        exclusion_reason = {"--back": NEW, "--finish": OLD}.get(step)
        for name in [name for name in cluster.engines if self.engines[name] == exclusion_reason]:
            wait_until(lambda name=name: not cluster.engines[name].is_running, f"{name} ends", TIMEOUT_S)  # type: ignore[misc]
            del cluster.engines[name]
        if step == "--beside":
            self._start(*(name for name, project in self.engines.items() if project == NEW))
        cluster.wait_ready(TIMEOUT_S)

    # --- strikes --------------------------------------------------------------------------------------------------------------

    def _strike(self, victim: Victim, command: SpawnedEngine) -> None:
        if victim is Victim.COMMAND:
            self.killed[victim] += command.is_running
            command.kill()
            return
        name = self._struck(victim)
        if name is not None:
            self.shop.kill(name)
            self.killed[victim] += 1
            self._start(name)

    def _struck(self, victim: Victim) -> str | None:
        cluster = self.shop.site.cluster
        if victim is Victim.ACTIVE:
            active = cluster.active_engine()
            return None if active is None else active.name
        project = NEW if victim is Victim.CHANGED else OLD
        running = [name for name, engine in cluster.engines.items() if self.engines[name] == project and engine.is_running]
        return self.random.choice(running) if running else None

    def _start(self, *names: str) -> None:
        for name in names:
            self.shop.begin_engine(self.engines[name], name)


def play_upgrade(
    scenario: UpgradeScenario, site: DemoSite, folder: Path, seed: int, say: Callable[[str], None]
) -> tuple[DemoReport, list[str]]:
    """Returns the verdict, and the processes that were left over."""
    folder.mkdir(parents=True, exist_ok=True)
    on_servers = site.brokers is not None
    found = Site(folder, options=OPTIONS)
    if on_servers:
        found = Site(folder, options=OPTIONS, bus_url=site.bus_url, coordination_url=site.coordination_url)
    report = scenario.run(found, Random(seed), say)
    return report, found.cluster.leftovers()


UPGRADE_SCENARIOS = (UpgradeScenario("Z6", strikes=4),)
