"""Messages as a bus gives them to a head, made by a benchmark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hotspare.rows.batch import RAW_SCHEMA, MessageFormat


def raw(values: Sequence[bytes], format_: MessageFormat, first_offset: int = 0) -> pa.RecordBatch:
    """One partition's messages in order; the append time of each is its offset."""
    count = len(values)
    offsets = range(first_offset, first_offset + count)
    columns: Sequence[Sequence[object]] = ([0] * count, [0] * count, offsets, offsets, [False] * count, [format_] * count, values)
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, RAW_SCHEMA, strict=True)], schema=RAW_SCHEMA)
