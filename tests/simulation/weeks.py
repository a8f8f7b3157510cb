"""Simulates weeks of a group in seconds: long intervals only reduce the number of beats. Nothing may grow with time.

Engines tick, renew, take snapshots, and persist some elsewhere on request. Topics delete messages older than a day. The right to
publish expires, an engine of a new name replaces one each day, and the role moves every few days. The sizes of engines, bus,
coordination and stores are measured every hour.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hotspare.ha.effects import persisting
from hotspare.ha.rules.facts import PersistRequest
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import GroupSettings
from tests.simulation.checkers import Violation
from tests.simulation.faults import FaultPlan
from tests.simulation.lasting import Lasting
from tests.simulation.retention import forget_older
from tests.simulation.world import World

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS
SETTINGS = GroupSettings(
    lease_ms=20 * MINUTE_MS,
    heartbeat_ms=5 * MINUTE_MS,
    candidate_wait_ms=MINUTE_MS,
    skew_max_ms=HOUR_MS,
    merge_wait_ms=3 * MINUTE_MS,
    leader_poll_ms=5 * MINUTE_MS,
    switchover_poll_ms=5 * MINUTE_MS,
    progress_poll_ms=5 * MINUTE_MS,
    member_refresh_ms=10 * MINUTE_MS,
    quality_poll_ms=30 * MINUTE_MS,
    snapshot_interval_ms=HOUR_MS,
    divergence_wait_ms=HOUR_MS,
    retry_ms=MINUTE_MS,
    coordination_retry_ms=MINUTE_MS,
    promotion_step_ms=HOUR_MS,
    pipeline_stall_ms=4 * HOUR_MS,
    commit_wait_ms=0,
)
_TURN_MS = 2 * MINUTE_MS
_KEPT_MS = DAY_MS
_EXPIRY_DAYS = 2
_FAILOVER_DAYS = 3
_PARTS_DEPTH_MAX = 8
_PERSIST_MS = 3 * HOUR_MS
_KEPT = 4
"""The count of completed requests, and of persisted snapshots, that are kept."""
_SPARE = 3
"""Growth of a day's largest size that is allowed for data whose size varies."""


