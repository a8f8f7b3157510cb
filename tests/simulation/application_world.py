"""The group of one shard, whose engines come and go as tasks of applications do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hotspare.bus.naming import shard_group
from tests.simulation.doors import EngineClock
from tests.simulation.engines import Process
from tests.simulation.kits import Kit
from tests.simulation.world import GROUP, World


@dataclass
class HostedWorld(World):
    """`names` are those of the processes that run. `on_end` is told of each that ended by itself."""

    on_end: Callable[[Process], None] = lambda _: None

    def begin(self, name: str, life: int, clock: EngineClock, engine: str = "", host: str = "host") -> Process:
        """Whether it is right that it is refused, its application judges."""
        process = super().begin(name, life, clock, engine, host)
        process.may_be_refused = lambda: True
        return process

    def advance(self, process: Process) -> str:
        step = super().advance(process)
        if process.ended:
            self.on_end(process)
        return step

    def lives_on(self, name: str, life: int) -> bool:
        """Lives are counted over all processes, whatever their names."""
        return any(process.life == life for world in self.surroundings.worlds.values() for process in world.processes.values())


def hosted_beside(first: HostedWorld, kit: Kit) -> HostedWorld:
    """The group of another shard, in the same surroundings."""
    return HostedWorld(
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
