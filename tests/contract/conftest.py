"""The shared suites of the contracts, run on every implementation. A fixture returns a function that opens one more client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from hotspare.bus.contract import Bus
from hotspare.bus.memory import MemoryBus
from hotspare.bus.sqlite import SqliteBus
from hotspare.coordination.contract import Coordination
from hotspare.coordination.memory import MemoryCoordination
from hotspare.coordination.open import open_coordination
from hotspare.coordination.sqlite import SqliteCoordination
from hotspare.stores.contract import Access, Store
from hotspare.stores.memory import MemoryStore
from hotspare.stores.open import open_store
from hotspare.stores.settings import StoreSettings
from hotspare.testing.kafka_server import KafkaServers
from hotspare.testing.zookeeper_server import ZooKeeperServer
from tests.contract.kafka_door import KafkaDoor, empty
from tests.contract.material import ManualClock
from tests.contract.zookeeper_doors import Doors
from tests.tiers import servers

BUSY_TIMEOUT_MS = 20_000
"""On a busy machine a writer may wait long for its turn; only the tests of locks need a short timeout."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite", *servers("kafka")])
def open_bus_door(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., Bus]]:
    """Opens the bus at each call as another process does; on Kafka with fields of `KafkaSettings`."""
    opened: list[Bus] = []
    shared = MemoryBus(clock)
    kafka: KafkaServers | None = request.getfixturevalue("kafka") if request.param == "kafka" else None
    if kafka is not None:
        empty(kafka.bootstrap)  # any test may have run before on the same brokers

    def door(**settings: Any) -> Bus:
        if request.param == "memory":
            bus: Bus = shared.client(f"door {len(opened)}")
        elif kafka is None:
            bus = SqliteBus(tmp_path / "bus.db", BUSY_TIMEOUT_MS, clock)
        else:
            bus = KafkaDoor(kafka.url, **settings)
        opened.append(bus)
        return bus

    yield door
    for bus in opened:
        bus.close()
    if kafka is not None:
        empty(kafka.bootstrap)


@pytest.fixture
def bus(open_bus_door: Callable[[], Bus]) -> Bus:
    return open_bus_door()


@pytest.fixture(params=["memory", "sqlite", *servers("zookeeper")])
def open_coordination_door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Coordination]]:
    """Opens coordination at each call as another process does."""
    opened: list[Coordination] = []
    shared = MemoryCoordination()
    server = request.getfixturevalue("zookeeper") if request.param == "zookeeper" else None
    path = uuid4().hex

    def door() -> Coordination:
        if request.param == "memory":
            one: Coordination = shared.client(f"door {len(opened)}")
        elif server is not None:
            one = open_coordination(f"{server.url}/test/{path}?call_timeout_ms={BUSY_TIMEOUT_MS}&session_timeout_ms=30000")
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


@pytest.fixture(params=["memory", "directory", "sqlite", *servers("postgresql", "mariadb", "redis", "s3", "changelog")])
def open_store_door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """Opens the store at each call as another process does, with an `Access` and fields of `StoreSettings`. A database server
    serves all tests; each has its own group names."""
    shared, opened = MemoryStore(), []
    url = f"sqlite:///{tmp_path}/snapshots.db"
    if request.param in ("postgresql", "mariadb", "redis", "s3"):
        url = request.getfixturevalue(request.param).url

    if request.param == "changelog":
        url = f"{request.getfixturevalue('kafka').url}/snapshots-{uuid4().hex}"

    def door(access: Access = Access.CHANGE, **settings: Any) -> Store:
        if request.param == "memory":
            return shared
        is_folder = request.param == "directory"
        place = (tmp_path / "snapshots").as_uri() if is_folder else url
        opened.append(open_store(place, access, StoreSettings(**settings)))
        return opened[-1]

    yield door
    for each in opened:
        each.discard_group("g")
        each.close()


@pytest.fixture
def store(open_store_door: Callable[[], Store]) -> Store:
    return open_store_door()


@pytest.fixture
def doors(zookeeper: ZooKeeperServer) -> Iterator[Doors]:
    found = Doors(zookeeper)
    yield found
    found.close()


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A server that tests may kill and freeze; it runs again after each test."""
    with ZooKeeperServer.start(tmp_path_factory.mktemp("own")) as server:
        yield server


@pytest.fixture
def own_doors(own_server: ZooKeeperServer) -> Iterator[Doors]:
    if not own_server.process.is_running:
        own_server.restart()
    found = Doors(own_server)
    yield found
    own_server.thaw()
    if not own_server.process.is_running:
        own_server.restart()
    found.close()
