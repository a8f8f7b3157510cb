"""Files in JSON, XML and binary blocks, in and out (SPEC I5, I6): the same events however their bytes are cut, each once."""

from __future__ import annotations

import contextlib
import datetime
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.esp.connector_mistakes import connector_mistakes
from hotspare.adapters.esp.connector_options import file_style, publish_options
from hotspare.adapters.files.canonical import FileFormat, InsertOpcode, RowForm
from hotspare.adapters.files.cutters import EventCutter, JsonCutter, XmlCutter
from hotspare.adapters.files.output_rows import FileStyle, OutputRows
from hotspare.adapters.files.publisher import PublishOptions, publish_file
from hotspare.adapters.files.row_file import Growth
from hotspare.base.errors import UsageError
from hotspare.bus.contract import FORMAT_HEADER, Message, Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.formats.csv.decode import decode_rows
from hotspare.formats.csv.rows import CsvStyle
from hotspare.formats.json.decode import decode_json
from hotspare.model.project import Connector, ConnectorDirection
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.batch import output_schema

SCHEMA = Schema(
    (
        Field("id", FieldType.INT64, KeyRole.KEY),
        Field("name", FieldType.STRING),
        Field("x", FieldType.DOUBLE),
        Field("at", FieldType.STAMP),
    )
)
TOPIC = Partition("t")
JSON_LAYOUTS = (
    '{"id":1,"name":"a"}\n{"id":2,"x":1.5}\n',
    '[{"id":1,"name":"a"},\n {"id":2,"x":1.5}]',
    '[[{"id": 1, "name": "a"}], [{"id": 2, "x": 1.5}]]\n',
    '{\n "opcode": "i",\n "id": 1,\n "name": "a"\n}\n{\n "event": {"id": 2, "x": 1.5}, "opcode": "insert"\n}\n',
)
XML_LAYOUTS = (
    "<events><transaction><event><opcode>i</opcode><id key='true'>1</id><name>a</name></event>"
    "<event opcode='insert'><id>2</id><x>1.5</x></event></transaction></events>",
    "<event><id>1</id><name>a</name></event>\n<!-- <event> -->\n"
    "<event><value name='id'>2</value><value name='x'>1.5</value></event>\n",
    "</event><event note='a/>b>'><id>1</id><name>a</name></event></event>\n<event x=\"'>\" ><id>2</id><x>1.5</x></event>",
    "<?xml version='1.0'?>\n<events>\n <event>\n  <id>1</id>\n  <name><![CDATA[a]]></name>\n </event>\n"
    " <event >\n<id>2</id><x>1.5</x></event >\n</events>\n",
)


def new_bus() -> MemoryBusClient:
    bus = MemoryBus().client("c")
    bus.create_topic(TOPIC.topic)
    return bus


def texts(bus: MemoryBusClient) -> Sequence[Message]:
    return bus.read(TOPIC, 0, messages_max=10_000, bytes_max=1 << 26)


def events(messages: Sequence[Message], schema: Schema = SCHEMA) -> list[tuple[object, ...]]:
    """Returns opcode and fields of each event that the engine decodes of messages; then "bad" for each bad row."""
    values, is_json = (
        [message.value for message in messages],
        {message.header(FORMAT_HEADER) == b"json" for message in messages},
    )
    decoded, bad = (decode_json if True in is_json else decode_rows)(pa.array(values, pa.binary()), schema)
    assert len(is_json) < 2
    found = [
        (int(each.message[i]), int(each.index[i]), int(each.opcode[i]), *(column[i].as_py() for column in each.columns))
        for each in decoded
        for i in range(len(each.message))
    ]
    return [row[2:] for row in sorted(found, key=lambda row: row[:2])] + ["bad"] * len(bad)  # type: ignore[list-item]


