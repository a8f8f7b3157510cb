"""The published high availability example on real servers: its project, adapter files and scripts (S2, S4; SPEC I7, I8).

Only host names are changed. The active engine is killed while lines are written to the growing input file; the sum over 20 rows and
the event number continue unchanged.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotspare.bus.naming import group_name
from hotspare.testing.cluster import Cluster, wait_until
from hotspare.testing.kafka_server import KafkaServers
from hotspare.testing.zookeeper_server import ZooKeeperServer
from tests.e2e.site import LEASE, whole_lines

EXAMPLE = Path(__file__).parents[2].parent / "shared" / "conformance" / "ha-kafka"
pytestmark = [
    pytest.mark.system,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not EXAMPLE.is_dir(), reason=f"the example of others is not at {EXAMPLE}"),
]

PREFIX = "iotdemo.na.sas.com_61001"
ADDRESS = "dfESP://iotdemo.na.sas.com:61001/kafka1/cq1"
ROWS, ROWS_EACH = 600, 150
TIMEOUT_S = 120


@pytest.fixture
def cluster(tmp_path: Path, kafka: KafkaServers, zookeeper: ZooKeeperServer) -> Iterator[Cluster]:
    project = EXAMPLE / "kafka1.xml"
    options = (*LEASE, "--store", (tmp_path / "snapshots").as_uri(), "--snapshots", "1000 milliseconds")
    cluster = Cluster(
        project,
        kafka.url,
        group_name(PREFIX, "kafka1"),
        PREFIX,
        tmp_path,
        options,
        coordination_url=f"{zookeeper.url}/{tmp_path.name}",
    )
    yield cluster
    cluster.stop()


def lines(count: int) -> list[str]:
    """Returns lines as the example's input script writes them from a machine's processor: user and idle time in percent."""
    load = random.Random(7)
    return [f"{user}.00,{100 - user}.00" for user in (load.randint(0, 100) for _ in range(count))]


def test_the_sum_goes_on_across_the_role_change(cluster: Cluster, tmp_path: Path) -> None:
    for name in ("server1", "server2"):
        cluster.start_engine(name)
    cluster.wait_ready()
    data, result = tmp_path / "dstat_in.csv", tmp_path / "dstat-out.csv"
    given = lines(ROWS)
    data.write_text('"Dstat output"\n"usr","idl"\n')
    bus = ("--bus", cluster.bus_url)
    common = "fstype=csv,dateformat=%Y-%m-%d %H:%M:%S,loglevel=trace,transport=kafka"
    columns = "header=2,growinginputfile=true,addcsvopcode=true,addcsvflags=normal,noautogenfield=true"
    config = f"transportconfigfile={EXAMPLE}"
    publisher = f"type=pub,url={ADDRESS}/kafka_incoming,fsname={data},{common},{columns},{config}/kafkapub.cfg"
    subscriber = f"type=sub,url={ADDRESS}/kafka_outgoing?snapshot=false,fsname={result},{common},{config}/kafkasub.cfg"
    cluster.start_other("publisher", "adapter", *bus, "-C", publisher)
    cluster.start_other("subscriber", "adapter", *bus, "-C", subscriber)

    def written() -> int:
        return len(whole_lines(result))

    for begin in range(0, ROWS, ROWS_EACH):
        with data.open("a") as file:
            file.write("".join(f"{line}\n" for line in given[begin : begin + ROWS_EACH]))
        if begin == ROWS_EACH:
            cluster.wait_active().kill()
        wait_until(lambda enough=begin + ROWS_EACH: written() >= enough, "the rows of the input so far", TIMEOUT_S)  # type: ignore[misc]

    idle = [float(line.split(",")[1]) for line in given]
    rows = [line.split(",") for line in whole_lines(result)]
    numbers = [(int(row[5]), int(row[6])) for row in rows if row[0] == "I"]
    assert numbers == [(n, int(sum(idle[max(0, n - 20) : n]))) for n in range(1, ROWS + 1)]
