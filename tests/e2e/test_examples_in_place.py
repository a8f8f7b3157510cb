"""External example projects run unchanged, in place, with their own connectors and files (SPEC I5, I12, A19-A23, A27).

The active engine is killed midway: another goes on, with the groups of connectors in the same order.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from hotspare.bus.naming import group_name
from hotspare.testing.cluster import Cluster, hotspare_command, wait_until
from tests.e2e.prepared import prepared
from tests.e2e.site import LEASE

EXAMPLES = Path(__file__).parents[2].parent / "shared" / "conformance"
pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not EXAMPLES.is_dir(), reason=f"the examples of others are not at {EXAMPLES}"),
]
PREFIX = "x"
HA_HOST = "iotdemo.na.sas.com_61001"
COPY = {"Count_Sliding": (12, 1), "Count_Jumping": (21, 10), "EventTime_Sliding": (13, 2)}


class Example:
    """Two engines that run the project `name`."""

    def __init__(self, folder: Path, project: str, name: str, prefix: str = PREFIX) -> None:
        self.folder, self.name, self.prefix = folder, name, prefix
        self.bus_url = f"sqlite:///{folder / 'bus.db'}"
        options = (*LEASE, "--runner", "local", "--snapshots", "200 milliseconds")
        self.cluster = Cluster(
            EXAMPLES / project, self.bus_url, group_name(prefix, name), prefix, folder, options, launcher=prepared
        )
        for engine in ("one", "two"):
            self.cluster.start_engine(engine)
        self.cluster.wait_ready()

    def rows(self, window: str) -> list[list[str]]:
        """Returns the current rows on the topic of a window: opcode, flag and fields."""
        file = self.folder / f"{window.replace('/', '-')}-{len(list(self.folder.iterdir()))}.csv"
        arguments = (
            "subscribe",
            "--bus",
            self.bus_url,
            "--prefix",
            self.prefix,
            "--window",
            f"{self.name}/{window}",
            "--to-end",
            str(file),
        )
        done = subprocess.run(hotspare_command(*arguments), capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return [line.split(",") for line in file.read_text().splitlines()] if file.exists() else []

    def wait(self, window: str, count: int) -> list[list[str]]:
        wait_until(lambda: len(self.rows(window)) >= count, f"{count} rows of {window}", 180)
        return self.rows(window)

    def kill_active(self) -> None:
        self.cluster.wait_active().kill()


def test_the_joins(tmp_path: Path) -> None:
    """Connector groups publish the customers first, then their loyalty, then the orders: so each order meets all other data."""
    example = Example(tmp_path, "join/model.xml", "join")
    try:
        for kind, count in (("Inner", 4), ("LeftOuter", 5), ("RightOuter", 5)):
            rows = example.wait(f"contquery_01/{kind}Join", count)
            assert [row[0] for row in rows] == ["I"] * count, kind
        example.kill_active()
        left = {row[2]: row[3:] for row in example.rows("contquery_01/LeftOuterJoin")}
        assert [values[-1] for key, values in left.items() if key.strip() == "ORD005"] == [""]
        assert sum(values[-1] != "" for values in left.values()) == 3, "loyalty is known for 111 and 222 alone"
        assert len(example.rows("contquery_01/InnerJoin")) == 4, "nothing is published again"
    finally:
        example.cluster.stop()


def test_the_copies(tmp_path: Path) -> None:
    """Its source publishes a row a second; the engine that reads it is killed midway."""
    example = Example(tmp_path, "copy/model.xml", "copy")
    try:
        example.wait("cq1/Copy_Count_Sliding", 4)
        example.kill_active()
        for window, (count, deletes) in COPY.items():
            rows = example.wait(f"cq1/Copy_{window}", count)
            assert (len(rows), Counter(row[0] for row in rows)["D"]) == (count, deletes), window
    finally:
        example.cluster.stop()


def test_the_match(tmp_path: Path) -> None:
    example = Example(tmp_path, "compute/model.xml", "compute")
    try:
        rows = example.wait("contQuery/computeWindow", 3)
        assert {row[2].strip(): row[-1] for row in rows} == {"1111": "1", "1112": "1", "1113": "0"}
    finally:
        example.cluster.stop()


def test_the_sums(tmp_path: Path) -> None:
    """The high availability example with its own adapter settings, whose first two lines are titles (SPEC I7, I8, 5.1)."""
    example = Example(tmp_path, "ha-kafka/kafka1.xml", "kafka1", HA_HOST)
    try:
        idle = [(number * 7919 % 1000) / 8 for number in range(60)]
        given = tmp_path / "given.csv"
        given.write_text('"Dstat output"\n"usr","idl"\n' + "".join(f"1.00,{value}\n" for value in idle[:30]))
        options = "header=2,growinginputfile=true,addcsvopcode=true,addcsvflags=normal,noautogenfield=true,transport=kafka"
        address = f"dfESP://{HA_HOST.replace('_', ':')}/kafka1/cq1/kafka_incoming"
        line = f"type=pub,url={address},fsname={given},fstype=csv,{options},transportconfigfile={EXAMPLES}/ha-kafka/kafkapub.cfg"
        example.cluster.start_other("publisher", "adapter", "--bus", example.bus_url, "-C", line)
        example.wait("cq1/kafka_outgoing", 30)
        example.kill_active()
        with given.open("a") as file:
            file.write("".join(f"1.00,{value}\n" for value in idle[30:]))
        rows = example.wait("cq1/kafka_outgoing", 60)
        expected = [(n, int(sum(idle[max(0, n - 20) : n]))) for n in range(1, 61)]
        assert [(int(row[5]), int(row[6])) for row in rows] == expected
    finally:
        example.cluster.stop()
