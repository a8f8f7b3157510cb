"""A table, or one that grows, into the inbound topic of a source window: every row once, however often Spark tries.

    rows ──► their partition of the topic ──► put in order ──► chunks of a fixed number of rows ──► the topic, each chunk once

A chunk is written in one transaction together with its number, (micro-batch, chunk), in the record of the source; whoever comes
with one that the record has, a second attempt or a task that was thought to be dead, writes nothing. So chunks have to be the same
at each attempt: that is why rows are put into a total order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from hotspare.adapters.failover.source_position import PublishedSource, SourcePosition
from hotspare.bus.contract import Bus, Partition
from hotspare.bus.limits import topic_missing
from hotspare.bus.open import open_bus
from hotspare.engine.codec import arrow_block
from hotspare.engine.codec.json.plain import meta_names
from hotspare.engine.routing import Routing, routing_by
from hotspare.engine.rows.batch import MessageFormat, arrow_fields
from hotspare.errors import MessageTooLarge, UnknownResult, UsageError
from hotspare.model.types import Schema
from hotspare.runners.spark.arrow_map import OnBatches, map_in_arrow
from hotspare.spark.columns import to_field
from hotspare.spark.given import GivenTable, Names, order_column, ordered_by, ties_completed
from hotspare.spark.in_task import event_numbers, field_column
from hotspare.spark.on_bus import WindowName, check_place, window_on_bus

CHUNK_ROWS = 1_000
"""Rows that are written at once. A part of what makes chunks the same at each attempt."""
_CHUNK_BITS = 32
_PARTITION = "partition"
_HEADERS_BYTES = 4_096
"""Room for what a message has beside its value."""


def publish(
    table: DataFrame,
    *,
    bus: str,
    window: str,
    name: str,
    order_by: Names,
    prefix: str = "hotspare",
    project: str = "",
    begin: int | None = None,
) -> Any:
    """Publish rows to the source window PROJECT/CQ/WINDOW on a bus, in order of `order_by`, what is equal there by all fields.

    `name` is what the topic remembers the rows by: the same table under the same name is published once, however often this is
    called, and goes on where it was interrupted; so another table needs another name. Columns are as `apply` has them. `project` is
    the project's file, where no engine has told the bus of it yet. `begin` 0 says that nothing was published under the name before,
    where the topic cannot tell because it has forgotten its beginning.

    Of a table that stands, returns how many rows were written by this call. Of one that grows, returns Spark's writer: give it a
    checkpoint and start it. Its micro-batches are told apart by their numbers, so a new checkpoint needs a new name.
    """
    check_place(bus)
    target = _Target.of(bus, prefix, WindowName.parse(window), project, name, begin)
    if table.isStreaming:
        if not name:
            raise UsageError("a table that grows needs a name under which it is published")
        return table.writeStream.queryName(name).foreachBatch(lambda rows, number: _written(rows, number, target, order_by))
    return _written(table, 0, target, order_by)


@dataclass(frozen=True)
class _Target:
    """The topic of a window, and as whose rows they are written."""

    bus: str
    topic: str
    window: str
    schema: Schema
    routing: Routing | None
    count: int
    name: str
    begin: int | None

    @classmethod
    def of(cls, url: str, prefix: str, window: WindowName, file: str, name: str, begin: int | None) -> _Target:
        bus = open_bus(url)
        try:
            found = window_on_bus(bus, prefix, window, file)
            if not found.inbound:
                raise UsageError(f"window {'/'.join(window)} takes no events", hint="name a source window")
            count = bus.topics().get(found.inbound)
            if count is None:
                raise topic_missing(found.inbound)
            if count > 1 and file:
                found = window_on_bus(bus, prefix, window, file, count)
        finally:
            bus.close()
        routing = routing_by(found.schema, found.partition_by, count)
        if count > 1 and routing is None:
            what = f"topic {found.inbound} has {count} partitions, and nothing says in which a row belongs"
            raise UsageError(what, hint="say `partition_by:` of the source window, or name the project's file")
        return cls(url, found.inbound, "/".join(window[1:]), found.schema, routing, count, name, begin)


def _written(table: DataFrame, number: int, target: _Target, order_by: Names) -> int:
    """Publish the rows of one micro-batch; how many were new."""
    given = GivenTable.of(0, target.window, target.schema, table, ordered_by(order_by, target.window))
    rows = table.select(*given.orders(), *given.fields(), *given.metas(list(given.meta())))
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
    """Gives every row the partition that it belongs in."""

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
    """Of each chunk how many rows were new."""
    allowed = bus.message_bytes_max([target.topic])[target.topic] - _HEADERS_BYTES
    sources: dict[int, _Source] = {}
    for partition, place, rows in chunks(batches):
        if partition not in sources:
            where = Partition(target.topic, partition)
            sources[partition] = _Source(PublishedSource(bus, where, f"spark {target.name}", target.begin))
        block = _block(rows, target.schema)
        yield sources[partition].write(lambda block=block: encoded(block, allowed), (number << _CHUNK_BITS) + place + 1, len(block))  # type: ignore[misc]


def chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Rows of one partition each, CHUNK_ROWS of them or the last ones: the partition, the chunk's number there, and its rows. The
    rows of a partition stand together; where batches end does not matter."""
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
    """As messages have it."""
    opcode, flags = event_numbers(rows)
    columns = [to_field(rows.column(field_column(0, place)), field.type) for place, field in enumerate(schema.fields)]
    fields = [*(pa.field(name, pa.uint8()) for name in meta_names(schema)), *arrow_fields(schema)]
    return pa.RecordBatch.from_arrays([pa.array(opcode), pa.array(flags), *columns], schema=pa.schema(fields))


def encoded(block: pa.RecordBatch, bytes_max: int) -> list[bytes]:
    """One message, or halves and halves of them where it would be too large."""
    value = arrow_block.encode(block)
    if len(value) <= bytes_max:
        return [value]
    if len(block) == 1:
        raise MessageTooLarge(f"a row has {len(value)} bytes as a message, {bytes_max} are allowed")
    half = len(block) // 2
    return [*encoded(block.slice(0, half), bytes_max), *encoded(block.slice(half), bytes_max)]


class _Source:
    """What is published of one source on one partition of the topic."""

    def __init__(self, source: PublishedSource) -> None:
        self._source = source
        self._position = source.look()

    def write(self, values: Callable[[], list[bytes]], position: int, rows: int) -> int:
        """Write a chunk unless it is on the topic; how many rows were written."""
        while position > self._position.published_bytes:
            messages = values()
            reached = SourcePosition(position)
            before = [self._position] * (len(messages) - 1)
            try:
                if self._source.append(messages, [*before, reached], MessageFormat.ARROW.header):
                    self._position = reached
                    return rows
            except UnknownResult:
                pass
            self._position = self._source.look()
        return 0
