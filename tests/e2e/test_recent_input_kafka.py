"""A spare that builds its state from recent input, on a real Kafka under load, against an uninterrupted run (SPEC F11): it takes
over from a killed active engine. If the input that it reads is not enough, it never does, and reports why.

On the embedded bus, without older input: test_recent_input.py.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hotspare.bus.naming import bad_topic, group_name, inbound_topic, outbound_topic
from hotspare.bus.open import open_bus
from hotspare.flow.head.head import Head
from hotspare.flow.plan import compile_plan
from hotspare.projects.load import load_project
from hotspare.rows.batch import BAD_STREAM
from hotspare.runners.contract import SourceTopic
from hotspare.testing.cluster import Cluster, hotspare_command, settings_options, wait_until
from hotspare.testing.kafka_server import KafkaServers
from hotspare.testing.recorder import OutputReader, ReferenceRun
from hotspare.testing.verify import DeliveryVerdict, compare
from hotspare.testing.zookeeper_server import ZooKeeperServer
from tests.e2e.prepared import prepared
from tests.e2e.site import LEASE
from tests.e2e.test_recent_input import PROJECT, SPAN_US

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]
TIMEOUT_S = 120
_FORGOTTEN_US = 4_000_000
ROWS = 5
"""The rows published at each poll of a wait."""


class Load:
    """A group on real servers that gets rows during every wait."""

    def __init__(self, folder: Path, kafka: KafkaServers, zookeeper: ZooKeeperServer) -> None:
        self.prefix, self.count = folder.name, 0
        project = folder / "shop.yaml"
        project.write_text(PROJECT)
        self.bus_url, self.bus = kafka.url, open_bus(kafka.url)
        self.coordination_url = f"{zookeeper.url}/{folder.name}"
        store = ("--store", (folder / "snapshots").as_uri())
        options = (*LEASE, "--runner", "local", *store, *settings_options(folder, {"skew-max-ms": 2000}))
        group = group_name(self.prefix, "shop")
        self.cluster = Cluster(
            project, kafka.url, group, self.prefix, folder, options, coordination_url=self.coordination_url, launcher=prepared
        )
        self.plan = compile_plan(load_project(project).resolved)
        self.rows, self.repeats = folder / "rows.csv", False
        self.rows.touch()

    def start(self) -> None:
        """Starts an active engine, a publisher that follows the file, and readers of input and outputs."""
        self.cluster.start_engine("one")
        self.cluster.wait_ready()
        where = ("--bus", self.bus_url, "--prefix", self.prefix, "--window", "shop/sales/orders")
        self.cluster.start_other("publisher", "publish", *where, "--growing", str(self.rows))
        topic = SourceTopic(inbound_topic(self.prefix, "shop", "sales", "orders"))
        self.reference = ReferenceRun(self.bus, self.plan, Head.from_plan(self.plan), (topic,))
        self.readers: dict[str, OutputReader] = {}
        for stream, schema in self.plan.stream_schemas.items():
            name = (
                bad_topic(self.prefix, "shop") if stream == BAD_STREAM else outbound_topic(self.prefix, "shop", *stream.split("/"))
            )
            self.readers[stream] = OutputReader(self.bus, name, schema)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        def step() -> bool:
            self._put()
            self._poll()
            return condition()

        wait_until(step, what, TIMEOUT_S, poll_s=0.02)

    def _put(self) -> None:
        keys = [*range(self.count, self.count + ROWS), *([0] if self.repeats else ())]
        with self.rows.open("a") as file:
            file.writelines(f"i,n,{key},{key}.1,{key % 5}\n" for key in keys)
        self.count += ROWS

    def _poll(self) -> None:
        self.reference.poll()
        for reader in self.readers.values():
            reader.poll()

    def passes(self, span_us: int) -> None:
        """Waits until `span_us` of input is read."""
        self.wait(lambda: self.reference.time_us > 0, "the first input")
        until_us = self.reference.time_us + span_us
        self.wait(lambda: self.reference.time_us > until_us, "more input")

    def status(self) -> dict[str, dict[str, Any]]:
        """Returns the status of each engine."""
        said = hotspare_command("status", "--coordination", self.coordination_url, "--json")
        done = subprocess.run(said, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
        return {each["engine"]: each for group in json.loads(done.stdout)["groups"] for each in group["engines"]}

    def verdict(self) -> DeliveryVerdict:
        """Returns the comparison once all due outputs are delivered."""

        def is_over(end_us: int) -> bool:
            self._poll()
            return self.reference.events >= self.count and self.reference.time_us > end_us

        wait_until(lambda: is_over(0), "all rows", TIMEOUT_S)
        end_us = self.reference.time_us + _FORGOTTEN_US
        wait_until(lambda: is_over(end_us), "rows that are forgotten", TIMEOUT_S)
        wait_until(lambda: is_over(0) and self._delivered() >= self.reference.rows, "all outputs", TIMEOUT_S)
        assert not any(reader.has_epoch_regression() for reader in self.readers.values())
        return compare(self.reference.tables(), {stream: reader.table() for stream, reader in self.readers.items()})

    def _delivered(self) -> int:
        return sum(reader.rows for reader in self.readers.values())

    def close(self) -> None:
        self.cluster.stop()
        self.bus.close()


@pytest.fixture
def load(tmp_path: Path, kafka: KafkaServers, zookeeper: ZooKeeperServer) -> Iterator[Load]:
    made = Load(tmp_path, kafka, zookeeper)
    yield made
    made.close()


def test_it_takes_over_under_load_and_nothing_is_lost_doubled_or_wrong(load: Load) -> None:
    load.start()
    load.passes(SPAN_US)
    second = load.cluster.start_engine("two", "--join", "recent")
    load.wait(lambda: load.cluster.role("two") == "standby", "a state that matches what is committed")
    load.passes(1_000_000)
    load.cluster.engines["one"].kill()
    load.wait(lambda: load.cluster.active_engine() is second, "the spare has the role")
    load.passes(3_000_000)
    log = second.log.read_text()
    assert "joining becomes warming" in log
    assert "warming becomes standby" in log
    verdict = load.verdict()
    assert verdict.is_exact, verdict
    assert verdict.delivered > load.count


def test_where_older_input_may_matter_it_never_takes_over_and_says_why(load: Load) -> None:
    """An order is repeated before the window has forgotten it: the refusal of the first one depends on input older than any that is
    read."""
    load.start()
    load.repeats = True
    load.passes(SPAN_US)
    load.cluster.start_engine("two", "--join", "recent")
    load.wait(lambda: load.cluster.role("two") == "warming", "a state that nothing proves yet")
    load.passes(SPAN_US)
    assert "the time was extended: an event was refused" in load.status()["two"]["warming"]
    load.cluster.engines["one"].kill()
    before = load.cluster.leader().epoch
    load.passes(5_000_000)  # more than two leases
    assert load.cluster.role("two") == "warming"
    assert load.cluster.leader().epoch == before
