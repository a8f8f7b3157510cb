"""Encodes outputs as JSON, one object per line. `json.decode` reads them back bit for bit."""

from __future__ import annotations

import base64
import json

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.formats.csv.rows import RowPrefix
from hotspare.formats.json.plain import meta_names
from hotspare.model.types import Schema
from hotspare.rows.arrays import texts_of
from hotspare.rows.letters import flag_letters, opcode_letters

_NEEDS_ESCAPE = r'["\\\x00-\x1f]'
_NO_NUMBERS = ("nan", "inf", "-inf")


def rows_to_json(batch: pa.RecordBatch, schema: Schema, prefix: RowPrefix = RowPrefix.EVENT) -> bytes:
    """Returns one JSON object per row of a batch of `rows.batch.output_schema`, each with a line feed (`json_rows`)."""
    if batch.num_rows == 0:
        return b""
    lines = json_rows(batch, schema, prefix)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines), "\n")
    return bytes(joined[0].as_py().encode() + b"\n")


def json_rows(batch: pa.RecordBatch, schema: Schema, prefix: RowPrefix = RowPrefix.EVENT) -> pa.Array:
    """Returns one JSON object per row, as a string without a line feed.

    Members: `opcode` and `flags` in CSV notation, the fields, and `hs:sequence`. With another `prefix` than EVENT: only the
    prefix's members, and the fields. Doubles are the shortest text that parses to the same double ("nan", "inf" as strings). Dates
    are seconds and stamps microseconds since 1970, money is a number with 4 decimals, blobs are base64, arrays are JSON arrays.
    """
    texts = [opcode_letters(batch.column("hs:opcode")), flag_letters(batch.column("hs:flags"))]
    members = [
        (name, pc.binary_join_element_wise('"', text, '"', "")) for name, text in zip(meta_names(schema), texts, strict=True)
    ]
    members = members[: len(prefix.value)]
    members += [(field.name, _text(batch.column(field.name)).fill_null("null")) for field in schema.fields]
    if prefix is RowPrefix.EVENT:
        members.append(("hs:sequence", batch.column("hs:sequence").cast(pa.string())))
    pieces: list[pa.Array | str] = []
    for number, (name, text) in enumerate(members):
        pieces += [f"{',' if number else '{'}{json.dumps(name)}:", text]
    pieces.append("}")
    return pc.binary_join_element_wise(*(pa.scalar(p) if isinstance(p, str) else p for p in pieces), "")


def _text(column: pa.Array) -> pa.Array:
    """Returns the JSON value of each row; null for null."""
    type_ = column.type
    if pa.types.is_string(type_):
        return _quoted(column)
    if pa.types.is_floating(type_):
        text = column.cast(pa.string())
        special = pc.is_in(text, pa.array(_NO_NUMBERS))
        return pc.if_else(special, pc.binary_join_element_wise('"', text, '"', ""), text)
    if pa.types.is_timestamp(type_):
        return column.cast(pa.int64()).cast(pa.string())
    if pa.types.is_binary(type_):
        return pa.array([None if v is None else f'"{base64.b64encode(v).decode()}"' for v in column.to_pylist()], pa.string())
    if pa.types.is_list(type_):
        return texts_of(column, _text, ",")
    return column.cast(pa.string())


def _quoted(column: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(column, _NEEDS_ESCAPE)).as_py():
        return pa.array([None if v is None else json.dumps(v, ensure_ascii=False) for v in column.to_pylist()], pa.string())
    return pc.binary_join_element_wise('"', column, '"', "")
