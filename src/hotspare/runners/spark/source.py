"""The bus as a Spark data source, in two forms: one reader process (least latency), or tasks that also run the head.

Spark starts from the positions that it is given and keeps its own in a scratch folder; what counts is the engine's snapshot.
"""

from __future__ import annotations

import functools
import gc
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from hotspare.bus.contract import Bus, Partition
from hotspare.bus.open import open_bus
from hotspare.engine.batch import RAW_SCHEMA, MessageFormat
from hotspare.errors import HotspareError
from hotspare.runners.contract import BatchLimits, Head, HeadPlace, InboundTopic, Positions
from hotspare.runners.reading import (
    Part,
    next_positions,
    positions_from_json,
    positions_to_json,
    raw_batch,
    read_parts,
    read_range,
)
from hotspare.runners.spark.failure import WorkerFailure
from hotspare.runners.spark.frames import FRAME_SCHEMA_DDL, frame

OFFSETS_PER_TASK_MIN = 2_000
BYTES_PER_TASK_MIN = 256 * 1024
"""A partition's share of a batch is divided among cores only where each gets this much: a task costs milliseconds."""
GREETING = "greeting"
"""In Spark's own positions: how many of the first batches went through. They are empty and bring everything up to temperature."""
GREETINGS = 25
"""Until then a batch takes up to a second, afterwards as long as it will for ever (docs/spark.md)."""


EMPTY_RAW = pa.RecordBatch.from_pylist([], schema=RAW_SCHEMA)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What the source's processes need, as text in Spark's options."""

    bus_url: str
    topics: tuple[InboundTopic, ...]
    start: Positions
    limits: BatchLimits
    head_place: HeadPlace
    tasks_max: int

    def to_text(self) -> str:
        return json.dumps(
            {
                "bus_url": self.bus_url,
                "topics": [[t.name, t.partitions, int(t.format)] for t in self.topics],
                "start": positions_to_json(self.start),
                "limits": asdict(self.limits),
                "head_place": self.head_place.value,
                "tasks_max": self.tasks_max,
            }
        )

    @classmethod
    def from_text(cls, text: str) -> SourceOptions:
        document = json.loads(text)
        return cls(
            document["bus_url"],
            tuple(InboundTopic(name, partitions, MessageFormat(format_)) for name, partitions, format_ in document["topics"]),
            positions_from_json(document["start"]),
            BatchLimits(**document["limits"]),
            HeadPlace(document["head_place"]),
            document["tasks_max"],
        )


def bus_source(head: Head) -> type[DataSource]:
    """The data source class to register with a session. `head` is unpickled once per worker process, not once per task."""
    packed_head = cloudpickle.dumps(head)

    class BusSource(DataSource):  # type: ignore[misc, unused-ignore]
        """Messages of inbound topics, as frames."""

        @classmethod
        def name(cls) -> str:
            return "hotspare"

        def schema(self) -> str:
            return FRAME_SCHEMA_DDL

        def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
            return DriverHeadReader(SourceOptions.from_text(self.options["input"]))

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            options = SourceOptions.from_text(self.options["input"])
            if options.head_place is HeadPlace.DRIVER:
                return super().streamReader(schema)  # says "not implemented", so that Spark asks for the simple one
            return WorkerHeadReader(options, packed_head)

    return BusSource


@functools.cache
def _bus(url: str) -> Bus:
    """One connection per process; Spark uses a process again for the next batch."""
    bus: Bus = open_bus(url)
    return bus


@functools.cache
def _head(packed: bytes) -> Head:
    head: Head = cloudpickle.loads(packed)
    return head


@functools.cache
def _settle() -> None:
    """Spark's worker collects garbage after every task, 20 ms for what its modules hold; they will not become garbage."""
    gc.collect()
    gc.freeze()


def _read(options: SourceOptions, start: Mapping[str, int]) -> tuple[list[Part], Mapping[str, int]]:
    """The next parts from `start`, and where they end."""
    if start[GREETING] < GREETINGS:
        return [], {**start, GREETING: start[GREETING] + 1}
    positions = _positions(start)
    try:
        parts = read_parts(_bus(options.bus_url), options.topics, positions, options.limits)
    except HotspareError as error:
        raise WorkerFailure(error) from error
    return parts, _offsets(next_positions(positions, parts), greeting=GREETINGS)


def _offsets(positions: Positions, greeting: int) -> Mapping[str, int]:
    return {**positions_to_json(positions), GREETING: greeting}


def _positions(offsets: Mapping[str, int]) -> dict[tuple[int, int], int]:
    return positions_from_json({key: offset for key, offset in offsets.items() if key != GREETING})


