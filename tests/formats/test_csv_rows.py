"""Outputs as CSV (SPEC 5.2), which reads back."""

from __future__ import annotations

import base64
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.formats.csv.decode import decode_rows
from hotspare.formats.csv.grammar import quoted
from hotspare.formats.csv.rows import CsvStyle, RowPrefix, field_texts, row_messages, rows_to_csv, value_texts
from hotspare.model.events import FLAG_LETTER, OPCODE_LETTER, Flag, Opcode
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.batch import output_schema

SCHEMA = Schema(
    (
        Field("s", FieldType.STRING, KeyRole.KEY),
        Field("i", FieldType.INT32),
        Field("n", FieldType.INT64),
        Field("x", FieldType.DOUBLE),
        Field("t", FieldType.STAMP),
        Field("d", FieldType.DATE),
        Field("m", FieldType.MONEY),
        Field("b", FieldType.BLOB),
        Field("a", FieldType.DOUBLE_ARRAY),
    )
)
Row = tuple[object, ...]


def outputs(schema: Schema, rows: list[Row], opcodes: list[int], flags: list[int]) -> pa.RecordBatch:
    form = output_schema(schema)
    count = len(rows)
    numbers = [pa.array(np.zeros(count), f.type) for f in list(form)[:9]]
    numbers[7], numbers[8] = pa.array(opcodes, pa.uint8()), pa.array(flags, pa.uint8())
    columns = [list(c) for c in zip(*rows, strict=True)] or [[] for _ in schema.fields]
    arrays = [
        pa.array(c, pa.int64()).cast(f.type) if pa.types.is_timestamp(f.type) else pa.array(c, f.type)
        for c, f in zip(columns, list(form)[9:], strict=True)
    ]
    return pa.RecordBatch.from_arrays([*numbers, *arrays], schema=form)


def test_file_style_is_that_of_the_reference_output() -> None:
    """SPEC 5.1: `I,R, 323,325,4846,...,6310.000000`: a blank after the flag, doubles with six decimals, null empty."""
    schema = Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("user", FieldType.DOUBLE), Field("s", FieldType.STRING)))
    batch = outputs(schema, [(323, 6310.0, "a"), (324, None, None), (325, -0.5, "b,c")], [1, 6, 4], [4, 1, 5])
    assert rows_to_csv(batch, CsvStyle.FILE) == b'I,R, 323,6310.000000,a\nUB,N, 324,,\nD,NR, 325,-0.500000,"b,c"\n'


def test_no_rows_are_no_text() -> None:
    assert rows_to_csv(outputs(SCHEMA, [], [], []), CsvStyle.FILE) == b""


MONEYS = st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: Decimal(n).scaleb(-4))
FIELDS = (
    st.one_of(st.none(), st.text(max_size=8), st.text(alphabet='a", \\\r\n', max_size=6)),
    st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
    st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    st.one_of(st.none(), st.floats()),
    st.one_of(st.none(), st.integers(-(10**15), 10**16)),
    st.one_of(st.none(), st.integers(-(10**9), 10**10)),
    st.one_of(st.none(), MONEYS),
    st.one_of(st.none(), st.binary(max_size=8)),
    st.one_of(st.none(), st.lists(st.none() | st.floats(), max_size=3)),
)
ROWS = st.tuples(*FIELDS)


@given(st.lists(st.tuples(ROWS, st.integers(1, 6), st.integers(1, 7)), max_size=6))
@pytest.mark.parametrize("style", list(CsvStyle))
def test_what_is_written_reads_back(style: CsvStyle, rows: list[tuple[Row, int, int]]) -> None:
    batch = outputs(SCHEMA, [r for r, _, _ in rows], [o for _, o, _ in rows], [f for _, _, f in rows])
    parts, bad = decode_rows(pa.array([rows_to_csv(batch, style)], pa.binary()), SCHEMA)
    assert len(bad) == 0
    if not rows:
        assert parts == []
        return
    (part,) = parts
    assert part.opcode.tolist() == [o for _, o, _ in rows]
    assert part.flags.tolist() == [f for _, _, f in rows]
    for field, found, written in zip(SCHEMA.fields, part.columns, batch.columns[9:], strict=True):
        if field.type is FieldType.DOUBLE and style is CsvStyle.FILE:
            written = pa.array([None if v is None else float(f"{v:.6f}") for v in written.to_pylist()], pa.float64())
        if field.type is FieldType.DOUBLE_ARRAY and style is CsvStyle.FILE:
            rounded = [v and [e if e is None else float(f"{e:.6f}") for e in v] for v in written.to_pylist()]
            written = pa.array(rounded, written.type)
        assert [repr(v) for v in found] == [repr(v) for v in written], field.name


