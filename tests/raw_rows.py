"""Builds raw batches, as a runner gives them to a head, from rows that a test writes down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa

from hotspare.rows.batch import RAW_SCHEMA

RawRow: TypeAlias = tuple[int, int, int, int, bool, int, bytes]
"""Topic, partition, offset, append time in microseconds, whether it is a tick, `MessageFormat`, value."""


def raw_of(rows: Sequence[RawRow]) -> pa.RecordBatch:
    """Returns a batch of `RAW_SCHEMA`."""
    columns = [[row[place] for row in rows] for place in range(len(RAW_SCHEMA))]
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, RAW_SCHEMA, strict=True)], schema=RAW_SCHEMA)
