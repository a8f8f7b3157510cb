"""Runs a world by a script instead of a seed, for scenarios in which one event happens at one exact moment."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from hotspare.bus.memory import Fencing
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import GroupSettings
from hotspare.model.quality import Quality
from tests.simulation.engines import Process
from tests.simulation.faults import FaultPlan
from tests.simulation.kits import Kit, fast_kit
from tests.simulation.lasting import Lasting
from tests.simulation.world import SETTINGS, World

_TURNS_MAX = 3_000


class Script:
    """A world without random faults. Engines move only when the script says so; each turn lasts a millisecond."""

    def __init__(
        self,
        folder: Path,
        *names: str,
        kit: Kit | None = None,
        settings: GroupSettings = SETTINGS,
        fencing: Fencing = Fencing.BY_EPOCH,
        qualities: Mapping[str, Quality] = MappingProxyType({}),
    ) -> None:
        rng = random.Random(7)
        plan = FaultPlan(rng, frozenset())
        self.names = names
        self.lines: list[str] = []
        self.world = World(
            rng,
            names,
            plan,
            folder,
            self.lines.append,
            fencing,
            settings,
            Lasting(sees_the_end=frozenset(names)),
            kit or fast_kit(),
            dict(qualities),
        )

    def start(self, *names: str) -> None:
        for name in names:
            self.world.start(name)

    def process(self, name: str) -> Process:
        return self.world.processes[name]

    def role(self, name: str) -> Role:
        return self.process(name).engine.role

    def turn(self, *names: str, clock_ms: int = 1) -> None:
        """Runs one step of each of these engines, or of all that run and are awake."""
        for process in self.world.awake():
            if (not names or process.name in names) and process.name in self.world.processes:
                self.world.advance(process)
        self.world.pass_time(clock_ms)

    def until(self, condition: Callable[[], bool], *names: str, clock_ms: int = 1) -> int:
        """Turns until the condition holds and returns the count of turns. Raises AssertionError with the trace if it never does."""
        for turns in range(_TURNS_MAX):
            if condition():
                return turns
            self.turn(*names, clock_ms=clock_ms)
        raise AssertionError("it never came true\n" + "\n".join(self.lines[-60:]))

    def until_active(self, name: str, *names: str) -> int:
        return self.until(lambda: name in self.world.processes and self.role(name) is Role.ACTIVE, *names)

    def publish(self, *values: int) -> None:
        """Publishes events to both topics in turn."""
        for number, value in enumerate(values):
            self.world.publish(number % 2, value)

    def delivered(self) -> int:
        return sum(self.world.observer.delivered().values())

    def due(self) -> dict[str, int]:
        """Returns the count of outputs per stream that the input recorded so far will have."""
        return self.world.due()

    def finish(self) -> None:
        """Runs until all due outputs are delivered, and checks that they are correct."""
        due = self.due()
        self.until(lambda: all(self.world.observer.delivered()[s] >= n for s, n in due.items()))
        self.world.check_end(due)

    def told(self, text: str) -> bool:
        """Whether a line of the trace contains this text."""
        return any(text in line for line in self.lines)
