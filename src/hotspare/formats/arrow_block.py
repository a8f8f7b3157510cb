"""A block of events as one message: an Arrow IPC stream.

Outputs are published in exactly this form. Input may have this form too, with columns for opcode, flags and the fields, by name.

A writer sends the same columns again and again, and the first bytes of a block define them. So the definition is parsed once; of
each block that begins with the same bytes, only the one record batch is read (`_plain_block`). A block that is unusual in any way
is read in full (`_block`), which reports errors. Both paths give the same rows.

A small message must not expand to an unlimited amount of memory, so the size of a block is computed before the block is unpacked.
Arrow's readers always unpack compressed buffers, so this module reads the compression flag from the message's flatbuffer.
Dictionaries and views may refer to one long text in every row; their sizes are summed before the texts are materialized.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.base.errors import BusError
from hotspare.formats.csv.decode import DecodedRows, kept_rows
from hotspare.formats.csv.lines import numbered
from hotspare.formats.json.plain import meta_names
from hotspare.model.events import Flag, Opcode
from hotspare.model.types import Schema
from hotspare.rows.bad_reasons import RowReason
from hotspare.rows.batch import arrow_fields
from hotspare.rows.chunk import Bools, Int64s
from hotspare.rows.elementwise import Rows
from hotspare.rows.refusals import NO_BAD_ROWS, BadRows

BLOCK_ROWS_MAX = 10_000_000
"""Limit on the rows of one block. A block may also not have more rows than bytes."""
TEXT_BYTES_MAX = 64 * 1024 * 1024
"""Limit on the bytes of a block's texts if each row has its own copy: in a dictionary column, rows share texts. Equal to the size
of the largest message."""
TEXT_BYTES_MIN, TEXT_FACTOR_MAX = 64 * 1024, 128
"""Limit on the texts' bytes as a multiple of the block's bytes (`TEXT_FACTOR_MAX`), because all texts of a batch of messages are in
memory at once. A block may always have `TEXT_BYTES_MIN` bytes of texts."""
READ_BYTES_MAX = 256 * 1024 * 1024
"""Limit on the bytes of all batches of a block. Each batch counts with its dictionaries, because the reader processes them again
for each batch."""
_PREFIX_BYTES_MAX = 16 * 1024
"""Limit on the bytes of a cached beginning of a block; longer beginnings are parsed each time."""
_CACHED_PREFIXES_MAX = 64
_MARK = b"\xff\xff\xff\xff"
_END_OF_STREAM = _MARK + b"\0\0\0\0"
_ROWS_MESSAGE = "record batch"
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_HEADER_TYPE, _HEADER, _DATA, _COMPRESSION = 1, 2, 1, 3
"""Numbers of members in Arrow's Message.fbs: `header_type` and `header` of Message, `data` of DictionaryBatch, `compression` of
RecordBatch."""


def encode(rows: pa.RecordBatch) -> bytes:
    """Returns the batch as an Arrow IPC stream."""
    if begin := _begin_of(rows.schema):
        return b"".join((begin, rows.serialize(), _END_OF_STREAM))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue().to_pybytes())


_begins: tuple[tuple[pa.Schema, bytes], ...] = ()
"""The newest results of `_begin_of`: to compare two schemas takes far less time than to write one."""


def _begin_of(schema: pa.Schema) -> bytes:
    """Returns the bytes with which a stream of this schema begins; none if dictionaries would follow them."""
    global _begins
    for known, begin in _begins:
        if known.equals(schema, check_metadata=True):
            return begin
    begin = schema.serialize().to_pybytes() if all(map(_is_plain, schema.types)) else b""
    _begins = ((schema, begin), *_begins[: _CACHED_PREFIXES_MAX - 1])
    return begin


def decode(value: bytes) -> pa.RecordBatch:
    """Returns the batch that `encode` wrote. Raises BusError if the value is not an Arrow block."""
    return _read(value, None)


def events_of(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Returns the events of a batch from a trusted file: a batch with the columns hs:opcode, hs:flags, and the fields in their
    types.

    Raises BusError if a field is missing, or an opcode or flag is unknown.
    """
    wanted = _Wanted.from_schema(schema)
    wanted.places(batch.schema)
    columns = [_cast(batch.column(field.name), field) for field in wanted.fields]
    meta = (wanted.opcode, Opcode.INSERT), (wanted.flags, Flag.NORMAL)
    found = [(_numbers(batch, names), usual) for names, usual in meta]
    opcode, flags = (np.full(batch.num_rows, usual, np.int64) if numbers is None else numbers for numbers, usual in found)
    is_good = np.isin(opcode, list(Opcode)) & (flags > 0) & (flags <= sum(Flag))
    if not is_good.all():
        row = int(np.argmin(is_good))
        raise BusError(f"row {row} of a block has opcode {opcode[row]} and flags {flags[row]}: invalid values")
    arrays = [pa.array(opcode, pa.uint8()), pa.array(flags, pa.uint8()), *columns]
    return pa.RecordBatch.from_arrays(arrays, names=["hs:opcode", "hs:flags", *schema.names])


