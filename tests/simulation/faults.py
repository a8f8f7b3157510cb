"""What can go wrong in a simulated run, and how often; some kinds are off in every run, so that each is also seen alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from hotspare.bus.memory import BusFault, BusOperation
from hotspare.coordination.memory import CoordinationFault
from hotspare.errors import Fenced


class FaultKind(Enum):
    CRASH = "crash"
    ALL_DEAD = "all engines dead"
    PAUSE = "pause"
    LAG = "lagging spare"
    UNKNOWN_RESULT = "unknown result"
    BUS_DOWN = "bus unavailable"
    BUS_LOCKED = "frozen lock holder"
    LATE_FENCE = "late fencing call of a dead engine"
    COORDINATION = "coordination outage"
    FALSE_SUSPICION = "false suspicion"
    SWITCHOVER = "switch-over"
    STOP = "planned stop"
    DAMAGE = "damaged snapshot"
    TRIM = "trimmed input"
    STUCK = "stuck pipeline"
    PROGRESS_LOST = "progress record lost"


@dataclass
class FaultPlan:
    """The faults of one run. `quiet` ends them all: the world heals."""

    rng: random.Random
    enabled: frozenset[FaultKind]
    quiet: bool = False
    suspended: dict[str, int] = field(default_factory=dict)
    """Client to the simulated time until which coordination does not answer it."""
    lock_holder: str = ""
    """The paused engine that keeps the bus's write lock."""
    now_ms: Callable[[], int] = lambda: 0

    def happens(self, kind: FaultKind, probability: float) -> bool:
        return not self.quiet and kind in self.enabled and self.rng.random() < probability


@dataclass
class BusFaultSource:
    plan: FaultPlan

    def at(self, client: str, operation: BusOperation) -> BusFault:
        plan = self.plan
        if client == "world":
            return BusFault.NONE
        writes = operation in (BusOperation.PUBLISH, BusOperation.FENCE, BusOperation.APPEND, BusOperation.CLAIM)
        if plan.lock_holder and writes:
            return BusFault.LOCKED
        if plan.happens(FaultKind.BUS_DOWN, 0.03):
            return BusFault.UNAVAILABLE
        if operation is BusOperation.PUBLISH:
            if plan.happens(FaultKind.LATE_FENCE, 0.05):
                raise Fenced("a late fencing call of a dead engine arrived", detail=client)
            if plan.happens(FaultKind.UNKNOWN_RESULT, 0.1):
                return plan.rng.choice((BusFault.UNKNOWN_WRITTEN, BusFault.UNKNOWN_NOT_WRITTEN))
        if operation in (BusOperation.FENCE, BusOperation.APPEND) and plan.happens(FaultKind.UNKNOWN_RESULT, 0.03):
            return plan.rng.choice((BusFault.UNKNOWN_WRITTEN, BusFault.UNKNOWN_NOT_WRITTEN))
        return BusFault.NONE


@dataclass
class CoordinationFaultSource:
    plan: FaultPlan

    def at(self, client: str, operation: str) -> CoordinationFault:
        plan = self.plan
        if client == "world" or plan.quiet:
            return CoordinationFault.NONE
        if plan.suspended.get(client, 0) > plan.now_ms():
            return CoordinationFault.SUSPENDED
        if plan.happens(FaultKind.COORDINATION, 0.01):
            plan.suspended[client] = plan.now_ms() + plan.rng.randrange(5, 100)
            kinds = (CoordinationFault.SUSPENDED, CoordinationFault.SUSPENDED_DONE, CoordinationFault.LOST)
            return plan.rng.choice(kinds)
        return CoordinationFault.NONE
