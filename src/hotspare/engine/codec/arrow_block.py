"""A block of events as one message: an Arrow IPC stream.

Outputs are published so, exactly; input may come so too, with columns opcode and flags and the fields by name.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.engine.codec.arrow_packed import is_packed, text_bytes
from hotspare.engine.codec.csv.decode import DecodedRows, kept_rows
from hotspare.engine.codec.csv.split import numbered
from hotspare.engine.rows.bad_reasons import RowReason
from hotspare.engine.rows.batch import arrow_fields
from hotspare.engine.rows.chunk import Bools, Int64s
from hotspare.engine.rows.elementwise import Rows
from hotspare.engine.rows.refusals import NO_BAD_ROWS, BadRows
from hotspare.errors import BusError
from hotspare.model.events import Flag, Opcode
from hotspare.model.types import Schema

BLOCK_ROWS_MAX = 10_000_000
"""Limit on the rows of one block that is read; nor has one more rows than bytes."""
TEXT_BYTES_MAX = 64 * 1024 * 1024
"""Limit on the texts of a block that its rows share, each written out: as much as the largest message."""
_OPCODE_NAMES = ("opcode", "hs:opcode")
_FLAGS_NAMES = ("flags", "hs:flags")


def encode(rows: pa.RecordBatch) -> bytes:
    """The batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue().to_pybytes())


def decode(value: bytes) -> pa.RecordBatch:
    """What `encode` wrote; BusError where the value is anything else, however damaged."""
    try:
        if is_packed(value):
            raise BusError("the buffers of a block are packed", hint="write Arrow blocks without compression")
        with pa.ipc.open_stream(value) as reader:
            batches, _ = list(reader), reader.schema.names  # names that are no UTF-8 show here
            rows = sum(batch.num_rows for batch in batches)
            rows_max = min(BLOCK_ROWS_MAX, len(value))
            if rows > rows_max:
                raise BusError(f"a block has {rows} rows, {rows_max} are allowed")
            for batch in batches:
                batch.validate(full=True)
            if len(batches) == 1:
                return batches[0]
            arrays = [c.combine_chunks() for c in pa.Table.from_batches(batches, reader.schema).columns]
            return pa.RecordBatch.from_arrays(arrays, schema=reader.schema)
    except (pa.ArrowException, OSError, ValueError, KeyError, struct.error) as error:
        first_line = str(error).partition("\n")[0]
        raise BusError(
            "a message is no Arrow block", detail=first_line, hint="the topic may hold messages of another format"
        ) from None


@dataclass(frozen=True, slots=True)
class _Block:
    """The events of one message, a column per field."""

    columns: list[pa.Array]
    opcode: Int64s
    flags: Int64s


def decode_events(values: Sequence[bytes], messages: Sequence[int], schema: Schema) -> tuple[DecodedRows | None, BadRows]:
    """Events of blocks of input whose numbers are given. Rows with another opcode or flag are bad; a block that does not fit the
    schema is one bad row."""
    fields, blocks, numbers = arrow_fields(schema), list[_Block](), list[int]()
    unread: list[tuple[int, int, str, str, str]] = []
    for value, message in zip(values, messages, strict=True):
        try:
            blocks.append(_block(decode(value), fields))
            numbers.append(message)
        except BusError as error:
            sentence = f"{error.message}: {error.detail}" if error.detail else error.message
            unread.append((message, 0, RowReason.FORMAT, sentence[:500], value[:200].hex()))
    rows, refused = _judged(blocks, np.array(numbers, np.int64)) if blocks else (None, NO_BAD_ROWS)
    return rows, BadRows.joined([BadRows.of(unread), refused])


def _block(batch: pa.RecordBatch, fields: list[pa.Field]) -> _Block:
    columns = _columns(batch, fields)
    return _Block(columns, _numbers(batch, _OPCODE_NAMES, Opcode.INSERT), _numbers(batch, _FLAGS_NAMES, Flag.NORMAL))


def _judged(blocks: list[_Block], messages: Int64s) -> tuple[DecodedRows, BadRows]:
    """The good rows of all blocks, and the bad ones."""
    opcode, flags = np.concatenate([block.opcode for block in blocks]), np.concatenate([block.flags for block in blocks])
    message = np.repeat(messages, [len(block.opcode) for block in blocks])
    index = numbered(message)
    known, flagged = np.isin(opcode, list(Opcode)), (flags > 0) & (flags <= sum(Flag))
    is_good = known & flagged
    refused = _refused(np.flatnonzero(~is_good), message, index, opcode, flags, known)
    columns = [pa.concat_arrays(parts) for parts in zip(*(block.columns for block in blocks), strict=True)]
    rows = DecodedRows(message, index, opcode.astype(np.uint8), flags.astype(np.uint8), columns)
    return rows if is_good.all() else kept_rows(rows, is_good), refused


def _refused(at: Rows, message: Int64s, index: npt.NDArray[np.int32], opcode: Int64s, flags: Int64s, known: Bools) -> BadRows:
    if not len(at):
        return NO_BAD_ROWS
    wrong, reasons = np.where(known, flags, opcode)[at], [str(RowReason.OPCODE), str(RowReason.FLAG)]
    reason = pa.array(reasons).take(pa.array(known[at].astype(np.int8)))
    opcodes, all_flags, shown = (pa.array(numbers).cast(pa.string()) for numbers in (opcode[at], flags[at], wrong))
    text = pc.binary_join_element_wise("opcode ", opcodes, ", flags ", all_flags, "")
    sentence = pc.binary_join_element_wise(shown, " is no ", reason, "")
    return BadRows(message[at], index[at].astype(np.int64), reason, sentence, text)


def _named(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """The column of that name; BusError where it stands there several times, as nothing says which is meant."""
    places = batch.schema.get_all_field_indices(name)
    if len(places) > 1:
        raise BusError(f"a block has {len(places)} columns {name}")
    return batch.column(places[0]) if places else None


def _columns(batch: pa.RecordBatch, fields: list[pa.Field]) -> list[pa.Array]:
    columns = [_named(batch, field.name) for field in fields]
    for field, column in zip(fields, columns, strict=True):
        if column is None:
            raise BusError(f"a block lacks the column {field.name}")
    size = sum(map(text_bytes, columns))
    if size > TEXT_BYTES_MAX:
        raise BusError(f"the texts of a block have {size} bytes written out, {TEXT_BYTES_MAX} are allowed")
    return [_cast(column, field) for field, column in zip(fields, columns, strict=True)]


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError):
        raise BusError(f"column {field.name} of a block is {column.type}, {field.type} is expected") from None


def _numbers(batch: pa.RecordBatch, names: tuple[str, ...], otherwise: int) -> Int64s:
    for name in names:
        column = _named(batch, name)
        if column is not None:
            if not pa.types.is_integer(column.type):
                raise BusError(f"column {name} of a block is {column.type}, an integer is expected")
            return np.asarray(column.fill_null(0).cast(pa.int64(), safe=False).to_numpy(), np.int64)
    return np.full(batch.num_rows, otherwise, np.int64)
