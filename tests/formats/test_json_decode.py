"""JSON messages to events: forms, exact values, bad ones with their reasons; the fast decoder equals the plain one (law Twin)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hotspare.formats.csv.decode import decode_rows
from hotspare.formats.json.decode import decode_json
from hotspare.formats.json.plain import DEPTH_MAX, cut_events, decode_plainly
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.refusals import BadRows
from hotspare.rows.tuning import DEFAULT, Tuning, tuning_override
from tests.formats.bad_rows import BadRow, listed
from tests.formats.every_type import EVERY_TYPE

Event = tuple[int, int, int, int, tuple[object, ...]]
Bad = tuple[int, int, str]


def lists(parts: list[Any], bad: BadRows) -> tuple[list[Event], list[Bad]]:
    events: list[Event] = []
    for part in parts:
        values = list(zip(*(column.cast(_plain(column)).to_pylist() for column in part.columns), strict=True))
        numbers = zip(part.message.tolist(), part.index.tolist(), part.opcode.tolist(), part.flags.tolist(), strict=True)
        events += [(*each, tuple(map(_shown, row))) for each, row in zip(numbers, values, strict=True)]
    return sorted(events, key=lambda e: e[:2]), sorted((b.message, b.row, b.reason) for b in listed(bad))


def told(bad: BadRows) -> list[BadRow]:
    return sorted(listed(bad))


def _plain(column: pa.Array) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(column.type) else column.type


def _shown(value: object) -> object:
    if isinstance(value, list) and any(isinstance(each, float) for each in value):
        return repr(value)
    return repr(value) if isinstance(value, float) else value


def decoded(messages: list[bytes | None], schema: Schema = EVERY_TYPE) -> tuple[list[Event], list[Bad]]:
    return lists(*decode_json(pa.array(messages, pa.binary()), schema))


def plainly(messages: list[bytes | None], schema: Schema = EVERY_TYPE) -> tuple[list[Event], list[Bad]]:
    rows, bad = decode_plainly(messages, list(range(len(messages))), schema)
    return lists([] if rows is None else [rows], bad)


def field(name: str, text: str) -> object:
    """Returns the value of a field written as `text`, which the fast and the plain decoder must agree on."""
    message = f'{{"{name}": {text}}}'.encode()
    fast, slow = decoded([message]), plainly([message])
    assert fast == slow
    ((_, _, _, _, values),), _ = fast
    return values[EVERY_TYPE.index[name]]


def test_forms_of_a_message() -> None:
    """An object, one per line, objects one after another, over several lines, an array; blank messages hold nothing."""
    messages = [
        b'{"id":1}',
        b'{"id":2}\r\n\n  {"id":3}\n',
        b'{"id":4}{"id":5}',
        b'{\n  "id": 6\n}',
        b'[{"id":7}, {"id":8}]',
        b"[]",
        b" \n ",
        None,
        b'\xef\xbb\xbf{"id":9}',
    ]
    events, bad = decoded(messages)
    assert [(message, index, values[0]) for message, index, _, _, values in events] == [
        (0, 0, 1),
        (1, 0, 2),
        (1, 1, 3),
        (2, 0, 4),
        (2, 1, 5),
        (3, 0, 6),
        (4, 0, 7),
        (4, 1, 8),
        (8, 0, 9),
    ]
    assert bad == []


def test_opcode_and_flags_and_the_nested_event() -> None:
    """SPEC I4: `{"opcode": ..., "event": {...}}` is the form of the REST interface."""
    messages: list[bytes | None] = [
        b'{"id":1}',
        b'{"opcode":"U","flags":"P","id":1}',
        b'{"opcode":"insert","event":{"id":1}}',
        b'{"event":{"id":1,"opcode":"safedelete","flags":"normal"}}',
        b'{"opcode":"x","id":1}',
        b'{"opcode":1,"id":1}',
        b'{"flags":"x","id":1}',
        b'{"event":5}',
    ]
    events, bad = decoded(messages)
    assert [(opcode, flags) for _, _, opcode, flags, _ in events] == [(1, 1), (2, 2), (1, 1), (5, 1)]
    assert bad == [(4, 0, "opcode"), (5, 0, "opcode"), (6, 0, "flag"), (7, 0, "format")]
    own = Schema((Field("opcode", FieldType.STRING, KeyRole.KEY), Field("event", FieldType.INT32)))
    events, bad = decoded([b'{"opcode":"x","hs:opcode":"d","event":3}'], own)
    assert (events, bad) == ([(0, 0, 4, 1, ("x", 3))], [])
    events, bad = decoded([b'{"event":["a"]}', b'{"event":{"id":9}}', b'{"id":1,"event":"login"}'], NAMED)
    assert [(message, values[3]) for message, *_, values in events] == [(0, '["a"]'), (2, "login")]
    assert bad == [(1, 0, "field-type")]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("id", "9223372036854775807", 2**63 - 1),
        ("id", "-9223372036854775808", -(2**63)),
        ("id", '"12"', 12),
        ("n", "-2147483648", -(2**31)),
        ("x", "0.1", "0.1"),
        ("x", "1", "1.0"),
        ("x", "-0.0", "-0.0"),
        ("x", "NaN", "nan"),
        ("x", "-Infinity", "-inf"),
        ("x", '"1e3"', "1000.0"),
        ("s", '"a\\u0000\\n\\u00e9\\ud83d\\ude00"', "a\0\n\xe9\U0001f600"),
        ("s", '""', ""),
        ("s", "null", None),
        ("s", '{ "a" : [1.50, "\\u00e9", {"b": {}}]}', '{ "a" : [1.50, "\\u00e9", {"b": {}}]}'),
        ("s", "[ 1e400 ,true]", "[ 1e400 ,true]"),
        ("few", "[1, null,-2]", [1, None, -2]),
        ("few", "[]", []),
        ("few", '" [ 1; ;null ] "', [1, None, None]),
        ("real", '[0.5, "inf"]', "[0.5, inf]"),
        ("t", "1600000000123456", 1600000000123456),
        ("t", '"2020-09-13T12:26:40.123456"', 1600000000123456),
        ("d", '"2020-09-13"', 1599955200),
        ("b", '"AAH/"', b"\0\1\xff"),
        ("n", '" "', None),
    ],
)
def test_values(name: str, text: str, value: object) -> None:
    assert field(name, text) == value


def test_money_is_exact() -> None:
    assert str(field("m", "99999999999999.9999")) == "99999999999999.9999"
    assert str(field("m", '"-0.1"')) == "-0.1000"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b'{"id":9223372036854775808}', "field-type"),
        (b'{"id":12.12}', "field-type"),
        (b'{"n":2147483648}', "field-type"),
        (b'{"id":true}', "field-type"),
        (b'{"id":{"a":1}}', "field-type"),
        (b'{"id":[1]}', "field-type"),
        (b'{"s":5}', "field-type"),
        (b'{"m":1.23456}', "field-type"),
        (b'{"x":1e400}', "field-type"),
        (b'{"x":"-1e309"}', "field-type"),
        (b'{"real":[1, 1e400]}', "field-type"),
        (b'{"b":"%"}', "field-type"),
        (b'{"id":1,"id":1}', "format"),
        (b'{"id":1', "format"),
        (b'{"id":1}}', "format"),
        (b'{"id":Inf}', "format"),
        (b'{"x":Inf}', "format"),
        (b'{"id":01}', "format"),
        (b'{"id":1}\x00}', "format"),
        (b'{"s":"\\ud800"}', "utf8"),
        (b'{"s":"\xff"}', "utf8"),
        (b"5", "format"),
        (b"[null]", "format"),
        (b'[{"id":1}],"z":[2]', "format"),
        (b'{"id":1} x', "format"),
        (b'{"id":1}, "s": "x"}', "format"),
        (b'1 2"a"3', "format"),
        (b'{"id":1,"z":' + b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1) + b"} x", "format"),
    ],
)
def test_bad_messages_leave_their_neighbours_alone(message: bytes, reason: str) -> None:
    events, bad = decoded([b'{"id":1}', message, b'{"id":2}'])
    assert [(each[0], each[4][0]) for each in events] == [(0, 1), (2, 2)]
    assert bad == [(1, 0, reason)]


def test_a_bad_line_of_a_block_is_one_bad_row() -> None:
    events, bad = decoded([b'{"id":1}\n{"id":x}\n{"id":3}', b'[{"id":4},7,{"id":5}]'])
    assert [(m, i, v[0]) for m, i, _, _, v in events] == [(0, 0, 1), (0, 2, 3), (1, 0, 4), (1, 2, 5)]
    assert bad == [(0, 1, "format"), (1, 1, "format")]


def test_messages_cannot_complete_each_other() -> None:
    """Two halves of an object are two bad messages, although together they are one object."""
    events, bad = decoded([b'{"id":1,"z":{}', b"}", b'{"s":"a}', b'{","id":2}', b'{"id":3}{"id":4}', b'{"id":'])
    assert [(m, i, v[0]) for m, i, _, _, v in events] == [(4, 0, 3), (4, 1, 4)]
    assert sorted({b[0] for b in bad}) == [0, 1, 2, 3, 5]


def test_as_many_objects_as_messages_are_not_one_each() -> None:
    events, bad = decoded([b'{"id":1,"z":[', b']}{"id":2}'])
    assert (events, bad) == ([], [(0, 0, "format"), (1, 0, "format")])


def nested(depth: int, open_: str = "[", close: str = "]") -> bytes:
    """Returns an event with `depth` nested brackets in an unknown member."""
    return f'{{"id":1,"z":{open_ * depth}{"0" if open_ != "[" else ""}{close * depth}}}'.encode()


@pytest.mark.parametrize("beside", [[], [b'{"id":NaN}', b'{"id":"3"}'], [b'{"id":"x"}'] * 99])
@pytest.mark.parametrize(("open_", "close"), [("[", "]"), ('{"a":', "}")])
def test_what_is_nested_too_deep_is_bad_whatever_stands_beside_it(beside: list[bytes], open_: str, close: str) -> None:
    """Also in an unknown member: otherwise the result would depend on the decoder."""
    least, most, deep = (nested(depth, open_, close) for depth in (DEPTH_MAX - 1, DEPTH_MAX, 200_000))
    several = b"[" + b'{"id":2},' * 200 + least + b"," + most + b"]"
    for message, is_bad in ((least, [False]), (most, [True]), (deep, [True]), (several, [False] * 201 + [True])):
        events, bad = decoded([message, *beside, b'{"id":2,"z":{"id":7,"y":[1,{"id":8}]}}'])
        found = {index: False for place, index, *_ in events if place == 0} | {index: True for place, index, _ in bad if place == 0}
        assert [found[index] for index in sorted(found)] == is_bad
        assert (len(beside) + 1, 0) in {each[:2] for each in events}


def test_what_is_said_of_a_bad_event() -> None:
    _, bad = decode_json(pa.array([b'{"id":1}', b'{"id":"abc"}'], pa.binary()), EVERY_TYPE)
    (row,) = listed(bad)
    assert row.sentence == "'abc' is no int64 for field id"
    assert row.text == '{"id":"abc"}'


@pytest.mark.parametrize("before", ["", '{"id":1,"z":[7]},'])
def test_a_bad_object_of_an_array_is_shown_as_it_came(before: str) -> None:
    """Also if the array has only flat objects."""
    bad = '{ "id" : "abc","x":1.50 }'
    _, refused = decode_json(pa.array([f"[{before} {bad} ]".encode()], pa.binary()), EVERY_TYPE)
    assert [(row.row, row.sentence, row.text) for row in listed(refused)] == [
        (1 if before else 0, "'abc' is no int64 for field id", bad)
    ]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"id" 1}', "Expecting ':' delimiter"),
        ('{"id":1 "x":2}', "Expecting ',' delimiter"),
        ('{"id":01}', "Expecting ',' delimiter"),
        ('{"id":-}', "Expecting value"),
        ('{"id":tru}', "Expecting value"),
        ('{"id":1}}', "Expecting value"),
        ('NaNNaN{"id":1}', "another value follows the first"),
        ('{"id":', "Expecting value"),
        ('{"s":"cut', "Unterminated string starting at"),
        ('{"s":"cut\\"', "Unterminated string starting at"),
        ('{"s', "Unterminated string starting at"),
        ('{"s":"\\x"}', "Invalid \\escape"),
        ('{"s":"a\tb"}', "Invalid control character at"),
        ('{"id":\\"1"}', "Expecting value"),
        ("{id:1}", "Expecting property name enclosed in double quotes"),
        ('{"id":1,', "Expecting property name enclosed in double quotes"),
    ],
)
def test_what_is_said_of_a_line_that_is_no_json(line: str, why: str) -> None:
    """Also for many lines together, and next to others."""
    messages = [line.encode(), b'{"id":1}\n' + line.encode(), b'{"id":1,"s":"\\"]\\u00e9"}', b'[{"id":2,"s":"["}]']
    parts, bad = decode_json(pa.array(messages, pa.binary()), EVERY_TYPE)
    assert told(bad) == [BadRow(m, m, "format", f"the text is not JSON: {why}", line) for m in (0, 1)]
    assert sorted(text for part in parts for text in part.columns[3].to_pylist() if text) == ['"]\xe9', "["]


NAMES = st.sampled_from(["id", "n", "x", "s", "m", "t", "d", "b", "few", "real", "opcode", "flags", "other", "event"])
NUMBERS = st.one_of(
    st.integers(-(2**64), 2**64),
    st.floats(),
    st.sampled_from([0, 1, -1, 2**31, 2**63 - 1, 2**63]),
    st.decimals(allow_nan=False, allow_infinity=False, places=5, min_value=-(10**15), max_value=10**15).map(float),
)
TEXTS = st.one_of(st.text(max_size=5), st.sampled_from(["i", "D", "n", "1", "1.5", "x", "2020-01-01", "AA==", "NaN", "", " "]))
SCALARS = st.one_of(st.none(), NUMBERS, TEXTS, st.booleans())
NESTED = st.one_of(st.lists(SCALARS, max_size=2), st.dictionaries(st.text(max_size=2), SCALARS, max_size=2))
GOOD = st.fixed_dictionaries(
    {"id": st.integers(-(2**63), 2**63 - 1)},
    optional={
        "n": st.one_of(st.integers(-(2**31), 2**31 - 1), st.none()),
        "x": st.floats(allow_nan=False, allow_infinity=False),
        "s": st.one_of(st.text(max_size=4), st.text(max_size=4), NESTED),
        "m": st.integers(-(10**13), 10**13),
        "t": st.one_of(st.integers(-(2**60), 2**60), st.just("2020-01-01 10:00:00.5")),
        "opcode": st.sampled_from(["i", "update", "sd"]),
        "few": st.one_of(st.lists(st.one_of(st.none(), st.integers(-9, 2**31)), max_size=3), st.just("[1;2]"), st.none()),
        "real": st.lists(st.one_of(st.floats(), st.just("inf"), st.just("1;2"), st.booleans()), max_size=2),
        "extra": st.one_of(SCALARS, st.lists(SCALARS, max_size=2)),
    },
)
OBJECTS = st.one_of(
    GOOD, GOOD, GOOD, st.dictionaries(NAMES, st.one_of(SCALARS, st.dictionaries(NAMES, SCALARS, max_size=3)), max_size=5)
)


def _message(objects: list[dict[str, Any]], form: str, indent: int | None) -> bytes:
    texts = [json.dumps(each, indent=indent, ensure_ascii=form == "lines") for each in objects]
    text = "[" + ",".join(texts) + "]" if form == "array" else "\n".join(texts)
    return text.encode(errors="surrogatepass")


MESSAGES = st.builds(
    _message,
    st.lists(OBJECTS, min_size=1, max_size=4),
    st.sampled_from(["lines", "array", "raw"]),
    st.sampled_from([None, None, 1]),
)
DAMAGE = st.tuples(st.integers(0, 200), st.binary(max_size=2), st.integers(0, 3))


def _damaged(message: bytes, damage: tuple[int, bytes, int]) -> bytes:
    at, put, cut = damage
    at %= len(message) + 1
    return message[:at] + put + message[at + cut :]


BEYOND = st.sampled_from(
    [b'{"id":1,"x":1e400}', b'{"id":1,"x":-1e309}\n{"id":2,"x":1e308}', b'[{"x":1},{"x":1e999}]', b'{"s":{"a":1e400}}']
)
ANY_MESSAGE = st.one_of(MESSAGES, MESSAGES, MESSAGES, st.builds(_damaged, MESSAGES, DAMAGE), BEYOND)
NAMED = Schema(
    (
        Field("id", FieldType.INT64, KeyRole.KEY),
        *(Field(n, FieldType.STRING) for n in ("opcode", "flags", "event")),
        Field("x", FieldType.DOUBLE),
    )
)


@given(schema=st.sampled_from([EVERY_TYPE, NAMED]), messages=st.lists(ANY_MESSAGE, max_size=8))
@example(
    schema=EVERY_TYPE,
    messages=[b'{"id":1,"m":100000000000000.0}', b'{"id":2,"m":-1e14}', b'{"id":3,"m":99999999999999.9999}', b'{"id":4,"m":null}'],
)
def test_law_twin_fast_equals_plain(schema: Schema, messages: list[bytes]) -> None:
    """Whatever the neighbours of a message: the same events bit for bit, the same bad ones with the same reasons."""
    assert decoded(list(messages), schema) == plainly(list(messages), schema)
    assert told(decode_json(pa.array(messages, pa.binary()), schema)[1]) == told(
        decode_plainly(messages, list(range(len(messages))), schema)[1]
    )


SMALL = st.one_of(st.integers(-3, 3), st.just(-1.5e300))
WRONG_KINDS = st.fixed_dictionaries(
    {"id": st.integers(0, 5)},
    optional={
        "s": st.one_of(SMALL, SMALL, st.booleans(), st.none()),
        "b": st.one_of(SMALL, st.just("AA==")),
        "n": st.one_of(SMALL, st.just("x")),
        "few": st.one_of(SMALL, st.lists(SMALL, max_size=2), st.just("[1]")),
        "opcode": st.one_of(SMALL, st.just("i")),
        "event": st.none(),
        "other": st.one_of(SMALL, st.just('\\"[{'), st.just("\xe9")),
    },
)


@pytest.mark.parametrize("form", ["lines", "array"])
@given(parts=st.lists(st.lists(WRONG_KINDS, min_size=1, max_size=4), min_size=1, max_size=12), several=st.booleans())
def test_law_twin_values_of_wrong_kinds(form: str, parts: list[list[dict[str, Any]]], several: bool) -> None:
    """Numbers for texts, in all objects or only in some; also if messages are read in several parts."""
    messages = [_message(objects, form, None) for objects in parts]
    with tuning_override(Tuning(json_piece_rows=3) if several else DEFAULT):
        found = decode_json(pa.array(messages, pa.binary()), EVERY_TYPE)
    expected = decode_plainly(messages, list(range(len(messages))), EVERY_TYPE)
    assert lists(*found) == lists([] if expected[0] is None else [expected[0]], expected[1])
    assert told(found[1]) == told(expected[1])


PIECES = [
    *(bytes([byte]) for byte in b'{}[]",: \n\t\x0b\\\xff10.e-'),
    *(b"\xef\xbb\xbf", b"\xc3\xa9", b"<a>", b"null", b"true", b"-1.5e3", b"NaN", b"-Infinity"),
    *(b'\\"', b"\\u00e9", b"\\ud83d", b"\\ude00", b'{"a":' * 50, b"[" * 60, b'{"id":1}', b'{"id":2,"s":"'),
    *(b'"id":1', b'"s":"x"', b'"s":{"a":[1]}', b'"s":', b'"few":[1,null,"2"]', b'"few":["a;b"]', b'"n":"\\ud800"'),
    *(b'"event":', b'"event":{"id":4}', b'"opcode":"u",', b'"\\u0069d":3,'),
]
ANY_BYTES = st.one_of(st.binary(max_size=12), st.lists(st.sampled_from(PIECES), max_size=14).map(b"".join))


@given(messages=st.lists(st.one_of(ANY_BYTES, ANY_BYTES, ANY_MESSAGE), max_size=6), rows=st.sampled_from([1, 2, 4096]))
def test_law_twin_any_bytes(messages: list[bytes], rows: int) -> None:
    """Also if the batch is decoded in several parts."""
    with tuning_override(Tuning(json_piece_rows=rows)):
        found = decode_json(pa.array(messages, pa.binary()), EVERY_TYPE)
    expected = decode_plainly(messages, list(range(len(messages))), EVERY_TYPE)
    assert lists(*found) == lists([] if expected[0] is None else [expected[0]], expected[1])
    assert told(found[1]) == told(expected[1])


def test_objects_of_one_line_are_cut_in_one_pass() -> None:
    """Reading the rest of the line for each object would take minutes."""
    assert len(cut_events(b'[{"id":1},{"id":2}' * 50_000)) == 100_000


def test_numbers_are_read_as_in_csv() -> None:
    """The same text gives the same bits in both formats."""
    texts = ["1e-320", "123456789.123456789", "4.9e-324", "0.30000000000000004", "1e22", "-1.7976931348623157e308"]
    schema = Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("x", FieldType.DOUBLE)))
    rows, _ = decode_rows(pa.array([f"i,n,1,{text}".encode() for text in texts], pa.binary()), schema)
    found, _ = decode_json(pa.array([f'{{"id":1,"x":{text}}}'.encode() for text in texts], pa.binary()), schema)
    assert np.array_equal(rows[0].columns[1].to_numpy().view(np.int64), found[0].columns[1].to_numpy().view(np.int64))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b'{"id":1}\nnonsense\n{"id":3}', [1, "format", 3]),
        (b'{"id":1}\n{"s":"\xff"}\n{"id":3}', [1, "utf8", 3]),
        (b'[{"id":1},\n{"id":2 x},\n{"id":3}]', [1, "format", 3]),
        (b'[{"id":1}] [[{"id":2}], null, [3, "x"]]', [1, 2, "format", "format", "format"]),
        (b'{"id":1},{"id":2}\n\xef\xbb\xbf{"id":3}', [1, 2, 3]),
        (b'{"id":1,"s":\n{"a":1}}\n{"id":2}', [1, 2]),
        (b'{"id":1,\n{"id":2}', ["format", 2]),
        (b'{"id":1\n"s":"x"\n{"id":2}', ["format", 2]),
        (b'{"s":"a\nb"}\n{"id":2}', ["format", "format", 2]),
        (b'{"id":1}}\n{"id":2}', ["format", 2]),
        (b'[{"id":1},{"id":2', [1, "format"]),
        (b"[]], ,\n[", []),
        (b'\x0b{"id":1}\x0c{"id":2}', [1, 2]),
    ],
)
def test_what_is_no_event_harms_no_other_of_its_message(message: bytes, expected: list[int | str]) -> None:
    """The layout does not matter, as in files (`tests/adapters/test_one_reading.py`)."""
    events, bad = decoded([message])
    found = {index: values[0] for _, index, _, _, values in events} | {index: reason for _, index, reason in bad}
    assert [found[index] for index in sorted(found)] == expected
    assert sorted(found) == list(range(len(expected)))
    assert (events, bad) == plainly([message])
