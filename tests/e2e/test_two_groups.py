"""Two groups on one Kafka and one ZooKeeper: three engines of one are killed in turn, the other is not affected (SPEC E3)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotspare.bus.naming import group_name
from hotspare.testing.cluster import Cluster, hotspare_command, wait_until
from hotspare.testing.kafka_server import KafkaServers
from hotspare.testing.zookeeper_server import ZooKeeperServer
from tests.e2e.prepared import prepared
from tests.e2e.site import LEASE, PATIENT, PROJECT, whole_lines

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]
TIMEOUT_S = 120
ROWS = 40


class Group:
    """A project of its own on shared servers; rows are numbered from 0 on."""

    def __init__(self, name: str, folder: Path, kafka: KafkaServers, zookeeper: ZooKeeperServer, *options: str) -> None:
        self._folder, self._prefix, self._count = folder / name, folder.name, 0
        self._folder.mkdir()
        project = self._folder / "project.yaml"
        project.write_text(PROJECT.replace("project: shop", f"project: {name}"))
        self._name, self._bus_url = name, kafka.url
        store = ("--store", (folder / "snapshots").as_uri())
        self.cluster = Cluster(
            project,
            kafka.url,
            group_name(self._prefix, name),
            self._prefix,
            self._folder,
            (*LEASE, "--runner", "local", *store, "--snapshots", "500 milliseconds", *options),
            coordination_url=f"{zookeeper.url}/{folder.name}",
            launcher=prepared,
        )
        self._subscribed = False

    def start(self, *engines: str) -> None:
        for engine in engines:
            self.cluster.start_engine(engine)
        self.cluster.wait_ready()

    def leads(self) -> tuple[int, str]:
        """Returns the epoch and the active engine."""
        leader = self.cluster.leader()
        return leader.epoch, leader.holder

    def continues_row(self) -> None:
        """Publishes further rows, and checks that each is output once and in order."""
        rows = self._folder / f"rows-{self._count}.csv"
        rows.write_text("".join(f"i,n,{n},1.5,{n}\n" for n in range(self._count, self._count + ROWS)))
        self._count += ROWS
        where = ("--bus", self._bus_url, "--prefix", self._prefix)
        arguments = hotspare_command("publish", *where, "--window", f"{self._name}/sales/orders", str(rows))
        subprocess.run(arguments, check=True, capture_output=True, timeout=TIMEOUT_S, cwd=self._folder)
        result = self._folder / "kept.csv"
        if not self._subscribed:
            self.cluster.start_other("subscriber", "subscribe", *where, "--window", f"{self._name}/sales/kept", str(result))
            self._subscribed = True

        def inserted() -> list[str]:
            return [line.split(",")[2].strip() for line in whole_lines(result) if line.startswith("I")]

        wait_until(lambda: len(inserted()) >= self._count, f"{self._count} rows of {self._name}", TIMEOUT_S)
        assert inserted() == [str(n) for n in range(self._count)]


@pytest.fixture
def groups(tmp_path: Path, kafka: KafkaServers, zookeeper: ZooKeeperServer) -> Iterator[tuple[Group, Group]]:
    pair = Group("first", tmp_path, kafka, zookeeper), Group("second", tmp_path, kafka, zookeeper, *PATIENT)
    yield pair
    for group in pair:
        group.cluster.stop()


def test_three_engines_are_killed_in_turn_beside_another_group(groups: tuple[Group, Group]) -> None:
    """SPEC C2, C11, E3."""
    first, second = groups
    first.start("a", "b", "c")
    second.start("a", "b")
    for group in groups:
        group.continues_row()
    before = second.leads()
    for _ in range(3):
        active = first.cluster.wait_active()
        active.kill()
        for group in groups:
            group.continues_row()
        first.start(active.name)
    assert second.leads() == before, "the other group kept its active engine"
