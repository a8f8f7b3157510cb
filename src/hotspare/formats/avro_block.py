"""Events as an Avro object container file per message, which any Avro library reads without a registry.

The Avro schema follows from the window's schema: a record with `opcode`, `flags` and a nullable field per field. Dates and stamps
are whole seconds and microseconds since 1970, money is `decimal(18, 4)`. Input may have been written with another schema of flat
records: fields are matched by name, and a value is accepted if it is exactly one of the field's type.
"""

from __future__ import annotations

import datetime
import decimal
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import field as _field
from typing import Any

import numpy as np
import pyarrow as pa

from hotspare.formats.csv.decode import FLAG_WORDS, OPCODE_WORDS, DecodedRows, decode_words
from hotspare.formats.json.plain import DEPTH_MAX, is_deep, meta_names
from hotspare.model.types import TIME_TYPES, FieldType, Schema
from hotspare.rows.bad_reasons import RowReason
from hotspare.rows.batch import ARROW_TYPE
from hotspare.rows.elementwise import is_row_error
from hotspare.rows.letters import flag_letters, opcode_letters
from hotspare.rows.refusals import BAD_TEXT_LENGTH_MAX, BadRows

MAGIC = b"Obj\x01"
_CODECS = ("null",)
"""The codecs that are accepted. Compressed blocks are refused, because a small message could unpack to any size."""
_FLAT = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_ITEMS = frozenset({"null", "int", "long", "float", "double"})
_FLAT_COMPLEX = frozenset({"fixed", "enum"})
_HEADER: dict[str, Any] = {
    "type": "record",
    "name": "header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
    ],
}
"""The header of a container file, by Avro's specification."""
_DECIMAL = "hs-decimal"
_DECIMAL_BYTES_MAX = 24
"""Limit on the bytes of a decimal. Longer decimals cannot be money, and converting them takes time that grows with the square of
their length."""
_AVRO_TYPE: dict[FieldType, Any] = {
    FieldType.INT32: "int",
    FieldType.INT64: "long",
    FieldType.DOUBLE: "double",
    FieldType.STRING: "string",
    FieldType.DATE: "long",
    FieldType.STAMP: "long",
    FieldType.MONEY: {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 4},
    FieldType.BLOB: "bytes",
    FieldType.INT32_ARRAY: {"type": "array", "items": ["null", "int"]},
    FieldType.INT64_ARRAY: {"type": "array", "items": ["null", "long"]},
    FieldType.DOUBLE_ARRAY: {"type": "array", "items": ["null", "double"]},
}
_OPCODES, _FLAGS = frozenset(OPCODE_WORDS.texts.to_pylist()), frozenset(FLAG_WORDS.texts.to_pylist())
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_MONEY_DIGITS_MAX = 10**18


def avro_meta_names(schema: Schema) -> list[str]:
    """Returns the Avro names of opcode and flags: those of `meta_names` with `_` for the colon, which Avro does not allow. `hs_` is
    prefixed until the name differs from all field names."""
    found = []
    for meta in meta_names(schema):
        name = meta.replace(":", "_")
        while name in schema.index:
            name = f"hs_{name}"
        found.append(name)
    return found


def avro_schema(schema: Schema) -> dict[str, Any]:
    """Returns the Avro schema of a window's events. Field names that Avro does not allow remain unchanged, because Avro libraries
    accept them."""
    opcode, flags = avro_meta_names(schema)
    fields: list[dict[str, Any]] = [{"name": opcode, "type": "string"}, {"name": flags, "type": "string"}]
    fields += [{"name": f.name, "type": ["null", _AVRO_TYPE[f.type]], "default": None} for f in schema.fields]
    return {"type": "record", "name": "event", "fields": fields}


