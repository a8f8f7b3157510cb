"""What every test shares: hypothesis profiles, free ports, and one Spark at a time on a machine."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci", max_examples=50, deadline=None, print_blob=True, derandomize=False, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", parent=settings.get_profile("ci"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

_SPARK_LOCK = Path(tempfile.gettempdir()) / f"hotspare-tests-spark-{os.getuid()}.lock"


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
