"""Publishes a table, static or streaming, to the inbound topic of a source window: every row once, even if Spark retries.

    rows ──► their partition of the topic ──► put in order ──► chunks of a fixed number of rows ──► the topic, each chunk once

A chunk is written in one transaction together with its number, (micro-batch, chunk), in the record of the source. A second attempt,
or a task that was considered dead, writes nothing for a chunk that the record has. So chunks have to be the same at each attempt,
which is why rows are totally ordered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from hotspare.adapters.failover.source_position import PublishedSource, SourcePosition, content_digest
from hotspare.base.errors import MessageTooLarge, UnknownResult, UsageError
from hotspare.base.places import absolute_path
from hotspare.bus.contract import Bus, Partition
from hotspare.bus.limits import topic_missing
from hotspare.bus.open import open_bus
from hotspare.formats import arrow_block
from hotspare.formats.csv.rows import CsvStyle, field_texts
from hotspare.formats.json.plain import meta_names
from hotspare.model.types import Schema
from hotspare.rows.batch import MessageFormat, arrow_fields
from hotspare.rows.routing import Routing, routing_by
from hotspare.runners.spark.private import OnBatches, map_in_arrow, run_this_python
from hotspare.spark.columns import to_field
from hotspare.spark.in_task import event_numbers, field_column
from hotspare.spark.on_bus import WindowName, checked_bus, window_on_bus
from hotspare.spark.source_tables import Names, SourceTable, check_frame, order_column, ordered_by, ties_completed

CHUNK_ROWS = 1_000
"""The number of rows that one transaction writes. It is fixed, so that chunks are the same at each attempt."""
_CHUNK_BITS = 32
_PARTITION = "partition"
_HEADERS_BYTES = 4_096
"""The bytes of a message that are reserved for everything but its value."""


def publish(
    table: DataFrame,
    *,
    bus: str,
    window: str,
    name: str,
    order_by: Names,
    prefix: str = "hotspare",
    project: str = "",
) -> Any:
    """Publishes rows to the source window PROJECT/CQ/WINDOW on a bus, in order of `order_by`, and of all fields among equals.

    The topic records the published rows under `name`. A repeated call with the same table and name publishes no row twice, and
    resumes after an interruption. So another table needs another name. Columns are as in `apply`. `project` is the project's file,
    needed if no engine has described the project on the bus yet.

    Returns the count of rows that this call wrote. For a streaming table it returns Spark's writer: set a checkpoint and start it.
    Micro-batches are identified by their numbers, so a new checkpoint needs a new name.
    """
    bus, file = checked_bus(bus), absolute_path(project) if project else None
    if not name:
        raise UsageError("a table needs a name under which it is published", hint="give name=..., a different one for each table")
    check_frame(window, table)
    target = _Target.from_window(bus, prefix, WindowName.parse(window), file, name)
    if table.isStreaming:
        SourceTable.from_frame(0, target.window, target.schema, table, ordered_by(order_by, target.window))
        return table.writeStream.queryName(name).foreachBatch(_MicroBatches(target, order_by).write_micro_batch)
    check_follows(target, 0)
    return _publish_micro_batch(table, 0, target, order_by)


class _MicroBatches:
    """The micro-batches of one streaming query. Before the first one, `check_follows` compares its number with the topic."""

    def __init__(self, target: _Target, order_by: Names) -> None:
        self._target, self._order_by = target, order_by
        self._has_begun = False

    def write_micro_batch(self, rows: DataFrame, number: int) -> None:
        if not self._has_begun:
            check_follows(self._target, number)
            self._has_begun = True
        _publish_micro_batch(rows, number, self._target, self._order_by)


def check_follows(target: _Target, number: int) -> None:
    """Raises UsageError if the topic has a micro-batch of this name after `number`: all micro-batches up to there would be
    skipped.
    """
    bus = open_bus(target.bus)
    try:
        newest = max(_micro_batch(target.source(bus, place).read_source_position()) for place in range(target.count))
    finally:
        bus.close()
    if newest > number:
        what = f"micro-batch {newest} of {target.name!r} is published already, and this query begins with {number}"
        raise UsageError(what, hint="another table, or a new checkpoint, needs a new name; or start with the earlier checkpoint")


@dataclass(frozen=True)
class _Target:
    """The destination of the rows: the topic of a window, and the source name under which the topic records them."""

    bus: str
    topic: str
    window: str
    schema: Schema
    routing: Routing | None
    count: int
    name: str

    @classmethod
    def from_window(cls, url: str, prefix: str, window: WindowName, file: Path | None, name: str) -> _Target:
        bus = open_bus(url)
        try:
            found = window_on_bus(bus, prefix, window, file)
            if not found.inbound:
                raise UsageError(f"window {'/'.join(window)} accepts no events", hint="name a source window")
            count = bus.topics().get(found.inbound)
            if count is None:
                raise topic_missing(found.inbound)
            if count > 1 and file is not None:
                found = window_on_bus(bus, prefix, window, file, count)
        finally:
            bus.close()
        routing = routing_by(found.schema, found.partition_by, count)
        if count > 1 and routing is None:
            what = f"topic {found.inbound} has {count} partitions, and no field determines the partition of a row"
            raise UsageError(what, hint="write `partition_by:` for the source window, or name the project's file")
        return cls(url, found.inbound, "/".join(window[1:]), found.schema, routing, count, name)

    def source(self, bus: Bus, partition: int) -> PublishedSource:
        return PublishedSource(bus, Partition(self.topic, partition), f"spark {self.name}")


def _publish_micro_batch(table: DataFrame, number: int, target: _Target, order_by: Names) -> int:
    """Publishes the rows of micro-batch `number`. Returns the count of rows that were not on the topic yet."""
    run_this_python(table.sparkSession)
    given = SourceTable.from_frame(0, target.window, target.schema, table, ordered_by(order_by, target.window))
    rows = table.select(*given.orders(), *given.fields(), *given.meta_columns(list(given.meta_column_names())))
    if target.routing is None:
        rows = rows.withColumn(_PARTITION, F.lit(0)).repartition(1)
    else:
        schema = rows.withColumn(_PARTITION, F.lit(0)).schema
        rows = map_in_arrow(rows, _routed(target.routing), schema).repartition(target.count, F.col(_PARTITION))
    first = [_PARTITION, *(order_column(place) for place in range(len(given.order)))]
    content = [name for name in rows.columns if name not in first]
    ordered = ties_completed(rows, first, content).select(_PARTITION, *content)
    done = map_in_arrow(ordered, _writer(target, number), "rows bigint")
    return int(done.agg(F.sum("rows")).collect()[0][0] or 0)


def _routed(routing: Routing) -> OnBatches:
    """Returns a function that appends to each batch a column with the partition of each row."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            key = to_field(batch.column(field_column(0, routing.field)), routing.type)
            yield batch.append_column(_PARTITION, pa.array(routing.partitions(key).astype(np.int32)))

    return run


