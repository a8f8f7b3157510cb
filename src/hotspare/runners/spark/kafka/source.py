"""The Kafka bus through Spark's own source: what Spark reads, how its rows become batches, and what its failures mean.

    kafka --rows--> [mapInArrow: head --frames-->] foreachBatch, toArrow --> raw batches, or decoded ones

A query over a topic without messages has no batches, so nothing would make it warm. Another query with the same plan does, whose
rows nobody gets: it reads the topic too, and beside it a source in the JVM's memory that gives it something to do.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from hotspare.base.errors import BusUnavailable, HotspareError, RunnerError
from hotspare.bus.contract import Bus, Partition
from hotspare.bus.kafka.client import parse_kafka_url
from hotspare.bus.open import open_bus
from hotspare.rows.batch import MessageFormat
from hotspare.runners.contract import HeadPlace, Positions, RunnerInput, SourceTopic
from hotspare.runners.reading import check_positions
from hotspare.runners.spark.arrow_map import map_in_arrow
from hotspare.runners.spark.failure import unpack
from hotspare.runners.spark.frames import FRAME_SCHEMA_DDL, frame, unframe
from hotspare.runners.spark.kafka.pace import Pacer, shares_of
from hotspare.runners.spark.kafka.rows import NOT_A_MESSAGE, default_formats, in_order, raw_batch
from hotspare.runners.spark.kafka.settings import java_options, source_options
from hotspare.runners.spark.session import Session
from hotspare.runners.spark.settings import KAFKA_CONF
from hotspare.runners.spark.source import GREETINGS, head_of, settle

WARM_UP_TIMEOUT_S = 60.0
WARM_UP_MESSAGES = 200
FAILURES_MAX = 5
SAMPLE_MESSAGES = 100
SAMPLE_BYTES = 1 << 20
_LOOK_S = 0.02
_RETRY_S = 0.2


class KafkaReading:
    """How the `ordered` runner reads a Kafka bus."""

    greetings = 0
    """Its query has no empty batches: what they are for is done by `warm`."""

    def __init__(self, source: RunnerInput, tasks_max: int) -> None:
        settings = parse_kafka_url(source.bus_url)
        self._source = source
        self._bootstrap = settings.bootstrap
        self._client = java_options(settings.options)
        self._formats = default_formats(source.topics)
        self._packed_head = cloudpickle.dumps(source.head)
        self._tasks_max = tasks_max
        self._pacer = Pacer(source.limits, 0.0)
        self._is_repaced = False
        self._failed_at: Positions = {}
        self._failures = 0

    def warm(self, session: Session, start: Positions) -> None:
        """Run the query until it is as quick as it will be; nothing that it reads counts. RunnerError where it does not get on."""
        for name, value in KAFKA_CONF.items():
            session.spark.conf.set(name, value)
        busy = _BusySource(session)
        left = itertools.count(GREETINGS - 1, -1)
        over = threading.Event()

        def on_batch(rows: DataFrame, _batch_id: int) -> None:
            for batch in self.batches(rows.toArrow()):
                if self._source.head_place is HeadPlace.DRIVER:
                    self._source.head(batch)
            if next(left) > 0:
                busy.add()
            else:
                over.set()

        columns = self._columns(session, start, min(WARM_UP_MESSAGES, self._pacer.pace.messages_max))
        query = _started(self._placed(columns.unionAll(busy.rows(columns.schema))), on_batch, session.scratch / "warm-up")
        busy.add()
        _await(query, over)
        query.stop()

    def close(self, timeout_s: float) -> None:
        """Nothing: all batches come through the query."""

    def frames(self, session: Session, start: Positions) -> DataFrame:
        """The streaming rows of the query, from `start` on."""
        pace = self._pacer.pace
        return self._placed(self._columns(session, pace.positions(start), pace.messages_max))

    def batches(self, collected: pa.Table) -> list[pa.RecordBatch]:
        """What a batch's rows hold, in order: raw batches where the head is the driver's, else decoded ones."""
        if self._source.head_place is HeadPlace.WORKERS:
            return unframe(collected)
        return in_order([raw_batch(batch, self._formats) for batch in collected.to_batches()])

    def prepare(self, bus: Bus, positions: Positions) -> None:
        """Before Spark starts: look whether the topics hold `positions`, and how large their messages are. PositionLost."""
        check_positions(bus, self._source.topics, positions)
        sizes = []
        for (topic, number), offset in positions.items():
            where = Partition(self._source.topics[topic].name, number)
            sample = bus.read(where, offset, messages_max=SAMPLE_MESSAGES, bytes_max=SAMPLE_BYTES)
            sizes += [len(message.value) for message in sample]
        self._pacer = Pacer(self._source.limits, sum(sizes) / max(1, len(sizes)))

    def note(self, batches: list[pa.RecordBatch], before: Positions, size_bytes: int) -> bool:
        """What a micro-batch brought: True where the query is to end, so that the next one goes on at another pace."""
        self._is_repaced = self._pacer.note(shares_of(batches, before), size_bytes, next(iter(self._source.pace.only), None))
        return self._is_repaced

    def ends(self, failure: str, positions: Positions, waits: Callable[[float], bool]) -> HotspareError | None:
        """The error that ends the runner, or None where the query is to be started again from `positions`.

        While the brokers do not answer, the runner waits (`waits(seconds)` is False when it is to stop). A query that fails
        again and again, although they do, and without any batch in between, is given up.
        """
        if self._is_repaced:
            self._is_repaced = False
            return None
        said = unpack(failure)
        self._failures = 1 if self._failed_at != positions else self._failures + 1
        self._failed_at = dict(positions)
        if type(said) is not RunnerError or self._failures > FAILURES_MAX:
            return said
        while waits(_RETRY_S * self._failures):
            try:
                bus = open_bus(self._source.bus_url)
                try:
                    check_positions(bus, self._source.topics, positions)
                finally:
                    bus.close()
            except BusUnavailable:
                continue
            except HotspareError as error:
                return error
            if self._failures > 1:
                self._pacer.shrink()
            return None
        return said

    def _columns(self, session: Session, start: Positions, messages_max: int) -> DataFrame:
        topics = self._source.topics
        options = source_options(self._bootstrap, self._client, topics, start, messages_max, -(-messages_max // self._tasks_max))
        rows = session.spark.readStream.format("kafka").options(**options).load()
        return rows.selectExpr(
            f"{_index_of_topic(topics)} AS topic", "partition", "offset", "unix_micros(timestamp) AS time_us", "headers", "value"
        )

    def _placed(self, columns: DataFrame) -> DataFrame:
        if self._source.head_place is HeadPlace.DRIVER:
            return columns
        return map_in_arrow(columns, functools.partial(_decode, self._packed_head, self._formats), FRAME_SCHEMA_DDL)


def _index_of_topic(topics: Sequence[SourceTopic]) -> str:
    """An SQL expression; names of topics have no quotes (bus/naming.py)."""
    if len(topics) == 1:
        return "0"
    return "CASE topic " + " ".join(f"WHEN '{topic.name}' THEN {i}" for i, topic in enumerate(topics)) + " END"


def _decode(packed_head: bytes, formats: Sequence[MessageFormat], rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a Python worker: raw rows of one task in, frames of decoded rows out."""
    settle()
    head = head_of(packed_head)
    for batch in rows:
        raw = raw_batch(batch, formats)
        for part in in_order([raw]):
            for decoded in filter(len, head(part)):
                topic, partition, first = (decoded.column(name)[0].as_py() for name in ("topic", "partition", "offset"))
                yield frame(topic, partition, first, decoded)
        if not raw.num_rows:
            yield frame(0, 0, NOT_A_MESSAGE, head(raw)[0])


