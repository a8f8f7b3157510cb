"""A short way through blocks of input that begin as one did that was looked at: a writer writes the same columns again and again.

What a block's columns are is told by its first bytes. They are looked at once; of each block that begins so, only its one batch of
rows is left to read. Whatever is not as usual about a block goes the long way (`arrow_block`), which says what is wrong with it.
Both ways give the same rows.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from hotspare.formats.arrow_packed import is_packed_batch

BEGIN_BYTES_MAX = 16 * 1024
"""Of the first bytes that are remembered; beginnings that are longer are looked at each time."""
_BEGINNINGS_MAX = 64
_MARK = b"\xff\xff\xff\xff"
END_OF_STREAM = _MARK + b"\0\0\0\0"
_RECORD_BATCH = "record batch"


@dataclass(frozen=True, slots=True)
class Columns:
    """`places` of the fields, in their order, and of opcode and flags where the block has them."""

    schema: pa.Schema
    places: tuple[int, ...]
    opcode: int | None
    flags: int | None


def beginning(value: bytes) -> bytes | None:
    """The part of an Arrow IPC stream that tells of its columns; None where it does not begin as usual."""
    if len(value) < 8 or value[:4] != _MARK:
        return None
    size = 8 + int(struct.unpack_from("<i", value, 4)[0])
    return value[:size] if 8 < size <= min(len(value), BEGIN_BYTES_MAX) else None


@lru_cache(maxsize=_BEGINNINGS_MAX)
def columns_of(
    begin: bytes, fields: tuple[tuple[str, pa.DataType], ...], opcode: tuple[str, str], flags: tuple[str, str]
) -> Columns | None:
    """None unless every column is of plain values, each once, and those of the fields have their very types: then nothing has to be
    converted, and no two rows share what they hold."""
    try:
        with pa.ipc.open_stream(begin) as reader:
            schema, names = reader.schema, reader.schema.names
    except (pa.ArrowException, OSError, EOFError, ValueError):
        return None
    if len(set(names)) < len(names) or not all(map(is_plain, schema.types)):
        return None
    places = {name: place for place, name in enumerate(names)}
    if any(name not in places or schema.types[places[name]] != type_ for name, type_ in fields):
        return None
    meta = [next((places[name] for name in each if name in places), None) for each in (opcode, flags)]
    if any(place is not None and not pa.types.is_integer(schema.types[place]) for place in meta):
        return None
    return Columns(schema, tuple(places[name] for name, _ in fields), *meta)


def is_plain(type_: pa.DataType) -> bool:
    """Whether each row of a column has a value of its own, which does not consist of others."""
    return bool(
        pa.types.is_primitive(type_) or pa.types.is_boolean(type_) or pa.types.is_string(type_) or pa.types.is_binary(type_)
    )


def rows_behind(value: bytes, begin: bytes, columns: Columns) -> pa.RecordBatch | None:
    """The one batch of a block; None where it has another number of them, is packed or damaged, or something follows it."""
    try:
        at = len(begin)
        message = pa.ipc.read_message(pa.py_buffer(value)[at:])
        body = message.body
        end = at + 8 + int(struct.unpack_from("<i", value, at + 4)[0]) + (0 if body is None else body.size)
        is_usual = message.type == _RECORD_BATCH and value[at : at + 4] == _MARK and value[end : end + 9] in (END_OF_STREAM, b"")
        if not is_usual or is_packed_batch(message.metadata.to_pybytes()):
            return None
        batch = pa.ipc.read_record_batch(message, columns.schema)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, ValueError, KeyError, struct.error):
        return None
    return batch
