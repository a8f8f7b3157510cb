"""Decoded batches of a project with one inbound topic, for measurements of the core alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hotspare.flow.plan import Plan
from hotspare.rows.batch import decoded_schema


def events_of(plan: Plan, fields: Sequence[pa.Array], opcode: np.ndarray, begin: int) -> pa.RecordBatch:
    """Returns events with these values, field by field, and opcodes uint8[n], at offsets from `begin` on, which is also their
    time."""
    schema, count = decoded_schema(plan.entry_schemas), len(opcode)
    zeros = pa.array(np.zeros(count, np.int32))
    columns = {
        "topic": zeros,
        "partition": zeros,
        "offset": pa.array(np.arange(begin, begin + count)),
        "index": zeros,
        "time_us": pa.array(np.full(count, begin)),
        "kind": pa.array(np.zeros(count, np.int8)),
        "opcode": pa.array(opcode),
        "flags": pa.array(np.ones(count, np.uint8)),
        "e0": pa.StructArray.from_arrays(list(fields), fields=list(schema.field("e0").type)),
        "bad": pa.nulls(count, schema.field("bad").type),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
