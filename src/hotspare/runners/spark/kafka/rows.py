"""From the rows of Spark's Kafka source to raw batches, by whole columns: no Python code runs per message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.bus.contract import FORMAT_HEADER, TICK_HEADER
from hotspare.rows.batch import FORMAT_OF_HEADER, RAW_SCHEMA, MessageFormat
from hotspare.runners.contract import SourceTopic

NOT_A_MESSAGE = -1
"""Offset of a row that only keeps a query busy while it warms up."""

Bools = npt.NDArray[np.bool_]


def raw_batch(rows: pa.RecordBatch, formats: Sequence[MessageFormat]) -> pa.RecordBatch:
    """`rows` have the columns topic (index), partition, offset, time_us, headers and value; the result is of RAW_SCHEMA.

    `formats[i]`: how a message of topic i without a format header is written.
    """
    offsets = rows.column("offset")
    if len(offsets) and pc.min(offsets).as_py() < 0:
        rows = rows.filter(pc.greater_equal(offsets, 0))
    tick, format_ = _said_by_headers(rows, np.array(formats, np.int8))
    value = rows.column("value")
    columns = [rows.column(name) for name in ("topic", "partition", "offset", "time_us")]
    columns += [pa.array(tick), pa.array(format_), pc.fill_null(value, b"") if value.null_count else value]
    return pa.RecordBatch.from_arrays([_exactly(c, f.type) for c, f in zip(columns, RAW_SCHEMA, strict=True)], schema=RAW_SCHEMA)


def _exactly(column: pa.Array, type_: pa.DataType) -> pa.Array:
    return column if column.type == type_ else column.cast(type_)


def _said_by_headers(rows: pa.RecordBatch, defaults: npt.NDArray[np.int8]) -> tuple[Bools, npt.NDArray[np.int8]]:
    """Which messages are ticks, and how each is written."""
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


def _is(column: pa.Array, text: str | bytes) -> Bools:
    equal = pc.equal(column, pa.scalar(text, column.type)).to_numpy(zero_copy_only=False)
    return np.asarray(equal == np.True_, np.bool_)  # null is not equal


def in_order(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Raw batches, each of one partition, by (topic, partition, offset), whatever the order in which Spark's tasks gave them."""
    whole = [part for batch in batches for part in _of_one_partition(batch)]
    return sorted(whole, key=lambda b: tuple(b.column(name)[0].as_py() for name in ("topic", "partition", "offset")))


def _of_one_partition(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Runs of rows of one partition; offsets that do not rise begin a new one, so that sorting puts them right or the core's door
    refuses them."""
    if not batch.num_rows:
        return
    topic, partition, offset = (batch.column(name).to_numpy() for name in ("topic", "partition", "offset"))
    bounds = 1 + np.flatnonzero((topic[1:] != topic[:-1]) | (partition[1:] != partition[:-1]) | (offset[1:] <= offset[:-1]))
    for first, end in zip([0, *bounds.tolist()], [*bounds.tolist(), batch.num_rows], strict=True):
        yield batch.slice(first, end - first)


def default_formats(topics: Sequence[SourceTopic]) -> tuple[MessageFormat, ...]:
    return tuple(topic.format for topic in topics)
