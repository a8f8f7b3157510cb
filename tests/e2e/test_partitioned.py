"""Two Spark applications host the engines of a project in three shards. An executor, a Python worker and a driver are killed, a
task and a driver are frozen, and each shard's outputs equal those of the `local` runner on its partition.

One run covers all of it, because starting JVMs and Python workers takes most of its time. For the same reason only one application
has executors, and processes started together are waited for only when they are needed.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hotspare.base.errors import ClusterError
from hotspare.base.processes import has_process_ended
from hotspare.bus.naming import group_name
from hotspare.bus.sqlite import SqliteBus
from hotspare.coordination.contract import Member
from hotspare.ha.rules.settings import GroupSettings
from hotspare.testing.cluster import Cluster, SpawnedEngine, settings_options, wait_until
from tests.e2e.site import LEASE
from tests.host.shards import PREFIX, PROJECT, PROJECT_NAME, SHARDS, all_shards, check_exact, delivered, publish_all

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.timeout(600)]
TIMEOUT_S = 240
GROUPS = [group_name(PREFIX, PROJECT_NAME, shard) for shard in all_shards()]
EXECUTORS = ("--master", "local-cluster[2,1,1024]")
NO_EXECUTORS = ("--master", "local[2]")
"""Tasks run as children of the driver."""
NOTICED = {"task-lease-ms": 5_000}
"""The time after which a frozen task is detected."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    project = tmp_path / "shop.yaml"
    project.write_text(PROJECT)
    options = (*LEASE, "--runner", "partitioned", "--shards", str(SHARDS), "--snapshots", "500 milliseconds")
    made = Cluster(project, f"sqlite:///{tmp_path / 'bus.db'}", GROUPS[0], PREFIX, tmp_path, options)
    try:
        yield made
    except BaseException:
        print(made.state_report())
        raise
    finally:
        made.stop()


def live(cluster: Cluster, group: str) -> list[Member]:
    """Returns the engines of a group whose process runs and whose state is complete."""
    members = cluster.coordination.members(group)
    ready = [each for each in members if each.role in ("standby", "active")]
    return [each for each in ready if not has_process_ended(each.process_id, each.process_start)]


def engines(cluster: Cluster) -> list[Member]:
    return [each for group in GROUPS for each in live(cluster, group)]


def is_hosted(cluster: Cluster, *applications: str) -> bool:
    """Whether exactly these applications host a complete engine of every shard, and one of them is active for it."""
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
    """Publishes rows, and checks their outputs."""

    def __init__(self, bus: SqliteBus, folder: Path, cluster: Cluster) -> None:
        self._bus, self._folder, self._cluster = bus, folder, cluster
        self._rows = self._notes = 0

    def publish_more(self) -> None:
        self._rows += 300
        self._notes += publish_all(self._bus, self._folder, self._rows)

    def continues_row(self, *applications: str) -> None:
        wait_until(lambda: delivered(self._bus) == self._notes, "all that was published comes out", TIMEOUT_S, 0.1)
        wait_until(lambda: is_hosted(self._cluster, *applications), f"{applications} host all shards", TIMEOUT_S, 0.1)

    def is_exact(self) -> None:
        check_exact(self._bus, GroupSettings().skew_max_ms * 1000)


@pytest.fixture
def traffic(cluster: Cluster, tmp_path: Path) -> Iterator[Traffic]:
    with contextlib.closing(SqliteBus(tmp_path / "bus.db")) as bus:
        yield Traffic(bus, tmp_path, cluster)


def host_together(cluster: Cluster, traffic: Traffic) -> SpawnedEngine:
    """Starts both applications, one on its two executors, the other below its driver, each with every shard; returns the first."""
    first = cluster.start_engine("a", *EXECUTORS)
    cluster.start_engine("b", *NO_EXECUTORS, *settings_options(cluster.folder, NOTICED))
    traffic.publish_more()
    traffic.continues_row("a", "b")
    places = {(each.detail["application"], each.detail["executor"]) for each in engines(cluster)}
    assert places == {("a", "0"), ("a", "1"), ("b", "driver")}
    return first


def kill_an_executor_and_a_worker(cluster: Cluster, traffic: Traffic, first: SpawnedEngine) -> None:
    """Kills both; Spark restarts their tasks, in another executor and in the same one."""
    executor = executors(first)[0]
    words = executor.cmdline()
    place = ("a", words[words.index("--executor-id") + 1])
    before = {each.engine for each in engines(cluster)}
    (victim,) = {each.engine for each in engines(cluster) if (each.detail["application"], each.detail["executor"]) == place}
    kill(executor.pid)
    wait_until(lambda: victim not in {each.engine for each in engines(cluster)}, "its task is gone", TIMEOUT_S)
    traffic.publish_more()
    traffic.continues_row("a", "b")
    replaced = {each.engine for each in engines(cluster)} - before
    assert len(replaced) == 1 and replaced.pop().startswith("a-")

    worker = next(each for each in live(cluster, GROUPS[1]) if each.detail["application"] == "a")
    cluster.coordination.request_switchover(GROUPS[1], worker.engine)
    wait_until(lambda: cluster.coordination.leader(GROUPS[1]).holder == worker.engine, "the worker is active", TIMEOUT_S, 0.1)
    kill(worker.process_id)
    traffic.publish_more()
    traffic.continues_row("a", "b")
    assert worker.engine not in {each.engine for each in engines(cluster)}


def freeze_a_task(cluster: Cluster, traffic: Traffic) -> None:
    """Freezes a task of the last application, which has no spare: it goes on from its snapshots."""
    (frozen,) = live(cluster, GROUPS[1])
    os.kill(frozen.process_id, signal.SIGSTOP)
    wait_until(lambda: has_process_ended(frozen.process_id, frozen.process_start), "the frozen task is ended", TIMEOUT_S)
    traffic.publish_more()
    traffic.continues_row("b")


def test_kills_and_freezes_of_executors_workers_and_drivers_leave_every_shard_exact(cluster: Cluster, traffic: Traffic) -> None:
    """Law Failover, shard by shard. SPEC K3, K9. For a while there is only one application, which goes on from its snapshots as a
    cold standby does (SPEC C13, Z18)."""
    first = host_together(cluster, traffic)
    kill_an_executor_and_a_worker(cluster, traffic, first)

    cluster.engines.pop("a").kill()
    traffic.publish_more()
    traffic.continues_row("b")
    freeze_a_task(cluster, traffic)

    left = engines(cluster)
    cluster.engines["b"].freeze()
    cluster.start_engine("a", *NO_EXECUTORS, *settings_options(cluster.folder, NOTICED))
    wait_until(lambda: all(has_process_ended(e.process_id, e.process_start) for e in left), "its tasks end themselves", TIMEOUT_S)
    cluster.engines["b"].thaw()
    traffic.publish_more()
    traffic.continues_row("a", "b")
    traffic.is_exact()
