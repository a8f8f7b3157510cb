"""A row means the same from a file, an external topic or lines, unchanged or rewritten (SPEC I2, I5, I7)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.files.canonical import FileFormat, InsertOpcode, RowForm
from hotspare.adapters.files.publisher import PublishOptions, publish_file
from hotspare.adapters.time_texts import StampUnit, parse_stamp_unit
from hotspare.adapters.topics.form import TopicForm
from hotspare.base.errors import UsageError
from hotspare.bus.contract import FORMAT_HEADER, Partition
from hotspare.bus.memory import MemoryBus
from hotspare.formats.csv.decode import decode_rows
from hotspare.formats.json.decode import decode_json
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.batch import MessageFormat
from tests.formats.bad_rows import listed

SCHEMA = Schema(
    (
        Field("id", FieldType.INT64, KeyRole.KEY),
        Field("t", FieldType.STRING),
        Field("d", FieldType.DOUBLE),
        Field("at", FieldType.STAMP),
    )
)
NAMED = Schema(
    (Field("id", FieldType.INT64, KeyRole.KEY), *(Field(name, FieldType.STRING) for name in ("opcode", "flags", "event")))
)
TOPIC = Partition("t")
Said = list[tuple[Any, ...]]
"""The opcode, flags and values of each event, the reason of each bad one, in order."""


def said(values: Sequence[bytes], format_: bytes, schema: Schema) -> Said:
    parts, bad = (decode_json if format_ == b"json" else decode_rows)(pa.array(values, pa.binary()), schema)
    found: list[tuple[int, int, tuple[Any, ...]]] = [(row.message, row.row, (row.reason,)) for row in listed(bad)]
    for part in parts:
        columns = [(c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c).to_pylist() for c in part.columns]
        rows = zip(part.opcode.tolist(), part.flags.tolist(), *columns, strict=True)
        found += zip(part.message.tolist(), part.index.tolist(), rows, strict=True)
    return [what for _, _, what in sorted(found, key=lambda each: each[:2])]


def from_file(form: RowForm, rows: Sequence[bytes], folder: Path) -> Said:
    (folder / "in").write_bytes(b"".join(row + b"\n" for row in rows))
    bus = MemoryBus().client("c")
    bus.create_topic(TOPIC.topic)
    publish_file(bus, TOPIC, folder / "in", PublishOptions(form=form, source_name="s"), threading.Event())
    messages = bus.read(TOPIC, 0, messages_max=1000, bytes_max=1 << 20)
    (format_,) = {message.header(FORMAT_HEADER) or b"" for message in messages}
    assert form.schema is not None
    return said([message.value for message in messages], format_, form.schema)


def from_topic(form: RowForm, rows: Sequence[bytes], _: Path) -> Said:
    topic = TopicForm(MessageFormat.JSON if form.format is FileFormat.JSON else MessageFormat.CSV, form)
    assert form.schema is not None
    return said([cut for row in rows for cut in topic.split_message(row)], topic.format.header, form.schema)


def from_lines(form: RowForm, rows: Sequence[bytes], _: Path) -> Said:
    assert form.schema is not None
    return said(form.canonicalize_rows(rows), form.topic_message_format.header, form.schema)


WAYS: list[Callable[[RowForm, Sequence[bytes], Path], Said]] = [from_file, from_topic, from_lines]
REWRITTEN: dict[str, dict[str, Any]] = {
    "as it is": {},
    "upsert": {"insert": InsertOpcode.UPSERT},
    "dateformat": {"date_format": "%d.%m.%Y"},
    "unit": {"stamp_unit": StampUnit.SECONDS},
}
INSERT, UPDATE, UPSERT, DELETE = 1, 2, 3, 4


def upserted(expected: Said) -> Said:
    return [(UPSERT, *row[1:]) if row[0] == INSERT else row for row in expected]


@pytest.mark.parametrize("how", REWRITTEN)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (b'{"id": 1, "t": {"price": 7, "x": 1.50, "big": 12345678901234567}}', '{"price": 7, "x": 1.50, "big": 12345678901234567}'),
        (b'{"id": 1, "t": ["a;b",  "c", 1e400]}', '["a;b",  "c", 1e400]'),
        (b'{"opcode": "i", "event": {"id": 1, "t": {"a": "\\u00e9\\ud800"}}}', '{"a": "\\u00e9\\ud800"}'),
        (b'{"id": 1, "t": "{\\"a\\": 1}"}', '{"a": 1}'),
        (b'{"id": 1, "t": {"b": 1, "b": [ ]}}', '{"b": 1, "b": [ ]}'),
        (b'{"id": 1, "t": ""}', ""),
        (b'{"id": 1, "t": "\\u0000 \\ud834\\udd1e"}', "\0 \U0001d11e"),
    ],
)  # fmt: skip
def test_a_string_takes_a_nested_value_as_its_text(
    way: Callable[[RowForm, Sequence[bytes], Path], Said], how: str, row: bytes, expected: str, tmp_path: Path
) -> None:
    form = RowForm(schema=SCHEMA, format=FileFormat.JSON, **REWRITTEN[how])
    event: Said = [(INSERT, 1, 1, expected, None, None)]
    assert way(form, [row], tmp_path) == (upserted(event) if how == "upsert" else event)


@pytest.mark.parametrize("how", REWRITTEN)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b'{"id": 2, "t": "\\ud800"}', "utf8"),
        (b'{"id": 2, "t": "\xff"}', "utf8"),
        (b'{"id": 2, "t": "x", "t": "y"}', "format"),
        (b'{"id": 2, "id": 2}', "format"),
        (b'{"id": 2, "opcode": "i", "opcode": "i"}', "format"),
        (b'{"id": 2, "event": {"id": 3}, "event": {"id": 4}}', "format"),
        (b'{"id": 2, "t": 5}', "field-type"),
        (b'{"id": 2, "t": true}', "field-type"),
        (b'{"id": 2, "d": 1e400}', "field-type"),
        (b'{"id": 2, "d": "-1e309"}', "field-type"),
        (b'{"id": 9223372036854775808}', "field-type"),
        (b'{"id": {"a": 1}}', "field-type"),
        (b'{"id": 2, "opcode": "erase"}', "opcode"),
        (b'{"id": 2, "opcode": ""}', "opcode"),
        (b'{"id": 2, "flags": 1}', "flag"),
        (b'{"id": 2, "at": "yesterday"}', "field-type"),
        (b'{"id": 2, "at": 99999999999999999999}', "field-type"),
        (b'{"id": 2', "format"),
        (b"nonsense", "format"),
        (b"7", "format"),
    ],
)
def test_what_is_no_event_is_a_bad_one_and_nobody_else_minds(
    way: Callable[[RowForm, Sequence[bytes], Path], Said], how: str, row: bytes, reason: str, tmp_path: Path
) -> None:
    form = RowForm(schema=SCHEMA, format=FileFormat.JSON, **REWRITTEN[how])
    around: Said = [(INSERT, 1, number, None, None, None) for number in (1, 3)]
    first, last = upserted(around) if how == "upsert" else around
    assert way(form, [b'{"id": 1}', row, b'{"id": 3}'], tmp_path) == [first, (reason,), last]


@pytest.mark.parametrize("how", ["as it is", "upsert"])
@pytest.mark.parametrize("way", WAYS)
def test_members_of_opcode_and_flags_where_fields_have_these_names(
    way: Callable[[RowForm, Sequence[bytes], Path], Said], how: str, tmp_path: Path
) -> None:
    rows = [
        b'{"hs:opcode": "insert", "hs:flags": "n", "id": 1, "opcode": "alpha", "flags": "x"}',
        b'{"hs:opcode": "update", "hs:flags": "p", "id": 1, "opcode": "i", "event": "login"}',
        b'{"hs:opcode": "delete", "id": 2, "event": ["a", {"id": 3}]}',
        b'{"id": 4, "event": {"id": 99}}',
    ]
    expected: Said = [
        (INSERT, 1, 1, "alpha", "x", None),
        (UPDATE, 2, 1, "i", None, "login"),
        (DELETE, 1, 2, None, None, '["a", {"id": 3}]'),
        ("field-type",),
    ]
    form = RowForm(schema=NAMED, format=FileFormat.JSON, **REWRITTEN[how])
    assert way(form, rows, tmp_path) == (upserted(expected) if how == "upsert" else expected)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("word", ["i", "I", "insert", "INSERT", "Insert", '"i"', ' "insert" ', "\ti "])
def test_every_word_for_an_insert_becomes_an_upsert(
    way: Callable[[RowForm, Sequence[bytes], Path], Said], word: str, tmp_path: Path
) -> None:
    rows = [f"{word},n,1,a,1,1".encode(), b"u,n,1,a,1,1", b'"delete",n,1,,,', b"insertion,n,1,a,1,1"]
    expected: Said = [(UPSERT, 1, 1, "a", 1.0, 1), (UPDATE, 1, 1, "a", 1.0, 1), (DELETE, 1, 1, None, None, None), ("opcode",)]
    assert way(RowForm(schema=SCHEMA, insert=InsertOpcode.UPSERT), rows, tmp_path) == expected


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("unit", "text", "micros"),
    [
        ("SECONDS", "1700000000", 1_700_000_000_000_000),
        ("SECONDS", "1700000000.1234567", 1_700_000_000_123_456),
        ("SECONDS", "1.7e9", 1_700_000_000_000_000),
        ("SECONDS", "-0.0000001", -1),
        ("MILLISECONDS", "1700000000123", 1_700_000_000_123_000),
        ("MILLISECONDS", "+1700000000123.4567", 1_700_000_000_123_456),
        ("MICROSECONDS", "1700000000123456", 1_700_000_000_123_456),
        ("SECONDS", '"2023-11-14T23:13:20+01:00"', 1_700_000_000_000_000),
        ("SECONDS", "99999999999999", None),
        ("SECONDS", "1e999999999", None),
        ("SECONDS", "0x10", None),
    ],
)
def test_numbers_of_stamps_have_the_unit_that_is_said(
    way: Callable[[RowForm, Sequence[bytes], Path], Said], unit: str, text: str, micros: int | None, tmp_path: Path
) -> None:
    """The number 99999999999999 of seconds is beyond all stamps; hexadecimal digits are microseconds."""
    if text == "0x10":
        micros = 16
    form = {"schema": SCHEMA, "stamp_unit": StampUnit[unit]}
    expected: Said = [(INSERT, 1, 1, None, None, micros)] if micros is not None else [("field-type",)]
    as_json = text if text[0] in '"-123456789' else f'"{text}"'
    row = f'{{"id": 1, "at": {as_json}}}'.encode()
    assert way(RowForm(**form), [f"i,n,1,,,{text}".encode()], tmp_path) == expected  # type: ignore[arg-type]
    assert way(RowForm(format=FileFormat.JSON, **form), [row], tmp_path) == expected  # type: ignore[arg-type]


XML = [
    (b"<event opcode='update' flags='p'><id>1</id><opcode>gamma</opcode></event>", (UPDATE, 2, 1, "gamma", None, None)),
    (b"<event hs:opcode='d'><id>2</id><value name='flags'>a &amp; b</value></event>", (DELETE, 1, 2, None, "a & b", None)),
    (b"<event><id>3</id><opcode/><flags><![CDATA[]]></flags></event>", (INSERT, 1, 3, None, "", None)),
    (b"<event><id>4</id><event>a <b x='>'>&lt;c</b>\n d</event></event>", (INSERT, 1, 4, None, None, "a <b x='>'>&lt;c</b>\n d")),
    (b"<event><id>5</id><event encoding='base64'>AAE=</event></event>", (INSERT, 1, 5, None, None, "\0\1")),
    (b"<event><id>6</id><opcode>x</opcode><opcode>x</opcode></event>", ("format",)),
    (b"<event><id><a/></id></event>", ("field-type",)),
    (b"<event><id>7</id><opcode>&#xD800;</opcode></event>", ("format",)),
    (b"<event><id>8</id><opcode>&unknown;</opcode></event>", ("format",)),
    (b"<event><id>9</id><opcode>\xff</opcode></event>", ("utf8",)),
    (b"<event opcode='erase'><id>10</id></event>", ("opcode",)),
    (b"<event><id>11</id><opcode encoding='base64'>?</opcode></event>", ("format",)),
    (b'<event><id>12</id><opcode>{"id": 13}\n{"id": 14}\n</flags></event>', ("format",)),
]


@pytest.mark.parametrize("how", ["as it is", "upsert"])
def test_events_of_xml(how: str, tmp_path: Path) -> None:
    """Attributes are opcode and flags, not fields; the text inside elements is kept."""
    expected: Said = [event for _, event in XML]
    form = RowForm(schema=NAMED, format=FileFormat.XML, **REWRITTEN[how])
    rows = [b"<events>", *(row for row, _ in XML), b"</events>"]
    assert from_file(form, rows, tmp_path) == (upserted(expected) if how == "upsert" else expected)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        (b'{"id": 1, "t": "x\n{"id": 2}\n', 1),
        (b'{"id": 1, "t": "x"\n{"id": 2}\n', 1),
        (b'{"id": 1,\n{"id": 2}\n', 1),
        (b'{"id": 1, "t": {"a": [1}\n{"id": 2}\n', 1),
        (b'{"id": 1, "t": {"a": 1}\n{"id": 2}\n', 1),
        (b'{"id": 1 {"id": 7}\n{"id": 2}\n', 1),
        (b'{"id": 1, t: "x"}\n{"id": 2}\n', 1),
        (b'{\n "id": 1,\n "t": x\n}\n{"id": 2}\n', 1),
        (b'{\n "id": 1,\n "t": "x\n}\n{"id": 2}\n', 2),
    ],
)
def test_a_broken_object_harms_no_line_but_its_own(text: bytes, whole: int, tmp_path: Path) -> None:
    """The last of these ends with its string, and the rest of it is a bad event too."""
    rows = [b'{"id": 0}', *text.split(b"\n")[:-1]]
    found = from_file(RowForm(schema=SCHEMA, format=FileFormat.JSON), rows, tmp_path)
    assert found == [(INSERT, 1, 0, None, None, None), *[("format",)] * whole, (INSERT, 1, 2, None, None, None)]


@pytest.mark.parametrize(("numbers", "is_told"), [((1_700_000_000, 1_700_000_001), True), ((1_700_000_000, 10**15), False)])
def test_a_source_that_begins_before_1971_says_so_once(numbers: tuple[int, int], is_told: bool, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(
        b"i,n,0,,,\n" + b"".join(b"i,n,%d,,,%d\n" % (number, number) for number in numbers) + b"i,n,1,,,5\n" * 5000
    )
    bus, told = MemoryBus().client("c"), list[str]()
    bus.create_topic(TOPIC.topic)
    options = PublishOptions(form=RowForm(schema=SCHEMA), source_name="s")
    publish_file(bus, TOPIC, tmp_path / "in", options, threading.Event(), warn=told.append)
    assert [f"the first stamps of {tmp_path / 'in'} in field at are before 1971" in sentence for sentence in told] == [
        True
    ] * is_told
    assert all("--stamp-unit" in sentence for sentence in told)


def test_a_unit_that_does_not_exist_and_one_of_blocks_are_refused() -> None:
    assert [parse_stamp_unit(word, "o").name for word in ("", "s", " Milliseconds ", "us")] == [
        "MICROSECONDS",
        "SECONDS",
        "MILLISECONDS",
        "MICROSECONDS",
    ]
    with pytest.raises(UsageError, match="--stamp-unit is 'hours'") as told:
        parse_stamp_unit("hours", "--stamp-unit")
    assert told.value.hint == "use seconds, milliseconds or microseconds"
    with pytest.raises(UsageError, match="binary blocks"):
        RowForm(schema=SCHEMA, format=FileFormat.BINARY, stamp_unit=StampUnit.SECONDS)


JSON_PIECES = [
    b'{"id": 1}',
    b'{"id": 2, "t": {"a": [1, "}"]}}',
    b'{"id": 3,\n"t": "x"}',
    b'{"id": 4',
    b"7",
    b'"s"',
    b"x",
    b"}",
    b"]",
]
DAMAGES = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b'"',
    b"\\",
    b"\n",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\0",
    b"\x0b",
    b"NaN",
    b'"opcode"',
    b" ",
]


@pytest.mark.parametrize("how", ["as it is", "upsert", "dateformat"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rest", [b"", b"i,n,1,a,,", b",", b" "])
@pytest.mark.parametrize("marks", [1, 2, 3])
def test_one_byte_order_mark_of_a_row_is_skipped(
    way: Callable[[RowForm, Sequence[bytes], Path], Said], how: str, marks: int, rest: bytes, tmp_path: Path
) -> None:
    """A second one is part of the opcode, which is then bad."""
    form = RowForm(schema=SCHEMA, format=FileFormat.CSV, **REWRITTEN[how])
    rows = [b"i,n,0,,,", b"\xef\xbb\xbf" * marks + rest]
    expected = said(rows, form.topic_message_format.header, SCHEMA)
    assert way(form, rows, tmp_path) == (upserted(expected) if how == "upsert" else expected)


CSV_PIECES = [b"i,n,1,a,,", b"u,n,2", b'"x', b'"a,b"', b' "q""r" ', b"\ni,n,3,,,\n", b"\t", b"\\,", b'\\"', *DAMAGES[4:]]


@st.composite
def damaged_texts(draw: st.DrawFn, pieces: Sequence[bytes]) -> bytes:
    """Draws pieces of events with bytes inserted and deleted anywhere."""
    text = draw(st.sampled_from([b"\n", b",", b"", b" "])).join(draw(st.lists(st.sampled_from(pieces), min_size=1, max_size=6)))
    for at, damage, count in draw(st.lists(st.tuples(st.integers(0, 80), st.sampled_from(DAMAGES), st.integers(0, 2)), max_size=2)):
        text = text[:at] + damage + text[at + count :]
    return text


@pytest.mark.parametrize("format_", [FileFormat.JSON, FileFormat.CSV])
@given(data=st.data(), how=st.sampled_from(["as it is", "upsert", "dateformat"]))
def test_the_same_bytes_say_the_same_in_a_file_a_message_and_a_line(format_: FileFormat, data: st.DataObject, how: str) -> None:
    """Any bytes give the same events and the same bad ones, in the same order."""
    is_json = format_ is FileFormat.JSON
    text = data.draw(damaged_texts(JSON_PIECES if is_json else CSV_PIECES))
    first = b'{"id": 0}' if is_json else b"i,n,0,,,"
    form = RowForm(schema=SCHEMA, format=format_, **REWRITTEN[how])
    expected = said([first, text], form.topic_message_format.header, SCHEMA)
    expected = upserted(expected) if how == "upsert" else expected
    with TemporaryDirectory() as folder:
        assert from_file(form, [first, text], Path(folder)) == expected
    assert from_topic(form, [first, text], Path()) == expected
    if b"\n" not in text:
        assert from_lines(form, [first, text], Path()) == expected
