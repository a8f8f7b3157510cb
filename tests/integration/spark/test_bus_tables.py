"""Output streams as tables and tables into inbound topics, with real sessions of Spark on the embedded bus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hotspare.adapters.metadata import describe, publish_metadata
from hotspare.base.errors import TopicMissing, UsageError
from hotspare.bus.contract import Bus, Outgoing, Partition
from hotspare.bus.open import open_bus
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.formats import arrow_block
from hotspare.projects.load import load_text
from hotspare.rows.batch import BAD_STREAM
from hotspare.runners.contract import BatchLimits, SourceTopic
from hotspare.runners.local import read_recorded
from hotspare.spark import publish, register, state
from hotspare.stores.open import open_store
from tests.cli.kept import GROUP, put_snapshots
from tests.cli.kept import PROJECT as KEPT_PROJECT
from tests.spark_sessions import Lender

pytestmark = pytest.mark.spark

PREFIX = "p"
SHARDS = 3
PROJECT = """
project: shop
queries:
  q:
    windows:
      orders: {type: source, opcodes: any, schema: "id*:int64,customer*:string,amount:double,at:stamp", partition_by: customer}
      big: {type: filter, condition: amount > 10, publish: true}
    edges: [orders -> big]
"""
INBOUND, OUTBOUND, WINDOW = "p.shop.q.orders.I", "p.shop.q.big.O", "shop/q/big"


@pytest.fixture(scope="module")
def spark(lender: Lender) -> Any:
    session = lender.spark
    register(session)
    return session


class Place:
    """A bus with a divided project, and the outputs of an engine of each shard."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'bus.db'}"
        self.bus: Bus = open_bus(self.url)
        self.plan: Plan = compile_plan(load_text(PROJECT).resolved)
        for topic in (INBOUND, OUTBOUND, "p.shop.B"):
            self.bus.create_topic(topic, SHARDS)
        publish_metadata(self.bus, PREFIX, describe(self.plan.resolved, PREFIX, SHARDS))
        self._pipelines = [Pipeline.fresh(self.plan, shard=shard) for shard in range(SHARDS)]
        self.count = 0

    def work(self) -> None:
        """Lets every shard read new messages and publish their outputs."""
        head = Head.from_plan(self.plan, shards=SHARDS)
        for shard, pipeline in enumerate(self._pipelines):
            pipeline.set_partitions([(0, shard)])
            topic = SourceTopic(INBOUND, SHARDS, shard=shard)
            for table in read_recorded(self.bus, (topic,), head, BatchLimits(), pipeline.next_offsets):
                for stream, batch in pipeline.feed(table).items():
                    place = Partition("p.shop.B" if stream == BAD_STREAM else OUTBOUND, shard)
                    self.bus.append(place, [Outgoing(arrow_block.encode(batch))])
                    self.count += len(batch)

    def reader(self, spark: Any, **more: str) -> Any:
        return spark.read.format("hotspare").options(bus=self.url, prefix=PREFIX, **{"window": WINDOW, **more})


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.bus.close()


def orders(spark: Any, first: int, end: int) -> Any:
    return spark.range(first, end).selectExpr(
        "id", "concat('customer ', id % 7) customer", "cast(id % 20 as double) amount", "timestamp_millis(id) at"
    )


def send(spark: Any, place: Place, first: int, end: int, name: str = "load") -> int:
    made: int = publish(orders(spark, first, end), bus=place.url, prefix=PREFIX, window="shop/q/orders", name=name, order_by="at")
    return made


def test_what_is_published_comes_out_again(spark: Any, place: Place) -> None:
    """SPEC K4. Rows are written to the partitions of their keys, once, in order; outputs are read with their types and numbers."""
    assert send(spark, place, 0, 3000) == 3000
    assert send(spark, place, 0, 3000) == 0
    place.work()
    found = place.reader(spark).load()
    types = ["string", "string", "bigint", "string", "double", "timestamp", "int", "bigint", "string"]
    assert [field.dataType.simpleString() for field in found.schema] == types
    assert found.columns == ["opcode", "flags", "id", "customer", "amount", "at", "shard", "sequence", "output_id"]
    rows = found.orderBy("shard", "sequence").collect()
    assert len(rows) == place.count == 3000 * 9 // 20
    assert {row["id"] for row in rows} == {i for i in range(3000) if i % 20 > 10}
    for shard in range(SHARDS):
        mine = [row for row in rows if row["shard"] == shard]
        assert [row["sequence"] for row in mine] == list(range(1, len(mine) + 1))
        assert [row["id"] for row in mine] == sorted(row["id"] for row in mine)
    assert all(row["at"].timestamp() == pytest.approx(row["id"] / 1000) for row in rows)
    assert place.reader(spark, window="", bad="shop").load().count() == 0, "nothing was misrouted"


