"""Reads a Kafka bus through Spark's own source: the options of the query, the conversion of rows to batches, and the interpretation
of failures.

    kafka --rows--> [mapInArrow: head --frames-->] foreachBatch, toArrow --> raw batches, or decoded ones

A query over a topic without messages has no batches, so it would not warm up. So a warm-up query with the same plan runs first. It
reads the topic together with a source in the JVM's memory that supplies rows, and its rows are dropped.
"""

from __future__ import annotations

import functools
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from hotspare.base.errors import BusUnavailable, HotspareError, RunnerError, UsageError
from hotspare.bus.contract import FORMAT_HEADER, TICK_HEADER, Bus, Partition
from hotspare.bus.kafka.client import parse_kafka_url
from hotspare.bus.open import open_bus
from hotspare.rows.batch import FORMAT_OF_HEADER, RAW_SCHEMA, MessageFormat
from hotspare.runners.contract import HeadPlace, Positions, RunnerInput, SourceTopic
from hotspare.runners.reading import check_positions
from hotspare.runners.spark.arrow_map import map_in_arrow
from hotspare.runners.spark.failure import unpack
from hotspare.runners.spark.frames import FRAME_SCHEMA_DDL, frame, unframe
from hotspare.runners.spark.kafka.pace import Pacer, shares_of
from hotspare.runners.spark.session import Session
from hotspare.runners.spark.settings import KAFKA_CONF
from hotspare.runners.spark.source import GREETINGS, head_of, prepare_worker

NOT_A_MESSAGE = -1
"""The offset of a row that is not a message: it only supplies the warm-up query with batches."""

_Bools = npt.NDArray[np.bool_]
WARM_UP_TIMEOUT_S = 60.0
WARM_UP_MESSAGES = 200
FAILURES_MAX = 5
SAMPLE_MESSAGES = 100
SAMPLE_BYTES = 1 << 20
_LOOK_S = 0.02
_RETRY_S = 0.2
_SAME_NAME = (
    *("security.protocol", "client.id", "client.dns.lookup", "client.rack", "reconnect.backoff.ms", "reconnect.backoff.max.ms"),
    *("retry.backoff.ms", "retry.backoff.max.ms", "sasl.kerberos.service.name", "sasl.mechanism", "metadata.max.age.ms"),
    "ssl.endpoint.identification.algorithm",
)
_OTHER_NAME = {"sasl.mechanisms": "sasl.mechanism", "socket.receive.buffer.bytes": "receive.buffer.bytes"}
_MERGED = frozenset(
    ["sasl.username", "sasl.password", "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem", "ssl.key.password"]
)
_LIBRDKAFKA_ONLY = (
    *("socket.timeout.ms", "socket.keepalive.enable", "socket.nagle.disable", "queue.", "queued.", "message.max.bytes", "batch."),
    *("linger.ms", "compression.", "delivery.timeout.ms", "transaction.timeout.ms", "fetch.", "receive.message.max.bytes", "debug"),
    *("log.", "statistics.interval.ms", "broker.address.", "topic.metadata.", "api.version.", "enable.ssl."),
)
"""Prefixes of librdkafka options that have no effect on the messages read, so they are not passed to Spark."""
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class KafkaReading:
    """Reads a Kafka bus through Spark's Kafka source, for the `ordered` runner."""

    greetings = 0
    """The number of empty first batches of the query: none, because `warm` replaces them."""

    def __init__(self, source: RunnerInput, tasks_max: int) -> None:
        settings = parse_kafka_url(source.bus_url)
        self._source = source
        self._bootstrap = settings.bootstrap
        self._client = java_options(settings.options)
        self._formats = tuple(topic.format for topic in source.topics)
        self._packed_head = cloudpickle.dumps(source.head)
        self._tasks_max = tasks_max
        self._pacer = Pacer(source.limits, 0.0)
        self._is_repaced = False
        self._failed_at: Positions = {}
        self._failures = 0

    def warm(self, session: Session, start: Positions) -> None:
        """Runs a warm-up query with the same plan for GREETINGS batches, and drops its rows. Raises RunnerError if the query does
        not finish them in WARM_UP_TIMEOUT_S."""
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
        """Does nothing: all batches pass through the query."""

    def frames(self, session: Session, start: Positions) -> DataFrame:
        """Returns the streaming rows of the query, from `start` on."""
        pace = self._pacer.pace
        return self._placed(self._columns(session, pace.positions(start), pace.messages_max))

    def batches(self, collected: pa.Table) -> list[pa.RecordBatch]:
        """Returns the batches of a micro-batch's rows, in order: raw batches if the head runs in the driver, else decoded
        batches."""
        if self._source.head_place is HeadPlace.WORKERS:
            return unframe(collected)
        return batches_in_order([raw_batch(batch, self._formats) for batch in collected.to_batches()])

    def prepare(self, bus: Bus, positions: Positions) -> None:
        """Called before Spark starts. Raises PositionLost unless the topics hold `positions`. Samples messages for the first
        pace."""
        check_positions(bus, self._source.topics, positions)
        sizes = []
        for (topic, number), offset in positions.items():
            where = Partition(self._source.topics[topic].name, number)
            sample = bus.read(where, offset, messages_max=SAMPLE_MESSAGES, bytes_max=SAMPLE_BYTES)
            sizes += [len(message.value) for message in sample]
        self._pacer = Pacer(self._source.limits, sum(sizes) / max(1, len(sizes)))

    def adjust_pace(self, batches: list[pa.RecordBatch], before: Positions, size_bytes: int) -> bool:
        """Adjusts the pace to a micro-batch; returns whether the query must end, so that a new query continues at another pace."""
        self._is_repaced = self._pacer.adjust_to_batch(
            shares_of(batches, before), size_bytes, next(iter(self._source.pace.only), None)
        )
        return self._is_repaced

    def error_or_restart(self, failure: str, positions: Positions, waits: Callable[[float], bool]) -> HotspareError | None:
        """Called when the query has ended. Returns the error that ends the runner, or None if a new query must start from
        `positions`.

        Waits while the brokers do not answer; `waits(seconds)` returns False if the runner must stop. Returns the error if queries
        fail more than FAILURES_MAX times at the same positions although the brokers answer.
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
    """Returns an SQL expression for the index of a row's topic. Topic names contain no quotes (bus/naming.py)."""
    if len(topics) == 1:
        return "0"
    return "CASE topic " + " ".join(f"WHEN '{topic.name}' THEN {i}" for i, topic in enumerate(topics)) + " END"


