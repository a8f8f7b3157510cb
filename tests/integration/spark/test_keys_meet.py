"""A key's rows from all clients meet in one partition. Kafka's Java client, Spark's own sink, librdkafka,
hotspare's publisher of files and `hotspare.spark.publish`, in single messages and in blocks, on a real broker."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from hotspare.adapters.files.canonical import RowForm
from hotspare.adapters.files.publisher import PublishOptions, publish_file
from hotspare.adapters.files.row_routing import RowRouting
from hotspare.adapters.metadata import describe, publish_metadata
from hotspare.bus.contract import Bus, Partition
from hotspare.bus.open import open_bus
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.model.project import WindowId
from hotspare.projects.load import load_text
from hotspare.rows.batch import BAD_STREAM
from hotspare.rows.routing import routing_of
from hotspare.runners.contract import BatchLimits, SourceTopic
from hotspare.runners.local import read_recorded
from hotspare.spark import publish
from hotspare.testing.cluster import wait_until
from hotspare.testing.kafka_jars import ensure_kafka_source
from hotspare.testing.kafka_server import KafkaServers
from tests.spark_sessions import Lender, quick_options

SHARDS, ROWS, BLOCK_ROWS = 5, 200, 30
PROJECT = """
project: shop
queries:
  q:
    windows:
      orders: {type: source, schema: "id*:int64,KEY,amount:double", opcodes: insert-only, index: empty, partition_by: customer}
      counted: {type: aggregate, schema: "customer*:TYPE,n:int64", outputs: {n: ESP_aCount()}, publish: true}
    edges: [orders -> counted]
"""
KEYS: dict[str, Callable[[int], Any]] = {
    "string": lambda i: ("", "é", "customer %d", "日本 %d", "a key that is longer, no. %d")[i % 5].replace("%d", str(i % 11)),
    "int64": lambda i: (0, -1, 7, 2**62, -(2**62))[i % 5] + i % 11,
}


@pytest.fixture(scope="module")
def spark(lender: Lender) -> Any:
    lender.end()  # a session of their own fetches the jars if they are missing
    return lender.begin(quick_options(cores=2, jars=ensure_kafka_source())).spark


class Topic:
    """The inbound topic of a divided project, and its writers. Each writer has its own range of ids."""

    def __init__(self, servers: KafkaServers, prefix: str, type_: str) -> None:
        self.bus: Bus = open_bus(servers.url)
        self.url, self.bootstrap, self.prefix = servers.url, servers.bootstrap, prefix
        self.plan = compile_plan(load_text(PROJECT.replace("KEY", f"customer:{type_}").replace("TYPE", type_)).resolved)
        self.name, self.key = f"{prefix}.shop.q.orders.I", KEYS[type_]
        self.bus.create_topic(self.name, SHARDS)
        publish_metadata(self.bus, prefix, describe(self.plan.resolved, prefix, SHARDS))
        self.written = 0

    def rows(self) -> list[tuple[int, Any, float]]:
        first, self.written = self.written, self.written + ROWS
        return [(i, self.key(i), i / 4) for i in range(first, first + ROWS)]

    def messages(self) -> list[tuple[str, str]]:
        """Returns keys, which are the texts of the field, and rows as CSV."""
        return [(str(key), f'i,n,{i},"{key}",{amount}') for i, key, amount in self.rows()]

    def java(self, spark: Any) -> None:
        """Writes with a producer of Kafka's Java client with its default settings."""
        kafka = spark.sparkContext._jvm.org.apache.kafka.clients.producer
        settings = spark.sparkContext._jvm.java.util.HashMap()
        serializer = "org.apache.kafka.common.serialization.StringSerializer"
        for name, value in (
            ("bootstrap.servers", self.bootstrap),
            ("key.serializer", serializer),
            ("value.serializer", serializer),
        ):
            settings.put(name, value)
        producer = kafka.KafkaProducer(settings)
        for key, value in self.messages():
            producer.send(kafka.ProducerRecord(self.name, key, value))
        producer.close()

    def spark_sink(self, spark: Any) -> None:
        rows = spark.createDataFrame(self.messages(), "key string, value string")
        rows.write.format("kafka").option("kafka.bootstrap.servers", self.bootstrap).option("topic", self.name).save()

    def librdkafka(self, partitioner: str = "murmur2_random") -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "partitioner": partitioner, "enable.idempotence": True})
        for key, value in self.messages():
            producer.produce(self.name, value, key.encode())
        assert producer.flush(60) == 0

    def file(self, folder: Path, block_rows: int) -> None:
        window = WindowId("q", "orders")
        schema, routing = self.plan.resolved.schema(window), routing_of(self.plan.resolved, window, SHARDS)
        assert routing is not None
        path = folder / f"rows-{self.written}.csv"
        path.write_text("".join(f"{value}\n" for _, value in self.messages()))
        options = PublishOptions(form=RowForm(schema=schema), block_rows=block_rows)
        publish_file(self.bus, Partition(self.name), path, options, threading.Event(), routing=RowRouting(schema, routing))

    def table(self, spark: Any, name: str) -> None:
        rows = spark.createDataFrame(
            self.rows(), f"id bigint, customer {'bigint' if self.key(0) == 0 else 'string'}, amount double"
        )
        assert publish(rows, bus=self.url, prefix=self.prefix, window="shop/q/orders", name=name, order_by="id") == ROWS

    def shards(self) -> list[dict[str, pa.Table]]:
        """Returns the outputs of each shard for the topic's content."""
        found = []
        for shard in range(SHARDS):
            pipeline = Pipeline.fresh(self.plan, shard=shard)
            pipeline.set_partitions([(0, shard)])
            topic, parts = SourceTopic(self.name, SHARDS, shard=shard), defaultdict[str, list[pa.RecordBatch]](list)
            for decoded in read_recorded(self.bus, (topic,), Head.from_plan(self.plan, shards=SHARDS), BatchLimits()):
                for stream, batch in pipeline.feed(decoded).items():
                    parts[stream].append(batch)
            found.append({stream: pa.Table.from_batches(batches) for stream, batches in parts.items()})
        return found


