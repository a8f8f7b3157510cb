"""What every test shares: hypothesis profiles, free ports, one Kafka broker, and one Spark at a time on a machine.

With `pytest -n 2` the suite runs in two processes, one of which gets all tests with servers or Spark.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from hotspare.testing.hosts import why_not
from hotspare.testing.kafka_server import KafkaServers
from hotspare.testing.zookeeper_server import ZooKeeperServer

settings.register_profile(
    "explore", max_examples=50, deadline=None, print_blob=True, derandomize=False, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", parent=settings.get_profile("explore"), max_examples=2000)
settings.register_profile("ci", parent=settings.get_profile("explore"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "explore"))

_SPARK_LOCK = Path(tempfile.gettempdir()) / f"hotspare-tests-spark-{os.getuid()}.lock"


_HEAVY = ("/e2e/", "/integration/", "/test_runner", "spark", "[kafka", "[zookeeper", "_zookeeper.py")


class _OneForServers(LoadScopeScheduling):
    """Gives all tests with servers or Spark to one process, which begins with them; any other test to whoever is free."""

    def _split_scope(self, nodeid: str) -> str:
        return "servers" if any(part in nodeid for part in _HEAVY) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _OneForServers:
    return _OneForServers(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test marked `spark` waits for those of other runs on this machine; the wait stands outside the test's time limit."""
    if item.get_closest_marker("spark") is None:
        return (yield)
    with _SPARK_LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return (yield)


@pytest.fixture
def free_port() -> Callable[[], int]:
    """Each call gives a loopback port that nobody uses now and that no other call gave."""
    given: set[int] = set()

    def next_port() -> int:
        while True:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = int(probe.getsockname()[1])
            if port not in given:
                given.add(port)
                return port

    return next_port


@pytest.fixture
def hosts_can_be_made() -> None:
    """For tests with hosts of their own: skipped where the rights are not there; as root that is a failure."""
    reason = why_not()
    if reason:
        (pytest.fail if os.geteuid() == 0 else pytest.skip)(f"hosts of their own cannot be made here: {reason}")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    """One real broker for the whole run, started by the first test that asks; tests keep apart by names of their own."""
    with KafkaServers.start(tmp_path_factory.mktemp("kafka")) as servers:
        yield servers


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One server for the whole run, which nobody stops; every test takes a path of its own."""
    with ZooKeeperServer.start(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
