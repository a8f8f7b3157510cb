"""Events as rows of bytes, and back: what the machine's `rows.lua` takes apart and puts together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.model.types import FieldType, Schema
from hotspare.rows.batch import ARROW_TYPE
from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.scripting.contract import GivenEvents

GROUP = 48
"""Fields that share one mask of nulls; as in `rows.lua`."""

_TEXTS = (FieldType.STRING, FieldType.BLOB)
_GIVEN_KIND = {FieldType.DOUBLE: b"d", FieldType.MONEY: b"d", FieldType.STRING: b"s", FieldType.BLOB: b"s"}
_MADE_KIND = {
    FieldType.INT32: b"i4",
    FieldType.INT64: b"i8",
    FieldType.DATE: b"i8",
    FieldType.STAMP: b"i8",
    FieldType.DOUBLE: b"d",
    FieldType.STRING: b"s",
    FieldType.BLOB: b"b",
}
_JUDGED_OUTSIDE = b"o"


def given_kinds(schema: Schema) -> list[bytes]:
    """How each field of an event comes in."""
    return [_GIVEN_KIND.get(field.type, b"i") for field in schema.fields]


def made_kinds(schema: Schema) -> list[bytes]:
    """How each field of an event goes out."""
    return [_MADE_KIND.get(field.type, _JUDGED_OUTSIDE) for field in schema.fields]


def packed(events: GivenEvents) -> tuple[bytes, bytes]:
    """The rows, and the one text that the texts in them stand in."""
    count, fields = len(events), events.schema.fields
    columns: list[npt.NDArray[Any]] = []
    texts: list[bytes] = []
    text_length = 0
    for first in range(0, max(len(fields), 1), GROUP):
        nulls = np.zeros(count, np.int64)
        for bit, (field, column) in enumerate(
            zip(fields[first : first + GROUP], events.columns[first : first + GROUP], strict=True)
        ):
            if column.null_count:
                nulls |= column.is_null().to_numpy(zero_copy_only=False).astype(np.int64) << bit
            if field.type in _TEXTS:
                offsets, text = _text(column)
                columns += [offsets[:-1] + (text_length + 1), offsets[1:] + text_length]
                texts.append(text)
                text_length += len(text)
            else:
                columns.append(_lane(column, field.type))
        columns.append(nulls)
    columns += [events.opcode.astype(np.int64), events.time_us, events.seeds.view(np.int64)]
    return np.stack(columns, axis=1).tobytes(), b"".join(texts)


def _text(column: pa.Array) -> tuple[Int64s, bytes]:
    """Offsets from 0, and the bytes."""
    _, offset_buffer, data = column.buffers()
    if offset_buffer is None or not len(column):
        return np.zeros(len(column) + 1, np.int64), b""
    offsets = np.frombuffer(offset_buffer, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    begin, end = int(offsets[0]), int(offsets[-1])
    return offsets - begin, b"" if data is None else data.slice(begin, end - begin).to_pybytes()


def _lane(column: pa.Array, type_: FieldType) -> Int64s:
    """64 bits a value, 0 for null."""
    if type_ is FieldType.MONEY:
        column = column.cast(pa.float64())
    elif type_ is not FieldType.DOUBLE:
        column = column.cast(pa.int64())
    if column.null_count:
        column = column.fill_null(0)
    lane: Int64s = np.ascontiguousarray(column.to_numpy(zero_copy_only=False)).view(np.int64)
    return lane


def unpacked(count: int, rows: bytes, texts: Sequence[bytes], schema: Schema) -> tuple[Int64s, UInt8s, list[pa.Array]]:
    """For each event the number of the one that made it, its opcode, and its fields, of `ARROW_TYPE`. Texts may be no UTF-8, and
    what the machine does not judge is null."""
    width = 2 + len(schema) + max(1, -(-len(schema) // GROUP))
    lanes = np.frombuffer(rows, np.int64).reshape(count, width)
    columns: list[pa.Array] = []
    remaining, at = iter(texts), 2
    for first in range(0, len(schema), GROUP):
        nulls = lanes[:, at]
        at += 1
        for bit, field in enumerate(schema.fields[first : first + GROUP]):
            valid = (nulls >> bit & 1) == 0
            lane = np.ascontiguousarray(lanes[:, at])
            at += 1
            kind = _MADE_KIND.get(field.type, _JUDGED_OUTSIDE)
            columns.append(_column(lane, valid, field.type, next(remaining) if kind in (b"s", b"b") else b""))
    return lanes[:, 0] - 1, lanes[:, 1].astype(np.uint8), columns


def _column(lane: Int64s, valid: Bools, type_: FieldType, text: bytes) -> pa.Array:
    arrow, count = ARROW_TYPE[type_], len(lane)
    if _MADE_KIND.get(type_) is None:
        return pa.nulls(count, arrow)
    mask = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    if type_ in _TEXTS:
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(lane, out=offsets[1:])
        return pa.Array.from_buffers(arrow, count, [mask, pa.py_buffer(offsets), pa.py_buffer(text)])
    values = lane.astype(np.int32) if type_ is FieldType.INT32 else lane
    return pa.Array.from_buffers(arrow, count, [mask, pa.py_buffer(values)])
