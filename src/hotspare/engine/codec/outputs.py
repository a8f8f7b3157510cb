"""Messages of output topics, in any format: what is published, and what a subscriber makes of it again.

Only Arrow blocks hold all that is known of an output. The other formats are for other readers: they hold opcode, flags and fields,
and a header of the message says which outputs they are: sequences rise by one within a message.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from hotspare.engine.codec import arrow_block, avro_block
from hotspare.engine.codec.csv.decode import DecodedRows, decode_rows
from hotspare.engine.codec.csv.rows import CsvStyle, rows_to_csv
from hotspare.engine.codec.json.decode import decode_json
from hotspare.engine.codec.json.rows import rows_to_json
from hotspare.engine.rows.batch import ARROW_TYPE, OUTPUT_COLUMNS, MessageFormat, output_schema
from hotspare.engine.rows.refusals import BadRows
from hotspare.errors import BusError
from hotspare.model.types import Field, KeyRole, Schema

_FIELD_TYPE = {arrow: type_ for type_, arrow in ARROW_TYPE.items()}


def encode_outputs(rows: pa.RecordBatch, format_: MessageFormat) -> bytes:
    """A batch of `engine.rows.batch.output_schema` as one message."""
    if format_ is MessageFormat.ARROW:
        return arrow_block.encode(rows)
    if format_ is MessageFormat.CSV:
        return rows_to_csv(rows, CsvStyle.EXACT)
    if format_ is MessageFormat.JSON:
        return rows_to_json(rows, schema_of(rows))
    return avro_block.encode_rows(rows, schema_of(rows))


def decode_outputs(value: bytes, format_: MessageFormat, schema: Schema, first_sequence: int) -> pa.RecordBatch:
    """What `encode_outputs` wrote, the fields with the same bits; BusError where the value is anything else.

    `first_sequence` is that of the first row. Of a format other than Arrow, the columns of position, ordinal and digest are null.
    """
    if format_ is MessageFormat.ARROW:
        return arrow_block.decode(value)
    values = pa.array([value], pa.binary())
    if format_ is MessageFormat.CSV:
        parts, bad = decode_rows(values, schema)
    elif format_ is MessageFormat.JSON:
        parts, bad = decode_json(values, schema)
    else:
        rows, bad = avro_block.decode_events([value], [0], schema)
        parts = [] if rows is None else [rows]
    if len(bad):
        raise _no_outputs(format_, bad)
    return _batch(parts[0], schema, first_sequence) if parts else pa.RecordBatch.from_pylist([], schema=output_schema(schema))


def _no_outputs(format_: MessageFormat, bad: BadRows) -> BusError:
    return BusError(
        f"a message holds no outputs in {format_.name.lower()} of this window",
        detail=f"row {bad.index[0]}: {bad.sentence[0].as_py()}",
        hint="name the project that runs under this prefix",
    )


def _batch(rows: DecodedRows, schema: Schema, first_sequence: int) -> pa.RecordBatch:
    count = len(rows.message)
    known = {
        "hs:sequence": pa.array(np.arange(first_sequence, first_sequence + count)),
        "hs:opcode": pa.array(rows.opcode),
        "hs:flags": pa.array(rows.flags),
    }
    ours = [known[name] if name in known else pa.nulls(count, type_) for name, type_ in OUTPUT_COLUMNS]
    return pa.RecordBatch.from_arrays([*ours, *rows.columns], schema=output_schema(schema))


def schema_of(rows: pa.RecordBatch) -> Schema:
    """The fields of a batch of outputs; which of them are keys it does not say."""
    fields = [field for field in rows.schema if not field.name.startswith("hs:")]
    return Schema(tuple(Field(field.name, _FIELD_TYPE[field.type], KeyRole.VALUE) for field in fields))
