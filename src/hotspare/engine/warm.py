"""Runs a few made-up events through a plan, so that its kernels are compiled or loaded before the first real one comes.

The state that comes of it is thrown away; nothing of it can reach an output.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from hotspare.engine.batch import RAW_SCHEMA, MessageFormat
from hotspare.engine.head import Head
from hotspare.engine.pipeline import Pipeline
from hotspare.engine.plan import Plan
from hotspare.model.types import FieldType, Schema

_SAMPLES: dict[FieldType, tuple[str, str]] = {
    FieldType.INT32: ("1", "2"),
    FieldType.INT64: ("1", "2"),
    FieldType.DOUBLE: ("1.5", "2.5"),
    FieldType.STRING: ("a", "b"),
    FieldType.DATE: ("1", "2"),
    FieldType.STAMP: ("1", "2"),
    FieldType.MONEY: ("1.25", "2.5"),
    FieldType.BLOB: ("", ""),
}
_HOUR_US = 3_600_000_000


def warm_up(plan: Plan, head: Head) -> None:
    """Insert, upsert, delete and tick through every window, hours apart, and write and read the state once."""
    pipeline = Pipeline.fresh(plan)
    for offset, messages in enumerate(_rounds(plan)):
        pipeline.feed(head(_raw(offset, messages)))
    frozen = pipeline.freeze()
    Pipeline.restore(plan, frozen.header, dict(frozen.pages()))


def _rounds(plan: Plan) -> Iterator[list[tuple[int, bytes | None]]]:
    """Per offset the messages (topic, CSV row or None for a tick)."""
    schemas = [plan.resolved.schema(source) for source in plan.resolved.sources]
    for opcode, second in (("i", 0), ("i", 1), ("p", 0), ("d", 1)):
        yield [(topic, _row(opcode, schema, second)) for topic, schema in enumerate(schemas)]
        yield [(topic, None) for topic in range(len(schemas))]


def _row(opcode: str, schema: Schema, second: int) -> bytes:
    values = (_SAMPLES[field.type][second] for field in schema.fields)
    return ",".join([opcode, "n", *values]).encode()


def _raw(offset: int, messages: list[tuple[int, bytes | None]]) -> pa.RecordBatch:
    count = len(messages)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([topic for topic, _ in messages], pa.int32()),
            pa.array([0] * count, pa.int32()),
            pa.array([offset] * count, pa.int64()),
            pa.array([offset * _HOUR_US] * count, pa.int64()),
            pa.array([row is None for _, row in messages], pa.bool_()),
            pa.array([int(MessageFormat.CSV)] * count, pa.int8()),
            pa.array([row or b"" for _, row in messages], pa.binary()),
        ],
        schema=RAW_SCHEMA,
    )
