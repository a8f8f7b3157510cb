"""A broker that is reached by TLS and a password only: both clients get in, a wrong password does not, and no secret is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from hotspare.bus.contract import Commit, Outgoing, Partition
from hotspare.bus.kafka.bus import open_kafka_bus
from hotspare.engine.rows.batch import MessageFormat, NextInput
from hotspare.errors import BusError
from hotspare.runners.contract import KafkaReaderKind, RunnerEnd, RunnerInput, SourceTopic
from hotspare.testing.kafka_secured import Secured
from hotspare.testing.kafka_server import KafkaServers
from tests.contract.material import outgoing, progress
from tests.integration.spark.subject import head

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured.create(tmp_path_factory.mktemp("secured"))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, secured: Secured) -> Iterator[KafkaServers]:
    with KafkaServers.start(tmp_path_factory.mktemp("kafka"), secured=secured) as servers:
        yield servers


def test_what_is_published_is_read_back(servers: KafkaServers) -> None:
    """SPEC L8."""
    bus = open_kafka_bus(servers.url)
    bus.create_topic("out")
    producer = bus.producer("g", ["out"])
    producer.fence(1)
    producer.publish(1, Commit({"out": outgoing("a")}, {"s": progress(1, 1)}))
    bus.producer("g", ["out"]).fence(2)
    read = bus.read(Partition("out"), 0, messages_max=9, bytes_max=9, wait_ms=9_000)
    assert [message.value for message in read] == [b"a"]
    assert bus.progress("g")["s"].sequence == 1
    bus.close()


def test_a_wrong_password_is_an_error_that_does_not_tell_it(servers: KafkaServers, secured: Secured) -> None:
    url = servers.url.replace(f"sasl.password={secured.password}", "sasl.password=guessed")
    assert url != servers.url
    with pytest.raises(BusError, match=r"_AUTHENTICATION: .*Invalid username or password") as refused:
        open_kafka_bus(f"{url}&timeout_ms=2000").topics()
    assert not refused.value.retryable
    assert "guessed" not in str(refused.value)
    assert secured.password not in str(refused.value)


def test_a_certificate_that_is_not_trusted_is_named_as_the_reason(servers: KafkaServers, tmp_path: Path) -> None:
    """Of another broker."""
    stranger = Secured.create(tmp_path)
    url = f"kafka://{servers.bootstrap}?{stranger.query()}&timeout_ms=2000"
    with pytest.raises(BusError, match=r"_SSL: .*certificate") as refused:
        open_kafka_bus(url).topics()
    assert not refused.value.retryable


@pytest.mark.spark
def test_sparks_own_source_gets_in_too(servers: KafkaServers) -> None:
    from hotspare.runners.spark.ordered import OrderedRunner

    bus = open_kafka_bus(servers.url)
    bus.create_topic("in")
    bus.append(Partition("in"), [Outgoing(f"i,n,{n},1.5,a".encode()) for n in range(20)])
    bus.close()
    seen, whole = [], threading.Event()

    def take(table: pa.Table, _: NextInput) -> None:
        seen.extend(table.column("offset").to_pylist())
        if len(seen) >= 20:
            whole.set()

    ends: list[RunnerEnd] = []
    topics = (SourceTopic("in", 1, MessageFormat.CSV),)
    source = RunnerInput(servers.url, topics, head(), kafka_reader=KafkaReaderKind.SOURCE)
    runner = OrderedRunner(source, take, ends.append)
    runner.start({})
    assert whole.wait(TIMEOUT_S), ends
    runner.stop()
    assert seen == list(range(20))