def test_a_stream_that_grows_gives_every_sequence_once(spark: Any, place: Place, tmp_path: Path) -> None:
    """The query is restarted, with micro-batches of any size; a restart from the checkpoint continues after it."""
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"

    def follow(messages_max: int) -> None:
        options = {"bus": place.url, "prefix": PREFIX, "window": WINDOW, "messages_max": str(messages_max)}
        growing = spark.readStream.format("hotspare").options(**options).load()
        writer = growing.writeStream.format("parquet").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query = writer.start(str(out))
        query.awaitTermination(120)
        assert query.exception() is None

    for step, messages_max in enumerate((0, 1, 2)):
        for part in range(3):
            send(spark, place, (3 * step + part) * 100, (3 * step + part + 1) * 100, f"load {step} {part}")
            place.work()
        follow(messages_max)
        rows = spark.read.parquet(str(out)).groupBy("shard").agg({"sequence": "count"}).collect()
        assert sum(row[1] for row in rows) == place.count
    numbers = spark.read.parquet(str(out)).select("shard", "sequence").distinct().count()
    assert numbers == place.count


def test_what_retention_has_ended_is_named(spark: Any, place: Place, tmp_path: Path) -> None:
    """SPEC H9. Missing outputs are never skipped silently."""
    send(spark, place, 0, 100, "first")
    place.work()
    options = {"bus": place.url, "prefix": PREFIX, "window": WINDOW}
    growing = spark.readStream.format("hotspare").options(**options).load()
    writer = growing.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination(120)
    for name in ("second", "third"):
        send(spark, place, 100, 200, name)
        place.work()
    for shard in range(SHARDS):
        where = Partition(OUTBOUND, shard)
        place.bus.trim(where, place.bus.end_offset(where))
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(Exception, match="no longer holds offset"):
        query.awaitTermination(120)


def test_a_table_that_grows_is_published(spark: Any, place: Place, tmp_path: Path) -> None:
    """Every micro-batch is published once: if Spark did not record its end, it is repeated, and nothing of it is written again."""
    files, checkpoint = tmp_path / "files", tmp_path / "checkpoint"
    orders(spark, 0, 500).coalesce(1).write.parquet(str(files))
    growing = spark.readStream.schema(orders(spark, 0, 1).schema).parquet(str(files))

    def once() -> None:
        arguments = {"bus": place.url, "prefix": PREFIX, "window": "shop/q/orders", "name": "grown", "order_by": "at"}
        writer = publish(growing, **arguments)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination(120)

    once()
    orders(spark, 500, 900).coalesce(1).write.mode("append").parquet(str(files))
    once()
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    once()
    place.work()
    found = place.reader(spark).load()
    assert found.count() == place.count == found.select("id").distinct().count() == 900 * 9 // 20


def test_what_cannot_be_read_or_published_is_said_at_once(spark: Any, place: Place) -> None:
    for options, message in (
        ({"window": "shop/q/bigger"}, "has no window q/bigger"),
        ({"window": "other/q/big"}, "has no project other"),
        ({"window": "shop/q/orders"}, "is not published"),
        ({"wndow": "shop/q/big"}, "has no option wndow"),
        ({"bad": "shop"}, "one of the options window and bad"),
        ({"messages_max": "many"}, "not a number"),
    ):
        with pytest.raises(Exception, match=message):
            place.reader(spark, **options).load()
    rows = orders(spark, 0, 1)
    with pytest.raises(UsageError, match="accepts no events"):
        publish(rows, bus=place.url, prefix=PREFIX, window=WINDOW, name="x", order_by="at")
    with pytest.raises(UsageError, match="has no column at"):
        publish(rows.drop("at"), bus=place.url, prefix=PREFIX, window="shop/q/orders", name="x", order_by="id")
    with pytest.raises(UsageError, match="needs a name"):
        publish(rows, bus=place.url, prefix=PREFIX, window="shop/q/orders", name="", order_by="at")
    with pytest.raises(UsageError, match="is a str, not a DataFrame of Spark"):
        publish("rows.parquet", bus=place.url, prefix=PREFIX, window="shop/q/orders", name="x", order_by="at")
    growing = spark.readStream.format("rate").load()
    with pytest.raises(UsageError, match="has no column"):
        publish(growing, bus=place.url, prefix=PREFIX, window="shop/q/orders", name="x", order_by="at")
    with pytest.raises((UsageError, TopicMissing)):
        publish(rows, bus=place.url, prefix="other", window="shop/q/orders", name="x", order_by="at")


def test_rows_that_a_window_has_in_a_snapshot_are_a_table(spark: Any, tmp_path: Path) -> None:
    store = (tmp_path / "snapshots").as_uri()
    put_snapshots(open_store(store))
    file = tmp_path / "shop.yaml"
    file.write_text(KEPT_PROJECT)
    table = state(spark, GROUP, "q/orders", store=store, project=file, where="id > 1")
    assert table.dtypes == [("id", "bigint"), ("item", "string"), ("price", "double")]
    assert [tuple(row) for row in table.collect()] == [(3, None, 0.1), (4, "pen", 4.0)]
    assert [tuple(row) for row in state(spark, GROUP, "q/weighed", part="right", store=store, project=file).collect()] == [
        ("pen", 5)
    ]
    with pytest.raises(UsageError, match="there is no folder"):
        state(spark, GROUP, "q/orders", store=(tmp_path / "none").as_uri(), project=file)
    assert not (tmp_path / "none").exists()
    with pytest.raises(UsageError, match="is not known here"):
        state(spark, GROUP, "q/orders", store=store)
