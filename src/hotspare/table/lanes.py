"""Conversion of Arrow columns to 64-bit lanes and back (`rows.chunk`): only this module knows how each field type is a lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from hotspare.model.types import FieldType, Schema
from hotspare.rows.arrays import ELEMENT, packed, unpacked
from hotspare.rows.batch import ARROW_TYPE, output_schema
from hotspare.rows.chunk import Bools, Int64s, all_true, is_all
from hotspare.rows.elementwise import valid_mask
from hotspare.table.loops.outputs import split_columns, split_lanes
from hotspare.table.strings import StringTable

CODED = (FieldType.STRING, FieldType.BLOB, *ELEMENT)
_INT32, _MONEY = FieldType.INT32, FieldType.MONEY
_PLAIN = (FieldType.INT64, FieldType.DOUBLE, FieldType.DATE, FieldType.STAMP)


def coded_columns(schema: Schema) -> tuple[int, ...]:
    """Returns the indexes of fields that are stored as codes of the string table."""
    return tuple(i for i, f in enumerate(schema.fields) if f.type in CODED)


@dataclass(frozen=True)
class OutputForm:
    """Facts about a stream's outputs, computed once because that costs more than a small batch."""

    schema: Schema

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of the outputs, from `batch.output_schema`."""
        return output_schema(self.schema)

    @cached_property
    def _names(self) -> list[str]:
        return list(self.arrow.names)

    def batch(self, columns: list[pa.Array]) -> pa.RecordBatch:
        """Returns the columns, which have the types of `arrow`, as a batch. Does not validate them: that costs more than a small
        batch."""
        return pa.RecordBatch.from_arrays(columns, names=self._names)

    @cached_property
    def coded(self) -> tuple[int, ...]:
        return coded_columns(self.schema)

    @cached_property
    def is_plain(self) -> bool:
        """Whether the lanes of each field are its Arrow values."""
        return all(f.type in _PLAIN for f in self.schema.fields)

    @cached_property
    def is_coded(self) -> Bools:
        """bool[fields]: whether a field holds codes of the string table."""
        return np.array([f.type in CODED for f in self.schema.fields], np.bool_)


def to_lane(array: pa.Array, type_: FieldType, strings: StringTable) -> tuple[Int64s, Bools]:
    """Returns lane int64[n] and validity bool[n] of an Arrow array of `ARROW_TYPE[type_]`."""
    if type_ in CODED:
        return strings.intern(packed(array) if type_.is_array else array)
    lane, valid = _number_lane(array, type_)
    return lane, all_true(len(array)) if valid is None else valid


def _number_lane(array: pa.Array, type_: FieldType) -> tuple[Int64s, Bools | None]:
    """Returns the lane of an array of numbers, and its validity; None if no entry is null."""
    nulls, count = array.null_count, len(array)
    if nulls == count:
        return np.zeros(count, np.int64), np.zeros(count, np.bool_)
    lane = _numbers(array, type_)
    if not nulls:
        return lane, None
    valid = valid_mask(array)
    return np.where(valid, lane, 0), valid


def _numbers(array: pa.Array, type_: FieldType) -> Int64s:
    """Returns the values of the lane of an array that is not empty or all null; the entries of nulls are undefined."""
    buffer, begin, count = array.buffers()[1], array.offset, len(array)
    end = begin + count
    if type_ is _INT32:
        return np.frombuffer(buffer, np.int32)[begin:end].astype(np.int64)
    if type_ is _MONEY:  # 18 digits fit the low word of the 128 bits, sign included
        return np.ascontiguousarray(np.frombuffer(buffer, np.int64)[0::2][begin:end])
    return np.frombuffer(buffer, np.int64, count, 8 * begin)


def to_lanes(arrays: Sequence[pa.Array], schema: Schema, strings: StringTable, rows: Int64s | None = None) -> tuple[Int64s, Bools]:
    """Returns lanes int64[n, width] and validity bool[n, width] of one Arrow array per field, or of their elements `rows`."""
    count = len(arrays[0]) if rows is None else len(rows)
    lanes, valid = np.empty((count, len(schema)), np.int64), np.empty((count, len(schema)), np.bool_)
    valid.fill(True)  # noqa: FBT003
    for i, (array, field) in enumerate(zip(arrays, schema.fields, strict=True)):
        if field.type in CODED:
            lanes[:, i], valid[:, i] = to_lane(array if rows is None else array.take(pa.array(rows)), field.type, strings)
            continue
        lane, mask = _number_lane(array, field.type)
        lanes[:, i] = lane if rows is None else lane[rows]
        if mask is not None:
            valid[:, i] = mask if rows is None else mask[rows]
    return lanes, valid


def to_arrow(lane: Int64s, valid: Bools, type_: FieldType, strings: StringTable) -> pa.Array:
    """Returns the Arrow array of `ARROW_TYPE[type_]` for a lane and its validity, which may have any stride and are copied."""
    return _array(lane.copy(), None if is_all(valid) else valid, type_, strings)


def to_arrow_columns(lanes: Int64s, valid: Bools, schema: Schema, strings: StringTable) -> list[pa.Array]:
    """Returns one Arrow array per field of lanes int64[n, width] and validity bool[n, width]."""
    count, width = lanes.shape
    columns = np.empty((width, count), np.int64)
    if valid.all():
        split_lanes(lanes, columns)
        return [_array(columns[i], None, f.type, strings) for i, f in enumerate(schema.fields)]
    masks, nulls = np.empty((width, count), np.bool_), np.zeros(width, np.int64)
    split_columns(lanes, valid, columns, masks, nulls)
    some = nulls.tolist()
    return [_array(columns[i], masks[i] if some[i] else None, f.type, strings) for i, f in enumerate(schema.fields)]


def _array(lane: Int64s, valid: Bools | None, type_: FieldType, strings: StringTable) -> pa.Array:
    """Returns the Arrow array of a contiguous lane, which may share the lane's memory. `valid` is None if no entry is null."""
    if type_ in CODED:
        known, arrow = np.ones(len(lane), np.bool_) if valid is None else valid, ARROW_TYPE[type_]
        return unpacked(strings.arrow(lane, known, pa.binary()), arrow) if type_.is_array else strings.arrow(lane, known, arrow)
    mask = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(ARROW_TYPE[type_], len(lane), [mask, _values(lane, type_)])


def _values(lane: Int64s, type_: FieldType) -> pa.Buffer:
    values: np.ndarray[Any, Any]
    if type_ is _INT32:
        values = lane.astype(np.int32)
    elif type_ is _MONEY:
        values = np.empty((len(lane), 2), np.int64)
        values[:, 0] = lane
        values[:, 1] = lane >> 63
    else:
        values = lane
    return pa.py_buffer(values)