@dataclass
class Weeks:
    """`event_every_ms`: the interval of events, 0 for an idle group."""

    folder: Path
    event_every_ms: int
    seed: int = 1
    names: tuple[str, ...] = ("e0", "e1")
    world: World = field(init=False)
    started: int = 0
    """Engines of new names."""
    asked: int = 0
    """The newest request for a snapshot."""
    _largest: dict[int, Counter[str]] = field(default_factory=dict)
    """The largest size of each part, per day."""

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        lasting = Lasting(sees_the_end=frozenset(self.names))
        plan = FaultPlan(rng, frozenset())
        self.world = World(rng, self.names, plan, self.folder, settings=SETTINGS, lasting=lasting)

    def run(self, weeks: int) -> None:
        """Raises Violation if something grew, or if an output is wrong."""
        world, begun_ms = self.world, self.world.now_ms
        for name in self.names:
            world.start(name)
        while (elapsed_ms := world.now_ms - begun_ms) < weeks * WEEK_MS:
            self._let_happen(elapsed_ms)
            world.turn(clock_ms=_TURN_MS)
            if elapsed_ms % HOUR_MS == HOUR_MS // 2:  # an engine that starts at the full hour has to catch up first
                forget_older(world, _KEPT_MS)
                self.measure(elapsed_ms // DAY_MS)
        self.check_growth()
        due = world.due()
        for _ in range(HOUR_MS // _TURN_MS):
            world.turn(clock_ms=_TURN_MS)
        world.check_end(due)
        world.close()

    def measure(self, day: int) -> None:
        largest = self._largest.setdefault(day, Counter())
        for part, size in self.sizes().items():
            largest[part] = max(largest[part], size)

    def _let_happen(self, elapsed_ms: int) -> None:
        world = self.world
        if self.event_every_ms and elapsed_ms % self.event_every_ms == 0:
            world.publish(elapsed_ms // self.event_every_ms % 2, world.rng.randrange(100))
        if elapsed_ms % _PERSIST_MS == 0:
            request, client = PersistRequest("memory://elsewhere", keep=_KEPT), world.coordination.client("world")
            self.asked = persisting.submit_persist_request(client, world.group, request, kept=_KEPT)
        day, time_ms = divmod(elapsed_ms, DAY_MS)
        if time_ms == 6 * HOUR_MS and day % _EXPIRY_DAYS == 0:
            world.bus.fence_late(world.group)
        if time_ms == 12 * HOUR_MS:
            dies = next(
                (p.name for p in world.processes.values() if (p.engine.role is Role.ACTIVE) == (day % _FAILOVER_DAYS == 0)), ""
            )
            if dies:
                world.kill(dies)
        while time_ms % HOUR_MS == 0 and len(world.processes) < len(self.names):
            self.started += 1
            world.start(f"n{self.started}")

    def sizes(self) -> Counter[str]:
        """Returns the elements, and bytes of arrays, of each part of engines, bus, coordination and store."""
        world, total = self.world, Counter[str]()
        roots = [("bus", world.bus.progress), ("bus", world.bus.records), ("bus", world.bus.owners), ("bus", world.bus.epochs)]
        roots += [("bus.in_flight", world.bus.in_flight), ("calls", world.calls.underway)]
        roots += [("coordination", world.coordination.groups), ("store", world.store._groups)]
        roots += [("elsewhere", world.surroundings.elsewhere._groups)]
        roots += [("engine", process.state) for process in world.processes.values() if process.state is not None]
        roots += [("logs", {t: [log.messages for log in logs] for t, logs in world.bus.logs.items()})]
        for name, root in roots:
            for part, size in _parts(root, name, _PARTS_DEPTH_MAX):
                total[part] += size
        total["files"] = sum(1 for path in self.folder.rglob("*") if path.is_file())
        return total

    def check_growth(self) -> None:
        """Compares the smallest of the last three days with the largest of days two to four. The first day fills what is kept for a
        day, and varying sizes are larger on one day or another."""
        days = sorted(self._largest)
        before: Counter[str] = Counter()
        for day in days[1:4]:
            for part, size in self._largest[day].items():
                before[part] = max(before[part], size)
        for part in sorted(self._largest[days[-1]]):
            size = min(self._largest[day][part] for day in days[-3:])
            if size > before[part] + _SPARE + before[part] // 10:
                raise Violation(f"growth: {part} had {before[part]} elements on day 4 and has {size} on day {days[-1] + 1}")


def _parts(value: Any, path: str, depth: int) -> Iterator[tuple[str, int]]:
    """Yields the containers in an object of this project and their sizes, each by its path."""
    if depth == 0 or value is None or isinstance(value, (str, bytes, int, float)):
        return
    if isinstance(value, np.ndarray):
        yield f"{path} (bytes)", value.nbytes
    elif isinstance(value, Mapping):
        yield path, len(value)
        for each in value.values():
            yield from _parts(each, f"{path}[*]", depth - 1)
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        yield path, len(value)
        for each in value:
            yield from _parts(each, f"{path}[*]", depth - 1)
    elif type(value).__module__.startswith(("hotspare.", "tests.simulation.fast_core")):
        for name, part in _attributes(value):
            yield from _parts(part, f"{path}.{name}", depth - 1)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    names = [each.name for each in fields(value)] if is_dataclass(value) else []
    names += [name for name in getattr(value, "__dict__", {}) if name not in names]
    names += [name for name in getattr(type(value), "__slots__", ()) if name not in names]
    for name in names:
        if name not in ("settings", "topics", "identity", "_bus", "bus") and hasattr(value, name):
            yield name, getattr(value, name)
