"""Output batches for tests of held and published outputs."""

from __future__ import annotations

import pyarrow as pa

from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.batch import output_schema

SCHEMA = output_schema(Schema((Field("k", FieldType.INT64, KeyRole.KEY), Field("text", FieldType.STRING))))


def digest(sequence: int) -> int:
    return sequence * 0x9E3779B97F4A7C15 & ((1 << 64) - 1)


def outputs(first: int, last: int) -> pa.RecordBatch:
    """Returns the outputs `first`..`last` of a stream, each caused by the event at the offset of its sequence."""
    n = range(first, last + 1)
    columns: list[list[object]] = [list(n), [0 for _ in n], [0 for _ in n], list(n), [0 for _ in n], [0 for _ in n]]
    columns += [[digest(i) for i in n], [1 for _ in n], [1 for _ in n], list(n), [f"row {i}" for i in n]]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)
