"""The bus as a Spark data source. The first micro-batches are empty; each later one is a long-lived micro-batch (span.py).

Spark's offset is the number of the micro-batch, and the positions on the bus at which its reading begins. The driver names them: it
has delivered everything before them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from hotspare.base.interpreter import fix_environment, freeze_existing_objects
from hotspare.bus.contract import Bus
from hotspare.bus.open import open_bus
from hotspare.rows.batch import RAW_SCHEMA
from hotspare.runners.contract import HeadLike, Positions, SourceTopic
from hotspare.runners.spark.span import SCANNED, SCANNED_DDL, SpanInput, SpanPlan, SpanTask, follow, request_plan

GREETINGS = 8
"""The number of empty first micro-batches. They take up to a second each, later ones much less (docs/spark.md)."""
SOURCE_NAME = "hotspare"
_EMPTY_RAW = pa.RecordBatch.from_pylist([], schema=RAW_SCHEMA)
_NOTHING = pa.RecordBatch.from_pylist([], schema=SCANNED)
_NUMBER, _OFFSETS = "number", "offsets"


def bus_source(given: SpanInput) -> type[DataSource]:
    """Returns the data source class to register with a session. Its input is part of its code, which Spark shows nowhere."""

    class BusSource(DataSource):  # type: ignore[misc, unused-ignore]
        """The data source of inbound messages: a row for each event. The events themselves reach the driver over its link."""

        @classmethod
        def name(cls) -> str:
            return SOURCE_NAME

        def schema(self) -> str:
            return SCANNED_DDL

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return BusReader(given)

    return BusSource


@functools.cache
def _bus(url: str) -> Bus:
    """Returns the bus of a URL; opened once per process, because Spark reuses a process for later tasks."""
    bus: Bus = open_bus(url)
    return bus


@functools.cache
def _head(packed: bytes) -> HeadLike:
    """Unpickles a head; cached, so that a process does this once."""
    head: HeadLike = cloudpickle.loads(packed)
    return head


@functools.cache
def _prepare_worker() -> None:
    """Sets the process environment of an engine in a Spark worker, once. Excludes existing objects from garbage collection: Spark
    collects after every task, which would take 20 ms for the worker's modules."""
    fix_environment()
    freeze_existing_objects()


@dataclass(frozen=True)
class ReaderPartition(InputPartition):  # type: ignore[misc, unused-ignore]
    """The task of a reader in micro-batch `number`."""

    number: int
    reader: int


class BusReader(DataSourceStreamReader):  # type: ignore[misc, unused-ignore]
    """The stream reader of the source. There is always a next micro-batch, with a task for each reader: first GREETINGS empty ones,
    then long-lived ones."""

    def __init__(self, given: SpanInput) -> None:
        self._given = given
        self._number, self._plan = 0, SpanPlan(0, {}, {})

    def initialOffset(self) -> Mapping[str, Any]:
        return {_NUMBER: 0}

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> Mapping[str, Any]:
        """Plans the next micro-batch. Its offset has the positions at which its reading begins."""
        self._number = int(start[_NUMBER]) + 1
        self._plan = request_plan(self._given.address, self._number)
        return self._offset(self._plan.positions)

    def reportLatestOffset(self) -> Mapping[str, Any]:
        """Returns the ends of the partitions, as the tasks of the last micro-batch saw them."""
        return self._offset(self._plan.latest)

    def _offset(self, positions: Positions) -> dict[str, Any]:
        return {_NUMBER: self._number, _OFFSETS: _offsets_by_topic(self._given.topics, positions)}

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[ReaderPartition]:
        return [ReaderPartition(int(end[_NUMBER]), reader) for reader in range(self._plan.readers)]

    def read(self, partition: ReaderPartition) -> Iterator[pa.RecordBatch]:
        _prepare_worker()
        given, context = self._given, TaskContext.get()
        head = None if given.head is None else _head(given.head)
        if partition.number <= GREETINGS:
            if head is not None:
                head(_EMPTY_RAW)
            yield _NOTHING
            return
        task = SpanTask(partition.number, partition.reader, 0 if context is None else context.attemptNumber())
        yield from follow(_bus(given.bus_url), given, head, task)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Does nothing, because positions are stored in the engine's snapshots."""


def _offsets_by_topic(topics: Sequence[SourceTopic], positions: Positions) -> dict[str, dict[str, int]]:
    """Returns positions by topic name and partition, in the form of the offsets of Spark's own sources."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(positions.items()):
        found.setdefault(topics[topic].name, {})[str(partition)] = offset
    return found
