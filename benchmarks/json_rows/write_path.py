"""The rows of these measurements, and an engine's path from its outputs in memory to the end of their transaction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import psutil
import pyarrow as pa

from hotspare.bus.contract import Commit, Progress
from hotspare.bus.open import open_bus
from hotspare.formats import arrow_block
from hotspare.ha.outputs.blocks import MessageSizes, messages_of
from hotspare.ha.rules.settings import GroupSettings, OutputStream
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.batch import output_schema

KEY = Field("id", FieldType.INT64, KeyRole.KEY)
SCHEMA = Schema((KEY, Field("card", FieldType.STRING), Field("amount", FieldType.DOUBLE)))
SETTINGS: dict[str, str | int] = {
    "enable.idempotence": "true",
    "acks": "all",
    "linger.ms": 5,
    "batch.size": 512 * 1024,
    "compression.type": "lz4",
}
"""Settings of the other producers, by names that both clients know."""

Arm = Callable[[int], None]
"""Writes that many transactions."""


def outputs(rows: int) -> pa.RecordBatch:
    """Returns the rows that `JsonRows.java` writes, as an engine holds them."""
    number = np.arange(rows)
    columns = [
        number,
        np.zeros(rows),
        np.zeros(rows),
        number,
        np.zeros(rows),
        np.zeros(rows),
        number * 7919,
        np.ones(rows),
        np.ones(rows),
    ]
    columns += [number, pa.array([f"card-{each % 1000}" for each in range(rows)]), number * 0.25]
    schema = output_schema(SCHEMA)
    return pa.RecordBatch.from_arrays([pa.array(c).cast(f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def written_by_engine(url: str, rows: int, output: OutputStream) -> Arm:
    """Returns an arm that makes messages of held outputs and publishes them, as an engine does."""
    bus, batch, sizes = open_bus(url), outputs(rows), MessageSizes(GroupSettings().message_rows_max)
    producer = bus.producer(f"bench.{output.topic}", [output.topic])
    producer.fence(1)
    last = Progress(rows, None, 1, 1)

    def write(transactions: int) -> None:
        for _ in range(transactions):
            blocks = sizes.split_messages([batch], output, 1, arrow_block)
            producer.publish(1, Commit({output.topic: messages_of(blocks)}, {output.stream: last}))

    return write


def cpu_s(process: psutil.Process) -> float:
    """Returns the processor time of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)