def decode_events(values: Sequence[bytes], messages: Sequence[int], schema: Schema) -> tuple[DecodedRows | None, BadRows]:
    """Returns the events of inbound blocks (None without blocks that can be read), and the bad rows. `messages`: the message number
    of each value. A row with an unknown opcode or flag is a bad row; a block that does not fit the schema is one bad row."""
    wanted, blocks, numbers = _Wanted.from_schema(schema), list[_Block](), list[int]()
    unread: list[tuple[int, int, str, str, str]] = []
    for value, message in zip(values, messages, strict=True):
        try:
            blocks.append(_plain_block(value, wanted) or _block(_read(value, wanted), wanted, len(value)))
            numbers.append(message)
        except BusError as error:
            sentence = error.in_one_line
            unread.append((message, 0, RowReason.FORMAT, sentence[:500], value[:200].hex()))
    rows, refused = _judged(blocks, np.array(numbers, np.int64)) if blocks else (None, NO_BAD_ROWS)
    return rows, BadRows.joined([BadRows.from_rows(unread), refused])


@dataclass(frozen=True)
class _Wanted:
    """The columns to read from a block: one per field, and the opcode and flags columns, each with two possible names."""

    fields: list[pa.Field]
    opcode: tuple[str, str]
    flags: tuple[str, str]

    @classmethod
    def from_schema(cls, schema: Schema) -> _Wanted:
        opcode, flags = ((name, f"hs:{name.removeprefix('hs:')}") for name in meta_names(schema))
        return cls(arrow_fields(schema), opcode, flags)

    @cached_property
    def types(self) -> tuple[tuple[str, pa.DataType], ...]:
        return tuple((field.name, field.type) for field in self.fields)

    def places(self, schema: pa.Schema) -> list[int]:
        """Returns the indexes, in a block of this schema, of the columns to read. Raises BusError if a field is missing, or its
        column is nested and could hold any amount of data."""
        found = [_place_of_numbers(schema, names) for names in (self.opcode, self.flags)]
        return [*(_place_of(schema, field) for field in self.fields), *(place for place in found if place is not None)]


@dataclass(frozen=True, slots=True)
class _Block:
    """The events of one message, a column per field. `opcode` or `flags` is None if the block lacks the column; then all rows have
    the default."""

    columns: list[pa.Array]
    rows: int
    opcode: Int64s | None
    flags: Int64s | None


def _plain_block(value: bytes, wanted: _Wanted) -> _Block | None:
    """Reads a block on the fast path. Returns None if the block has to be read in full (`_block`)."""
    begin = schema_prefix(value)
    known = None if begin is None else _known_columns(begin, wanted.types, wanted.opcode, wanted.flags)
    batch = None if begin is None or known is None else _rows_behind(value, begin, known)
    if batch is None or known is None or batch.num_rows > min(BLOCK_ROWS_MAX, len(value)) or batch.nbytes > READ_BYTES_MAX:
        return None
    opcode, flags = (None if place is None else _as_numbers(batch.column(place)) for place in (known.opcode, known.flags))
    return _Block([batch.column(place) for place in known.places], batch.num_rows, opcode, flags)


def schema_prefix(value: bytes) -> bytes | None:
    """Returns the first bytes of an Arrow IPC stream, which define its columns. Returns None if the beginning has an unusual form
    or is too long to cache."""
    if len(value) < 8 or value[:4] != _MARK:
        return None
    size = 8 + int(struct.unpack_from("<i", value, 4)[0])
    return value[:size] if 8 < size <= min(len(value), _PREFIX_BYTES_MAX) else None


