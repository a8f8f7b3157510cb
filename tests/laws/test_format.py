"""Law Format: the output of a subscriber in any format reads back equal in a publisher, for any field names and values."""

from __future__ import annotations

import gzip
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.connectors import ConnectorSet, ConnectorState
from hotspare.adapters.esp.connector_options import file_style, publish_options
from hotspare.adapters.esp.topic_options import topic_publish_options, topic_send_options
from hotspare.adapters.files.cutters import rows_of_text
from hotspare.adapters.files.output_rows import OutputRows
from hotspare.adapters.files.publisher import publish_file
from hotspare.adapters.topics.publisher import publish_topic
from hotspare.base.errors import ProjectError
from hotspare.bus.contract import FORMAT_HEADER, Bus, Message, Outgoing, Partition
from hotspare.bus.memory import MemoryBus
from hotspare.bus.sqlite import SqliteBus
from hotspare.bus.topic_reader import BusTopicReader
from hotspare.formats import arrow_block, avro_block
from hotspare.formats.csv.decode import DecodedRows, decode_rows
from hotspare.formats.csv.grammar import grammar, quoted
from hotspare.formats.csv.rows import RowPrefix
from hotspare.formats.json.decode import decode_json
from hotspare.model.events import Flag, Opcode
from hotspare.model.project import Connector, ConnectorDirection
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.projects import esp_xml
from hotspare.projects.load import load_text
from hotspare.rows.batch import ARROW_TYPE, output_schema
from hotspare.rows.refusals import BadRows
from hotspare.testing.cluster import wait_until
from tests.adapters.test_topics_in import ToEnd

pytestmark = pytest.mark.law

IN, OTHERS = Partition("p.project.cq.source.I"), Partition("others")
FILES = ["csv", "json", "xml", "binary"]
TOPICS = ["csv", "json", "avro", "binary"]
NAMES = ["opcode", "flags", "event", "value", "hs_opcode", "hs_flags", "name", "xml", "Opcode", "_", "x1", "hs"]
PUBLISHED = (Opcode.INSERT, Opcode.UPDATE, Opcode.UPSERT, Opcode.DELETE, Opcode.SAFE_DELETE)

comma = grammar()
Row = tuple[int, int, tuple[Any, ...]]
"""Opcode, flags and values; times as numbers, doubles as their bits."""


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


ODD_TEXTS = [
    "",
    " ",
    "\t",
    "a\tb\t",
    '"',
    '""',
    "\\",
    ",",
    ";",
    "\r\n",
    "\n",
    "null",
    "\0",
    "\x0b",
    "\ufeff",
    "\u2028",
    "\ufffe",
    "[1;2]",
]
ODD_TEXTS += [
    "<b>x</b>",
    "]]>",
    "<![CDATA[]]>",
    "<event>",
    "&amp;",
    "-->",
    '{"a": [1, 2.50]}',
    "[",
    "1e400",
    "2024-01-01T00:00:00Z",
    "é𝄞",
]
TEXTS = st.one_of(st.sampled_from(ODD_TEXTS), st.lists(st.sampled_from(ODD_TEXTS), max_size=4).map("".join), st.text(max_size=12))
FEW_DECIMALS = st.integers(-(10**12), 10**12).map(lambda number: number / 10**6)
"""Doubles that six decimals represent exactly, as in CSV files."""
TIMES = whole(64) | st.integers(-(10**17), 3 * 10**17) | st.integers(0, 2 * 10**9).map(lambda seconds: seconds * 10**6)
"""Stamps within the calendar, and others."""
VALUES: dict[FieldType, st.SearchStrategy[Any]] = {
    FieldType.INT32: whole(32),
    FieldType.INT64: whole(64),
    FieldType.STRING: TEXTS,
    FieldType.DATE: whole(60),
    FieldType.STAMP: whole(64),
    FieldType.MONEY: st.decimals(min_value=-(10**14) + 1, max_value=10**14 - 1, places=4),
    FieldType.BLOB: st.binary(max_size=9),
    FieldType.INT32_ARRAY: st.lists(st.none() | whole(32), max_size=3),
    FieldType.INT64_ARRAY: st.lists(st.none() | whole(64), max_size=3),
}


def values(type_: FieldType, doubles: st.SearchStrategy[float]) -> st.SearchStrategy[Any]:
    if type_ in (FieldType.DOUBLE, FieldType.DOUBLE_ARRAY):
        return doubles if type_ is FieldType.DOUBLE else st.lists(st.none() | doubles, max_size=3)
    return VALUES[type_]


