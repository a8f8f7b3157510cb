"""A broker that is reached only by TLS and a password: both clients connect, a wrong password is refused, and no secret is
shown."""

from __future__ import annotations

import contextlib
import io
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from hotspare.adapters.connectors import ConnectorSet, ConnectorState
from hotspare.base.errors import BusError
from hotspare.bus.contract import Commit, Outgoing, Partition
from hotspare.bus.kafka.bus import open_kafka_bus
from hotspare.bus.memory import MemoryBus
from hotspare.formats import avro_block
from hotspare.model.project import WindowId
from hotspare.projects.load import load_text
from hotspare.rows.batch import MessageFormat, NextInput
from hotspare.runners.contract import RunnerEnd, RunnerInput, SourceTopic
from hotspare.telemetry.log import Log, configure_logging
from hotspare.testing.cluster import wait_until
from hotspare.testing.kafka_server import KafkaServers, Secured
from tests.contract.material import outgoing, progress
from tests.integration.spark.subject import head

pytestmark = pytest.mark.servers

TIMEOUT_S = 60
SOURCE = WindowId("cq", "source")


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


def refusal(url: str, text: str) -> BusError:
    """Returns the final error of the bus: on a busy machine the time-out may come before the broker's refusal."""
    said: list[BusError] = []

    def is_told() -> bool:
        with contextlib.closing(open_kafka_bus(f"{url}&timeout_ms=2000")) as bus, pytest.raises(BusError) as refused:
            bus.topics()
        said.append(refused.value)
        return re.search(text, str(refused.value)) is not None

    wait_until(is_told, text, TIMEOUT_S)
    return said[-1]


def test_a_wrong_password_is_an_error_that_does_not_tell_it(servers: KafkaServers, secured: Secured) -> None:
    url = servers.url.replace(f"sasl.password={secured.password}", "sasl.password=guessed")
    assert url != servers.url
    refused = refusal(url, r"_AUTHENTICATION: .*Invalid username or password")
    assert not refused.retryable
    assert "guessed" not in str(refused)
    assert secured.password not in str(refused)


def test_a_password_is_read_from_the_file_that_the_url_names(servers: KafkaServers, secured: Secured, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{secured.password}\n")
    url = servers.url.replace(f"sasl.password={secured.password}", f"password_file={file}")
    assert secured.password not in url
    with contextlib.closing(open_kafka_bus(url)) as bus:
        bus.topics()


def test_a_certificate_that_is_not_trusted_is_named_as_the_reason(servers: KafkaServers, tmp_path: Path) -> None:
    """The trusted certificate is that of another broker."""
    stranger = Secured.create(tmp_path)
    assert not refusal(f"kafka://{servers.bootstrap}?{stranger.url_query()}", r"_SSL: .*certificate").retryable


@pytest.mark.spark
def test_a_task_of_spark_gets_in_too(servers: KafkaServers) -> None:
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
    source = RunnerInput(servers.url, topics, head())
    runner = OrderedRunner(source, take, ends.append)
    runner.start({})
    assert whole.wait(TIMEOUT_S), ends
    runner.stop()
    assert seen == list(range(20))


PROJECT = """
project: project
queries:
  cq:
    windows:
      source:
        type: source
        opcodes: insert-only
        index: empty
        schema: id*:int64,x:double
        connectors:
          theirs:
            kind: kafka
            direction: publish
            properties: {kafkahostport: "HOST", kafkatopic: sensors, kafkatype: avro, maxevents: "2", kafkapartition: "1",
                         avroschemadefinition: 'SCHEMA', kafkaglobalconfig: "CONFIG"}
      window: {type: copy, publish: true}
    edges: [source -> window]
"""
RECORD = {"type": "record", "name": "r", "fields": [{"name": "x", "type": "double"}, {"name": "id", "type": "long"}]}


@pytest.mark.parametrize("password", ["right", "guessed"])
def test_a_connector_brings_in_a_topic_of_others_and_tells_no_password(
    servers: KafkaServers, secured: Secured, password: str
) -> None:
    """SPEC I2, L8: the settings of the client are in kafkaglobalconfig; each message is one Avro datum."""
    options = secured.client_options()
    theirs = open_kafka_bus(f"{servers.url}&timeout_ms=20000")
    theirs.create_topic("sensors", 2)
    datums = []
    for number in range(2):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, RECORD, {"id": number, "x": number / 2})
        datums.append(Outgoing(out.getvalue()))
    theirs.append(Partition("sensors", 1), datums)
    theirs.close()
    given = options if password == "right" else {**options, "sasl.password": password}
    config = ";".join(f"{name}={value}" for name, value in {**given, "timeout_ms": "2000"}.items())
    text = PROJECT.replace("HOST", servers.bootstrap).replace("SCHEMA", json.dumps(RECORD)).replace("CONFIG", config)
    loaded, ours, told = load_text(text, "project.yaml"), MemoryBus().client("engine"), io.StringIO()
    assert [warning for warning in loaded.warnings if options["sasl.password"] in str(warning)] == []
    for topic in ("p.project.cq.source.I", "p.project.cq.window.O"):
        ours.create_topic(topic)
    configure_logging(stream=told)
    connectors = ConnectorSet(loaded.resolved, ours, "p", log=Log())
    connectors.start()
    end = ConnectorState.FINISHED if password == "right" else ConnectorState.FAILED
    wait_until(lambda: connectors.states()["cq/source/theirs"] is end, f"the connector is {end.value}", TIMEOUT_S)
    connectors.stop()
    configure_logging()
    messages = ours.read(Partition("p.project.cq.source.I"), 0, messages_max=9, bytes_max=1 << 20)
    rows, bad = avro_block.decode_events(
        [message.value for message in messages], range(len(messages)), loaded.resolved.schema(SOURCE)
    )
    assert len(bad) == 0
    assert (None if rows is None else [column.to_pylist() for column in rows.columns]) == (
        [[0, 1], [0.0, 0.5]] if password == "right" else None
    )
    assert options["sasl.password"] not in told.getvalue()
    assert "guessed" not in told.getvalue()
    assert ("_AUTHENTICATION" in told.getvalue()) is (password != "right")
