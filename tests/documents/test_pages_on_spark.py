"""The commands of pages work as written there, except for addresses: blocks whose commands start Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotspare.testing.cluster import wait_until
from hotspare.testing.kafka_server import KafkaServers
from hotspare.testing.zookeeper_server import ZooKeeperServer
from tests.cli.running import hotspare_here
from tests.contract.kafka_door import empty
from tests.documents.blocks import Block, shows
from tests.documents.play import PageFolder

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.timeout(600)]

FIRST_US = 1_700_000_000_000_000


@shows("docs/dataframes.md", "hotspare replay cards.yaml --runner partitioned")
def test_a_project_over_tables(shown: list[Block], tmp_path: Path) -> None:
    """SPEC K1. The file is in the folder in which the command runs, with the rows that it counts."""
    with PageFolder(tmp_path, "dataframes") as page:
        columns = {
            "id": list(range(10_000)),
            "card": [f"card {i % 40}" for i in range(10_000)],
            "amount": [float(i * 37 % 500) for i in range(10_000)],
            "at": pa.array([FIRST_US + i * 20_000_000 for i in range(10_000)], pa.timestamp("us", "UTC")),
        }
        pq.write_table(pa.table(columns), page.folder / "payments.parquet")
        page.play(*shown)
        assert pq.read_table(page.folder / "alerts.parquet", columns=["total"]).num_rows > 100


@shows("docs/scale.md", "hotspare run shop.yaml --runner partitioned --master spark://", "hotspare switchover hotspare.shop")
def test_two_applications(shown: list[Block], tmp_path: Path, kafka: KafkaServers, zookeeper: ZooKeeperServer) -> None:
    """The drivers run their tasks themselves, without a cluster, and there are fewer shards."""
    empty(kafka.bootstrap)
    coordination = f"{zookeeper.url}/{tmp_path.name}"
    places = {"kafka://broker:9092": kafka.url, "zookeeper://zk:2181": coordination, "file:///shared": tmp_path.as_uri()}
    places |= {"spark://master:7077": "local[1]", "--shards 64": "--shards 6"}
    with PageFolder(tmp_path, "shards", ["docs/shards.md"], places) as page:
        page.play(shown[0])
        wait_until(lambda: roles(coordination) == ["active", "standby"] * 6, "every shard has a spare", poll_s=0.5)
        page.play(shown[1])
        page.stop()
    empty(kafka.bootstrap)


def roles(coordination: str) -> list[str]:
    """Returns the roles of the engines of each shard."""
    said = hotspare_here("status", "--coordination", coordination, "--group", "hotspare.shop", "--json")
    groups = json.loads(said.stdout)["groups"] if said.returncode == 0 else []
    return [role for group in groups for role in sorted(str(engine["role"]) for engine in group["engines"])]
