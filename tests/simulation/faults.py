"""The faults of a simulated run and their probabilities; each run disables some kinds, so that each also occurs alone."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from hotspare.base.errors import CoordinationError
from hotspare.bus.memory import BusFault, BusOperation
from hotspare.coordination.memory import CoordinationFault


class FaultKind(Enum):
    # engines
    CRASH = "crash"
    ALL_DEAD = "all engines dead"
    PAUSE = "pause"
    LAG = "lagging spare"
    STUCK = "stuck pipeline"
    STOP = "planned stop"
    SWITCHOVER = "switch-over"
    FALSE_SUSPICION = "false suspicion"
    WRONG_ENGINE = "a spare whose state flips"
    SHORT_MEMORY = "memory for held outputs is short"
    QUALITY_CHANGE = "qualities are changed"
    COLD = "cold spares"
    # bus
    UNKNOWN_RESULT = "unknown result"
    FENCED_DONE = "commit that took place and is told as fenced out"
    LATE_COMMIT = "commit that arrives late"
    BUS_DOWN = "call that the bus does not answer"
    BUS_OUTAGE = "broker outage"
    BUS_LOCKED = "frozen lock holder"
    LATE_FENCE = "late fencing call of a dead engine"
    PROGRESS_LOST = "progress record lost"
    TRIM = "trimmed input"
    TRIM_OUTPUT = "trimmed output"
    ID_EXPIRY = "the right to publish expires"
    FOREIGN_LOCK = "lock of a stranger"
    TIME_LEAP = "append times that leap or fall"
    TRIM_AT_START = "input trimmed under a starting engine"
    MESSAGE_LIMIT = "how much a topic takes in one message changes"
    PARTITIONS = "an inbound topic gets another partition"
    HOLES = "holes in the offsets of the input"
    # coordination and network
    COORDINATION = "coordination does not answer an engine"
    COORDINATION_OUTAGE = "coordination outage"
    SESSION_EXPIRY = "session expires"
    LATE_MESSAGE = "message that arrives late"
    REPEATED_MESSAGE = "message that arrives twice"
    STALE_ANSWER = "old answer"
    LATE_ANSWER = "answer on the role that comes when others have moved on"
    CUT_OFF = "engine cut off"
    # calls
    SLOW_CALLS = "calls that take up to some leases"
    SLOW_WORLD = "every call takes its time"
    SLOW_FENCE = "fencing takes longer than the lease"
    # throughout a run (`lasting.py`)
    VERDICT_UNKNOWN = "nothing is known of any holder"
    VERDICT_CONNECTED = "every holder is taken for alive"
    VERDICT_CLOSED = "every holder is taken for dead"
    STEADY_LAG = "spares that always lag"
    HUNG_SPARE = "a spare that hangs"
    NO_STORE = "an engine that reaches no store"
    OTHER_STORE = "an engine with a store of its own"
    SMALL_MESSAGES = "topics that take small messages only"
    SLOW_COMMITS = "transactions of more than a few rows time out"
    # in a calm group (`calm.py`)
    RETENTION = "topics keep messages for a time"
    ALWAYS_AT_HAND = "more input is always at hand"
    WRONG_ACTIVE = "the active is wrong, and its spares agree"
    # snapshots
    DAMAGE = "damaged snapshot"
    TORN_SNAPSHOT = "torn snapshot"
    OLD_SNAPSHOT = "all engines dead, old snapshot"
    STORE_ERROR = "the store fails, in whatever way"
    STORE_OUTAGE = "store full or away for a while"
    STORE_HANGS = "the store never answers"
    PERSIST = "snapshots are persisted elsewhere, and the group restored from there"
    # clocks
    CLOCK_RATE = "clocks of engines run unequally"
    CLOCK_STALL = "clock of an engine stalls"
    BUS_CLOCK = "clock of the bus jumps"
    SERVICE_CLOCK = "clock of coordination jumps"


TRIMS = frozenset({FaultKind.TRIM, FaultKind.TRIM_AT_START})
DAMAGES = frozenset({FaultKind.DAMAGE, FaultKind.OLD_SNAPSHOT, FaultKind.PERSIST})
"""Kinds that, together with one of TRIMS, may leave nothing to start from. That is refused with an error, and not a bug."""


PENDING: frozenset[FaultKind] = frozenset()
"""Kinds that no seed draws yet, because the engines do not withstand them; planted bugs and scripts may use them."""


ON_REQUEST = frozenset({FaultKind.PERSIST, FaultKind.COLD})
"""Kinds that are not drawn, as they are not faults: only runs that favour them have them; some other runs have `COLD`."""


IN_CALM = frozenset(
    {
        FaultKind.ALWAYS_AT_HAND,
        FaultKind.WRONG_ACTIVE,
        FaultKind.HUNG_SPARE,
        FaultKind.RETENTION,
        FaultKind.STORE_OUTAGE,
        FaultKind.FOREIGN_LOCK,
        FaultKind.BUS_LOCKED,
    }
)
"""Kinds whose bugs show in a calm group: every run that favours them has one."""


class Reach(Enum):
    """The services that a cut-off engine cannot reach. Other engines do not reach it either."""

    BUS = "the bus"
    COORDINATION = "coordination"
    BOTH = "bus and coordination"


def engine_of(client: str) -> str:
    """Returns the engine of a door, which is named by its engine and the engine's life."""
    return client.partition("#")[0]


