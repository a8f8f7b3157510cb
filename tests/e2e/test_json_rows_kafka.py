"""Other applications on Kafka, by a client without hotspare. Outputs in JSON arrive as one row per message under the key of its
row, each exactly once despite a kill of the active engine; bad events likewise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer

from hotspare.testing.cluster import wait_until
from hotspare.testing.kafka_server import KafkaServers
from hotspare.testing.zookeeper_server import ZooKeeperServer
from tests.e2e.site import LEASE, Site

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]
PROJECT = """\
project: shop
queries:
  sales:
    windows:
      orders:
        type: source
        schema: id*:int64,card:string,amount:double
        opcodes: insert-only
        index: empty
        connectors:
          in: {kind: kafka, direction: publish, properties: {kafkatype: json}}
      totals:
        type: aggregate
        schema: card*:string,orders:int64,total:double
        outputs: {orders: ESP_aCount(), total: ESP_aSum(amount)}
        connectors:
          out: {kind: kafka, direction: subscribe, properties: {kafkatype: json, collapse: true}}
    edges: [orders -> totals]
"""
CARDS, FEW = 7, 400
OPTIONS = ("--runner", "local", "--snapshots", "200 milliseconds", *LEASE)


@dataclass
class PlainClient:
    """A producer of JSON, and consumers that read all committed messages from the start."""

    bootstrap: str
    prefix: str
    sent: int = 0
    came: dict[str, list[Message]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.producer, self.consumers = Producer({"bootstrap.servers": self.bootstrap}), dict[str, Consumer]()

    def send(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            event = {"id": number, "card": f"c{number % CARDS}", "amount": number * 0.25}
            self.producer.produce(f"{self.prefix}.shop.sales.orders.I", json.dumps(event))
        self.sent += count
        assert self.producer.flush(60) == 0

    def send_text(self, text: str) -> None:
        self.producer.produce(f"{self.prefix}.shop.sales.orders.I", text)
        assert self.producer.flush(60) == 0

    def messages(self, topic: str) -> list[Message]:
        """Returns all messages that have arrived."""
        if topic not in self.consumers:
            settings = {"bootstrap.servers": self.bootstrap, "group.id": topic, "isolation.level": "read_committed"}
            self.consumers[topic] = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
            self.consumers[topic].subscribe([topic])
        found = self.came.setdefault(topic, [])
        found += [message for message in self.consumers[topic].consume(10_000, 0.2) if message.error() is None]
        return found

    def close(self) -> None:
        for consumer in self.consumers.values():
            consumer.close()


@pytest.fixture
def client(tmp_path: Path, kafka: KafkaServers) -> Iterator[PlainClient]:
    made = PlainClient(kafka.bootstrap, tmp_path.name)
    yield made
    made.close()


@pytest.fixture
def site(tmp_path: Path, kafka: KafkaServers, zookeeper: ZooKeeperServer) -> Iterator[Site]:
    made = Site(tmp_path, PROJECT, OPTIONS, kafka.url, f"{zookeeper.url}/{tmp_path.name}", tmp_path.name)
    yield made
    made.stop()


def expected(count: int) -> list[dict[str, object]]:
    """Returns the rows that a reader's own program computes from the events."""
    orders, totals, rows = [0] * CARDS, [0.0] * CARDS, list[dict[str, object]]()
    for number in range(count):
        card = number % CARDS
        orders[card], totals[card] = orders[card] + 1, totals[card] + number * 0.25
        values = {"card": f"c{card}", "orders": orders[card], "total": totals[card]}
        rows.append({"opcode": "I" if orders[card] == 1 else "U", "flags": "N", **values, "hs:sequence": number + 1})
    return rows


def test_a_plain_consumer_gets_each_output_once_although_the_active_engine_is_killed(site: Site, client: PlainClient) -> None:
    topic = f"{site.prefix}.shop.sales.totals.O"
    for name in ("one", "two"):
        site.cluster.start_engine(name)
    site.cluster.wait_ready()
    victim = site.cluster.wait_active()
    client.send(FEW)
    wait_until(lambda: client.messages(topic), "the first outputs", 180)
    client.send(20 * FEW)
    site.cluster.engines.pop(victim.name).kill()
    client.send(FEW)
    wait_until(lambda: len(client.messages(topic)) >= client.sent, "all outputs", 180)
    messages = client.messages(topic)
    assert [json.loads(message.value()) for message in messages] == expected(client.sent)
    assert [message.key() for message in messages] == [f"c{number % CARDS}".encode() for number in range(client.sent)]
    epochs = [int(dict(message.headers())["hotspare-epoch"]) for message in messages]
    assert epochs == sorted(epochs)
    assert epochs[0] < epochs[-1]


def test_a_plain_consumer_reads_bad_events(site: Site, client: PlainClient) -> None:
    site.cluster.start_engine("one")
    site.cluster.wait_ready()
    client.send_text('{"id": "x", "card": "c\u00e4"}')
    topic = f"{site.prefix}.shop.B"
    wait_until(lambda: client.messages(topic), "the bad event", 180)
    (message,) = client.messages(topic)
    event = json.loads(message.value())
    assert message.key() == b"sales/orders"
    assert (event["reason"], event["window"], event["text"]) == ("field-type", "sales/orders", '{"id": "x", "card": "c\u00e4"}')
