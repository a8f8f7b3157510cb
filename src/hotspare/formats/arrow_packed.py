"""What a block would take once it is unpacked, found out before it is: a small message must not become any size.

Arrow's readers unpack packed buffers without asking, so the flag is read from the message's flatbuffer here. Dictionaries and views
may name one long text in every row; what they stand for is summed up before they are written out.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_Sizes = npt.NDArray[np.int64]
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_HEADER_TYPE, _HEADER, _DATA, _COMPRESSION = 1, 2, 1, 3
"""Numbers of members, as Arrow's Message.fbs has them: of Message, of DictionaryBatch, of RecordBatch."""


def is_packed(value: bytes) -> bool:
    """Whether an Arrow IPC stream has packed buffers. ArrowInvalid or struct.error where it is damaged."""
    return any(is_packed_batch(message.metadata.to_pybytes()) for message in pa.ipc.MessageReader.open_stream(value))


def is_packed_batch(table: bytes) -> bool:
    """Of one message, by its metadata."""
    root = _followed(table, 0)
    kind_at, header_at = _member(table, root, _HEADER_TYPE), _member(table, root, _HEADER)
    kind = table[kind_at] if 0 < kind_at < len(table) else 0
    if not header_at or kind not in (_DICTIONARY_BATCH, _RECORD_BATCH):
        return False
    batch = _followed(table, header_at)
    if kind == _DICTIONARY_BATCH:
        data_at = _member(table, batch, _DATA)
        if not data_at:
            return False
        batch = _followed(table, data_at)
    return _member(table, batch, _COMPRESSION) != 0


def _followed(table: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", table, at)[0])


def _member(table: bytes, at: int, number: int) -> int:
    """Where a member of the table at `at` stands; 0 where it is absent."""
    layout = at - int(struct.unpack_from("<i", table, at)[0])
    if not 0 <= layout < len(table):
        raise struct.error("a table's layout lies outside")
    size = struct.unpack_from("<H", table, layout)[0]
    place = 4 + 2 * number
    offset = struct.unpack_from("<H", table, layout + place)[0] if place + 2 <= size else 0
    return at + int(offset) if offset else 0


def text_bytes(column: pa.Array) -> int:
    """How many bytes of text a validated column stands for where its rows may share them; 0 where each has its own."""
    return int(_sizes(column).sum()) if _is_shared(column) else 0


def _is_shared(column: pa.Array) -> bool:
    if isinstance(column, pa.ExtensionArray):
        return _is_shared(column.storage)
    return pa.types.is_dictionary(column.type) or _is_view(column.type)


def _is_view(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(type_) or pa.types.is_binary_view(type_))


def _sizes(column: pa.Array) -> _Sizes:
    """Of the text of each row; 0 of what is none."""
    if isinstance(column, pa.ExtensionArray):
        return _sizes(column.storage)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_dictionary(column.type):
        words = np.append(_sizes(column.dictionary), 0)
        return np.where(valid, words[column.indices.fill_null(0).to_numpy()], 0)
    if _is_view(column.type):
        views = column.buffers()[1]
        lengths = np.frombuffer(views, np.int32)[0::4] if views is not None else np.zeros(0, np.int32)
        return np.where(valid, lengths[column.offset : column.offset + len(column)], 0).astype(np.int64)
    if isinstance(column, pa.StringArray | pa.LargeStringArray | pa.BinaryArray | pa.LargeBinaryArray):
        return np.asarray(pc.binary_length(column).fill_null(0).to_numpy(), np.int64)
    return np.zeros(len(column), np.int64)