@st.composite
def batches(
    draw: st.DrawFn, doubles: st.SearchStrategy[float], times: st.SearchStrategy[int] | None = None
) -> tuple[Schema, pa.RecordBatch]:
    """A schema and outputs of it, with `times` in stamps, if they are given."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=5))
    types = [draw(st.sampled_from(FieldType)) for _ in names]
    schema = Schema((Field("id", FieldType.INT64, KeyRole.KEY), *map(Field, names, types)))
    count = draw(st.integers(1, 5))
    columns = [pa.array(draw(st.lists(whole(64), min_size=count, max_size=count)))]
    for type_ in types:
        drawn = times if times is not None and type_ is FieldType.STAMP else values(type_, doubles)
        column = draw(st.lists(st.none() | drawn, min_size=count, max_size=count))
        columns.append(arrow(column, type_))
    opcodes = draw(st.lists(st.sampled_from(PUBLISHED), min_size=count, max_size=count))
    flags = draw(
        st.lists(st.sampled_from([Flag.NORMAL, Flag.PARTIAL, Flag.NORMAL | Flag.RETENTION]), min_size=count, max_size=count)
    )
    return schema, outputs(schema, opcodes, flags, columns)


def arrow(column: Sequence[Any], type_: FieldType) -> pa.Array:
    target = ARROW_TYPE[type_]
    return pa.array(column, pa.int64()).cast(target) if pa.types.is_timestamp(target) else pa.array(column, target)


def outputs(schema: Schema, opcodes: Sequence[int], flags: Sequence[int], columns: Sequence[pa.Array]) -> pa.RecordBatch:
    known = {
        "hs:sequence": pa.array(range(1, len(opcodes) + 1), pa.int64()),
        "hs:opcode": pa.array(list(map(int, opcodes)), pa.uint8()),
        "hs:flags": pa.array(list(map(int, flags)), pa.uint8()),
    }
    form = output_schema(schema)
    ours = [known.get(each.name, pa.nulls(len(opcodes), each.type)) for each in list(form)[: -len(schema)]]
    return pa.RecordBatch.from_arrays([*ours, *columns], schema=form)


def rows_of(opcodes: Sequence[int], flags: Sequence[int], columns: Sequence[pa.Array]) -> list[Row]:
    plain = [(column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist() for column in columns]
    return list(zip(map(int, opcodes), map(int, flags), (tuple(map(exact, row)) for row in zip(*plain, strict=True)), strict=True))


def exact(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if value != value else struct.pack(">d", value)
    return [exact(each) for each in value] if isinstance(value, list) else value


def written(batch: pa.RecordBatch, schema: Schema) -> list[Row]:
    opcodes, flags = (batch.column(name).to_pylist() for name in ("hs:opcode", "hs:flags"))
    return rows_of(opcodes, flags, [batch.column(name) for name in schema.names])


DECODERS: dict[bytes, Callable[[Sequence[bytes], Schema], tuple[Sequence[DecodedRows], BadRows]]] = {
    b"csv": lambda values, schema: decode_rows(pa.array(values, pa.binary()), schema),
    b"json": lambda values, schema: decode_json(pa.array(values, pa.binary()), schema),
    b"arrow": lambda values, schema: one_part(arrow_block.decode_events(values, list(range(len(values))), schema)),
    b"avro": lambda values, schema: one_part(avro_block.decode_events(values, list(range(len(values))), schema)),
}


def one_part(found: tuple[DecodedRows | None, BadRows]) -> tuple[list[DecodedRows], BadRows]:
    return ([] if found[0] is None else [found[0]]), found[1]


def read(messages: Sequence[Message], schema: Schema) -> list[Row]:
    """Returns the rows that the head decodes from an inbound topic, in order."""
    found: list[tuple[int, int, Row]] = []
    for number, message in enumerate(messages):
        parts, bad = DECODERS[message.header(FORMAT_HEADER) or b""]([message.value], schema)
        assert not len(bad), (message.value, bad.sentence)
        for part in parts:
            rows = rows_of(part.opcode.tolist(), part.flags.tolist(), part.columns)
            found += [(number, index, row) for index, row in zip(part.index.tolist(), rows, strict=True)]
    return [row for _, _, row in sorted(found, key=lambda each: each[:2])]


def inbound(bus: Bus) -> Sequence[Message]:
    return bus.read(IN, 0, messages_max=10_000, bytes_max=1 << 30)


def new_bus() -> Bus:
    bus = MemoryBus().client("c")
    bus.create_topic(IN.topic)
    bus.create_topic(OTHERS.topic)
    return bus


def connector(kind: str, direction: ConnectorDirection, **properties: str) -> Connector:
    return Connector("c", kind, direction, tuple(sorted(properties.items())))


PUBLISH, SUBSCRIBE = ConnectorDirection.PUBLISH, ConnectorDirection.SUBSCRIBE
NASTY = Schema((Field("id", FieldType.INT64, KeyRole.KEY), *(Field(name, FieldType.STRING) for name in NAMES)))
NASTY_COLUMNS = [pa.array(range(len(ODD_TEXTS))), *(pa.array(ODD_TEXTS[i:] + ODD_TEXTS[:i]) for i in range(len(NAMES)))]
NASTY_ROWS = outputs(NASTY, [*PUBLISHED, *[Opcode.INSERT] * (len(ODD_TEXTS) - len(PUBLISHED))], [1] * len(ODD_TEXTS), NASTY_COLUMNS)


@pytest.mark.parametrize("format_", FILES)
@given(data=st.data(), suffix=st.sampled_from(["", ".gz"]))
def test_through_files(format_: str, data: st.DataObject, suffix: str) -> None:
    """SPEC I5, I6, I14: with the options of connectors."""
    special = st.sampled_from([float("nan"), float("inf"), float("-inf")])
    through_a_file(format_, *data.draw(batches(FEW_DECIMALS | special if format_ == "csv" else st.floats())), suffix)


def through_a_file(format_: str, schema: Schema, batch: pa.RecordBatch, suffix: str) -> None:
    style = file_style(connector("fs", SUBSCRIBE, fstype=format_))
    text = OutputRows(style, schema).format_rows(batch)
    bus = new_bus()
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"out{suffix}"
        path.write_bytes(gzip.compress(text) if suffix else text)
        options = publish_options(connector("fs", PUBLISH, fstype=format_, blocksize="2"), schema, "s")
        publish_file(bus, IN, path, options, threading.Event())
    assert read(inbound(bus), schema) == written(batch, schema)


@given(data=st.data(), prefix=st.sampled_from(RowPrefix), delimiter=st.sampled_from(",;|"))
def test_through_plain_files(data: st.DataObject, prefix: RowPrefix, delimiter: str) -> None:
    """A plain file reads back equal: with opcodes if there are not only inserts, and with the columns in any order."""
    schema, batch = data.draw(batches(st.floats(), TIMES))
    if prefix is not RowPrefix.EVENT:
        batch = with_column(batch, "hs:flags", [int(Flag.NORMAL)] * len(batch))
    if prefix is RowPrefix.NONE:
        batch = with_column(batch, "hs:opcode", [int(Opcode.INSERT)] * len(batch))
    rows = OutputRows(file_style(connector("fs", SUBSCRIBE, plain="true"), prefix), schema)
    text = rows.title(batch) + rows.format_rows(batch)
    assert read_plain(text, schema) == written(batch, schema)
    order = data.draw(st.permutations(range(len(schema) + len(prefix.value))))
    assert read_plain(reordered(text, order, delimiter), schema, csvfielddelimiter=delimiter) == written(batch, schema)


@given(made=batches(st.floats(), TIMES), prefix=st.sampled_from([RowPrefix.NONE, RowPrefix.OPCODE]))
def test_through_plain_json(made: tuple[Schema, pa.RecordBatch], prefix: RowPrefix) -> None:
    """Members of opcode and flags are omitted if they carry no information; a reader of JSON needs no option for it."""
    schema, batch = made
    batch = with_column(batch, "hs:flags", [int(Flag.NORMAL)] * len(batch))
    if prefix is RowPrefix.NONE:
        batch = with_column(batch, "hs:opcode", [int(Opcode.INSERT)] * len(batch))
    text = OutputRows(file_style(connector("fs", SUBSCRIBE, plain="true", fstype="json"), prefix), schema).format_rows(batch)
    parts, bad = decode_json(pa.array([text], pa.binary()), schema)
    assert not len(bad)
    rows = [row for part in parts for row in rows_of(part.opcode.tolist(), part.flags.tolist(), part.columns)]
    assert rows == written(batch, schema)
    assert b"hs:sequence" not in text


def with_column(batch: pa.RecordBatch, name: str, values: Sequence[int]) -> pa.RecordBatch:
    place = batch.schema.get_field_index(name)
    return batch.set_column(place, batch.schema.field(place), pa.array(values, pa.uint8()))


def reordered(text: bytes, order: Sequence[int], delimiter: str) -> bytes:
    lines = [[comma.value(column) for column in comma.columns(row)] for row in rows_of_text(text)]
    quoted_lines = [[b"" if value is None else quoted(value) for value in line] for line in lines]
    return b"\n".join(delimiter.encode().join(line[place] for place in order) for line in quoted_lines)


def read_plain(text: bytes, schema: Schema, **properties: str) -> list[Row]:
    bus = new_bus()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "out"
        path.write_bytes(text)
        reader = connector("fs", PUBLISH, plain="true", blocksize="2", **properties)
        publish_file(bus, IN, path, publish_options(reader, schema, "s"), threading.Event())
    return read(inbound(bus), schema)


@pytest.mark.parametrize("format_", TOPICS)
@given(made=batches(st.floats()), upsert=st.booleans())
def test_through_topics(format_: str, made: tuple[Schema, pa.RecordBatch], upsert: bool) -> None:
    """SPEC I2, I3: with the options of connectors, also if a publisher turns inserts into upserts."""
    through_a_topic(format_, *made, {"publishwithupsert": "true"} if upsert and format_ in ("csv", "json") else {})


def through_a_topic(format_: str, schema: Schema, batch: pa.RecordBatch, options: dict[str, str]) -> None:
    expected = written(batch, schema)
    if options:
        expected = [(int(Opcode.UPSERT) if row[0] == Opcode.INSERT else row[0], *row[1:]) for row in expected]
    form = topic_send_options(connector("kafka", SUBSCRIBE, kafkatype=format_), schema, "s").form
    bus = new_bus()
    for placed in form.route_rows(batch, 1, 0, Message(0, 0, b"", ())):
        bus.append(OTHERS, [placed.message])
    stop = threading.Event()
    reader = ToEnd(BusTopicReader(bus, OTHERS.topic), stop)
    made = topic_publish_options(connector("kafka", PUBLISH, kafkatype=format_, **options), schema, "s")
    publish_topic(bus, IN, reader, made, stop)  # type: ignore[arg-type]
    assert read([message for message in inbound(bus) if message.value], schema) == expected


@pytest.mark.parametrize("format_", [*FILES, "avro"])
def test_odd_texts_in_fields_with_odd_names(format_: str) -> None:
    """Every text is in every field, so that no run leaves one out."""
    if format_ in FILES:
        through_a_file(format_, NASTY, NASTY_ROWS, "")
    if format_ in TOPICS:
        through_a_topic(format_, NASTY, NASTY_ROWS, {})


PROJECT = """
project: project
queries:
  cq:
    windows:
      source:
        type: source
        opcodes: any
        index: empty
        schema: {schema}
        publish: true
        connectors:
          reader: {{kind: fs, direction: pub, properties: {{fsname: out, fstype: {format}}}}}
          writer: {{kind: fs, direction: sub, properties: {{fsname: out, fstype: {format}}}}}