def encode_rows(rows: pa.RecordBatch, schema: Schema) -> bytes:
    """Returns a batch of outputs (`rows.batch.output_schema`) as a container file."""
    import fastavro

    opcode, flags = avro_meta_names(schema)
    columns: dict[str, list[Any]] = {
        opcode: opcode_letters(rows.column("hs:opcode")).to_pylist(),
        flags: flag_letters(rows.column("hs:flags")).to_pylist(),
    }
    for field in schema.fields:
        column = rows.column(field.name)
        columns[field.name] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    records = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(avro_schema(schema)), records)
    return sink.getvalue()


@dataclass(slots=True)
class _Events:
    """The decoded rows so far. `columns`: a list of values per field. `message`, `index`, `opcode`, `flags`: an entry per row.
    `bad`: the bad rows."""

    columns: list[list[Any]]
    message: list[int] = _field(default_factory=list)
    index: list[int] = _field(default_factory=list)
    opcode: list[str] = _field(default_factory=list)
    flags: list[str] = _field(default_factory=list)
    bad: list[tuple[int, int, str, str, str]] = _field(default_factory=list)

    def cut(self, rows: int, bad: int) -> None:
        """Removes all but the first `rows` rows and the first `bad` bad rows."""
        for each in (*self.columns, self.message, self.index, self.opcode, self.flags):
            del each[rows:]
        del self.bad[bad:]


def decode_events(values: Sequence[bytes], messages: Sequence[int], schema: Schema) -> tuple[DecodedRows | None, BadRows]:
    """Returns the events of Avro messages (None without events), and the bad rows. `messages`: the message number of each value. A
    message that is not a container file of flat records is one bad row."""
    found = _Events([[] for _ in schema.fields])
    for value, message in zip(values, messages, strict=True):
        rows, bad = len(found.message), len(found.bad)
        try:
            _read(value, message, schema, found)
        except _Unreadable as error:
            found.cut(rows, bad)
            found.bad.append((message, 0, RowReason.FORMAT, str(error), value[:200].hex()))
    if not found.message:
        return None, BadRows.from_rows(found.bad)
    arrays = [pa.array(column, ARROW_TYPE[f.type]) for column, f in zip(found.columns, schema.fields, strict=True)]
    opcode, _ = decode_words(pa.array(found.opcode), OPCODE_WORDS)
    flags, _ = decode_words(pa.array(found.flags), FLAG_WORDS)
    rows_of = np.array(found.message, np.int64), np.array(found.index, np.int32)
    return DecodedRows(*rows_of, opcode, flags, arrays), BadRows.from_rows(found.bad)


def _read(value: bytes, message: int, schema: Schema, found: _Events) -> None:
    """Adds the records of one message to `found`. Raises `_Unreadable` if the message cannot be read; the caller must then remove
    the records added before the error."""
    opcode_name, flags_name = avro_meta_names(schema)
    index = -1
    try:
        for index, record in enumerate(_records(value)):
            try:
                taken = [_TAKEN[f.type](record.get(f.name), f.name) for f in schema.fields]
                opcode, flags = _word(record.get(opcode_name), "i", opcode_name), _word(record.get(flags_name), "n", flags_name)
            except _Refused as error:
                found.bad.append((message, index, error.reason, error.sentence, str(record)[:BAD_TEXT_LENGTH_MAX]))
                continue
            found.message.append(message)
            found.index.append(index)
            found.opcode.append(opcode)
            found.flags.append(flags)
            for column, each in zip(found.columns, taken, strict=True):
                column.append(each)
    except _Unreadable as error:
        raise _unreadable(index, str(error)) from None
    except (EOFError, IndexError):
        raise _unreadable(index, "it is cut short, or a number in it is wrong") from None
    except Exception as error:  # a reader of damaged files may raise anything; its text may differ between engines
        if not is_row_error(error):
            raise
        raise _unreadable(index, f"reading it fails ({type(error).__name__})") from None


def _unreadable(index: int, what: str) -> _Unreadable:
    sentence = f"the message is not an Avro file of flat records, seen at row {index + 1}: {what}"[:500].partition("\n")[0]
    return _Unreadable(sentence.encode(errors="backslashreplace").decode())