def _is_greeting(start: Mapping[str, int], end: Mapping[str, int]) -> bool:
    return start[GREETING] != end[GREETING]


class DriverHeadReader(SimpleDataSourceStreamReader):  # type: ignore[misc, unused-ignore]
    """Reads in one process beside the driver and yields raw frames; the driver decodes them."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def initialOffset(self) -> Mapping[str, int]:
        return _offsets(self._options.start, greeting=0)

    def read(self, start: Mapping[str, int]) -> tuple[Iterator[pa.RecordBatch], Mapping[str, int]]:
        parts, end = _read(self._options, start)
        frames = [_raw_frame(self._options, part) for part in parts]
        return iter([_greeting_frame()] if _is_greeting(start, end) else frames), end

    def readBetweenOffsets(self, start: Mapping[str, int], end: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
        if _is_greeting(start, end):
            yield _greeting_frame()
        for task in _tasks(start, end, _one_piece):
            yield _raw_frame(self._options, task.read(self._options))

    def commit(self, end: Mapping[str, int]) -> None:
        """Nothing: positions live in snapshots."""


def _greeting_frame() -> pa.RecordBatch:
    return frame(0, 0, -1, EMPTY_RAW)


def _raw_frame(options: SourceOptions, part: Part) -> pa.RecordBatch:
    batch = raw_batch(part, options.topics[part.topic].format)
    return frame(part.topic, part.partition, part.messages[0].offset, batch)


@dataclass(frozen=True)
class ReadTask(InputPartition):  # type: ignore[misc, unused-ignore]
    """Offsets first <= offset < end of one partition: the work of one Spark task."""

    topic: int
    partition: int
    first: int
    end: int

    def read(self, options: SourceOptions) -> Part:
        where = Partition(options.topics[self.topic].name, self.partition)
        try:
            messages = read_range(_bus(options.bus_url), where, self.first, self.end, options.limits)
        except HotspareError as error:
            raise WorkerFailure(error) from error
        return Part(self.topic, self.partition, messages)


def _tasks(start: Mapping[str, int], end: Mapping[str, int], pieces_max: Callable[[tuple[int, int], int], int]) -> list[ReadTask]:
    """The work between two positions, in order. `pieces_max` says into how many tasks (key, number of offsets) may be divided."""
    ends = _positions(end)
    tasks = []
    for key, first in sorted(_positions(start).items()):
        count = ends[key] - first
        pieces = max(1, min(count, pieces_max(key, count)))
        bounds = [first + count * i // pieces for i in range(pieces + 1)]
        tasks += [ReadTask(*key, low, high) for low, high in itertools.pairwise(bounds) if high > low]
    return tasks


def _one_piece(_key: tuple[int, int], _count: int) -> int:
    return 1


class WorkerHeadReader(DataSourceStreamReader):  # type: ignore[misc, unused-ignore]
    """Plans ranges of offsets; Spark's tasks read them and run the head, all in one Python process each."""

    def __init__(self, options: SourceOptions, packed_head: bytes) -> None:
        self._options = options
        self._packed_head = packed_head
        self._bytes: dict[tuple[int, int], int] = {}

    def initialOffset(self) -> Mapping[str, int]:
        return _offsets(self._options.start, greeting=0)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.limits.messages_max)

    def latestOffset(self, start: Mapping[str, int], limit: ReadLimit) -> Mapping[str, int]:
        # The values are read only to be counted: without that a batch could not be bounded in bytes.
        parts, end = _read(self._options, start)
        self._bytes = {part.key: sum(len(m.value) for m in part.messages) for part in parts}
        return end

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[ReadTask]:
        if _is_greeting(start, end):
            return [ReadTask(0, 0, -1, -1)]
        return _tasks(start, end, self._pieces_max)

    def _pieces_max(self, key: tuple[int, int], count: int) -> int:
        worth = max(count // OFFSETS_PER_TASK_MIN, self._bytes.get(key, 0) // BYTES_PER_TASK_MIN)
        return min(self._options.tasks_max, worth)

    def read(self, partition: ReadTask) -> Iterator[pa.RecordBatch]:
        _settle()
        if partition.first < 0:
            yield frame(0, 0, -1, _head(self._packed_head)(EMPTY_RAW))
            return
        part = partition.read(self._options)
        if part.messages:
            raw = raw_batch(part, self._options.topics[part.topic].format)
            decoded = _head(self._packed_head)(raw)
            if decoded.num_rows:
                yield frame(part.topic, part.partition, partition.first, decoded)

    def commit(self, end: Mapping[str, int]) -> None:
        """Nothing: positions live in snapshots."""