"""


@pytest.mark.parametrize("format_", FILES)
def test_through_connectors(format_: str, tmp_path: Path) -> None:
    """A subscriber and a publisher of one project run one after the other on a real bus."""
    resolved = load_text(PROJECT.format(schema=NASTY, format=format_), "project.yaml").resolved
    bus = SqliteBus(tmp_path / "bus.db")
    for topic in (IN.topic, "p.project.cq.source.O"):
        bus.create_topic(topic)
    (tmp_path / "out").touch()
    bus.append(Partition("p.project.cq.source.O"), [Outgoing(arrow_block.encode(NASTY_ROWS))])
    engine = ConnectorSet(resolved, bus, "p", tmp_path)
    engine.start()
    wait_until(lambda: (tmp_path / "out.position").exists() and (tmp_path / "out").stat().st_size > 0, "the writer")
    engine.stop()
    engine.start()
    wait_until(lambda: engine.states()["cq/source/reader"] is ConnectorState.FINISHED, "the reader")
    engine.stop()
    assert read([message for message in inbound(bus) if message.value], NASTY) == written(NASTY_ROWS, NASTY)
    bus.close()


@pytest.mark.parametrize("name", ["hs:opcode", "hs:flags"])
def test_no_field_has_a_name_that_formats_need(name: str) -> None:
    text = PROJECT.format(schema="id*:int64", format="csv")
    project = esp_xml.dump(load_text(text, "project.yaml").project).replace('name="id"', f'name="{name}"')
    with pytest.raises(ProjectError, match=f"name .*{name}"):
        load_text(project, "project.xml")
