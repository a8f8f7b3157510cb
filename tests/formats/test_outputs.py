"""Outputs in every format read back bit for bit; Avro files from elsewhere, also hostile ones."""

from __future__ import annotations

import datetime
import decimal
import io
import json
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import BusError
from hotspare.formats import avro_block
from hotspare.formats.outputs import decode_each, decode_outputs, encode_each, encode_outputs
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.arrays import packed
from hotspare.rows.batch import ARROW_TYPE, EVENT_FORMATS, OUTPUT_COLUMNS, TEXT_FORMATS, MessageFormat, output_schema
from tests.formats.bad_rows import listed
from tests.formats.every_type import EVERY_TYPE

SCHEMA = Schema((*EVERY_TYPE.fields, Field("opcode", FieldType.STRING)))
OTHERS = [MessageFormat.CSV, MessageFormat.JSON, MessageFormat.AVRO]
VALUES = st.tuples(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=6),
    st.decimals(-(10**13), 10**13, places=4),
    st.integers(-(2**62), 2**62),
    st.integers(-(2**40), 2**40),
    st.binary(max_size=5),
    st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=3),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3),
    st.lists(st.none() | st.floats(allow_nan=False), max_size=3),
    st.sampled_from(["i", "x", 'a"b\\', "\n"]),
)
ROWS = st.lists(
    st.tuples(st.sampled_from([1, 2, 3, 4, 5, 6]), st.sampled_from([1, 3, 4]), VALUES, st.sets(st.integers(1, 11))),
    min_size=1,
    max_size=6,
)


def batch_of(rows: list[Any], first: int) -> pa.RecordBatch:
    count = len(rows)
    ours = {"hs:sequence": range(first, first + count), "hs:opcode": [r[0] for r in rows], "hs:flags": [r[1] for r in rows]}
    columns = [pa.array(list(ours.get(name, [7] * count)), type_) for name, type_ in OUTPUT_COLUMNS]
    for place, field in enumerate(SCHEMA.fields):
        column = [None if place in row[3] else row[2][place] for row in rows]
        columns.append(pa.array(column, ARROW_TYPE[field.type]))
    return pa.RecordBatch.from_arrays(columns, schema=output_schema(SCHEMA))