def publish(bus: MemoryBusClient, path: Path, form: RowForm, **options: object) -> None:
    publish_file(bus, TOPIC, path, PublishOptions(form=form, source_name="s", **options), threading.Event())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("format_", "text"),
    [(FileFormat.JSON, each) for each in JSON_LAYOUTS] + [(FileFormat.XML, each) for each in XML_LAYOUTS],
)
def test_every_layout_says_the_same(format_: FileFormat, text: str, tmp_path: Path) -> None:
    """SPEC I5."""
    path, bus = tmp_path / "in", new_bus()
    path.write_text(text)
    publish(bus, path, RowForm(schema=SCHEMA, format=format_))
    assert events(texts(bus)) == [(1, 1, "a", None, None), (1, 2, None, 1.5, None)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.dictionaries(st.text(max_size=3), inner, max_size=3),
)
json_texts = st.tuples(
    st.dictionaries(st.text(max_size=4), json_values, max_size=4),
    st.sampled_from([None, 1]),
    st.sampled_from(["\n", ",\n", " ", "\r\n"]),
).map(lambda drawn: json.dumps(drawn[0], indent=drawn[1], ensure_ascii=False) + drawn[2])
xml_texts = st.lists(st.tuples(st.sampled_from(["id", "event", "x"]), st.text("ab<>&\"'\n]", max_size=6)), max_size=4).map(
    lambda fields: "<event a='>/>'>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for tag, text in fields) + "</event>\n"
)


def cut(cutter: EventCutter, text: bytes, sizes: Sequence[int]) -> list[tuple[bytes, int, int]]:
    found, at = [], 0
    for size in [*sizes, len(text)]:
        found += cutter.feed(text[at : at + size])
        at = min(len(text), at + size)
    return [tuple(row) for row in [*found, *cutter.finish()]]


@pytest.mark.parametrize("kind", [JsonCutter, XmlCutter])
@given(st.data())
def test_events_do_not_depend_on_how_bytes_arrive_or_where_one_goes_on(kind: type[EventCutter], data: st.DataObject) -> None:
    pieces = data.draw(st.lists(json_texts if kind is JsonCutter else xml_texts, max_size=6))
    text = "".join(pieces).encode()
    whole = cut(kind(0), text, [])
    assert len(whole) == len(pieces)
    assert cut(kind(0), text, data.draw(st.lists(st.integers(0, 9), max_size=80))) == whole
    assert cut(kind(0), text, [1] * len(text)) == whole
    for index, (_, end, _) in enumerate(whole):
        rest = cut(kind(end), text[end:], data.draw(st.lists(st.integers(0, 9), max_size=20)))
        assert [row[:2] for row in rest] == [row[:2] for row in whole[index + 1 :]]


@given(st.binary(max_size=60), st.lists(st.integers(1, 7), max_size=30), st.sampled_from([JsonCutter, XmlCutter]))
def test_any_bytes_at_all_are_cut_alike(text: bytes, sizes: list[int], kind: type[EventCutter]) -> None:
    assert cut(kind(0), text, sizes) == cut(kind(0), text, [])


UNKNOWN = "events of file {path} have members that are ignored, because no field has their name: 'nmae' (did you mean 'name'?)"


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        (FileFormat.JSON, '{"id":1,"nmae":"a"}\n{"id":2,"nmae":"b"}'),
        (FileFormat.XML, "<events><event><id>1</id><nmae>a</nmae></event></events>"),
    ],
)
@pytest.mark.parametrize("insert", InsertOpcode)
def test_a_member_that_no_field_has_is_told_once(format_: FileFormat, text: str, insert: InsertOpcode, tmp_path: Path) -> None:
    """Also if events are rewritten, and reach the engine without the member."""
    (path := tmp_path / "in").write_text(text)
    assert warnings(path, RowForm(schema=SCHEMA, format=format_, insert=insert)) == [UNKNOWN.format(path=path)]


@pytest.mark.parametrize(
    ("format_", "text", "what"),
    [
        (FileFormat.XML, "<events><evnt><id>1</id></evnt></events>", "element <event>"),
        (FileFormat.JSON, " \n", "rows"),
        (FileFormat.CSV, "", "rows"),
    ],
)
def test_a_file_that_gives_nothing_is_told_once(format_: FileFormat, text: str, what: str, tmp_path: Path) -> None:
    (path := tmp_path / "in").write_text(text)
    assert warnings(path, RowForm(schema=SCHEMA, format=format_)) == [f"file {path} has no {what}: nothing of it is published"]


