"""The bus as a Spark data source. The first micro-batches are empty; each later one is a long-lived micro-batch (span.py).

Spark's own position is the number of the micro-batch. The driver holds the positions on the bus in memory; a restarted engine uses
those of its snapshot.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from hotspare.base.errors import HotspareError, RunnerError
from hotspare.base.inbound_role import InboundRole
from hotspare.base.interpreter import fix_environment, freeze_existing_objects
from hotspare.bus.contract import Bus
from hotspare.bus.open import open_bus
from hotspare.rows.batch import RAW_SCHEMA, MessageFormat
from hotspare.runners.contract import BatchLimits, HeadLike, HeadPlace, Positions, RunnerInput, SourceTopic
from hotspare.runners.reading import check_positions
from hotspare.runners.spark.failure import WorkerFailure, unpack
from hotspare.runners.spark.frames import FRAME_SCHEMA_DDL, frame
from hotspare.runners.spark.session import Session
from hotspare.runners.spark.span import OnSpanBatch, SpanServer, follow

GREETINGS = 25
"""The number of empty first micro-batches. They take up to a second each, later ones much less (docs/spark.md)."""
EMPTY_RAW = pa.RecordBatch.from_pylist([], schema=RAW_SCHEMA)
_NUMBER = "number"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The configuration of the source, which Spark passes to its processes as text. `span_address`: the path of the socket of the
    driver's SpanServer."""

    bus_url: str
    topics: tuple[SourceTopic, ...]
    limits: BatchLimits
    head_place: HeadPlace
    span_address: str
    shards: int = 1

    def to_text(self) -> str:
        return json.dumps(
            {
                "bus_url": self.bus_url,
                "topics": [[t.name, t.partitions, int(t.format), t.shard, t.kind.value] for t in self.topics],
                "limits": asdict(self.limits),
                "head_place": self.head_place.value,
                "span_address": self.span_address,
                "shards": self.shards,
            }
        )

    @classmethod
    def from_text(cls, text: str) -> SourceOptions:
        document = json.loads(text)
        return cls(
            document["bus_url"],
            tuple(
                SourceTopic(name, count, MessageFormat(format_), shard, InboundRole(kind))
                for name, count, format_, shard, kind in document["topics"]
            ),
            BatchLimits(**document["limits"]),
            HeadPlace(document["head_place"]),
            document["span_address"],
            document["shards"],
        )


def bus_source(head: HeadLike) -> type[DataSource]:
    """Returns the data source class to register with a session. `head`: the head that workers run if the options require it; each
    worker process unpickles it only once."""
    packed_head = cloudpickle.dumps(head)

    class BusSource(DataSource):  # type: ignore[misc, unused-ignore]
        """The data source of inbound messages. The messages reach the driver over the SpanServer's socket, not as rows."""

        @classmethod
        def name(cls) -> str:
            return "hotspare"

        def schema(self) -> str:
            return FRAME_SCHEMA_DDL

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return BusReader(SourceOptions.from_text(self.options["input"]), packed_head)

    return BusSource


class BusReading:
    """Reads a bus for the `ordered` runner through the data source of `bus_source`."""

    greetings = GREETINGS
    """The number of empty first batches of the query."""

    def __init__(self, source: RunnerInput, on_span_batch: OnSpanBatch) -> None:
        self._source = source
        self._on_span_batch = on_span_batch
        self._spans: SpanServer | None = None

    def warm(self, session: Session, start: Positions) -> None:
        """Opens the SpanServer, whose first long-lived micro-batch begins at `start`. Runs no warm-up query: the query's first
        batches are empty."""
        self._spans = SpanServer(session.scratch, start, self._on_span_batch, self._source.pace)

    def close(self, timeout_s: float) -> None:
        """Ends the long-lived micro-batch and delivers no more batches; waits at most `timeout_s` for a batch being processed."""
        if self._spans is not None:
            self._spans.close(timeout_s)

    def frames(self, session: Session, start: Positions) -> DataFrame:
        """Returns the streaming rows of the query. Ignores `start`, because `warm` has set it. Raises RunnerError before `warm`."""
        if self._spans is None:
            raise RunnerError("a bus cannot be read before its reading is warmed up")
        source = self._source
        address = self._spans.address
        options = SourceOptions(source.bus_url, source.topics, source.limits, source.head_place, address, source.shards)
        session.spark.dataSource.register(bus_source(source.head))
        return session.spark.readStream.format("hotspare").option("input", options.to_text()).load()

    def batches(self, collected: pa.Table) -> list[pa.RecordBatch]:
        """Returns an empty list: a long-lived micro-batch delivers its batches to the SpanServer while it runs."""
        return []

    def prepare(self, bus: Bus, positions: Positions) -> None:
        """Called before Spark starts. Raises PositionLost unless the topics hold `positions`."""
        check_positions(bus, self._source.topics, positions)

    def adjust_pace(self, batches: list[pa.RecordBatch], before: Positions, size_bytes: int) -> bool:
        """Returns False: the query need not restart, because long-lived micro-batches read within the limits by themselves."""
        return False

    def error_or_restart(self, failure: str, positions: Positions, waits: Callable[[float], bool]) -> HotspareError | None:
        """Returns the error of the query; never None, so every failure ends the runner. A long-lived micro-batch does not fail
        while the bus is unavailable, but waits."""
        return unpack(failure)


@functools.cache
def _bus(url: str) -> Bus:
    """Returns the bus of a URL; opened once per process, because Spark reuses a process for later tasks."""
    bus: Bus = open_bus(url)
    return bus


@functools.cache
def head_of(packed: bytes) -> HeadLike:
    """Unpickles a head; cached, so that a process does this once."""
    head: HeadLike = cloudpickle.loads(packed)
    return head


@functools.cache
def prepare_worker() -> None:
    """Sets the process environment of an engine in a Spark worker, once. Excludes existing objects from garbage collection: Spark
    collects after every task, which would take 20 ms for the worker's modules."""
    fix_environment()
    freeze_existing_objects()


@dataclass(frozen=True)
class Task(InputPartition):  # type: ignore[misc, unused-ignore]
    """The only task of micro-batch number `number`."""

    number: int


class BusReader(DataSourceStreamReader):  # type: ignore[misc, unused-ignore]
    """The stream reader of the source. There is always a next micro-batch, of one task: first GREETINGS empty ones, then long-lived
    ones."""

    def __init__(self, options: SourceOptions, packed_head: bytes) -> None:
        self._options = options
        self._packed_head = packed_head

    def initialOffset(self) -> Mapping[str, int]:
        return {_NUMBER: 0}

    def latestOffset(self, start: Mapping[str, int], limit: ReadLimit) -> Mapping[str, int]:
        return {_NUMBER: start[_NUMBER] + 1}

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[Task]:
        return [Task(end[_NUMBER])]

    def read(self, partition: Task) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        head = head_of(self._packed_head) if self._options.head_place is HeadPlace.WORKERS else None
        if partition.number <= GREETINGS:
            yield frame(0, 0, -1, EMPTY_RAW if head is None else head(EMPTY_RAW)[0])
            return
        options = self._options
        try:
            follow(_bus(options.bus_url), options.topics, options.limits, head, options.span_address, options.shards)
        except HotspareError as error:
            raise WorkerFailure(error) from error

    def commit(self, end: Mapping[str, int]) -> None:
        """Does nothing, because positions are stored in the engine's snapshots."""
