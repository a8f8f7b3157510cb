"""The two rows of an update block pass or are refused together, also if the first cannot be read (SPEC A10, A11)."""

from __future__ import annotations

import io

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.flow.head.head import Head, TopicHead
from hotspare.formats import arrow_block
from hotspare.formats.csv.decode import CsvOptions
from hotspare.model.events import Opcode
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.batch import OUTPUTS_FORM, RAW_SCHEMA, MessageFormat, RowKind

SCHEMA = Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("x", FieldType.DOUBLE), Field("t", FieldType.STRING)))
Row = tuple[str, int, object, str]
"""Opcode, key, a value (text if not a double), and a text."""


def csv(rows: list[Row]) -> bytes:
    return "".join(f"{opcode},n,{key},{value},{text}\n" for opcode, key, value, text in rows).encode()


def json(rows: list[Row]) -> bytes:
    lines = (f'{{"opcode":"{o}","id":{k},"x":{v if v != "bad" else "[1]"},"t":"{t}"}}' for o, k, v, t in rows)
    return "\n".join(lines).encode()


def json_late(rows: list[Row]) -> bytes:
    """Encodes an array, with the opcode last."""
    objects = (f'{{"id":{k}, "x":{v if v != "bad" else "true"}, "t":"{t}", "opcode" : "{o.upper()}"}}' for o, k, v, t in rows)
    return b"[" + ",".join(objects).encode() + b"]"


def avro(rows: list[Row]) -> bytes:
    fields = [{"name": "opcode", "type": "string"}, {"name": "id", "type": "long"}]
    fields += [{"name": "x", "type": ["double", "string"]}, {"name": "t", "type": "string"}]
    sink = io.BytesIO()
    records = [{"opcode": o, "id": k, "x": v if v == "bad" else float(str(v)), "t": t} for o, k, v, t in rows]
    fastavro.writer(sink, fastavro.parse_schema({"name": "row", "type": "record", "fields": fields}), records)
    return sink.getvalue()


def arrow(rows: list[Row]) -> bytes:
    """Encodes a block; an unreadable row has invalid flags."""
    numbers = {"i": 1, "u": 2, "p": 3, "d": 4, "sd": 5, "ub": 6}
    columns = {"opcode": [numbers[o] for o, *_ in rows], "flags": [99 if v == "bad" else 1 for _, _, v, _ in rows]}
    columns["id"] = [k for _, k, *_ in rows]
    values = {"x": pa.array([1.0] * len(rows)), "t": pa.array([t for *_, t in rows])}
    return arrow_block.encode(pa.RecordBatch.from_pydict({**{name: pa.array(c) for name, c in columns.items()}, **values}))


CODECS = [(csv, MessageFormat.CSV), (json, MessageFormat.JSON), (json_late, MessageFormat.JSON)]
CODECS += [(avro, MessageFormat.AVRO), (arrow, MessageFormat.ARROW)]


def kinds(value: bytes, form: int) -> list[tuple[RowKind, int]]:
    """Returns kind and opcode of each row that the head decodes from a message."""
    raw = pa.RecordBatch.from_pylist(
        [{"topic": 0, "partition": 0, "offset": 1, "time_us": 1, "tick": False, "format": form, "value": value}], RAW_SCHEMA
    )
    made = Head((TopicHead("q/w", SCHEMA, CsvOptions(), None),)).decode(raw)
    return [(RowKind(k), o) for k, o in zip(made.column("kind").to_pylist(), made.column("opcode").to_pylist(), strict=True)]


@pytest.mark.parametrize(("encode", "form"), CODECS)
def test_the_delete_behind_a_new_row_that_cannot_be_read_deletes_nothing(encode, form) -> None:  # type: ignore[no-untyped-def]
    rows: list[Row] = [
        ("i", 1, 1, "a"),
        ("ub", 2, "bad", "b"),
        ("d", 2, 1, "b"),
        ("d", 3, 1, "c"),
        ("u", 4, "bad", "e"),
        ("d", 4, 1, "e"),
    ]
    found = kinds(encode(rows), int(form))
    events = [(RowKind.EVENT, int(Opcode.INSERT)), (RowKind.BAD, 0), (RowKind.BAD, 0), (RowKind.EVENT, int(Opcode.DELETE))]
    assert found == [*events, (RowKind.BAD, 0), (RowKind.EVENT, int(Opcode.DELETE))]


@pytest.mark.parametrize(("encode", "form"), CODECS)
def test_outputs_of_another_project_are_folded_and_fall_together_alike(encode, form) -> None:  # type: ignore[no-untyped-def]
    rows: list[Row] = [("ub", 1, 1, "a"), ("d", 1, 1, "a"), ("ub", 2, "bad", "b"), ("d", 2, 1, "b"), ("d", 3, 1, "c")]
    found = kinds(encode(rows), int(form) | OUTPUTS_FORM)
    assert found == [(RowKind.EVENT, int(Opcode.UPDATE)), (RowKind.BAD, 0), (RowKind.BAD, 0), (RowKind.EVENT, int(Opcode.DELETE))]


@pytest.mark.parametrize("encode", [json_late, avro])
def test_where_the_opcode_may_be_behind_the_end_of_what_is_shown(encode) -> None:  # type: ignore[no-untyped-def]
    """If a row is too long for its opcode to be seen, the delete after it is refused too."""
    form = next(of for each, of in CODECS if each is encode)
    rows: list[Row] = [("ub", 2, "bad", "b" * 9_000), ("d", 2, 1, "b")]
    assert kinds(encode(rows), int(form)) == [(RowKind.BAD, 0)] * 2


@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["i", "u", "p", "d", "ub"]), st.integers(1, 3), st.sampled_from([1, 2.5, "bad"]), st.just("t"))
    ),
    codec=st.sampled_from(CODECS),
)
def test_a_delete_is_one_exactly_where_no_block_stands_before_it(rows: list[Row], codec) -> None:  # type: ignore[no-untyped-def]
    encode, form = codec
    found = kinds(encode(rows), int(form)) if rows else []
    for at, (opcode, _, value, _) in enumerate(rows):
        is_block = opcode == "ub" or (opcode == "d" and at > 0 and rows[at - 1][0] == "ub")
        assert (found[at][0] is RowKind.BAD) == (is_block or value == "bad"), (at, rows)