def warnings(path: Path, form: RowForm) -> list[str]:
    """Returns the warnings of a publisher of the whole file."""
    found = list[str]()
    publish_file(new_bus(), TOPIC, path, PublishOptions(form, repeats=1), threading.Event(), warn=found.append)
    return found


@pytest.mark.parametrize("text", ['{"id":1}\nnonsense\n{"id":2}\n', '{"id":1}\n7\n{"id":2}', '{"id":1}{"id":2}\n{"id":'])
def test_what_is_no_event_is_a_bad_one_and_the_next_is_taken(text: str, tmp_path: Path) -> None:
    path, bus = tmp_path / "in.json", new_bus()
    path.write_text(text)
    publish(bus, path, RowForm(schema=SCHEMA, format=FileFormat.JSON))
    assert events(texts(bus)) == [(1, 1, None, None, None), (1, 2, None, None, None), "bad"]


def test_values_are_kept_to_the_last_bit(tmp_path: Path) -> None:
    """Texts with any characters, numbers as written, times by a format."""
    path, bus = tmp_path / "in.json", new_bus()
    name = 'q"uote, back\\slash,\nline, é, \u2028'
    path.write_text(json.dumps({"id": 9223372036854775807, "name": name, "x": 0.1, "at": "2024-02-03 04:05:06.7"}) + "\n")
    publish(bus, path, RowForm(schema=SCHEMA, format=FileFormat.JSON, date_format="%Y-%m-%d %H:%M:%S", insert=InsertOpcode.UPSERT))
    ((opcode, key, text, x, at),) = events(texts(bus))
    assert (key, text, x) == (9223372036854775807, name, 0.1)
    assert str(at) == "2024-02-03 04:05:06.700000"
    assert opcode != 1, "an upsert"


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        ('{"before":null,"after":{"id":1,"name":"a"},"op":"c","ts_ms":1}', "fields op, before and after"),
        ('{"before":{"id":1},"after":null,"op":"d"}', "fields op, before and after"),
        ('{"schema":{"type":"struct"},"payload":{"before":null,"after":{"id":1},"op":"r"}}', "the string field payload"),
        ('{"op":"c"}', "check that it is a json file"),
        ("[1]\n[2]", "check that it is a json file"),
    ],
)
def test_change_records_of_debezium_are_refused_with_the_way_on(tmp_path: Path, record: str, fields: str) -> None:
    """SPEC I10: their rows are inside an envelope."""
    path = tmp_path / "in.json"
    path.write_text(record + "\n")
    reason = "its first event has no field of the window" if record.startswith("{") else "none of its first events can be read"
    with pytest.raises(UsageError, match=reason) as refused:
        publish(new_bus(), path, RowForm(schema=SCHEMA, format=FileFormat.JSON))
    assert fields in refused.value.hint
    assert ("functional" in refused.value.hint) == ("json file" not in fields)


@pytest.mark.parametrize("format_", [FileFormat.JSON, FileFormat.XML])
def test_a_file_of_another_kind_is_refused_before_anything_is_published(format_: FileFormat, tmp_path: Path) -> None:
    """SPEC I10."""
    path, bus = tmp_path / "in", new_bus()
    path.write_text('{"other": 1}\n' if format_ is FileFormat.JSON else "<event><other>1</other></event>")
    with pytest.raises(UsageError, match="does not match the schema"):
        publish(bus, path, RowForm(schema=SCHEMA, format=format_))
    assert not texts(bus)


@given(st.lists(st.integers(1, 5), max_size=8))
def test_a_publisher_that_is_stopped_anywhere_goes_on_behind_the_last_event(
    tmp_path_factory: pytest.TempPathFactory, limits: list[int]
) -> None:
    path, bus = tmp_path_factory.mktemp("f") / "in.json", new_bus()
    path.write_text("[" + ",\n".join(json.dumps({"id": i, "name": "x" * (i % 3)}) for i in range(20)) + "]\n")
    form, total = RowForm(schema=SCHEMA, format=FileFormat.JSON), 0
    for limit in limits:
        total += limit
        publish(bus, path, form, events_max=total, block_rows=2)
    publish(bus, path, form, repeats=1)
    assert [row[1] for row in events(texts(bus))] == [*range(20), *range(20)]


