"""The `ordered` runner on a real broker: where it starts, how it reports lost positions, and the effect of an outage."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from hotspare.base.errors import BusUnavailable, PositionLost
from hotspare.bus.contract import Bus, Outgoing, Partition
from hotspare.bus.open import open_bus
from hotspare.rows.batch import NextInput
from hotspare.runners.contract import BatchLimits, EndCause, HeadPlace, RunnerEnd, RunnerInput, SourceTopic
from hotspare.runners.spark.ordered import OrderedRunner
from hotspare.testing.cluster import wait_until
from hotspare.testing.kafka_server import KafkaServers
from tests.integration.spark.subject import head
from tests.integration.spark.test_processes import heard, subject

pytestmark = pytest.mark.spark

WAIT_S = 120
LIMIT_BYTES = 400_000
WAITING_MESSAGES = 200_000
PEAK_GROWTH_KIB_MAX = 512 * 1024


class Seen:
    """The batches of a runner, and its end."""

    def __init__(self, url: str, topic: str) -> None:
        self.offsets: list[int] = []
        self.sizes: list[int] = []
        self.ends: list[RunnerEnd] = []
        self.over = threading.Event()
        limits = BatchLimits(messages_max=300, bytes_max=LIMIT_BYTES)
        source = RunnerInput(url, (SourceTopic(topic),), head(), limits=limits)
        self.runner = OrderedRunner(source, self._take, self._ended)

    def _take(self, table: pa.Table, _: NextInput) -> None:
        self.sizes.append(table.nbytes)
        self.offsets += table.column("offset").to_pylist()

    def _ended(self, end: RunnerEnd) -> None:
        self.ends.append(end)
        self.over.set()


@pytest.fixture
def bus(kafka: KafkaServers) -> Iterator[Bus]:
    bus = open_bus(kafka.url)
    yield bus
    bus.close()


def fill(bus: Bus, topic: str, first: int, count: int) -> None:
    bus.append(Partition(topic), [Outgoing(b"i,n,%d,1.5,a" % i) for i in range(first, first + count)])


def break_down(servers: KafkaServers) -> None:
    """Stops the only broker for a while."""
    servers.kill(1)
    with pytest.raises(BusUnavailable):
        open_bus(f"{servers.url}?timeout_ms=300").end_offset(Partition("rows"))
    servers.restart(1)


def test_a_lost_position_is_refused_before_spark_starts(kafka: KafkaServers, bus: Bus) -> None:
    topic = "lost.start"
    bus.create_topic(topic)
    fill(bus, topic, 0, 20)
    bus.trim(Partition(topic), 9)
    seen = Seen(kafka.url, topic)
    with pytest.raises(PositionLost, match="no longer holds offset 4") as said:
        seen.runner.start({(0, 0): 4})
    assert "5 messages are gone" in said.value.detail
    with pytest.raises(PositionLost, match="ends before offset 21"):
        seen.runner.start({(0, 0): 21})
    assert seen.ends == []


@pytest.mark.timeout(600)
def test_an_outage_of_the_broker_only_takes_time(tmp_path: Path) -> None:
    with KafkaServers.start(tmp_path) as servers:
        bus = open_bus(f"{servers.url}?timeout_ms=20000")
        bus.create_topic("rows")
        fill(bus, "rows", 0, 500)
        seen = Seen(servers.url, "rows")
        seen.runner.start({(0, 0): 100})
        try:
            wait_until(lambda: len(seen.offsets) == 400, "what waited", WAIT_S)
            break_down(servers)
            fill(bus, "rows", 500, 50)
            wait_until(lambda: len(seen.offsets) >= 450 or seen.over.is_set(), "what came after the outage", WAIT_S)
        finally:
            seen.runner.stop()
            bus.close()
    assert seen.offsets == list(range(100, 550))
    assert seen.ends == [RunnerEnd(EndCause.STOPPED)]


@pytest.mark.timeout(600)
def test_many_waiting_messages_are_caught_up_within_memory(tmp_path: Path, kafka: KafkaServers, bus: Bus) -> None:
    bus.create_topic("rows")
    value = b"i,n,1,1.5," + b"x" * 500
    for _ in range(0, WAITING_MESSAGES, 20_000):
        bus.append(Partition("rows"), [Outgoing(value)] * 20_000)
    with subject(tmp_path, kafka.url, HeadPlace.WORKERS, WAITING_MESSAGES) as process:
        started, seen = heard(process, "started"), heard(process, "rows")
    assert (seen["rows"], seen["mistakes"]) == (WAITING_MESSAGES, 0)
    assert seen["batches"] >= 10
    assert seen["peak_kib"] - started["before_kib"] < PEAK_GROWTH_KIB_MAX
