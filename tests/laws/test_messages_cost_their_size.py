"""The cost of a message follows from its size: a small message that expands to much is one bad row, with the reason.

Messages that used to take hours or any amount of memory are read at lengths at which a regression makes the test hang.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.flow.head.head import Head
from hotspare.formats import arrow_block
from hotspare.formats.avro_block import decode_events as avro_events
from hotspare.projects.resolve import resolve
from hotspare.rows.batch import MessageFormat
from tests.flow.head.messages import TRADES, Message, project, raw
from tests.laws.damaged_files import avro_block, avro_bytes, avro_header, avro_long

HEAD = Head.build(resolve(project()))
TEXT = 1 << 20


def told(value: bytes, number: MessageFormat) -> tuple[int, list[tuple[str, str]]]:
    """Returns the number of rows of a message, and reason and sentence of the bad ones."""
    rows = HEAD.decode(raw([Message(1, value, number)]))
    bad = [(row["reason"], row["message"]) for row in rows.column("bad").to_pylist() if row is not None]
    return rows.num_rows, bad


def block(rows: int, codec: str | None = None, **columns: pa.Array) -> bytes:
    plain = {"id": pa.array(range(rows), pa.int64()), "price": pa.nulls(rows), "name": pa.array(["a"] * rows)}
    batch = pa.RecordBatch.from_pydict(plain | columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def shared(rows: int, text: str) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int8()), pa.array([text]))


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_packed_block_is_refused_before_it_is_unpacked(codec: str) -> None:
    count, bad = told(block(10, codec, name=pa.array(["a" * TEXT] * 10)), MessageFormat.ARROW)
    assert (count, bad) == (1, [("format", "window cq/trades: the buffers of a block are packed")])


def test_texts_that_rows_share_are_summed_up_before_they_are_written_out() -> None:
    count, bad = told(block(65, name=shared(65, "a" * TEXT)), MessageFormat.ARROW)
    assert count == 1
    assert [(reason, "written out" in sentence) for reason, sentence in bad] == [("format", True)]


@pytest.mark.parametrize(("rows", "text_bytes", "is_taken"), [(60, 1_000, True), (20_000, 1_000, True), (20_000, 2_000, False)])
def test_what_rows_share_is_bounded_by_the_size_of_their_message(rows: int, text_bytes: int, is_taken: bool) -> None:
    """A batch has thousands of messages, and the texts of all are in memory at once."""
    count, bad = told(block(rows, name=shared(rows, "a" * text_bytes)), MessageFormat.ARROW)
    assert (count, len(bad)) == ((rows, 0) if is_taken else (1, 1))


def test_views_of_one_text_count_as_often_as_they_are_seen() -> None:
    view = (TEXT).to_bytes(4, "little") + b"aaaa" + bytes(8)
    for rows in (65, 3):
        buffers = [None, pa.py_buffer(view * rows), pa.py_buffer(b"a" * TEXT)]
        name = pa.Array.from_buffers(pa.string_view(), rows, buffers)
        count, bad = told(block(rows, name=name), MessageFormat.ARROW)
        assert (count, len(bad)) == ((3, 0) if rows == 3 else (1, 1))


def test_a_block_has_no_more_rows_than_bytes() -> None:
    count, bad = told(block(100_000, id=pa.nulls(100_000), name=pa.nulls(100_000)), MessageFormat.ARROW)
    assert count == 1
    assert "100000 rows" in bad[0][1]


@given(st.lists(st.sampled_from(["a", "", "ü", None]), min_size=1, max_size=9), st.integers(0, 3))
def test_small_dictionaries_mean_what_plain_texts_do(texts: list[str | None], begin: int) -> None:
    plain, coded = pa.array(texts, pa.string()), pa.array(texts, pa.string()).dictionary_encode()
    begin = min(begin, len(texts) - 1)
    count = len(texts) - begin
    found = [
        arrow_block.decode_events([block(count, name=name.slice(begin))], [0], TRADES)[0]
        for name in (plain, coded, plain.cast(pa.string_view()))
    ]
    assert [rows and rows.columns[2].to_pylist() for rows in found] == [texts[begin:]] * 3


def avro(fields: list[dict[str, Any]], count: int, body: bytes) -> bytes:
    """Returns a container file whose one block claims `count` records."""
    return avro_header({"type": "record", "name": "r", "fields": fields}) + avro_block(count, body)


@pytest.mark.parametrize("count", [-5, 1 << 40])
def test_a_block_of_avro_that_lies_about_its_records_is_bad(count: int) -> None:
    rows, bad = avro_events([avro([{"name": "id", "type": "long"}], count, b"\x02" * 30)], [0], TRADES)
    assert rows is None
    assert bad.reason.to_pylist() == ["format"]
    assert f"{count} records" in bad.sentence[0].as_py()


@pytest.mark.parametrize("type_", ["null", {"type": "fixed", "name": "f", "size": 0}])
def test_fields_that_take_no_bytes_are_refused(type_: Any) -> None:
    fields = [{"name": f"x{i}", "type": type_ if not i else "int" if i == 1 else "null"} for i in range(3)]
    rows, bad = avro_events([avro(fields, 4, b"\x02" * 4)], [0], TRADES)
    assert rows is None
    assert "takes no bytes" in bad.sentence[0].as_py()


@pytest.mark.parametrize("name", ["price", "other"])
def test_a_long_decimal_is_no_number(name: str) -> None:
    """Conversion to a number would take time that grows with the square of its length."""
    fields: list[dict[str, Any]] = [{"name": "id", "type": "long"}]
    fields += [{"name": name, "type": {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 4}}]
    rows, bad = avro_events([avro(fields, 1, avro_long(1) + avro_bytes(b"\x7f" * 4 * TEXT))], [0], TRADES)
    assert (rows is None, bad.reason.to_pylist()) == ((True, ["field-type"]) if name == "price" else (False, []))


def test_batches_count_with_the_dictionaries_that_they_use() -> None:
    words = pa.array(["a" * TEXT])
    texts = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), words)
    batch = pa.RecordBatch.from_pydict({"id": pa.array([1]), "price": pa.array([0.5]), "name": texts})
    for batches in (300, 30):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            for _ in range(batches):
                writer.write_batch(batch)
        count, bad = told(bytes(sink.getvalue().to_pybytes()), MessageFormat.ARROW)
        assert (count, [("dictionaries of each" in sentence) for _, sentence in bad]) == (
            (1, [True]) if batches == 300 else (30, [])
        )


JSON = {
    "escaped quotes that nobody closes": b"{" * 101 + b'"' + b'\\"' * 200_000,
    "a long text behind many brackets": b'{"id":1,"x":[' + b"[]," * 100 + b'[]],"name":"' + b"a" * TEXT + b'"}\n7',
    "deep arrays": b'{"id":1,"x":' + b"[" * TEXT + b"}",
    "deep objects": b'{"x":' * 100_000,
    "a number of many digits": b'{"id":1' + b"0" * TEXT + b"}",
}


@pytest.mark.parametrize("name", JSON)
def test_json_is_read_in_one_pass(name: str) -> None:
    count, bad = told(JSON[name], MessageFormat.JSON)
    assert bad
    assert count == len(bad) + (name == "a long text behind many brackets")
    assert {reason for reason, _ in bad} <= {"format", "field-type"}


ROWS = {
    "objects next to each other": (b'{"id":1}{"id":2}' * 50_000, 100_000, 0),
    "objects of an array on one line": (b"[" + b'{"id":1,"x":[{}]},' * 50_000 + b"]", 50_000, 0),
    "bad objects next to each other": (b'{"id":1 2}' * 50_000, 50_000, 50_000),
    "objects that each line leaves open": (b'{"id":1,\n' * 50_000, 50_000, 50_000),
    "values that each hide the next one": (b'"a" "b' * 50_000, 1, 1),
    "values": (b"1 " * 50_000, 50_000, 50_000),
    "blanks between objects": ((b'{"id":1}' + b" " * 1000) * 1000, 1000, 0),
    "names that are not known": (b'{"id":1' + b',"a":0,"b":{"c":0}' * 50_000 + b"}", 1, 0),
}


@pytest.mark.parametrize("name", ROWS)
def test_many_rows_of_one_json_message_are_read_in_one_pass(name: str) -> None:
    value, rows, bad = ROWS[name]
    count, refused = told(value, MessageFormat.JSON)
    assert (count, len(refused)) == (rows, bad)


CSV = {
    "quotes that each line leaves open": (b'b","\n' * (TEXT // 5), TEXT // 5, {"quote"}),
    "quotes that each line takes for a pair": (b'x,"""\n' * (TEXT // 6), TEXT // 12, {"column-count"}),
    "quotes": (b'i,n,1,50,"' + b'"' * TEXT + b'"', 1, set()),
    "doubled and escaped quotes": (b'i,n,1,50,"' + b'\\"""' * (TEXT // 4) + b'"', 1, set()),
    "line feeds in quotes": (b'i,n,1,50,"' + b"\n" * (TEXT - 20) + b'"', 1, set()),
    "carriage returns at the end of lines": (b"i,n,1,50," + b"\r" * TEXT + b"\ni,n,1,50,a" * 10_000, 10_001, set()),
    "spaces around quotes": (b"i,n,1,50," + b" " * TEXT + b'"a"' + b" " * TEXT, 1, set()),
    "backslashes": (b"i,n,1,50," + b"\\" * TEXT, 1, set()),
    "blank lines": (b" \n" * (TEXT // 2) + b"i,n,1,50,a", 1, set()),
}


@pytest.mark.parametrize("name", CSV)
def test_csv_is_read_in_one_pass(name: str) -> None:
    value, rows, reasons = CSV[name]
    count, bad = told(value, MessageFormat.CSV)
    assert (count, {reason for reason, _ in bad}) == (rows, reasons)
