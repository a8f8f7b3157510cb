"""A whole application on a standalone cluster whose workers have no Python packages: the application ships what it needs, a killed
executor is replaced, and each shard's outputs equal those of the `local` runner on its partition.

Spark's user interface is read meanwhile: it names each task with its shards, and shows no path from the command line. At last a
partition is added to a topic, whose events no engine would see.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from hotspare.bus.naming import group_name, inbound_topic
from hotspare.bus.open import open_bus
from hotspare.demo.servers import kafka_and_zookeeper
from hotspare.demo.site import Site
from hotspare.ha.rules.settings import GroupSettings
from hotspare.testing.applications import Applications
from hotspare.testing.cluster import Cluster, wait_until
from hotspare.testing.server_process import LOOPBACK, free_ports
from hotspare.testing.spark_cluster import StandaloneCluster, WorkerSize
from tests.e2e.site import LEASE
from tests.host.shards import PREFIX, PROJECT, PROJECT_NAME, SHARDS, all_shards, check_exact, delivered, publish_all, published

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.timeout(600)]
WORKERS = 2
TIMEOUT_S = 240


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[StandaloneCluster]:
    """Starts the cluster with a `PYTHONPATH` that leads nowhere."""
    made = StandaloneCluster(tmp_path / "spark", LOOPBACK, [LOOPBACK] * WORKERS, WorkerSize(cores=1, memory_mib=1_024))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.devnull)
        made.start()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path / "servers"
    folder.mkdir()
    with kafka_and_zookeeper(folder, brokers=1) as servers:
        yield servers


@pytest.fixture
def cluster(tmp_path: Path, site: Site) -> Iterator[Cluster]:
    project = tmp_path / "shop.yaml"
    project.write_text(PROJECT)
    options = (
        *LEASE,
        "--runner",
        "partitioned",
        "--shards",
        str(SHARDS),
        "--store",
        site.store_url,
        "--snapshots",
        "500 milliseconds",
    )
    group = group_name(PREFIX, PROJECT_NAME, all_shards()[0])
    made = Cluster(project, site.bus_url, group, PREFIX, tmp_path, options, site.coordination_url)
    try:
        yield made
    except BaseException:
        print(made.state_report())
        raise
    finally:
        made.stop()


def pages(port: int, *names: str) -> dict[str, Any]:
    """Returns pages of Spark's user interface for its one application, as JSON."""
    base = f"http://127.0.0.1:{port}/api/v1/applications"

    def asked(url: str) -> Any:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            return json.load(answer)

    (application,) = asked(base)
    return {name: asked(f"{base}/{application['id']}/{name}") for name in names}


def executors_of(workers: Path) -> list[psutil.Process]:
    """Returns the JVMs that the workers of this folder run."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if "--executor-id" in process.cmdline() and Path(process.cwd()).is_relative_to(workers):
                found.append(process)
    return found


def test_an_application_brings_its_python_along_and_outlives_an_executor(
    tmp_path: Path, workers: StandaloneCluster, site: Site, cluster: Cluster
) -> None:
    """SPEC K3, K7, K9."""
    (port,) = free_ports(1)
    settings = {"spark.executor.memory": "512m", "spark.ui.enabled": "true", "spark.ui.port": str(port)}
    said = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    applications = Applications(cluster, [group_name(PREFIX, PROJECT_NAME, shard) for shard in all_shards()])
    with contextlib.closing(open_bus(site.bus_url)) as bus:
        notes = publish_all(bus, tmp_path, 300)
        east = cluster.start_engine("east", "--master", workers.url, "--tasks", str(WORKERS), *said)
        applications.wait_hosted(TIMEOUT_S)
        wait_until(lambda: delivered(bus) == notes, "all that was published comes out", TIMEOUT_S, 0.1)

        seen = pages(port, "jobs", "environment", "executors")
        running = [job["description"] for job in seen["jobs"] if job["status"] == "RUNNING"]
        assert sorted(running) == ["east task 0: shards 0, 2", "east task 1: shards 1"]
        assert not any(url in json.dumps(seen) for url in (site.bus_url, site.coordination_url, site.store_url))

        before = executors_of(tmp_path / "spark")
        assert len(before) == WORKERS
        engines = {member.engine for member in applications.active_by_shard().values()}
        os.kill(before[0].pid, signal.SIGKILL)
        wait_until(lambda: not before[0].is_running(), "the executor is gone", TIMEOUT_S)
        notes += publish_all(bus, tmp_path, 600)
        wait_until(lambda: delivered(bus) == notes, "all comes out again", TIMEOUT_S, 0.1)
        applications.wait_hosted(TIMEOUT_S)
        assert {member.engine for member in applications.active_by_shard().values()} != engines

        assert all(published(bus, shard) for shard in all_shards())
        check_exact(bus, GroupSettings().skew_max_ms * 1000)

        topic = inbound_topic(PREFIX, PROJECT_NAME, "q", "orders")
        admin = AdminClient({"bootstrap.servers": site.bus_url.removeprefix("kafka://")})
        admin.create_partitions([NewPartitions(topic, SHARDS + 1)])[topic].result()
        reason = f"inbound topic {topic} has {SHARDS + 1} partitions, the group reads {SHARDS}"
        wait_until(lambda: reason in east.log.read_text(), "it says why it cannot go on", TIMEOUT_S)
