"""Engines with ZooKeeper as coordination: the active one continues without it, and its role moves as soon as it is back (SPEC E2,
E7, E16)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hotspare.coordination.contract import Leader
from hotspare.testing.cluster import wait_until
from hotspare.testing.zookeeper_server import ZooKeeperServer
from tests.e2e.site import PATIENT, Site

pytestmark = pytest.mark.system
WAIT_S = 180.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer.start(tmp_path / "zk") as server:
        yield server


@pytest.fixture
def site(tmp_path: Path, server: ZooKeeperServer) -> Iterator[Site]:
    """Yields two engines, one of them active, with a file as their bus: only coordination becomes unavailable in these tests."""
    site = Site(tmp_path)
    site.cluster.coordination.close()
    options = (*site.options, *PATIENT)
    site.cluster = replace(site.cluster, coordination_url=server.url, run_options=options)
    for name in ("one", "two"):
        site.cluster.start_engine(name)
    site.cluster.wait_ready()
    yield site
    site.stop()


class Flow:
    """Publishes rows, 20 at a time, and waits for their outputs."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._count = 0

    def continues_row(self) -> None:
        rows = "".join(f"i,n,{number},1,1\n" for number in range(self._count, self._count + 20))
        self._site.publish(rows, f"input-{self._count}.csv")
        self._count += 20
        got = [row.split(",")[2].strip() for row in self._site.wait_for_outputs(self._count)]
        assert got == [str(number) for number in range(self._count)]


def both_take_part(site: Site) -> None:
    wait_until(lambda: site.cluster.is_ready("one") and site.cluster.is_ready("two"), "both take part", WAIT_S)


def overtaken(site: Site, before: Leader) -> bool:
    now = site.cluster.leader()
    return now.epoch > before.epoch and now.holder not in ("", before.holder) and site.cluster.active_engine() is not None


def is_spare(site: Site, engine: str) -> bool:
    member = site.cluster.members().get(engine)
    return member is not None and member.role == "standby"


def test_without_zookeeper_the_active_goes_on_and_with_it_a_spare_takes_over(site: Site, server: ZooKeeperServer) -> None:
    flow, before = Flow(site), site.cluster.leader()
    flow.continues_row()
    server.freeze()
    flow.continues_row()
    server.thaw()
    both_take_part(site)
    server.kill()
    flow.continues_row()
    server.restart()
    both_take_part(site)
    assert site.cluster.leader().epoch == before.epoch, "nobody took the role from an engine that moves"

    frozen = site.cluster.engines[before.holder]
    site.freeze(frozen)
    flow.continues_row()
    wait_until(lambda: overtaken(site, before), "the spare has the role", WAIT_S)
    frozen.thaw()
    wait_until(lambda: is_spare(site, before.holder), "the sleeper is a spare", WAIT_S)

    second = site.cluster.leader()
    done = site.run("switchover", site.cluster.group, "--coordination", server.url)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: overtaken(site, second), "the role is handed over", WAIT_S)

    third = site.cluster.leader()
    site.cluster.engines[third.holder].kill()
    flow.continues_row()
    wait_until(lambda: overtaken(site, third), "the other one took the role of the dead", WAIT_S)
