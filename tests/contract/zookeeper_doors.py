"""Clients of one ZooKeeper path, for tests that look at coordination from several sides."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from hotspare.coordination.zookeeper.coordination import ZooKeeperCoordination
from hotspare.coordination.zookeeper.session import monotonic_ms
from hotspare.coordination.zookeeper.url import parse_zookeeper_url
from hotspare.testing.zookeeper_server import ZooKeeperServer

LONG_MS = 3_600_000
WAIT_S = 120.0
PATIENT = "call_timeout_ms=20000&session_timeout_ms=30000"


class Doors:
    """Opens clients of one path and closes them all."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self.server = server
        self.url = f"{server.url}/test/{uuid4().hex}"
        self._opened: list[ZooKeeperCoordination] = []

    def open(
        self, options: str = PATIENT, clock: Callable[[], int] = monotonic_ms, url: str = "", **limits: int
    ) -> ZooKeeperCoordination:
        one = ZooKeeperCoordination(parse_zookeeper_url(f"{url or self.url}?{options}"), clock, **limits)
        self._opened.append(one)
        return one

    def close(self) -> None:
        for one in self._opened:
            one.close()
