"""The bus as a Spark data source: after some empty micro-batches, each one is a span (span.py).

Spark's own position is the number of the micro-batch. Positions on the bus are the driver's; what counts is the engine's snapshot.
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
from hotspare.base.inbound import Inbound
from hotspare.base.interpreter import fix_environment, pass_over_what_is_there
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
"""So many of the first batches are empty: until then a batch takes up to a second, afterwards as long as it will for ever
(docs/spark.md)."""
EMPTY_RAW = pa.RecordBatch.from_pylist([], schema=RAW_SCHEMA)
_NUMBER = "number"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What the source's processes need, as text in Spark's options. `span_address` is the socket of the driver's SpanServer."""

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
                SourceTopic(name, count, MessageFormat(format_), shard, Inbound(kind))
                for name, count, format_, shard, kind in document["topics"]
            ),
            BatchLimits(**document["limits"]),
            HeadPlace(document["head_place"]),
            document["span_address"],
            document["shards"],
        )


def bus_source(head: HeadLike) -> type[DataSource]:
    """The data source class to register with a session. `head` is unpickled once per worker process, not once per task."""
    packed_head = cloudpickle.dumps(head)

    class BusSource(DataSource):  # type: ignore[misc, unused-ignore]
        """Messages of inbound topics, which do not leave it as rows."""

        @classmethod
        def name(cls) -> str:
            return "hotspare"

        def schema(self) -> str:
            return FRAME_SCHEMA_DDL

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return BusReader(SourceOptions.from_text(self.options["input"]), packed_head)

    return BusSource


class BusReading:
    """How the `ordered` runner reads a bus through BusSource."""

    greetings = GREETINGS
    """So many of the query's first batches are empty."""

    def __init__(self, source: RunnerInput, on_span_batch: OnSpanBatch) -> None:
        self._source = source
        self._on_span_batch = on_span_batch
        self._spans: SpanServer | None = None

    def warm(self, session: Session, start: Positions) -> None:
        """Be ready for spans, the first of which begins at `start`; the query itself greets."""
        self._spans = SpanServer(session.scratch, start, self._on_span_batch, self._source.pace)

    def close(self, timeout_s: float) -> None:
        """No span goes on, and no more of its batches come; waits for one that is being worked on, but no longer."""
        if self._spans is not None:
            self._spans.close(timeout_s)

    def frames(self, session: Session, start: Positions) -> DataFrame:
        """The streaming rows of the query. RunnerError before `warm`."""
        if self._spans is None:
            raise RunnerError("a bus is read after its reading was warmed up")
        source = self._source
        address = self._spans.address
        options = SourceOptions(source.bus_url, source.topics, source.limits, source.head_place, address, source.shards)
        session.spark.dataSource.register(bus_source(source.head))
        return session.spark.readStream.format("hotspare").option("input", options.to_text()).load()

    def batches(self, collected: pa.Table) -> list[pa.RecordBatch]:
        """Nothing: what a span read was handed over while it lasted."""
        return []

    def prepare(self, bus: Bus, positions: Positions) -> None:
        """Before Spark starts: look whether the topics hold `positions`. PositionLost."""
        check_positions(bus, self._source.topics, positions)

    def note(self, batches: list[pa.RecordBatch], before: Positions, size_bytes: int) -> bool:
        """False: spans keep within the limits by themselves."""
        return False

    def ends(self, failure: str, positions: Positions, waits: Callable[[float], bool]) -> HotspareError | None:
        """Every failure ends the runner: a span waits by itself for a bus that is away."""
        return unpack(failure)


@functools.cache
def _bus(url: str) -> Bus:
    """One connection per process; Spark uses a process again for the next task."""
    bus: Bus = open_bus(url)
    return bus


@functools.cache
def head_of(packed: bytes) -> HeadLike:
    """Unpickled once per process."""
    head: HeadLike = cloudpickle.loads(packed)
    return head


@functools.cache
def settle() -> None:
    """Gives a worker of Spark the environment of every engine. Spark has it collect garbage after every task, 20 ms for what its
    modules hold, which will not become garbage."""
    fix_environment()
    pass_over_what_is_there()


@dataclass(frozen=True)
class Task(InputPartition):  # type: ignore[misc, unused-ignore]
    """The one task of the micro-batch with this number."""

    number: int


class BusReader(DataSourceStreamReader):  # type: ignore[misc, unused-ignore]
    """There is always a next micro-batch, of one task: a greeting, and after those a span."""

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
        settle()
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
        """Nothing: positions live in snapshots."""
