"""A publisher's conversion of rows (SPEC I5): missing columns, delimiters and dates become `opcode,flag,field,...`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.files.canonical import FlagColumn, InsertOpcode, KeyPresence, OpcodeColumn, RowForm
from hotspare.base.errors import UsageError
from hotspare.model.types import Field, FieldType, KeyRole, Schema

SCHEMA = Schema(
    (
        Field("id", FieldType.INT64, KeyRole.KEY),
        Field("day", FieldType.DATE),
        Field("at", FieldType.STAMP),
        Field("text", FieldType.STRING),
    )
)


@pytest.mark.parametrize(
    ("options", "row", "expected"),
    [
        ({}, b"i,n,1,2", b"i,n,1,2"),
        ({"opcode": OpcodeColumn.ABSENT, "flag": FlagColumn.NORMAL}, b"1,2", b"i,n,1,2"),
        ({"opcode": OpcodeColumn.ABSENT}, b"n,1,2", b"i,n,1,2"),
        ({"flag": FlagColumn.PARTIAL}, b"u,1,2", b"u,p,1,2"),
        ({"opcode": OpcodeColumn.ABSENT, "flag": FlagColumn.NORMAL, "insert": InsertOpcode.UPSERT}, b"1", b"p,n,1"),
        ({"insert": InsertOpcode.UPSERT}, b" I ,n,1", b"p,n,1"),
        ({"insert": InsertOpcode.UPSERT}, b"d,n,1", b"d,n,1"),
        ({"delimiter": ";"}, b"i;n;1,5;x", b'i,n,"1,5",x'),
        ({"delimiter": ";"}, b'i;n;"a;b";x', b'i,n,"a;b",x'),
        ({"key": KeyPresence.ABSENT, "schema": SCHEMA}, b"i,n,2,3,x", b"i,n,,2,3,x"),
        (
            {"date_format": "%Y-%m-%d %H:%M:%S", "schema": SCHEMA},
            b"i,n,7,1970-01-02 00:00:00,1970-01-01 00:00:01.5,x",
            b"i,n,7,86400,1500000,x",
        ),
        ({"date_format": "%Y-%m-%d", "schema": SCHEMA}, b"i,n,7,soon,17,x", b"i,n,7,soon,17,x"),
        ({"date_format": "%Y-%m-%d", "schema": SCHEMA}, b"i,n,7", b"i,n,7"),
        ({"date_format": "%Y-%m-%d", "schema": SCHEMA}, b"i,n,7,\xff,,x", b"i,n,7,\xff,,x"),
    ],
)
def test_canonical(options: dict[str, Any], row: bytes, expected: bytes) -> None:
    assert RowForm(**options).canonicalize_rows([row]) == [expected]


@given(st.lists(st.sampled_from([b"a", b'"b,c"', b"", b"d\\,e", b' "f"', b"\xff"]), min_size=1, max_size=6))
def test_split_undoes_join(columns: list[bytes]) -> None:
    assert RowForm().split_row(b",".join(columns)) == columns


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_a_row_does_not_depend_on_its_neighbours(rows: list[bytes]) -> None:
    form = RowForm(date_format="%Y", schema=SCHEMA, delimiter=";")
    assert form.canonicalize_rows(rows) == [form.canonicalize_rows([row])[0] for row in rows]


@pytest.mark.parametrize("delimiter", ["", ",,", '"', "\\", "\n", "é"])
def test_a_delimiter_that_cannot_separate_is_refused(delimiter: str) -> None:
    with pytest.raises(UsageError, match="delimiter"):
        RowForm(delimiter=delimiter)


def test_a_date_format_needs_the_schema() -> None:
    with pytest.raises(UsageError, match="schema"):
        RowForm(date_format="%Y")


def test_a_date_format_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(UsageError, match="%Q"):
        RowForm(date_format="%Q", schema=SCHEMA)


def test_the_number_of_columns_follows_from_the_form() -> None:
    assert RowForm(schema=SCHEMA).columns == 6
    assert RowForm(schema=SCHEMA, opcode=OpcodeColumn.ABSENT, flag=FlagColumn.NORMAL, key=KeyPresence.ABSENT).columns == 3
    assert RowForm().columns is None