@dataclass(frozen=True, slots=True)
class _KnownColumns:
    """The columns of all blocks with the same beginning. `places`: the column index of each field; `opcode`, `flags`: the column
    index, or None."""

    schema: pa.Schema
    places: tuple[int, ...]
    opcode: int | None
    flags: int | None


@lru_cache(maxsize=_CACHED_PREFIXES_MAX)
def _known_columns(
    begin: bytes, fields: tuple[tuple[str, pa.DataType], ...], opcode: tuple[str, str], flags: tuple[str, str]
) -> _KnownColumns | None:
    """Returns the columns that the beginning `begin` of a block defines. Returns None unless each column has plain values and a
    unique name, and each field's column has exactly the field's type. Then no column needs a conversion, and no two rows share a
    value."""
    try:
        with pa.ipc.open_stream(begin) as reader:
            schema, names = reader.schema, reader.schema.names
    except (pa.ArrowException, OSError, EOFError, ValueError):
        return None
    if len(set(names)) < len(names) or not all(map(_is_plain, schema.types)):
        return None
    places = {name: place for place, name in enumerate(names)}
    if any(name not in places or schema.types[places[name]] != type_ for name, type_ in fields):
        return None
    meta = [next((places[name] for name in each if name in places), None) for each in (opcode, flags)]
    if any(place is not None and not pa.types.is_integer(schema.types[place]) for place in meta):
        return None
    return _KnownColumns(schema, tuple(places[name] for name, _ in fields), *meta)


def _rows_behind(value: bytes, begin: bytes, columns: _KnownColumns) -> pa.RecordBatch | None:
    """Returns the one batch of a block that starts with `begin`. Returns None if the block has another number of batches, is
    compressed or damaged, or if more bytes follow."""
    try:
        at = len(begin)
        message = pa.ipc.read_message(pa.py_buffer(value)[at:])
        body = message.body
        end = at + 8 + int(struct.unpack_from("<i", value, at + 4)[0]) + (0 if body is None else body.size)
        is_usual = message.type == _ROWS_MESSAGE and value[at : at + 4] == _MARK and value[end : end + 9] in (_END_OF_STREAM, b"")
        if not is_usual or _is_packed_batch(message.metadata.to_pybytes()):
            return None
        batch = pa.ipc.read_record_batch(message, columns.schema)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, ValueError, KeyError, struct.error):
        return None
    return batch


def _is_plain(type_: pa.DataType) -> bool:
    """Whether a column of this type stores one value per row, without elements or a dictionary."""
    return bool(
        pa.types.is_primitive(type_) or pa.types.is_boolean(type_) or pa.types.is_string(type_) or pa.types.is_binary(type_)
    )


def _block(batch: pa.RecordBatch, wanted: _Wanted, size: int) -> _Block:
    columns = _columns(batch, wanted.fields, size)
    opcode, flags = (_numbers(batch, names) for names in (wanted.opcode, wanted.flags))
    return _Block(columns, batch.num_rows, opcode, flags)


def _read(value: bytes, wanted: _Wanted | None) -> pa.RecordBatch:
    """Returns the rows of a block, with only the wanted columns; None wants all columns. Raises BusError if the block cannot be
    read."""
    try:
        if _is_packed(value):
            raise BusError("the buffers of a block are packed", hint="write Arrow blocks without compression")
        source = pa.BufferReader(value)
        with pa.ipc.open_stream(source, options=_options(value, wanted)) as reader:
            batches, schema = list(_validated(reader, len(value))), reader.schema
        if source.tell() < len(value):
            raise BusError("more follows after a block", detail=f"it ends at byte {source.tell()} of {len(value)}")
        if len(batches) == 1:
            return batches[0]
        arrays = [c.combine_chunks() for c in pa.Table.from_batches(batches, schema).columns]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    except (pa.ArrowException, OSError, ValueError, KeyError, struct.error) as error:
        first_line = str(error).partition("\n")[0]
        raise BusError(
            "a message is not an Arrow block", detail=first_line, hint="the topic may hold messages of another format"
        ) from None


def _options(value: bytes, wanted: _Wanted | None) -> pa.ipc.IpcReadOptions:
    with pa.ipc.open_stream(value) as reader:
        schema, _ = reader.schema, reader.schema.names  # names that are not UTF-8 raise here
    return pa.ipc.IpcReadOptions(included_fields=sorted(wanted.places(schema)) if wanted is not None else [])