def _decode(packed_head: bytes, formats: Sequence[MessageFormat], rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a Python worker: turns the raw rows of one task into frames of decoded rows."""
    prepare_worker()
    head = head_of(packed_head)
    for batch in rows:
        raw = raw_batch(batch, formats)
        for part in batches_in_order([raw]):
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
            raise RunnerError(f"spark did not finish {GREETINGS} batches within {WARM_UP_TIMEOUT_S:.0f} s of its start")


class _BusySource:
    """A streaming source in the JVM's memory. Each `add` causes a micro-batch with one row that is not a message."""

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
        """Returns the source's rows in the columns of `schema`, with offset NOT_A_MESSAGE."""
        known = {"topic": "0", "partition": "0", "offset": f"{NOT_A_MESSAGE}", "time_us": "0"}
        columns = [f"CAST({known.get(f.name, 'NULL')} AS {f.dataType.simpleString()}) AS {f.name}" for f in schema.fields]
        return DataFrame(self._stream.toDF(), self._session.spark).selectExpr(*columns)


def raw_batch(rows: pa.RecordBatch, formats: Sequence[MessageFormat]) -> pa.RecordBatch:
    """Converts rows of Spark's Kafka source to a raw batch, column by column, so that no Python code runs per message. Rows that
    are not messages are dropped.

    `rows` have the columns topic (index), partition, offset, time_us, headers and value; the result is of RAW_SCHEMA.
    `formats[i]`: the format of messages of topic i without a format header.
    """
    offsets = rows.column("offset")
    if len(offsets) and pc.min(offsets).as_py() < 0:
        rows = rows.filter(pc.greater_equal(offsets, 0))
    tick, format_ = _ticks_and_formats(rows, np.array(formats, np.int8))
    value = rows.column("value")
    columns = [rows.column(name) for name in ("topic", "partition", "offset", "time_us")]
    columns += [pa.array(tick), pa.array(format_), pc.fill_null(value, b"") if value.null_count else value]
    return pa.RecordBatch.from_arrays([_exactly(c, f.type) for c, f in zip(columns, RAW_SCHEMA, strict=True)], schema=RAW_SCHEMA)


def _exactly(column: pa.Array, type_: pa.DataType) -> pa.Array:
    return column if column.type == type_ else column.cast(type_)


def _ticks_and_formats(rows: pa.RecordBatch, defaults: npt.NDArray[np.int8]) -> tuple[_Bools, npt.NDArray[np.int8]]:
    """Returns whether each message is a tick, and the format of each message."""
    tick = np.zeros(rows.num_rows, np.bool_)
    format_ = defaults[rows.column("topic").to_numpy()]
    headers = rows.column("headers")
    if headers.null_count == rows.num_rows:
        return tick, format_
    message = pc.list_parent_indices(headers).to_numpy()
    entries = pc.list_flatten(headers)
    keys, values = entries.field(0), entries.field(1)
    tick[message[_is(keys, TICK_HEADER)]] = True
    named = np.flatnonzero(_is(keys, FORMAT_HEADER))
    # A message may repeat a header; the first counts.
    of, first = np.unique(message[named], return_index=True)
    for name, number in FORMAT_OF_HEADER.items():
        chosen = _is(values.take(pa.array(named[first])), name)
        format_[of[chosen]] = number
    return tick, format_


def _is(column: pa.Array, text: str | bytes) -> _Bools:
    equal = pc.equal(column, pa.scalar(text, column.type)).to_numpy(zero_copy_only=False)
    return np.asarray(equal == np.True_, np.bool_)  # null is not equal


def batches_in_order(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Splits raw batches into batches of one partition and returns them ordered by (topic, partition, offset), because Spark's
    tasks deliver batches in any order."""
    whole = [part for batch in batches for part in _of_one_partition(batch)]
    return sorted(whole, key=lambda b: tuple(b.column(name)[0].as_py() for name in ("topic", "partition", "offset")))


def _of_one_partition(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields the batch in runs of rows of one partition with rising offsets. Offsets that do not rise begin a new run: sorting the
    runs corrects the order, or the core refuses it."""
    if not batch.num_rows:
        return
    topic, partition, offset = (batch.column(name).to_numpy() for name in ("topic", "partition", "offset"))
    bounds = 1 + np.flatnonzero((topic[1:] != topic[:-1]) | (partition[1:] != partition[:-1]) | (offset[1:] <= offset[:-1]))
    for first, end in zip([0, *bounds.tolist()], [*bounds.tolist(), batch.num_rows], strict=True):
        yield batch.slice(first, end - first)


def source_options(
    bootstrap: str, client: Mapping[str, str], topics: Sequence[SourceTopic], start: Positions, messages_max: int, per_task: int
) -> dict[str, str]:
    """Returns the options of `spark.readStream.format("kafka")` for reading the partitions in `start` from their offsets on.

    A batch has at most `messages_max` messages, a task at most `per_task` of them.
    """
    java = {
        # A transaction's messages arrive when it is committed, those of an aborted one never.
        "isolation.level": "read_committed",
        # Without it the last messages before a pause wait for the answer to a fetch that waits 500 ms for more.
        "fetch.max.wait.ms": "5",
        "max.poll.records": "5000",
        "receive.buffer.bytes": str(1 << 20),
        "max.partition.fetch.bytes": str(4 << 20),
        # Reading a topic must not create it.
        "allow.auto.create.topics": "false",
        # The clients should not send their metrics to the brokers.
        "enable.metrics.push": "false",
        "reconnect.backoff.ms": "20",
        "reconnect.backoff.max.ms": "500",
        **client,
    }
    return {
        "kafka.bootstrap.servers": bootstrap,
        "assign": json.dumps(_by_topic(topics, ((key, key[1]) for key in sorted(start)), list)),
        "startingOffsets": json.dumps(_by_topic(topics, (((t, p), (str(p), start[t, p])) for t, p in sorted(start)), dict)),
        # Offsets that are not kept any more end the query; they are never skipped.
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(messages_max),
        "maxRecordsPerPartition": str(per_task),
        **{f"kafka.{name}": value for name, value in java.items()},
    }


def _by_topic(topics: Sequence[SourceTopic], entries: Iterable[tuple[tuple[int, int], object]], kind: type) -> dict[str, object]:
    grouped: dict[str, list[object]] = {}
    for (topic, _), entry in entries:
        grouped.setdefault(topics[topic].name, []).append(entry)
    return {name: kind(found) for name, found in grouped.items()}


def java_options(options: Mapping[str, str]) -> dict[str, str]:
    """Translates the options of a bus URL, which have librdkafka's names (bus/kafka/client.py), to the names of the Java client.
    Raises UsageError, without the option's value, for an option that has no counterpart."""
    java: dict[str, str] = {}
    for name, value in options.items():
        if name in _SAME_NAME:
            java[name] = value
        elif name in _OTHER_NAME:
            java[_OTHER_NAME[name]] = value
        elif name not in _MERGED and not name.startswith(_LIBRDKAFKA_ONLY):
            raise UsageError(
                f"option {name} of the bus cannot be passed to spark's kafka source",
                hint="use the options that docs/spark.md lists, or `--runner local`",
            )
    return {**java, **_login(options), **_certificates(options)}


def _login(options: Mapping[str, str]) -> dict[str, str]:
    if "sasl.username" not in options:
        return {}
    mechanism = options.get("sasl.mechanism") or options.get("sasl.mechanisms") or ""
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        raise UsageError(
            "the bus has a sasl.username, but no sasl.mechanism that takes one", hint=f"use {', '.join(_LOGIN_MODULES)}"
        )
    name, password = (_quoted(options.get(key, "")) for key in ("sasl.username", "sasl.password"))
    return {"sasl.jaas.config": f"{module} required username={name} password={password};"}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _certificates(options: Mapping[str, str]) -> dict[str, str]:
    java: dict[str, str] = {}
    if "ssl.ca.location" in options:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": options["ssl.ca.location"]}
    if "ssl.ca.pem" in options:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": options["ssl.ca.pem"]}
    if "ssl.certificate.pem" in options:
        java |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": options["ssl.certificate.pem"]}
        java |= {"ssl.keystore.key": options.get("ssl.key.pem", "")}
        if "ssl.key.password" in options:
            java["ssl.key.password"] = options["ssl.key.password"]
    return java