@pytest.fixture(params=KEYS)
def topic(request: pytest.FixtureRequest, kafka: KafkaServers) -> Iterator[Topic]:
    made = Topic(kafka, request.node.name.replace("[", "-").rstrip("]"), request.param)
    yield made
    made.bus.close()


def counts(shards: list[dict[str, pa.Table]]) -> list[dict[Any, int]]:
    """Returns the newest count of each key, which only rises, by shard."""
    found = []
    for shard in shards:
        newest: dict[Any, int] = {}
        for row in shard["q/counted"].to_pylist() if "q/counted" in shard else ():
            newest[row["customer"]] = max(row["n"], newest.get(row["customer"], 0))
        found.append(newest)
    return found


@pytest.mark.spark
def test_rows_of_a_key_meet_whoever_publishes_them(topic: Topic, spark: Any, tmp_path: Path) -> None:
    """SPEC K2, K4. Each key is in one shard, with the rows of all writers; none is misrouted."""
    topic.java(spark)
    topic.spark_sink(spark)
    topic.librdkafka()
    topic.file(tmp_path, 1)
    topic.file(tmp_path, BLOCK_ROWS)
    topic.table(spark, "rows")
    # the rows of a transaction may be read a moment after its commit
    wait_until(lambda: sum(sum(each.values()) for each in counts(topic.shards())) >= topic.written, "all rows", poll_s=0.5)
    found = topic.shards()
    assert not any(BAD_STREAM in shard for shard in found)
    by_shard = counts(found)
    assert sum(map(bool, by_shard)) > 1
    keys = [key for each in by_shard for key in each]
    wanted = defaultdict[Any, int](int)
    for i in range(topic.written):
        wanted[topic.key(i)] += 1
    assert len(keys) == len(set(keys)), "no key is in two shards"
    assert {key: n for each in by_shard for key, n in each.items()} == wanted


def test_rows_of_a_client_that_divides_otherwise_are_told_and_not_counted(topic: Topic) -> None:
    """The default of librdkafka: each row is counted in its shard, or is a bad event with the reason."""
    topic.librdkafka(partitioner="consistent")
    found = topic.shards()
    bad = [row for shard in found if BAD_STREAM in shard for row in shard[BAD_STREAM].to_pylist()]
    assert bad
    assert {row["reason"] for row in bad} == {"misrouted"}
    assert sum(n for each in counts(found) for n in each.values()) == ROWS - len(bad)