class _Unreadable(Exception):
    """Raised if the records of a message cannot be read; the text is the reason."""


class _Refused(Exception):
    def __init__(self, reason: RowReason, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence


def _records(value: bytes) -> Iterator[dict[str, Any]]:
    import fastavro

    if not value.startswith(MAGIC):
        raise _Unreadable("it does not begin as a container file")
    blocks = fastavro.block_reader(io.BytesIO(_with_own_decimals(value)))
    if blocks.codec not in _CODECS:
        raise _Unreadable(f"its blocks are packed by {blocks.codec}")
    _check_flat(blocks.writer_schema)
    for block in blocks:
        if not 0 <= block.num_records <= block.size:
            raise _Unreadable(f"a block of {block.size} bytes says that it has {block.num_records} records")
        for record in block:
            if not isinstance(record, dict):
                raise _Unreadable("it holds no records")
            yield record
        if block.bytes_.read(1):  # type: ignore[attr-defined]
            raise _Unreadable(f"a block says that it has {block.num_records} records, more follows after them")


@dataclass(frozen=True, slots=True)
class _NoDecimal:
    """The placeholder for a decimal that is too long or has an invalid scale. It is not a valid value of any field type."""

    size: int
    scale: Any

    def __str__(self) -> str:
        return f"a decimal of {self.size} bytes with scale {self.scale}"


def _decimal(data: bytes, writer_schema: dict[Any, Any] | None, _: Any = None) -> decimal.Decimal | _NoDecimal:
    scale = (writer_schema or {}).get("scale", 0)
    if len(data) > _DECIMAL_BYTES_MAX or type(scale) is not int or not 0 <= scale <= _WIDE.prec:
        return _NoDecimal(len(data), scale)
    return decimal.Decimal(int.from_bytes(data, signed=True)).scaleb(-scale, _WIDE)


def _with_own_decimals(value: bytes) -> bytes:
    """Returns the container file with the logical type of decimals replaced by one that `_decimal` reads. The reader of fastavro
    accepts decimals of any length, and rounds.

    Raises `_Unreadable` if the schema is nested deeper than DEPTH_MAX, because a deeper one could exceed the recursion limit.
    """
    import fastavro

    for type_ in ("bytes", "fixed"):
        fastavro.read.LOGICAL_READERS[f"{type_}-{_DECIMAL}"] = _decimal
    given, out = io.BytesIO(value), io.BytesIO()
    header: Any = fastavro.schemaless_reader(given, _HEADER, None)
    text = header["meta"]["avro.schema"].decode()
    if is_deep(text):
        raise _Unreadable(f"its schema is nested deeper than {DEPTH_MAX}")
    header["meta"]["avro.schema"] = json.dumps(json.loads(text, object_hook=_renamed)).encode()
    fastavro.schemaless_writer(out, _HEADER, header)
    return out.getvalue() + value[given.tell() :]


def _renamed(schema: dict[str, Any]) -> dict[str, Any]:
    return schema | {"logicalType": _DECIMAL} if schema.get("logicalType") == "decimal" else schema


def _check_flat(schema: Any) -> None:
    """Raises `_Unreadable` unless the schema is a record of flat values of at least one byte each. Values of other types could
    unpack to any size."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise _Unreadable("it holds no records")
    for field in schema["fields"]:
        if field["type"] == "null" or (isinstance(field["type"], dict) and field["type"].get("size") == 0):
            raise _Unreadable(f"field {str(field['name'])[:80]} takes no bytes")
        for type_ in field["type"] if isinstance(field["type"], list) else [field["type"]]:
            name = type_.get("type") if isinstance(type_, dict) else type_
            if name == "array" and _has_flat_items(type_["items"]):
                continue
            if name not in _FLAT and name not in _FLAT_COMPLEX:
                raise _Unreadable(f"field {str(field['name'])[:80]} is nested")


def _has_flat_items(items: Any) -> bool:
    """Whether each item of an array is a number or null, and takes at least one byte. `items`: the array's item type in an Avro
    schema."""
    names = items if isinstance(items, list) else [items]
    return items != "null" and names != ["null"] and all(isinstance(each, str) and each in _ITEMS for each in names)


def _word(value: Any, otherwise: str, name: str) -> str:
    words, reason = (_OPCODES, RowReason.OPCODE) if name.endswith("opcode") else (_FLAGS, RowReason.FLAG)
    text = otherwise if value is None else value
    if not isinstance(text, str) or text.strip().lower() not in words:
        raise _Refused(reason, f"{str(value)[:80]!r} is no {'opcode' if reason is RowReason.OPCODE else 'flag'}")
    return text


def _wrong(value: Any, name: str, type_: FieldType) -> _Refused:
    return _Refused(RowReason.FIELD_TYPE, f"{str(value)[:80]!r} is no {type_.value} for field {name}")


def _whole(type_: FieldType, bits: int) -> Callable[[Any, str], Any]:
    def convert_value(value: Any, name: str) -> Any:
        if isinstance(value, datetime.datetime) and type_ in TIME_TYPES:
            whole = (value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)) - _EPOCH
            return whole // (_MICROSECOND if type_ is FieldType.STAMP else datetime.timedelta(seconds=1))
        if value is not None and (type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1):
            raise _wrong(value, name, type_)
        return value

    return convert_value


def _double(value: Any, name: str) -> Any:
    if value is None or type(value) is float:
        return value
    if type(value) is not int or int(float(value)) != value:
        raise _wrong(value, name, FieldType.DOUBLE)
    return float(value)


def _string(value: Any, name: str) -> Any:
    if value is not None and not isinstance(value, str):
        raise _wrong(value, name, FieldType.STRING)
    return value


def _blob(value: Any, name: str) -> Any:
    if value is not None and not isinstance(value, bytes):
        raise _wrong(value, name, FieldType.BLOB)
    return value


def _money(value: Any, name: str) -> Any:
    if value is None:
        return None
    if type(value) is int:
        value = decimal.Decimal(value)
    if not isinstance(value, decimal.Decimal) or not value.is_finite():
        raise _wrong(value, name, FieldType.MONEY)
    units = int(value.scaleb(4, _WIDE))
    if abs(units) >= _MONEY_DIGITS_MAX or decimal.Decimal(units).scaleb(-4, _WIDE) != value:
        raise _wrong(value, name, FieldType.MONEY)
    return decimal.Decimal(units).scaleb(-4, _WIDE)


def _array(type_: FieldType, take: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def convert_items(value: Any, name: str) -> Any:
        if value is None:
            return None
        if not isinstance(value, list):
            raise _wrong(value, name, type_)
        return [take(item, name) for item in value]

    return convert_items


_WIDE = decimal.Context(prec=60)
_TAKEN: dict[FieldType, Callable[[Any, str], Any]] = {
    FieldType.INT32: _whole(FieldType.INT32, 32),
    FieldType.INT64: _whole(FieldType.INT64, 64),
    FieldType.DATE: _whole(FieldType.DATE, 64),
    FieldType.STAMP: _whole(FieldType.STAMP, 64),
    FieldType.DOUBLE: _double,
    FieldType.STRING: _string,
    FieldType.BLOB: _blob,
    FieldType.MONEY: _money,
    FieldType.INT32_ARRAY: _array(FieldType.INT32_ARRAY, _whole(FieldType.INT32, 32)),
    FieldType.INT64_ARRAY: _array(FieldType.INT64_ARRAY, _whole(FieldType.INT64, 64)),
    FieldType.DOUBLE_ARRAY: _array(FieldType.DOUBLE_ARRAY, _double),
}
