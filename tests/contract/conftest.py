"""One suite per contract, run on every implementation. A fixture gives a function that opens one more door to the same thing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hotspare.bus.contract import Bus
from hotspare.bus.memory import MemoryBus
from hotspare.bus.sqlite import SqliteBus
from hotspare.coordination.contract import Coordination
from hotspare.coordination.memory import MemoryCoordination
from hotspare.coordination.sqlite import SqliteCoordination
from hotspare.stores.contract import Store
from hotspare.stores.directory import DirectoryStore
from hotspare.stores.memory import MemoryStore
from tests.contract.material import ManualClock

BUSY_TIMEOUT_MS = 20_000
"""On a busy machine a writer may wait long for its turn; only the tests about locks want to be told soon."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite"])
def open_bus_door(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Callable[[], Bus]]:
    opened: list[Bus] = []
    shared = MemoryBus(clock)

    def door() -> Bus:
        if request.param == "memory":
            bus: Bus = shared.client(f"door {len(opened)}")
        else:
            bus = SqliteBus(tmp_path / "bus.db", BUSY_TIMEOUT_MS, clock)
        opened.append(bus)
        return bus

    yield door
    for bus in opened:
        bus.close()


@pytest.fixture
def bus(open_bus_door: Callable[[], Bus]) -> Bus:
    return open_bus_door()


@pytest.fixture(params=["memory", "sqlite"])
def open_coordination_door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Coordination]]:
    opened: list[Coordination] = []
    shared = MemoryCoordination()

    def door() -> Coordination:
        if request.param == "memory":
            one: Coordination = shared.client(f"door {len(opened)}")
        else:
            one = SqliteCoordination(tmp_path / "bus.db-coord", BUSY_TIMEOUT_MS)
        opened.append(one)
        return one

    yield door
    for one in opened:
        one.close()


@pytest.fixture
def coordination(open_coordination_door: Callable[[], Coordination]) -> Coordination:
    return open_coordination_door()


@pytest.fixture(params=["memory", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else DirectoryStore(tmp_path / "snapshots")