def model_row(style: CsvStyle, prefix: RowPrefix, opcode: int, flags: int, row: Row) -> bytes:
    """Returns a row as CSV by the rules alone, value by value."""
    words = {"opcode": OPCODE_LETTER[Opcode(opcode)], "flags": "".join(FLAG_LETTER[flag] for flag in Flag if flag & flags)}
    before = [words[name].encode() for name in prefix.value]
    fields = [model_value(value, field.type, style) for value, field in zip(row, SCHEMA.fields, strict=True)]
    if style is CsvStyle.FILE and before:
        fields[0] = b" " + fields[0]
    return b",".join([*before, *fields])


def model_value(value: object, type_: FieldType, style: CsvStyle) -> bytes:
    if value is None:
        return b""
    if isinstance(value, str):
        text = value.encode()
        is_plain = text and not set(text) & set(b',"\\\r\n') and text[:1] not in b" \t" and text[-1:] not in b" \t"
        return text if is_plain else quoted(text)
    if isinstance(value, bytes):
        return base64.b64encode(value) or b'""'
    if isinstance(value, list):
        elements = [model_value(each, FieldType.DOUBLE, style) or b"null" for each in value]
        return b"[" + b";".join(elements) + b"]"
    if type_ is FieldType.DOUBLE:
        return (f"{value:.6f}" if style is CsvStyle.FILE else pa.array([value]).cast(pa.string())[0].as_py()).encode()
    return (f"{value:.4f}" if type_ is FieldType.MONEY else str(value)).encode()


_FEW_DIGITS = st.builds(lambda number, digits: number / 10**digits, st.integers(-(10**15), 10**15), st.integers(0, 20))
EVENTS = st.tuples(
    st.tuples(*(_FEW_DIGITS | each if i == 3 else each for i, each in enumerate(FIELDS))), st.integers(1, 6), st.integers(0, 7)
)


@given(st.lists(EVENTS, min_size=1, max_size=6), st.sampled_from(CsvStyle), st.sampled_from(RowPrefix), st.integers(0, 3))
def test_rows_are_written_by_the_rules(events: list[tuple[Row, int, int]], style: CsvStyle, prefix: RowPrefix, begin: int) -> None:
    batch = outputs(SCHEMA, [r for r, _, _ in events], [o for _, o, _ in events], [f for _, _, f in events]).slice(begin)
    model = [model_row(style, prefix, opcode, flags, row) for row, opcode, flags in events[begin:]]
    assert rows_to_csv(batch, style, prefix) == b"".join(row + b"\n" for row in model)
    if prefix is RowPrefix.EVENT:
        assert row_messages(batch, style) == model
    if prefix is RowPrefix.NONE:
        table = pa.Table.from_batches([batch]).select(SCHEMA.names)
        assert [text.encode() for text in field_texts(table, style)] == model


def test_fields_of_other_types_are_written_as_text() -> None:
    """Tables that are not outputs may have them."""
    columns = {
        "small": pa.array([-1, None], pa.int16()),
        "unsigned": pa.array([2**64 - 1, 0], pa.uint64()),
        "single": pa.array([0.5, None], pa.float32()),
        "nothing": pa.nulls(2),
        "texts": pa.nulls(2, pa.string()),
    }
    assert field_texts(pa.table(columns), CsvStyle.EXACT) == ["-1,18446744073709551615,0.5,,", ",0,,,"]


def test_many_rows_are_written_in_pieces() -> None:
    rows: list[Row] = [(f"{number},", number, None, number / 8, None, None, None, None, None) for number in range(10_000)]
    batch = outputs(SCHEMA, rows, [1] * len(rows), [1] * len(rows))
    assert row_messages(batch, CsvStyle.FILE) == [model_row(CsvStyle.FILE, RowPrefix.EVENT, 1, 1, row) for row in rows]


_NEAR_HALVES = st.builds(
    lambda number, steps: (number + 0.5 + steps * 2.0**-40) / 1e6, st.integers(-(10**15), 10**15), st.integers(-3, 3)
)


@given(st.lists(st.none() | st.floats() | _NEAR_HALVES | st.sampled_from([0.0, -0.0, -1e-9, 5e-7, 1e9, 999_999_999.999_999_5])))
def test_six_decimals_are_those_of_python(values: list[float | None]) -> None:
    texts = [None if value is None else f"{value:.6f}" for value in values]
    assert value_texts(pa.array(values, pa.float64()), CsvStyle.FILE).to_pylist() == texts
    assert field_texts(pa.table({"x": pa.array(values, pa.float64())}), CsvStyle.FILE) == [text or "" for text in texts]