def _validated(reader: pa.RecordBatchReader, size: int) -> Iterator[pa.RecordBatch]:
    """Yields the batches of a block of `size` bytes, validated. Raises BusError if they have too many rows or bytes."""
    rows, rows_max, read = 0, min(BLOCK_ROWS_MAX, size), 0
    for batch in reader:
        rows += batch.num_rows
        if rows > rows_max:
            raise BusError(f"a block has {rows} rows; the limit is {rows_max}")
        batch.validate(full=True)
        read += batch.nbytes
        if read > READ_BYTES_MAX:
            raise BusError(f"the batches of a block have more than {READ_BYTES_MAX} bytes with the dictionaries of each")
        yield batch


def _place(schema: pa.Schema, name: str) -> int | None:
    """Returns the index of the column `name`; None if it does not exist. Raises BusError if several columns have the name."""
    places = schema.get_all_field_indices(name)
    if len(places) > 1:
        raise BusError(f"a block has {len(places)} columns {name}")
    return int(places[0]) if places else None


def _place_of(schema: pa.Schema, field: pa.Field) -> int:
    place = _place(schema, field.name)
    if place is None:
        raise BusError(f"a block lacks the column {field.name}")
    type_ = schema.field(place).type
    while pa.types.is_dictionary(type_) or isinstance(type_, pa.BaseExtensionType):
        type_ = type_.value_type if pa.types.is_dictionary(type_) else type_.storage_type
    if pa.types.is_nested(type_) and not (pa.types.is_list(field.type) and _lists_numbers(type_)):
        raise _unfit(schema.field(place).type, field)
    return place


def _lists_numbers(type_: pa.DataType) -> bool:
    """Whether the type is a list of numbers with elements stored per row, so that no row is larger than its bytes in the block."""
    is_list = pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)
    return bool(is_list and (pa.types.is_integer(type_.value_type) or pa.types.is_floating(type_.value_type)))


def _place_of_numbers(schema: pa.Schema, names: Sequence[str]) -> int | None:
    place = next((place for name in names if (place := _place(schema, name)) is not None), None)
    if place is not None and not pa.types.is_integer(schema.field(place).type):
        column = schema.field(place)
        raise BusError(f"column {column.name} of a block has type {column.type}, not an integer type")
    return place


def _columns(batch: pa.RecordBatch, fields: list[pa.Field], size: int) -> list[pa.Array]:
    """Returns the column of each field, in the field's type. `size`: the bytes of the block. Raises BusError if the block's texts
    are too long for its size, or a column does not fit its field."""
    columns = [batch.column(field.name) for field in fields]
    text = sum(map(_text_bytes, columns))
    allowed = min(TEXT_BYTES_MAX, max(TEXT_BYTES_MIN, TEXT_FACTOR_MAX * size))
    if text > allowed:
        raise BusError(f"the texts of a block of {size} bytes have {text} bytes written out; the limit is {allowed}")
    return [_cast(column, field) for field, column in zip(fields, columns, strict=True)]


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError):
        raise _unfit(column.type, field) from None


def _unfit(type_: pa.DataType, field: pa.Field) -> BusError:
    what = f"column {field.name} of a block has type {type_}, not {field.type}"
    return BusError(what, hint="check whether another program writes to this topic")


def _numbers(batch: pa.RecordBatch, names: Sequence[str]) -> Int64s | None:
    place = _place_of_numbers(batch.schema, names)
    return None if place is None else _as_numbers(batch.column(place))


def _as_numbers(column: pa.Array) -> Int64s:
    return np.asarray(column.fill_null(0).cast(pa.int64(), safe=False).to_numpy(), np.int64)