def test_properties_of_csv_mean_nothing_to_other_formats_and_are_refused() -> None:
    for name, value in (("header", "1"), ("addcsvopcode", "true"), ("csvfielddelimiter", ";"), ("noautogenfield", "true")):
        connector = Connector("c", "fs", ConnectorDirection.PUBLISH, tuple(sorted({"fstype": "json", name: value}.items())))
        (mistake,) = connector_mistakes(connector, SCHEMA)
        assert name in mistake.message
        with pytest.raises(UsageError, match=name):
            publish_options(connector, SCHEMA)


@pytest.mark.parametrize("format_", list(FileFormat))
def test_what_is_written_can_be_published_again(format_: FileFormat, tmp_path: Path) -> None:
    """SPEC I6, I14: opcodes, nulls, and texts with all characters that the format can hold."""
    names = ["a", None, "<&>\"'", "x\ty", " blank ", "line\nend", "é\u2028"]
    rows = pa.RecordBatch.from_pylist(
        [
            {"hs:sequence": i + 1, "hs:opcode": 1 + i % 3, "hs:flags": 1, "id": i, "name": name, "x": 0.1 * i, "at": None}
            for i, name in enumerate(names)
        ],
        schema=output_schema(SCHEMA),
    )
    written = OutputRows(FileStyle(format=format_, columns=CsvStyle.EXACT), SCHEMA).format_rows(rows)
    path, bus = tmp_path / "out", new_bus()
    path.write_bytes(written)
    publish(bus, path, RowForm(schema=SCHEMA, format=format_))
    assert events(texts(bus)) == [(1 + i % 3, i, name, 0.1 * i, None) for i, name in enumerate(names)]


@pytest.mark.parametrize("format_", list(FileFormat))
def test_arrays_are_written_and_published_again(format_: FileFormat, tmp_path: Path) -> None:
    """SPEC A7, I5, I6."""
    schema = Schema(
        (Field("id", FieldType.INT64, KeyRole.KEY), Field("a", FieldType.DOUBLE_ARRAY), Field("n", FieldType.INT32_ARRAY))
    )
    given_rows = [([1.5, None, -2.0], [1, 2]), ([], [None]), (None, [7])]
    rows = pa.RecordBatch.from_pylist(
        [{"hs:sequence": i + 1, "hs:opcode": 1, "hs:flags": 1, "id": i, "a": a, "n": n} for i, (a, n) in enumerate(given_rows)],
        schema=output_schema(schema),
    )
    path, bus = tmp_path / "out", new_bus()
    path.write_bytes(OutputRows(FileStyle(format=format_, columns=CsvStyle.EXACT), schema).format_rows(rows))
    publish(bus, path, RowForm(schema=schema, format=format_))
    assert events(texts(bus), schema) == [(1, i, *row) for i, row in enumerate(given_rows)]


def test_times_are_written_as_their_format_says_in_every_format() -> None:
    at = datetime.datetime(2024, 2, 3, 4, 5, 6)
    row = {"hs:sequence": 1, "hs:opcode": 1, "hs:flags": 1, "id": 1, "name": None, "x": None, "at": at}
    rows = pa.RecordBatch.from_pylist([row], schema=output_schema(SCHEMA))
    for format_ in set(FileFormat) - {FileFormat.BINARY}:
        text = OutputRows(FileStyle(format=format_, date_format="%d.%m.%Y"), SCHEMA).format_rows(rows)
        assert text.count(b"03.02.2024") == 1
    with pytest.raises(UsageError, match="no effect with binary blocks"):
        FileStyle(format=FileFormat.BINARY, date_format="%d.%m.%Y")


def blocks(folder: Path, *batches: pa.RecordBatch) -> Path:
    """Writes a file as another program would, a stream for each batch."""
    path = folder / "in.arrow"
    with path.open("wb") as file:
        for batch in batches:
            with pa.ipc.new_stream(file, batch.schema) as writer:
                writer.write_batch(batch)
    return path