def _writer(target: _Target, number: int) -> OnBatches:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bus = open_bus(target.bus)
        try:
            rows = sum(_write_all(bus, target, number, batches))
        finally:
            bus.close()
        yield pa.RecordBatch.from_arrays([pa.array([rows], pa.int64())], names=["rows"])

    return run


def _write_all(bus: Bus, target: _Target, number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    """Writes the chunks of the batches to the topic. Yields for each chunk the count of rows that were not there yet. Raises
    UsageError if other rows were published under the name.
    """
    allowed = bus.message_bytes_max([target.topic])[target.topic] - _HEADERS_BYTES
    sources: dict[int, _Source] = {}
    for partition, place, rows in chunks(batches):
        if partition not in sources:
            sources[partition] = _Source(target.source(bus, partition), target.name)
        yield sources[partition].write(_block(rows, target.schema), (number << _CHUNK_BITS) + place + 1, allowed)
    for source in sources.values():
        source.check_end()


def chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Yields (partition, number of the chunk in that partition, rows). A chunk has CHUNK_ROWS rows; the last one of a partition may
    have fewer.

    The rows of a partition must be adjacent; the batch boundaries do not matter.
    """
    held: list[pa.RecordBatch] = []
    partition, place = -1, 0
    for batch in batches:
        numbers = batch.column(_PARTITION).to_numpy()
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for begin, end in pairwise(bounds):
            if end == begin:
                continue
            if int(numbers[begin]) != partition:
                if held:
                    yield partition, place, pa.concat_batches(held)
                held, partition, place = [], int(numbers[begin]), 0
            held.append(batch.slice(begin, end - begin))
            joined = pa.concat_batches(held)
            while len(joined) >= CHUNK_ROWS:
                yield partition, place, joined.slice(0, CHUNK_ROWS)
                joined, place = joined.slice(CHUNK_ROWS), place + 1
            held = [joined] if len(joined) else []
    if held:
        yield partition, place, pa.concat_batches(held)


def _block(rows: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Returns the rows with the columns of a message in Arrow format: opcode and flags as numbers, then the fields."""
    opcode, flags = event_numbers(rows)
    columns = [to_field(rows.column(field_column(0, place)), field.type) for place, field in enumerate(schema.fields)]
    fields = [*(pa.field(name, pa.uint8()) for name in meta_names(schema)), *arrow_fields(schema)]
    return pa.RecordBatch.from_arrays([pa.array(opcode), pa.array(flags), *columns], schema=pa.schema(fields))


def encoded(block: pa.RecordBatch, bytes_max: int) -> list[bytes]:
    """Returns the block as one message, or halved until each message has at most `bytes_max` bytes. Raises MessageTooLarge if a
    single row is larger.
    """
    value = arrow_block.encode(block)
    if len(value) <= bytes_max:
        return [value]
    if len(block) == 1:
        raise MessageTooLarge(f"a row has {len(value)} bytes as a message; the limit is {bytes_max}")
    half = len(block) // 2
    return [*encoded(block.slice(0, half), bytes_max), *encoded(block.slice(half), bytes_max)]


class _Source:
    """The record of one source in one partition of the topic, and the writer of its chunks."""

    def __init__(self, source: PublishedSource, name: str) -> None:
        self._source, self._name = source, name
        self._position = source.read_source_position()
        self._given = 0

    def write(self, block: pa.RecordBatch, position: int, bytes_max: int) -> int:
        """Writes a chunk unless the topic has it. Returns the count of written rows. Raises UsageError if the topic has another
        chunk at `position`.
        """
        self._given = position
        while position > self._position.published_bytes:
            messages = encoded(block, bytes_max)
            reached = SourcePosition(position, _digest(block))
            before = [self._position] * (len(messages) - 1)
            try:
                if self._source.append(messages, [*before, reached], MessageFormat.ARROW.header):
                    self._position = reached
                    return len(block)
            except UnknownResult:
                pass
            self._position = self._source.read_source_position()
        if position == self._position.published_bytes and self._position.check not in ("", _digest(block)):
            raise self._others()
        return 0

    def check_end(self) -> None:
        """Raises UsageError if the topic has more chunks of this micro-batch than were written: other rows were published under the
        name.
        """
        if self._position.published_bytes > self._given and _micro_batch(self._position) == _micro_batch(
            SourcePosition(self._given)
        ):
            raise self._others()

    def _others(self) -> UsageError:
        return UsageError(f"other rows were published under the name {self._name!r}", hint="another table needs another name")


def _micro_batch(position: SourcePosition) -> int:
    """Returns the number of the newest micro-batch that is published, at least in part; 0 if none is."""
    return max(0, position.published_bytes - 1) >> _CHUNK_BITS


def _digest(block: pa.RecordBatch) -> str:
    """Returns a digest of a chunk's rows that does not depend on their Arrow layout."""
    numbers, rows = (column.cast(pa.uint8()).to_numpy().tobytes() for column in block.columns[:2]), block.columns[2:]
    texts = field_texts(pa.table(rows, names=[str(place) for place in range(len(rows))]), CsvStyle.EXACT)
    return content_digest(b"".join((*numbers, "\n".join(texts).encode())))
