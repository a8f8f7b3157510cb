"""Two Spark applications, whose executors host the engines of a project in three shards: an executor, a Python worker and a driver
are killed, and what each shard puts out is what the `local` runner makes of its partition (DESIGN section 10)."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hotspare.bus.naming import group_name
from hotspare.bus.sqlite import SqliteBus
from hotspare.coordination.contract import Member
from hotspare.errors import ClusterError
from hotspare.ha.rules.settings import GroupSettings
from hotspare.processes import is_process_gone
from hotspare.testing.cluster import Cluster, SpawnedEngine, wait_until
from tests.unit.host.shards import PREFIX, PROJECT, PROJECT_NAME, SHARDS, all_shards, expected, lines, publish, published

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(600)]
TIMEOUT_S = 240
GROUPS = [group_name(PREFIX, PROJECT_NAME, shard) for shard in all_shards()]
MASTER = "local-cluster[2,1,1024]"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    project = tmp_path / "shop.yaml"
    project.write_text(PROJECT)
    options = ("--runner", "partitioned", "--shards", str(SHARDS), "--snapshot-interval-ms", "500")
    made = Cluster(project, f"sqlite:///{tmp_path / 'bus.db'}", GROUPS[0], PREFIX, tmp_path, options)
    try:
        yield made
    except BaseException:
        print(made.account())
        raise
    finally:
        made.stop()


def live(cluster: Cluster, group: str) -> list[Member]:
    """The engines of a group whose process runs and whose state is complete."""
    members = cluster.coordination.members(group)
    ready = [each for each in members if each.role in ("standby", "active")]
    return [each for each in ready if not is_process_gone(each.process_id, each.process_start)]


def engines(cluster: Cluster) -> list[Member]:
    return [each for group in GROUPS for each in live(cluster, group)]


def is_hosted(cluster: Cluster, *applications: str) -> bool:
    """Whether each of these, and no other one, hosts a complete engine of every shard, and one of these is active for it."""
    for engine in cluster.engines.values():
        if not engine.is_running:
            raise ClusterError(f"application {engine.name} ended with {engine.process.returncode}", detail=engine.log_tail())
    for group in GROUPS:
        members, leader = live(cluster, group), cluster.coordination.leader(group)
        active = [each.engine for each in members if each.role == "active"]
        if sorted(each.detail["application"] for each in members) != sorted(applications) or active != [leader.holder]:
            return False
    return True


def executors(application: SpawnedEngine) -> list[psutil.Process]:
    children = psutil.Process(application.process.pid).children(recursive=True)
    return [each for each in children if any("CoarseGrainedExecutorBackend" in word for word in each.cmdline())]


def kill(process_id: int) -> None:
    os.kill(process_id, signal.SIGKILL)


class Traffic:
    """Rows that are published, and what came of them."""

    def __init__(self, bus: SqliteBus, folder: Path, cluster: Cluster) -> None:
        self._bus, self._folder, self._cluster = bus, folder, cluster
        self._rows = self._notes = 0

    def publish_more(self) -> None:
        self._rows += 300
        self._notes += publish(self._bus, self._folder, "notes", lines("notes", self._rows))
        publish(self._bus, self._folder, "people", lines("people", self._rows))
        publish(self._bus, self._folder, "orders", lines("orders", self._rows))

    def _delivered(self) -> int:
        tables = [published(self._bus, shard) for shard in all_shards()]
        return sum(table["q/kept"].num_rows for table in tables if "q/kept" in table)

    def goes_on(self, *applications: str) -> None:
        wait_until(lambda: self._delivered() == self._notes, "all that was published comes out", TIMEOUT_S, 0.1)
        wait_until(lambda: is_hosted(self._cluster, *applications), f"{applications} host all shards", TIMEOUT_S, 0.1)

    def is_exact(self) -> None:
        for shard in all_shards():
            found = published(self._bus, shard)
            wanted = expected(self._bus, shard, GroupSettings().skew_max_ms * 1000)
            for stream, table in found.items():
                assert table.equals(wanted[stream].slice(0, table.num_rows)), f"{shard}, {stream}"


@pytest.fixture
def traffic(cluster: Cluster, tmp_path: Path) -> Iterator[Traffic]:
    with contextlib.closing(SqliteBus(tmp_path / "bus.db")) as bus:
        yield Traffic(bus, tmp_path, cluster)


def test_kills_of_an_executor_a_worker_and_a_driver_leave_every_shard_exact(cluster: Cluster, traffic: Traffic) -> None:
    """Law Failover, shard by shard. SPEC K3, K9."""
    first = cluster.start_engine("a", "--master", MASTER)
    wait_until(lambda: is_hosted(cluster, "a"), "the first application hosts all shards", TIMEOUT_S, 0.1)
    cluster.start_engine("b", "--master", MASTER)
    traffic.publish_more()
    traffic.goes_on("a", "b")
    places = {(each.detail["application"], each.detail["task"], each.detail["executor"]) for each in engines(cluster)}
    assert {(application, executor) for application, _, executor in places} == {(a, e) for a in "ab" for e in "01"}

    before = {each.engine for each in engines(cluster)}
    kill(executors(first)[0].pid)
    traffic.publish_more()
    traffic.goes_on("a", "b")
    (replaced,) = {each.engine for each in engines(cluster)} - before
    assert replaced.startswith("a-")

    worker = next(each for each in live(cluster, GROUPS[1]) if each.role == "active")
    kill(worker.process_id)
    traffic.publish_more()
    traffic.goes_on("a", "b")
    assert worker.engine not in {each.engine for each in engines(cluster)}

    cluster.engines.pop("a").kill()
    traffic.publish_more()
    traffic.goes_on("b")
    cluster.start_engine("a", "--master", MASTER)
    traffic.publish_more()
    traffic.goes_on("a", "b")
    traffic.is_exact()


def test_a_frozen_task_is_replaced_and_tasks_of_a_frozen_driver_end_themselves(cluster: Cluster, traffic: Traffic) -> None:
    """One application without a spare goes on from its snapshots, exact (SPEC K3)."""
    driver = cluster.start_engine("a", "--master", "local[2]", "--task-lease-ms", "3000")
    wait_until(lambda: is_hosted(cluster, "a"), "the application hosts all shards", TIMEOUT_S, 0.1)
    traffic.publish_more()
    traffic.goes_on("a")
    (frozen,) = live(cluster, GROUPS[1])
    os.kill(frozen.process_id, signal.SIGSTOP)
    wait_until(lambda: is_process_gone(frozen.process_id, frozen.process_start), "the frozen task is ended", TIMEOUT_S)
    traffic.publish_more()
    traffic.goes_on("a")

    left = engines(cluster)
    driver.freeze()
    wait_until(lambda: all(is_process_gone(e.process_id, e.process_start) for e in left), "its tasks end themselves", TIMEOUT_S)
    driver.thaw()
    traffic.publish_more()
    traffic.goes_on("a")
    traffic.is_exact()
