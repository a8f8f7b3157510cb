"""Avro files with damaged structure: each is one bad row, with a sentence that is equal in all engines."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from hotspare.formats import avro_block
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from tests.formats.bad_rows import listed
from tests.laws.damaged_files import SYNC, avro_bytes, avro_header, avro_long
from tests.laws.damaged_files import avro_block as block

SCHEMA = Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("m", FieldType.MONEY)))
ID: dict[str, Any] = {"name": "id", "type": "long"}
ROW = avro_long(7)
NESTED = {"type": "array", "items": "int"}


def file(*blocks: bytes, fields: list[dict[str, Any]] | None = None) -> bytes:
    return avro_header({"type": "record", "name": "r", "fields": fields or [ID]}) + b"".join(blocks)


def deep(levels: int) -> bytes:
    return avro_header(
        b'{"type":"record","name":"r","fields":[{"name":"id","type":"long","doc":' + b"[" * levels + b"]" * levels + b"}]}"
    )


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (file(block(0, ROW * 3)), "0 records, more follows"),
        (file(block(1, ROW), block(1, ROW * 3)), "1 records, more follows"),
        (file(block(1, ROW), b"\x80"), "cut short"),
        (file(block(1, ROW, sync=SYNC[::-1])), "(ValueError)"),
        (file(block(1, b"\0\0"), fields=[{"name": "id", "type": "double"}]), "cut short"),
        (file(fields=[{"name": "\ud800", "type": {"type": "array", "items": NESTED}}]), "field \\ud800 is nested"),
        (file(fields=[{"name": "few", "type": {"type": "array", "items": "null"}}]), "field few is nested"),
        (deep(200) + block(1, ROW), "nested deeper than 100"),
    ],
)
def test_a_damaged_file_is_one_bad_row_that_says_why(value: bytes, part: str) -> None:
    told = [avro_block.decode_events([value], [5], SCHEMA) for _ in range(2)]
    assert [rows for rows, _ in told] == [None, None]
    (bad,) = listed(told[0][1])
    assert listed(told[1][1]) == [bad]
    assert (bad.message, bad.row, bad.reason) == (5, 0, "format")
    assert part in bad.sentence
    assert " at 0x" not in bad.sentence


def test_an_empty_file_has_no_rows() -> None:
    rows, bad = avro_block.decode_events([file(), file(block(0, b""))], [0, 1], SCHEMA)
    assert (rows, len(bad)) == (None, 0)


@pytest.mark.parametrize(
    ("units", "scale", "amount"),
    [
        (123456, 4, Decimal("12.3456")),
        (-1, 2, Decimal("-0.01")),
        (10**19, 19, 1),
        (123456, 5, None),
        (10**18, 4, None),
        (1, -1, None),
    ],
)
def test_decimals_are_taken_to_the_last_digit(units: int, scale: int, amount: Decimal | None) -> None:
    """They are not rounded to the schema's precision."""
    type_ = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": scale}
    body = ROW + avro_bytes(units.to_bytes(10, signed=True))
    rows, bad = avro_block.decode_events([file(block(1, body), fields=[ID, {"name": "m", "type": type_}])], [0], SCHEMA)
    assert [each.reason for each in listed(bad)] == (["field-type"] if amount is None else [])
    assert (rows.columns[1].to_pylist() if rows else None) == (None if amount is None else [amount])
