"""Messages never end an engine, whatever their bytes: they become rows, good or bad, and none is lost; the same alone and in any
cut.

Changelogs never end one either: windows of every type process any opcodes, flags, keys and values, in any cut.
"""

from __future__ import annotations

import io
import json

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.formats import arrow_block
from hotspare.projects.resolve import resolve
from hotspare.rows.batch import MessageFormat, RowKind
from tests.examples import examples
from tests.flow.head.messages import Message, project, raw
from tests.laws.core_scripts import joined, plan, snapshot_bytes
from tests.laws.damaged_files import arrow_blocks, avro_files, damaged_arrow, is_empty_arrow, is_empty_avro

HEADS = (Head.build(resolve(project())), Head.build(resolve(project())))
TRADES = 1
CSV_ROWS = ["i,n,1,0.5,a", "u,p,2,,b", "x,n,3,1,c", "i,n,nine,1,d", "d,n,4", 'p,n,5,1,"a,b"', "i,n,6,1,\\,", "", ",,,,", "ä,ö"]
FIELDS = {"id": [1, None, -(2**63)], "price": [0.5, float("nan"), None], "name": ["a", None, "ü" * 50]}


def arrow_message(rows: int) -> bytes:
    columns = {"opcode": pa.array([1, 9, 0] * rows, pa.uint8()), "flags": pa.array([1, 200, 0] * rows, pa.uint8())}
    columns |= {name: pa.array(values * rows) for name, values in FIELDS.items()}
    return bytes(arrow_block.encode(pa.RecordBatch.from_pydict(columns)))


def avro_message(rows: int) -> bytes:
    fields = [{"name": "opcode", "type": ["null", "string"]}, {"name": "id", "type": ["null", "long"]}]
    fields += [{"name": "price", "type": ["null", "double"]}, {"name": "name", "type": ["null", "string"]}]
    records = [{"opcode": "i", **{name: values[i] for name, values in FIELDS.items()}} for i in range(3)] * rows
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema({"type": "record", "name": "r", "fields": fields}), records)
    return out.getvalue()


def json_message(rows: int) -> bytes:
    return json.dumps([{"opcode": "i", "id": i, "price": 1e308, "name": None} for i in range(rows)] * 3).encode()


WELL_FORMED = {
    MessageFormat.CSV: lambda rows: "\n".join(CSV_ROWS[:5] * rows).encode(),
    MessageFormat.JSON: json_message,
    MessageFormat.ARROW: arrow_message,
    MessageFormat.AVRO: avro_message,
}


@st.composite
def mutated(draw: st.DrawFn, number: MessageFormat) -> bytes:
    """Draws a message of the format with some bytes replaced, doubled, or missing."""
    value = bytearray(WELL_FORMED[number](draw(st.integers(1, 3))))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, max(len(value) - 1, 0)))
        kind = draw(st.sampled_from(["set", "set", "cut", "double", "end"]))
        if kind == "set" and value:
            value[at] = draw(st.sampled_from([0, 1, 0x22, 0x2C, 0x5B, 0x7F, 0x80, 0xFF, draw(st.integers(0, 255))]))
        elif kind == "cut":
            del value[at : at + draw(st.integers(1, 9))]
        elif kind == "double":
            value[at:at] = value[at : at + draw(st.integers(1, 40))]
        else:
            del value[at:]
    return bytes(value)


CSV_TEXT = st.lists(st.sampled_from(CSV_ROWS), max_size=6).map("\n".join).map(str.encode)
JSON_TEXT = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "price", "name", "opcode", "x"]), inner),
    max_leaves=8,
).map(lambda value: json.dumps(value).encode())
FORMS: dict[MessageFormat, list[st.SearchStrategy[bytes]]] = {
    MessageFormat.CSV: [CSV_TEXT],
    MessageFormat.JSON: [JSON_TEXT],
    MessageFormat.ARROW: [arrow_blocks(), damaged_arrow(), damaged_arrow()],
    MessageFormat.AVRO: [avro_files(), avro_files()],
}
FORMATS = [*MessageFormat, 77]


def messages(number: int) -> st.SearchStrategy[list[bytes]]:
    made = [st.binary(max_size=60)]
    if number in WELL_FORMED:
        made.append(mutated(MessageFormat(number)))
        made += FORMS[MessageFormat(number)]
    return st.lists(st.one_of(made), min_size=1, max_size=5)


