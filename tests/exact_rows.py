"""Rows of Arrow columns as tuples that are equal exactly if the columns' bits are: NaN is NaN, and 0.0 is not -0.0.

Times are numbers here: a stamp may have any value, and Python's dates have a smaller range.
"""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]


def exact_rows(columns: pa.RecordBatch | pa.Table) -> list[Row]:
    """Returns the rows in order; doubles as text that shows them and has their bits."""
    return list(zip(*(_exact(column) for column in columns.columns), strict=True))


def _exact(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return list(map(_exact_double, values)) if pa.types.is_floating(column.type) else values


def _exact_double(value: float | None) -> str | None:
    return None if value is None else f"{struct.pack('<d', value).hex()} {value!r}"
