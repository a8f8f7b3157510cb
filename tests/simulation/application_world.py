"""The group of one shard, whose engines start and end with the tasks of applications."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.doors import EngineClock
from tests.simulation.engines import Process
from tests.simulation.world import World


@dataclass
class HostedWorld(World):
    """`names`: the processes that run. `on_end` gets each group that ended by itself, `on_kill` each killed process. `runs`:
    whether the process of a life exists, whatever it hosts."""

    on_end: Callable[[Process], None] = lambda _: None
    on_kill: Callable[[str], None] = lambda _: None
    runs: Callable[[int], bool] = lambda _: False

    def begin(self, name: str, life: int, clock: EngineClock, engine: str = "", host: str = "host") -> Process:
        """Lets the engine be refused: its application judges whether that is right."""
        process = super().begin(name, life, clock, engine, host)
        process.may_be_refused = lambda: True
        return process

    def advance(self, process: Process) -> str:
        step = super().advance(process)
        if process.ended:
            self.on_end(process)
        return step

    def kill(self, name: str) -> None:
        super().kill(name)
        self.on_kill(name)

    def let_go(self, name: str) -> None:
        """Ends this group in a process without notice; the process continues."""
        process = self.processes.pop(name)
        process.end()
        self.calls.forget(process.door, self.rng)

    def lives_on(self, name: str, life: int) -> bool:
        """Lives are counted over all processes, whatever their names."""
        return self.runs(life)