@dataclass
class FaultPlan:
    """The faults of one run. `quiet` ends them all: the world heals. Those that are `favoured` strike more often."""

    rng: random.Random
    enabled: frozenset[FaultKind]
    favoured: frozenset[FaultKind] = frozenset()
    quiet: bool = False
    suspended: dict[str, int] = field(default_factory=dict)
    """Client to the simulated time until which coordination does not answer it."""
    cut_off: dict[str, tuple[int, Reach]] = field(default_factory=dict)
    """Engine to the time until which it is cut off, and from which services."""
    bus_down_until_ms: int = 0
    coordination_down_until_ms: int = 0
    store_down_until_ms: int = 0
    commits_lost: set[str] = field(default_factory=set)
    """Engines whose commits are all lost; their other calls are answered."""
    lock_holder: str = ""
    """The holder of the bus's write lock: a paused engine, or a stranger."""
    lock_until_ms: int = 0
    """When a busy stranger releases the lock; 0: the stranger is stopped."""
    late: list[Callable[[], object]] = field(default_factory=list)
    """Messages to coordination that have yet to arrive, for the first or the second time."""
    is_delivering: bool = False
    now_ms: Callable[[], int] = lambda: 0
    happened: Counter[FaultKind] = field(default_factory=Counter)

    def happens(self, kind: FaultKind, probability: float) -> bool:
        if self.quiet or kind not in self.enabled:
            return False
        if kind in self.favoured:
            probability = max(min(2.5 * probability, 0.6), probability)
        if self.rng.random() >= probability:
            return False
        self.happened[kind] += 1
        return True

    def is_cut_off(self, engine: str, *reaches: Reach) -> bool:
        """Whether the engine is cut off from one of these, or from any service if none is given."""
        if engine not in self.cut_off:
            return False
        until_ms, reach = self.cut_off[engine]
        return until_ms > self.now_ms() and (not reaches or reach in reaches)

    def deliver(self) -> None:
        """Delivers one of the late messages, not always the oldest."""
        if self.late:
            message = self.late.pop(self.rng.randrange(len(self.late)))
            self.is_delivering = True
            with contextlib.suppress(CoordinationError):
                message()
            self.is_delivering = False

    def heal(self) -> None:
        """Ends all faults, including those that last."""
        while self.late:
            self.deliver()
        self.quiet, self.lock_holder = True, ""
        self.suspended.clear()
        self.cut_off.clear()
        self.commits_lost.clear()
        self.bus_down_until_ms = self.coordination_down_until_ms = self.store_down_until_ms = 0


_WRITES = frozenset({BusOperation.PUBLISH, BusOperation.FENCE, BusOperation.APPEND, BusOperation.CLAIM})
_UNTOLD = (BusFault.UNKNOWN_WRITTEN, BusFault.UNKNOWN_NOT_WRITTEN)


@dataclass
class BusFaultSource:
    """Draws the faults of bus calls. `fence_late`: lets a fencing call of a dead engine arrive."""

    plan: FaultPlan
    fence_late: Callable[[], None] = lambda: None

    def bus_fault(self, client: str, operation: BusOperation) -> BusFault:
        plan = self.plan
        if plan.lock_holder and operation in _WRITES and client != "world":
            return BusFault.LOCKED
        if operation is BusOperation.PUBLISH and engine_of(client) in plan.commits_lost:
            return BusFault.UNKNOWN_NOT_WRITTEN
        if plan.quiet or client == "world":
            return BusFault.NONE
        is_down = plan.bus_down_until_ms > plan.now_ms() or plan.is_cut_off(engine_of(client), Reach.BUS, Reach.BOTH)
        if is_down or plan.happens(FaultKind.BUS_DOWN, 0.03):
            return BusFault.UNAVAILABLE
        if operation is BusOperation.PUBLISH:
            if plan.happens(FaultKind.LATE_FENCE, 0.05):
                self.fence_late()
            if plan.happens(FaultKind.LATE_COMMIT, 0.1):
                return BusFault.UNKNOWN_LATE
            if plan.happens(FaultKind.UNKNOWN_RESULT, 0.1):
                return plan.rng.choice(_UNTOLD)
        elif operation is BusOperation.FENCE or operation is BusOperation.APPEND:
            if plan.happens(FaultKind.UNKNOWN_RESULT, 0.03):
                return plan.rng.choice(_UNTOLD)
            if plan.happens(FaultKind.LATE_COMMIT, 0.03):
                return BusFault.UNKNOWN_LATE
        return BusFault.NONE


@dataclass
class CoordinationFaultSource:
    plan: FaultPlan

    def fault_of_call(self, client: str, operation: str) -> CoordinationFault:
        plan = self.plan
        if client == "world" or plan.quiet or plan.is_delivering:
            return CoordinationFault.NONE
        now_ms = plan.now_ms()
        if plan.suspended.get(client, 0) > now_ms or plan.coordination_down_until_ms > now_ms:
            return CoordinationFault.SUSPENDED
        if plan.is_cut_off(engine_of(client), Reach.COORDINATION, Reach.BOTH):
            return CoordinationFault.SUSPENDED
        if plan.happens(FaultKind.COORDINATION, 0.01):
            plan.suspended[client] = now_ms + plan.rng.randrange(5, 100)
            kinds = (CoordinationFault.SUSPENDED, CoordinationFault.SUSPENDED_DONE, CoordinationFault.LOST)
            return plan.rng.choice(kinds)
        return CoordinationFault.NONE