def _started(rows: DataFrame, on_batch: Callable[[DataFrame, int], None], checkpoint: Path) -> StreamingQuery:
    return rows.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(checkpoint)).start()


def _await(query: StreamingQuery, over: threading.Event) -> None:
    deadline = time.monotonic() + WARM_UP_TIMEOUT_S
    while not over.wait(_LOOK_S):
        failure = query.exception()
        if failure is not None:
            raise unpack(str(failure))
        if time.monotonic() > deadline:
            query.stop()
            raise RunnerError(f"spark did not get {GREETINGS} batches done within {WARM_UP_TIMEOUT_S:.0f} s of its start")


class _BusySource:
    """A streaming source in the JVM's memory: each `add` makes a batch with one row that is no message."""

    def __init__(self, session: Session) -> None:
        jvm = session.spark.sparkContext._jvm
        spark = session.spark._jsparkSession
        self._session = session
        self._one = jvm.scala.jdk.javaapi.CollectionConverters.asScala(jvm.java.util.List.of(1)).toSeq()
        streams = jvm.org.apache.spark.sql.execution.streaming.runtime.MemoryStream
        self._stream = streams.apply(spark, jvm.org.apache.spark.sql.Encoders.INT())

    def add(self) -> None:
        self._stream.addData(self._one)

    def rows(self, schema: StructType) -> DataFrame:
        """As rows of `schema` whose offset says that they are none."""
        known = {"topic": "0", "partition": "0", "offset": f"{NOT_A_MESSAGE}", "time_us": "0"}
        columns = [f"CAST({known.get(f.name, 'NULL')} AS {f.dataType.simpleString()}) AS {f.name}" for f in schema.fields]
        return DataFrame(self._stream.toDF(), self._session.spark).selectExpr(*columns)