def bits(batch: pa.RecordBatch) -> list[Any]:
    columns = []
    for name in ("hs:sequence", "hs:opcode", "hs:flags", *SCHEMA.names):
        column = batch.column(name)
        if pa.types.is_floating(column.type):
            filled = column.fill_null(0.0).to_numpy().view(np.int64).tolist()
            columns.append(list(zip(filled, column.is_valid().to_pylist(), strict=True)))
        elif pa.types.is_list(column.type):
            columns.append(packed(column).to_pylist())
        else:
            columns.append((column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist())
    return columns


@pytest.mark.parametrize("format_", EVENT_FORMATS)
@given(rows=ROWS, first=st.integers(1, 10**12))
def test_outputs_survive_every_format(format_: MessageFormat, rows: list[Any], first: int) -> None:
    batch = batch_of(rows, first)
    found = decode_outputs(encode_outputs(batch, format_), format_, SCHEMA, first)
    assert found.schema.equals(batch.schema)
    assert bits(found) == bits(batch)


@pytest.mark.parametrize("format_", sorted(TEXT_FORMATS))
@given(rows=ROWS, first=st.integers(1, 10**12))
def test_outputs_survive_as_messages_of_their_own(format_: MessageFormat, rows: list[Any], first: int) -> None:
    """The ids are restored from the headers."""
    batch = batch_of(rows, first)
    ids = list(zip(*(batch.column(place).to_pylist() for place in range(7)), strict=True))
    messages = encode_each(batch, format_)
    found = decode_each(messages, format_, SCHEMA, ids, range(len(ids)))
    assert found.schema.equals(batch.schema)
    assert bits(found) == bits(batch)
    assert found.select(range(7)).equals(batch.select(range(7)))
    assert format_ is not MessageFormat.JSON or [json.loads(each)["hs:sequence"] for each in messages] == [each[0] for each in ids]


@pytest.mark.parametrize("value", [b"", b"x", b"i,n\ni,n", b"{}{}", b"[]"])
@pytest.mark.parametrize("format_", sorted(TEXT_FORMATS))
def test_a_message_of_its_own_that_holds_no_output_or_two_is_refused(format_: MessageFormat, value: bytes) -> None:
    with pytest.raises(BusError, match=r"message 7 does not hold exactly one output|holds no outputs"):
        decode_each([value], format_, SCHEMA, [(1, 0, 0, 0, 0, 0, 0)], [7])


@pytest.mark.parametrize("format_", OTHERS)
def test_what_is_no_message_of_outputs_is_refused(format_: MessageFormat) -> None:
    with pytest.raises(BusError, match="holds no outputs"):
        decode_outputs(b"x", format_, SCHEMA, 1)


def test_json_is_json_for_everybody() -> None:
    arrays = [1, None], [], [0.5, float("inf")]
    rows = [(1, 4, (1, 2, float("inf"), 'a"\n\t', decimal.Decimal("1.5"), 3, 4, b"\xff", *arrays, "x"), set())]
    text = encode_outputs(batch_of(rows, 9), MessageFormat.JSON).decode()
    expected = {"hs:opcode": "I", "flags": "R", "id": 1, "n": 2, "x": "inf", "s": 'a"\n\t', "m": 1.5, "t": 3, "d": 4, "b": "/w=="}
    expected |= {"few": [1, None], "many": [], "real": [0.5, "inf"]}
    assert json.loads(text) == {**expected, "opcode": "x", "hs:sequence": 9}


def test_avro_is_avro_for_everybody() -> None:
    rows = [(2, 1, (1, 2, 0.5, "a", decimal.Decimal("1.5000"), 3, 4, b"\xff", [1, None], [], [0.5], "x"), {1})]
    (record,) = fastavro.reader(io.BytesIO(encode_outputs(batch_of(rows, 9), MessageFormat.AVRO)))
    fields = {"id": 1, "n": None, "x": 0.5, "s": "a", "m": decimal.Decimal("1.5000"), "t": 3, "d": 4, "b": b"\xff", "opcode": "x"}
    assert record == {"hs_opcode": "U", "flags": "N", **fields, "few": [1, None], "many": [], "real": [0.5]}


SMALL = Schema(
    (
        Field("id", FieldType.INT64, KeyRole.KEY),
        Field("m", FieldType.MONEY),
        Field("t", FieldType.STAMP),
        Field("x", FieldType.DOUBLE),
    )
)


def avro_file(fields: list[dict[str, Any]], records: list[dict[str, Any]], **options: Any) -> bytes:
    sink = io.BytesIO()
    schema = {"type": "record", "name": "other", "fields": fields}
    fastavro.writer(sink, fastavro.parse_schema(schema), records, **options)
    return sink.getvalue()


def decoded(value: bytes) -> tuple[list[Any], list[tuple[int, str]]]:
    rows, bad = avro_block.decode_events([value], [3], SMALL)
    events = (
        []
        if rows is None
        else list(zip(rows.index.tolist(), rows.opcode.tolist(), *(c.to_pylist() for c in rows.columns), strict=True))
    )
    return events, [(row.row, row.reason) for row in listed(bad)]


def test_a_file_with_another_schema() -> None:
    """Fields by name, other number types, logical times; a value that does not fit makes only its own row bad."""
    fields = [
        {"name": "extra", "type": "string"},
        {"name": "id", "type": ["null", "int", "double"]},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "opcode", "type": {"type": "enum", "name": "op", "symbols": ["delete", "what"]}},
        {"name": "x", "type": "long"},
    ]
    moment = datetime.datetime(2020, 1, 1, microsecond=7, tzinfo=datetime.UTC)
    good = {"extra": "e", "id": 5, "t": moment, "opcode": "delete", "x": 3}
    events, bad = decoded(
        avro_file(fields, [good, {**good, "id": 1.5}, {**good, "opcode": "what"}, {**good, "x": 2**53 + 1}, good])
    )
    assert [(e[0], e[1], e[2], e[3], e[5]) for e in events] == [(0, 4, 5, None, 3.0), (4, 4, 5, None, 3.0)]
    assert int(events[0][4].timestamp()) == int(moment.timestamp())
    assert events[0][4].microsecond == 7
    assert bad == [(1, "field-type"), (2, "opcode"), (3, "field-type")]


LONG = [{"name": "id", "type": "long"}]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"Obj\x01",
        b"\xc3\x01" + b"0" * 20,
        avro_file(LONG, [{"id": 1}])[:-3],
        avro_file(LONG, [{"id": 1}], codec="deflate"),
        avro_file([{"name": "z", "type": {"type": "array", "items": "null"}}], [{"z": []}]),
        avro_file([{"name": "z", "type": "null"}], [{"z": None}] * 5000),
    ],
    ids=["empty", "cut", "single", "torn", "packed", "nested", "nothing"],
)
def test_a_file_that_cannot_be_taken_is_one_bad_row(value: bytes) -> None:
    assert decoded(value) == ([], [(0, "format")])


@given(at=st.integers(0, 400), put=st.binary(max_size=3), cut=st.integers(0, 3))
def test_damage_never_raises(at: int, put: bytes, cut: int) -> None:
    value = avro_file(avro_block.avro_schema(SMALL)["fields"], [{"opcode": "i", "flags": "n", "id": n, "x": 0.5} for n in range(3)])
    decoded(value[:at] + put + value[at + cut :])
