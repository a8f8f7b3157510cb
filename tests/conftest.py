"""Fixtures and settings that every test shares: hypothesis profiles, free ports, servers, and one Spark at a time on a machine."""

from __future__ import annotations

import fcntl
import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from hotspare.testing.clocks import why_no_shifted_clock
from hotspare.testing.database_server import DatabaseKind, DatabaseServer, why_no_server
from hotspare.testing.hosts import why_no_hosts
from hotspare.testing.kafka_server import KafkaServers
from hotspare.testing.redis_server import RedisServer, why_no_redis
from hotspare.testing.s3_server import S3Server
from hotspare.testing.server_process import free_ports
from hotspare.testing.zookeeper_server import ZooKeeperServer

settings.register_profile(
    "explore", max_examples=20, deadline=None, print_blob=True, derandomize=False, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", parent=settings.get_profile("explore"), max_examples=2000)
settings.register_profile("ci", parent=settings.get_profile("explore"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "explore"))

pytest_plugins = ["tests.interrupting", "tests.logged_lines", "tests.repeating", "tests.tiers"]
_LENDER = pytest.StashKey["Lender"]()

if TYPE_CHECKING:
    from tests.spark_sessions import Lender

_SPARK_LOCK = Path(tempfile.gettempdir()) / f"hotspare-tests-spark-{os.getuid()}.lock"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Freezes the objects that collecting made and raises the thresholds of garbage collection. Properties create short-lived
    objects by the million; scanning all objects for them takes a twelfth of the processor time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Lets a test marked `spark` wait for those of other runs on this machine, outside its time limit."""
    if item.get_closest_marker("spark") is None:
        return (yield)
    with _SPARK_LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return (yield)


@pytest.fixture
def free_port() -> Callable[[], int]:
    """Each call returns a loopback port that is free, that no other call returned, and that no outgoing connection gets."""
    return lambda: free_ports(1)[0]


@pytest.fixture
def hosts_can_be_made() -> None:
    """Skips tests with hosts of their own if the rights are missing; as root that is a failure."""
    reason = why_no_hosts()
    if reason:
        (pytest.fail if os.geteuid() == 0 else pytest.skip)(f"simulated hosts cannot be created here: {reason}")


@pytest.fixture
def clocks_can_be_wrong() -> None:
    """Skips tests with servers whose clocks are wrong if no tool can do that; as root that is a failure."""
    reason = why_no_shifted_clock()
    if reason:
        (pytest.fail if os.geteuid() == 0 else pytest.skip)(f"{reason}; .ci/servers installs it")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    """A real broker for the whole run, started by the first test that needs it; tests use names of their own."""
    with KafkaServers.start(tmp_path_factory.mktemp("kafka")) as servers:
        yield servers


def _database(kind: DatabaseKind) -> Iterator[DatabaseServer]:
    """Skips if the system has none; as root, which can install it, that is a failure."""
    reason = why_no_server(kind)
    if reason:
        (pytest.fail if os.geteuid() == 0 else pytest.skip)(f"{reason}; .ci/servers installs it")
    with DatabaseServer(kind) as server:
        yield server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[DatabaseServer]:
    """A server for the whole run, which no test stops; tests use group names of their own."""
    yield from _database(DatabaseKind.POSTGRESQL)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[DatabaseServer]:
    """A server for the whole run, like `postgresql`."""
    yield from _database(DatabaseKind.MARIADB)


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """A server for the whole run, like `postgresql`."""
    reason = why_no_redis()
    if reason:
        (pytest.fail if os.geteuid() == 0 else pytest.skip)(f"{reason}; .ci/servers installs it")
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A stand-in for object storage for the whole run."""
    with S3Server() as server:
        yield server


@pytest.fixture(scope="session")
def lender(pytestconfig: pytest.Config) -> Iterator[Lender]:
    """The Spark session that tests share, started by the first one that borrows it."""
    from tests.spark_sessions import lending  # whose imports other tests do without

    with lending() as lender:
        pytestconfig.stash[_LENDER] = lender
        yield lender


@pytest.fixture(autouse=True)
def _one_session(request: pytest.FixtureRequest) -> None:
    """Ends the shared session before a test that starts Spark itself: a process has one session at a time. A module that knows
    `Lender` starts none, and has tests that share one."""
    lender = request.config.stash.get(_LENDER, None)
    is_borrower = "lender" in request.fixturenames or hasattr(request.module, "Lender")
    if lender is not None and not is_borrower and request.node.get_closest_marker("spark") is not None:
        lender.end()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A server for the whole run, which no test stops; every test uses a path of its own."""
    with ZooKeeperServer.start(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
