"""Refuses to start where a topic could not take the smallest message of its stream: no cutting would help (SPEC B13)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hotspare.base.errors import UsageError
from hotspare.bus.contract import Bus
from hotspare.formats import arrow_block
from hotspare.ha.outputs.message import output_message, row_messages
from hotspare.ha.rules.settings import OutputStream
from hotspare.model.types import Schema
from hotspare.rows.batch import output_schema

_EPOCH = 1


def check_message_sizes(bus: Bus, streams: Sequence[tuple[OutputStream, Schema]]) -> None:
    """UsageError naming each topic whose limit is less than one row without values, with the setting to raise."""
    taken = bus.message_bytes_max([output.topic for output, _ in streams])
    found = []
    for output, schema in streams:
        row, limit = smallest_row(schema), taken[output.topic]
        if output.message_key:
            (message,) = row_messages(row, output.format, _EPOCH, output.message_key)
        else:
            message = output_message(row, output.format, _EPOCH, arrow_block)
        needed = message.size_bytes
        if needed > limit:
            found.append(f"topic {output.topic} takes {limit} bytes, one row of stream {output.stream} needs {needed}")
    if found:
        raise UsageError(
            "an output topic takes less than one row of its stream",
            detail="\n  ".join(found),
            hint="raise what they take: on Kafka max.message.bytes of the topic, and message.max.bytes where the bus's URL sets it",
        )


def smallest_row(schema: Schema) -> pa.RecordBatch:
    """One output that says where it stands, and nothing else."""
    whole = output_schema(schema)
    place = len(whole) - len(schema.fields)
    columns = [pa.array([0], pa.int64()).cast(each.type) if i < place else pa.nulls(1, each.type) for i, each in enumerate(whole)]
    return pa.RecordBatch.from_arrays(columns, schema=whole)