def _judged(blocks: list[_Block], messages: Int64s) -> tuple[DecodedRows, BadRows]:
    """Returns the good rows of all blocks, and the bad rows, whose opcode or flag is unknown. `messages`: the message number of
    each block."""
    message = np.repeat(messages, [block.rows for block in blocks])
    index = numbered(message)
    columns = [pa.concat_arrays(parts) for parts in zip(*(block.columns for block in blocks), strict=True)]
    if all(block.opcode is None and block.flags is None for block in blocks):
        usual = np.full(len(message), Opcode.INSERT, np.uint8), np.full(len(message), Flag.NORMAL, np.uint8)
        return DecodedRows(message, index, *usual, columns), NO_BAD_ROWS
    opcode = np.concatenate([_or_default(block.opcode, block, Opcode.INSERT) for block in blocks])
    flags = np.concatenate([_or_default(block.flags, block, Flag.NORMAL) for block in blocks])
    known, flagged = np.isin(opcode, list(Opcode)), (flags > 0) & (flags <= sum(Flag))
    is_good = known & flagged
    refused = _refused(np.flatnonzero(~is_good), message, index, opcode, flags, known)
    rows = DecodedRows(message, index, opcode.astype(np.uint8), flags.astype(np.uint8), columns)
    return rows if is_good.all() else kept_rows(rows, is_good), refused


def _or_default(numbers: Int64s | None, block: _Block, usual: int) -> Int64s:
    return np.full(block.rows, usual, np.int64) if numbers is None else numbers


def _refused(at: Rows, message: Int64s, index: npt.NDArray[np.int32], opcode: Int64s, flags: Int64s, known: Bools) -> BadRows:
    if not len(at):
        return NO_BAD_ROWS
    wrong, reasons = np.where(known, flags, opcode)[at], [str(RowReason.OPCODE), str(RowReason.FLAG)]
    reason = pa.array(reasons).take(pa.array(known[at].astype(np.int8)))
    opcodes, all_flags, shown = (pa.array(numbers).cast(pa.string()) for numbers in (opcode[at], flags[at], wrong))
    text = pc.binary_join_element_wise("opcode ", opcodes, ", flags ", all_flags, "")
    sentence = pc.binary_join_element_wise(shown, " is no ", reason, "")
    return BadRows(message[at], index[at].astype(np.int64), reason, sentence, text)


def _is_packed(value: bytes) -> bool:
    """Whether an Arrow IPC stream has compressed buffers. Raises ArrowInvalid or struct.error if the stream is damaged."""
    return any(_is_packed_batch(message.metadata.to_pybytes()) for message in pa.ipc.MessageReader.open_stream(value))


def _is_packed_batch(table: bytes) -> bool:
    """Whether an IPC message has compressed buffers. `table`: the message's metadata, a flatbuffer."""
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
    """Returns the place in the flatbuffer `table` of member `number` of the table at `at`; 0 if the member is missing. Raises
    struct.error if the flatbuffer is damaged."""
    layout = at - int(struct.unpack_from("<i", table, at)[0])
    if not 0 <= layout < len(table):
        raise struct.error("a table's layout lies outside")
    size = struct.unpack_from("<H", table, layout)[0]
    place = 4 + 2 * number
    offset = struct.unpack_from("<H", table, layout + place)[0] if place + 2 <= size else 0
    return at + int(offset) if offset else 0


def _text_bytes(column: pa.Array) -> int:
    """Returns the bytes of text of a validated column if each row gets its own copy. Returns 0 for a column in which rows cannot
    share texts."""
    return int(_text_sizes(column).sum()) if _is_shared(column) else 0


def _is_shared(column: pa.Array) -> bool:
    if isinstance(column, pa.ExtensionArray):
        return _is_shared(column.storage)
    return pa.types.is_dictionary(column.type) or _is_view(column.type)


def _is_view(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(type_) or pa.types.is_binary_view(type_))


def _text_sizes(column: pa.Array) -> Int64s:
    """Returns the byte length of each row's text; 0 for null."""
    if isinstance(column, pa.ExtensionArray):
        return _text_sizes(column.storage)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_dictionary(column.type):
        words = np.append(_text_sizes(column.dictionary), 0)
        return np.where(valid, words[column.indices.fill_null(0).to_numpy()], 0)
    if _is_view(column.type):
        views = column.buffers()[1]
        lengths = np.frombuffer(views, np.int32)[0::4] if views is not None else np.zeros(0, np.int32)
        return np.where(valid, lengths[column.offset : column.offset + len(column)], 0).astype(np.int64)
    if isinstance(column, pa.StringArray | pa.LargeStringArray | pa.BinaryArray | pa.LargeBinaryArray):
        return np.asarray(pc.binary_length(column).fill_null(0).to_numpy(), np.int64)
    return np.zeros(len(column), np.int64)