def given_block(first: int, count: int, **more: pa.Array) -> pa.RecordBatch:
    """Returns columns in another order than the schema's, of narrower types, and one that no window has."""
    numbers = pa.array(range(first, first + count), pa.int32())
    columns = {"other": pa.nulls(count), "name": pa.array(["é,\n"] * count), "id": numbers, "x": pa.array([0.1] * count)}
    return pa.RecordBatch.from_pydict(columns | {"at": pa.array([7] * count, pa.timestamp("ms")), **more})


def test_blocks_of_other_programs_are_events_and_a_publisher_goes_on_within_them(tmp_path: Path) -> None:
    """SPEC I5: rows without opcodes are inserts; others have their opcodes."""
    path, bus = blocks(tmp_path, given_block(0, 5), given_block(5, 4, opcode=pa.array([1, 2, 3, 1]))), new_bus()
    form = RowForm(schema=SCHEMA, format=FileFormat.BINARY)
    for limit in (2, 3, 6, 8):
        publish(bus, path, form, events_max=limit, block_rows=2)
    publish(bus, path, form)
    at = datetime.datetime(1970, 1, 1, 0, 0, 0, 7_000)
    assert events(texts(bus)) == [(opcode, i, "é,\n", 0.1, at) for i, opcode in enumerate([1] * 6 + [2, 3, 1])]


def test_blocks_may_be_published_as_upserts(tmp_path: Path) -> None:
    path, bus = blocks(tmp_path, given_block(0, 2, opcode=pa.array([1, 4]))), new_bus()
    publish(bus, path, RowForm(schema=SCHEMA, format=FileFormat.BINARY, insert=InsertOpcode.UPSERT))
    assert [row[0] for row in events(texts(bus))] == [3, 4]


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (given_block(0, 2).drop_columns(["x"]), "lacks the column x"),
        (given_block(0, 2).set_column(2, "id", pa.array(["a", "b"])), "column id of a block has type string"),
        (given_block(0, 2, opcode=pa.array([1, 9])), "row 1 of a block has opcode 9"),
    ],
)
def test_blocks_that_do_not_fit_are_refused_before_anything_is_published(batch: pa.RecordBatch, said: str, tmp_path: Path) -> None:
    """SPEC I10."""
    path, bus = blocks(tmp_path, given_block(0, 3), batch), new_bus()
    with pytest.raises(UsageError, match=said):
        publish(bus, path, RowForm(schema=SCHEMA, format=FileFormat.BINARY))
    assert not texts(bus)


@pytest.mark.parametrize(
    ("data", "said"), [(b"ARROW1\0\0more", "is an Arrow file, not an Arrow stream"), (b"i,n,1,a,1,1\n", "no Arrow block at byte 0")]
)
def test_files_that_are_no_blocks_are_refused(data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=said):
        publish(new_bus(), path, RowForm(schema=SCHEMA, format=FileFormat.BINARY))


def test_a_file_of_blocks_that_is_cut_anywhere_is_read_up_to_there_or_refused(tmp_path: Path) -> None:
    path = blocks(tmp_path, given_block(0, 3), given_block(3, 3))
    data, form = path.read_bytes(), RowForm(schema=SCHEMA, format=FileFormat.BINARY)
    for end in range(0, len(data), 13):
        bus = new_bus()
        path.write_bytes(data[:end])
        with contextlib.suppress(UsageError):
            publish(bus, path, form)
        assert [row[1] for row in events(texts(bus))] in ([], [0, 1, 2], [0, 1, 2, 3, 4, 5])


def test_files_of_blocks_do_not_grow() -> None:
    with pytest.raises(UsageError, match="a growing file cannot hold binary blocks"):
        PublishOptions(form=RowForm(schema=SCHEMA, format=FileFormat.BINARY), growth=Growth.GROWING)


@pytest.mark.parametrize("format_", ["json", "xml"])
def test_a_title_line_means_nothing_there(format_: str) -> None:
    connector = Connector("c", "fs", ConnectorDirection.SUBSCRIBE, (("fstype", format_), ("header", "full")))
    with pytest.raises(UsageError, match="header"):
        file_style(connector)
