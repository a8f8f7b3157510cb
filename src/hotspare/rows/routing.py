"""The partition of its topic in which an event belongs, if a project is sharded.

The partition is chosen by murmur2 over one canonical text of a field, as Java clients of Kafka choose the partition of a record by
its key. So any such client that writes that text as the key can publish. Publishers use this module, and the head checks events by
it. It is plain numpy, because the head does not load numba.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.model.partitioning import partition_fields
from hotspare.model.project import WindowId
from hotspare.model.resolved import Resolved
from hotspare.model.types import TIME_TYPES, Field, FieldType, Schema

_SEED = 0x9747B28C
_M = np.uint32(0x5BD1E995)
_POSITIVE = np.uint32(0x7FFFFFFF)
ROWS_ALONE_MAX = 64
"""Up to this many values are hashed one by one, more of them together, so that the cost depends on the bytes alone, whatever the
lengths."""
_REPEATING = (FieldType.INT32, FieldType.INT64, FieldType.DATE, FieldType.STAMP, FieldType.STRING)
"""Types in which equal values have the same text. Doubles are not among them: 0.0 equals -0.0."""
_PART_MIN = 1_000


@dataclass(frozen=True, slots=True)
class Routing:
    """The field (its index in the schema, and its type) that decides in which of `count` partitions an event belongs."""

    field: int
    type: FieldType
    count: int

    def partitions(self, column: pa.Array) -> npt.NDArray[np.int64]:
        """Returns the partition of each value of the field. Repeated values are hashed once."""
        if self.type not in _REPEATING or not _repeats(column):
            return key_partitions(canonical(column, self.type), self.count)
        coded = column.dictionary_encode(null_encoding="encode")
        found: npt.NDArray[np.int64] = key_partitions(canonical(coded.dictionary, self.type), self.count)[coded.indices.to_numpy()]
        return found


def _repeats(column: pa.Array) -> bool:
    """Whether values repeat: in the first quarter, at most half of the values are distinct. Only that part is checked, because the
    check must cost less than it saves."""
    part = len(column) // 4
    return part >= _PART_MIN and 2 * len(column.slice(0, part).unique()) <= part


def key_partitions(keys: pa.Array, count: int) -> npt.NDArray[np.int64]:
    """Returns the partition, 0 to `count` - 1, of each key of a binary array without nulls, as Java clients of Kafka choose it."""
    return (murmur2(keys) & _POSITIVE).astype(np.int64) % count


def routing_of(resolved: Resolved, source: WindowId, count: int) -> Routing | None:
    """Returns the routing of a source window's topic; None if the project is not sharded, or no field decides the partition."""
    field = partition_fields(resolved)[source] if count > 1 else ""
    return routing_by(resolved.schema(source), field, count)


def routing_by(schema: Schema, field: str, count: int) -> Routing | None:
    """Returns the routing by a field; None if there is one partition, or no such field."""
    if count < 2 or field not in schema.index:
        return None
    place = schema.index[field]
    return Routing(place, schema.fields[place].type, count)


def canonical(column: pa.Array, type_: FieldType) -> pa.Array:
    """Returns the values' texts, as UTF-8: text as it is; numbers in decimal, dates and stamps as their numbers; null is the empty
    text. The bytes of a blob are its text, be they UTF-8 or not."""
    if type_ is FieldType.BLOB:
        return column.fill_null(b"")
    if type_ in TIME_TYPES:
        column = column.cast(pa.int64())
    return column.cast(pa.string()).fill_null("").cast(pa.binary())


def message_key(schema: Schema) -> tuple[Field, ...]:
    """Returns the fields that form the message key if each row is a message of its own: the window's key fields, or all fields if
    it has no key."""
    return tuple(field for field in schema.fields if field.is_key) or schema.fields


def row_keys(rows: pa.RecordBatch, fields: Sequence[Field]) -> pa.Array:
    """Returns the message key of each row, as UTF-8: the `canonical` texts of `fields`, separated by commas."""
    texts = [canonical(rows.column(field.name), field.type) for field in fields]
    return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, b",")


def murmur2(values: pa.Array) -> npt.NDArray[np.uint32]:
    """Returns the 32-bit murmur2 of each value of a binary array without nulls, with the seed of Kafka's clients."""
    count = len(values)
    _, offsets_buffer, data_buffer = values.buffers()
    if not count:
        return np.zeros(0, np.uint32)
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    begin, length = offsets[:-1], np.diff(offsets)
    h = np.uint32(_SEED) ^ length.astype(np.uint32)
    rows, at = np.flatnonzero(length >= 4), 0
    while len(rows) > ROWS_ALONE_MAX:
        h[rows] = (h[rows] * _M) ^ _mixed(_word(data, begin[rows] + at, 4))
        at += 4
        rows = rows[length[rows] >= at + 4]
    for row in rows.tolist():
        words = data[begin[row] + at : begin[row] + length[row] // 4 * 4].view("<u4")
        h[row] = _carried(int(h[row]), _mixed(words))
    tail, rest = begin + length // 4 * 4, length % 4
    for size in (1, 2, 3):
        rows = np.flatnonzero(rest == size)
        h[rows] = (h[rows] ^ _word(data, tail[rows], size)) * _M
    h ^= h >> np.uint32(13)
    h *= _M
    return h ^ (h >> np.uint32(15))


def _carried(h: int, words: npt.NDArray[np.uint32]) -> int:
    """Returns the hash `h` with the words of one value mixed in, one after the other: each step needs the result of the previous
    one."""
    for word in words.tolist():
        h = (h * 0x5BD1E995 & 0xFFFFFFFF) ^ word
    return h


def _word(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.uint32]:
    """Returns, for each index in `at`, the `size` bytes of `data` from there on as a little-endian number."""
    value = np.zeros(len(at), np.uint32)
    for i in range(size):
        value |= data[at + i].astype(np.uint32) << np.uint32(8 * i)
    return value


def _mixed(k: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    k = k * _M
    return (k ^ (k >> np.uint32(24))) * _M
