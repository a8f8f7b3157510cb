"""The shared part of a simulated run: time, bus, coordination, store, and the living processes, for one group or many shards."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hotspare.bus.memory import Fencing, LandedCommit
from hotspare.coordination.memory import MemoryCoordination
from hotspare.stores.contract import StoredSnapshot
from tests.simulation.calls import Calls, Pace
from tests.simulation.checkers import Violation
from tests.simulation.doors import UnreliableStore
from tests.simulation.faults import BusFaultSource, CoordinationFaultSource, FaultPlan
from tests.simulation.transactional import TransactionalBus
from tests.simulation.wrong_engines import check_snapshot

if TYPE_CHECKING:
    from tests.simulation.world import World


@dataclass
class Surroundings:
    """Shared by all groups of a run. `worlds`: the world of each group."""

    rng: random.Random
    plan: FaultPlan
    fencing: Fencing = Fencing.BY_EPOCH
    now_ms: int = 1_000_000
    bus_jump_ms: int = 0
    service_jump_ms: int = 0
    suspicion_until_ms: int = 0
    lives: dict[str, int] = field(default_factory=dict)
    died_ms: dict[tuple[str, int], int] = field(default_factory=dict)
    worlds: dict[str, World] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plan.now_ms = lambda: self.now_ms
        self.pace = Pace(self.plan)
        self.calls = Calls(lambda: self.now_ms, self.pace)
        self.bus = TransactionalBus(
            lambda: (self.now_ms + self.bus_jump_ms) * 1000, BusFaultSource(self.plan, self._fence_late), self.fencing, self._landed
        )
        self.coordination = MemoryCoordination(lambda: self.now_ms + self.service_jump_ms, CoordinationFaultSource(self.plan))
        self.store = UnreliableStore(lambda: self.now_ms * 1000, self.plan, self._confirmed)
        self.elsewhere = UnreliableStore(lambda: self.now_ms * 1000, self.plan, self._persisted)
        """The store for persisted snapshots, for every location requested."""

    def _fence_late(self) -> None:
        groups = list(self.worlds)
        self.bus.fence_late(groups[0] if len(groups) == 1 else self.rng.choice(groups))

    def _landed(self, landed: LandedCommit) -> None:
        self.worlds[landed.group].landed(landed)

    def _persisted(self, group: str, name: str, stored: StoredSnapshot) -> None:
        """Checks that no persisted snapshot may be restored before it is committed, for streams that lose nothing."""
        world = self.worlds[group]
        world.was_persisted = True
        self._confirmed(group, name, stored)
        delivered, core = world.observer.delivered(), world.kit.cores.restore(stored.header, stored.pages)
        ahead = [s for s, n in core.sequences.items() if n > delivered.get(s, 0) and world.observer.holds_all(s)]
        if ahead:
            raise Violation(f"persisted: {name} may be restored, and is ahead of what is committed of {', '.join(ahead)}")

    def _confirmed(self, group: str, name: str, stored: StoredSnapshot) -> None:
        check_snapshot(self.worlds[group.partition("~")[0]], name, stored)