@pytest.mark.parametrize("number", FORMATS)
@examples(1.6)
@given(data=st.data())
def test_any_bytes_become_rows_the_same_in_any_cut(number: int, data: st.DataObject) -> None:
    values = data.draw(messages(number))
    batch = raw([Message(TRADES, value, number) for value in values])
    try:
        whole = HEADS[0].decode(batch)
        alone = [HEADS[0].decode(batch.slice(i, 1)) for i in range(len(values))]
    except Exception as error:
        raise AssertionError(f"format {number}: {values}: {error!r}") from error
    assert pa.concat_batches(alone).to_pylist().__repr__() == whole.to_pylist().__repr__()
    assert "poison" not in {row["reason"] for row in whole.column("bad").to_pylist() if row is not None}
    kinds = whole.column("kind").to_pylist()
    assert set(kinds) <= {RowKind.EVENT, RowKind.BAD}
    for value, rows in zip(values, alone, strict=True):
        assert rows.column("index").to_pylist() == sorted(set(rows.column("index").to_pylist()))
        assert rows.num_rows or says_nothing(number, value), value


def says_nothing(number: int, value: bytes) -> bool:
    """Whether a message may have no row: it is blank, or a block without rows."""
    text = value.decode("utf-8", "replace").strip("\ufeff \t\r\n\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u2028\u2029\u3000")
    if number in (MessageFormat.CSV, MessageFormat.JSON):
        return text.replace("[]", "").strip() == "" or not any(c.isprintable() and not c.isspace() for c in text)
    return not value or {MessageFormat.ARROW: is_empty_arrow, MessageFormat.AVRO: is_empty_avro}[MessageFormat(number)](value)


@given(st.lists(st.sampled_from([row for row in CSV_ROWS if row and not set(row) & set('"\\')]), max_size=12))
def test_every_line_of_a_message_is_a_row(lines: list[str]) -> None:
    decoded = HEADS[0].decode(raw([Message(TRADES, "\n".join(lines).encode())]))
    assert decoded.num_rows == len(lines)


@pytest.mark.parametrize("number", [MessageFormat.JSON, MessageFormat.ARROW, MessageFormat.AVRO])
@given(rows=st.integers(1, 20))
def test_every_event_of_a_block_is_a_row(number: MessageFormat, rows: int) -> None:
    decoded = HEADS[0].decode(raw([Message(TRADES, WELL_FORMED[number](rows), number)]))
    assert decoded.num_rows == 3 * rows


KEYS = st.sampled_from(["a", "b", "", "ä" * 300])
TIMES = st.sampled_from(["0", "-1", "", str(2**63 - 1), str(-(2**63)), "2500000", "2000-01-01T00:00:00"])
NUMBERS = st.sampled_from(["", "0", "-0.0", "nan", "inf", "-inf", "1e308", "-1e308", "5e-324", "1e-308", "0.1", "wrong"])
EVENTS = st.tuples(
    st.sampled_from(["i", "u", "p", "d", "sd", "ub", "x"]), st.sampled_from(["n", "p", "r", "q"]), KEYS, TIMES, NUMBERS, KEYS
).map(",".join)
CHANGELOGS = st.lists(
    st.tuples(st.sampled_from(["loose", "keyed", "generated", ""]), st.lists(EVENTS, min_size=1, max_size=4)),
    min_size=1,
    max_size=12,
)


@given(CHANGELOGS, st.integers(1, 5))
def test_any_changelog_passes_all_windows_the_same_in_any_cut(changelog: list[tuple[str, list[str]]], size: int) -> None:
    topics = {source.window: i for i, source in enumerate(plan().resolved.sources)}
    given_ = [
        Message(topic, None if not source else "\n".join(rows).encode())
        for source, rows in changelog
        for topic in ([topics[source]] if source else sorted(topics.values()))
    ]
    decoded = Head.from_plan(plan()).decode(raw([*given_, *(Message(topic, None) for topic in sorted(topics.values()))]))
    results = []
    for step in (decoded.num_rows, size):
        pipeline = Pipeline.fresh(plan())
        try:
            outputs = [pipeline.feed(decoded.slice(at, step)) for at in range(0, decoded.num_rows, step)]
        except Exception as error:
            raise AssertionError(f"{changelog}: {error!r}") from error
        tables = {
            name: table.select(["hs:offset", "hs:index", "hs:ordinal", "hs:digest"]) for name, table in joined(outputs).items()
        }
        results.append((tables, snapshot_bytes(pipeline)))
    assert results[0][1] == results[1][1]
    assert results[0][0].keys() == results[1][0].keys()
    assert all(results[0][0][name].equals(results[1][0][name]) for name in results[0][0])
