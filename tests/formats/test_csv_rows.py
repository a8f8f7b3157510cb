"""Outputs as CSV (SPEC 5.2), which reads back."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.formats.csv.decode import decode_rows
from hotspare.formats.csv.rows import CsvStyle, rows_to_csv, value_texts
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
ROWS = st.tuples(
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


_NEAR_HALVES = st.builds(
    lambda number, steps: (number + 0.5 + steps * 2.0**-40) / 1e6, st.integers(-(10**15), 10**15), st.integers(-3, 3)
)


@given(st.lists(st.none() | st.floats() | _NEAR_HALVES | st.sampled_from([0.0, -0.0, -1e-9, 5e-7, 1e9, 999_999_999.999_999_5])))
def test_six_decimals_are_those_of_python(values: list[float | None]) -> None:
    texts = value_texts(pa.array(values, pa.float64()), CsvStyle.FILE).to_pylist()
    assert texts == [None if value is None else f"{value:.6f}" for value in values]
