"""Encodes outputs as messages of output topics, in any format, and decodes such messages for subscribers.

Only Arrow blocks hold all data of an output. The other formats are for other applications: they hold opcode, flags and fields, and
a header of the message identifies the outputs. Sequences rise by one within a message. In a text format each output may be a
separate message; then the header holds all data that the text lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from hotspare.base.errors import BusError
from hotspare.formats import arrow_block, avro_block
from hotspare.formats.csv.decode import DecodedRows, decode_rows
from hotspare.formats.csv.rows import CsvStyle, row_messages, rows_to_csv
from hotspare.formats.json.decode import decode_json
from hotspare.formats.json.rows import json_rows, rows_to_json
from hotspare.model.types import Field, KeyRole, Schema
from hotspare.rows.batch import ARROW_TYPE, OUTPUT_COLUMNS, MessageFormat, output_schema
from hotspare.rows.refusals import BadRows

_FIELD_TYPE = {arrow: type_ for type_, arrow in ARROW_TYPE.items()}


def encode_outputs(rows: pa.RecordBatch, format_: MessageFormat) -> bytes:
    """Returns a batch of `rows.batch.output_schema`, encoded as one message."""
    if format_ is MessageFormat.ARROW:
        return arrow_block.encode(rows)
    if format_ is MessageFormat.CSV:
        return rows_to_csv(rows, CsvStyle.EXACT)
    if format_ is MessageFormat.JSON:
        return rows_to_json(rows, schema_of(rows))
    return avro_block.encode_rows(rows, schema_of(rows))


def encode_each(rows: pa.RecordBatch, format_: MessageFormat) -> list[bytes]:
    """Returns a message for each row of a batch of `rows.batch.output_schema`; `format_` is one of TEXT_FORMATS."""
    if format_ is MessageFormat.CSV:
        return row_messages(rows, CsvStyle.EXACT)
    messages: list[bytes] = json_rows(rows, schema_of(rows)).cast(pa.binary()).to_pylist()
    return messages


def decode_outputs(value: bytes, format_: MessageFormat, schema: Schema, first_sequence: int) -> pa.RecordBatch:
    """Returns the batch that `encode_outputs` wrote, with bit-identical fields. Raises BusError for any other value.

    `first_sequence`: the sequence of the first row, used in formats other than Arrow. In these formats, the columns of position,
    ordinal and digest are null.
    """
    if format_ is MessageFormat.ARROW:
        return arrow_block.decode(value)
    parts = _decoded([value], format_, schema)
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=output_schema(schema))
    sequences = pa.array(np.arange(first_sequence, first_sequence + len(parts[0].message)))
    return _batch(parts[0], schema, {"hs:sequence": sequences})


def decode_each(
    values: Sequence[bytes], format_: MessageFormat, schema: Schema, ids: Sequence[Sequence[int]], offsets: Sequence[int]
) -> pa.RecordBatch:
    """Returns the rows of messages that `encode_each` wrote, with all columns bit-identical. Raises BusError for any other value.

    `ids`: for each message the values of the first seven of OUTPUT_COLUMNS, sequence to digest. `offsets`: the messages' offsets,
    for errors.
    """
    parts = _decoded(values, format_, schema)
    message = np.concatenate([np.empty(0, np.int64), *(rows.message for rows in parts)])
    order = np.argsort(message, kind="stable")
    if not np.array_equal(message[order], np.arange(len(values))):
        bad = int(np.argmax(np.bincount(message, minlength=len(values)) != 1))
        raise BusError(
            f"message {offsets[bad]} does not hold exactly one output in {format_.name.lower()}",
            hint="check whether another program writes to this topic",
        )
    columns = zip(OUTPUT_COLUMNS, zip(*ids, strict=True), strict=False)
    known = {name: pa.array(column, type_) for (name, type_), column in columns}
    return _batch(_joined(parts, pa.array(order)), schema, known)


def _joined(parts: Sequence[DecodedRows], order: pa.Array) -> DecodedRows:
    """Returns the rows of all parts, concatenated and then taken in the order of the indexes `order`."""
    at = order.to_numpy()
    columns = [pa.concat_arrays(each).take(order) for each in zip(*(rows.columns for rows in parts), strict=True)]
    message, index, opcode, flags = (
        np.concatenate([getattr(rows, name) for rows in parts])[at] for name in ("message", "index", "opcode", "flags")
    )
    return DecodedRows(message, index, opcode, flags, columns)


def _decoded(values: Sequence[bytes], format_: MessageFormat, schema: Schema) -> list[DecodedRows]:
    """Decodes messages in a format other than Arrow. Raises BusError if a message has a bad row."""
    if format_ is MessageFormat.AVRO:
        rows, bad = avro_block.decode_events(values, range(len(values)), schema)
        parts = [] if rows is None else [rows]
    else:
        decode = decode_rows if format_ is MessageFormat.CSV else decode_json
        parts, bad = decode(pa.array(values, pa.binary()), schema)
    if len(bad):
        raise _no_outputs(format_, bad)
    return parts


def _no_outputs(format_: MessageFormat, bad: BadRows) -> BusError:
    return BusError(
        f"a message holds no outputs in {format_.name.lower()} of this window",
        detail=f"row {bad.index[0]}: {bad.sentence[0].as_py()}",
        hint="name the project that runs under this prefix",
    )


def _batch(rows: DecodedRows, schema: Schema, known: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Returns the rows as a batch of outputs. `known`: the known ones of OUTPUT_COLUMNS; all others, except opcode and flags, are
    null."""
    count, known = len(rows.message), {**known, "hs:opcode": pa.array(rows.opcode), "hs:flags": pa.array(rows.flags)}
    ours = [known[name] if name in known else pa.nulls(count, type_) for name, type_ in OUTPUT_COLUMNS]
    return pa.RecordBatch.from_arrays([*ours, *rows.columns], schema=output_schema(schema))


def schema_of(rows: pa.RecordBatch) -> Schema:
    """Returns the schema of the fields of a batch of outputs. All fields have the role VALUE, because a batch does not record its
    keys."""
    fields = [field for field in rows.schema if not field.name.startswith("hs:")]
    return Schema(tuple(Field(field.name, _FIELD_TYPE[field.type], KeyRole.VALUE) for field in fields))
