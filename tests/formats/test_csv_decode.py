"""CSV rows to events (SPEC 5.2): forms, bad rows with their reasons, and independence of messages."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import UsageError
from hotspare.formats.csv.decode import CsvOptions, KeyColumn, decode_rows
from hotspare.model.events import Flag, Opcode
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.tuning import Tuning, tuning_override
from tests.formats.bad_rows import listed

SCHEMA = Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("x", FieldType.DOUBLE), Field("s", FieldType.STRING)))
Event = tuple[int, int, int, int, tuple[object, ...]]
Bad = tuple[int, int, str, str]


def decoded(
    messages: list[bytes | None], options: CsvOptions | None = None, schema: Schema = SCHEMA
) -> tuple[list[Event], list[Bad]]:
    """Returns events as (message, index, opcode, flags, values) and bad rows as (message, index, reason, text), both in order."""
    parts, bad = decode_rows(pa.array(messages, pa.binary()), schema, options)
    events: list[Event] = []
    for part in parts:
        values = list(zip(*(column.to_pylist() for column in part.columns), strict=True))
        numbers = zip(part.message.tolist(), part.index.tolist(), part.opcode.tolist(), part.flags.tolist(), strict=True)
        events += [(*each, row) for each, row in zip(numbers, values, strict=True)]
    return sorted(events, key=lambda e: e[:2]), sorted((b.message, b.row, b.reason, b.text) for b in listed(bad))


def opaque_values(text: str, options: CsvOptions | None = None, schema: Schema = SCHEMA) -> tuple[object, ...]:
    events, bad = decoded([text.encode()], options, schema)
    assert not bad, bad
    (event,) = events
    return event[4]


@pytest.mark.parametrize(
    ("word", "opcode"),
    [
        ("i", 1),
        ("I", 1),
        (" i ", 1),
        ("u", 2),
        ("p", 3),
        ("D", 4),
        ("sd", 5),
        ("Sd", 5),
        ("insert", 1),
        ("SafeDelete", 5),
        ("UB", 6),
    ],
)
def test_opcodes(word: str, opcode: int) -> None:
    """SPEC A8: letters in any case."""
    ((_, _, found, flags, _),), bad = decoded([f"{word},n,1,2,x".encode()])
    assert (found, flags, bad) == (opcode, Flag.NORMAL, [])


@pytest.mark.parametrize(("word", "flags"), [("n", 1), ("P", 2), ("r", 4), ("np", 3), ("PN", 3), ("nR", 5), ("rpn", 7)])
def test_flags(word: str, flags: int) -> None:
    """SPEC A9: one or more."""
    ((_, _, _, found, _),), _ = decoded([f"i,{word},1,2,x".encode()])
    assert found == flags


@pytest.mark.parametrize(
    ("row", "values"),
    [
        ("i,n,1,2.5,abc", (1, 2.5, "abc")),
        ("i,n, 1 , 2.5 ,abc", (1, 2.5, "abc")),
        ("i,n,1,, a b ", (1, None, "a b")),
        ("i,n,1,  ,", (1, None, None)),
        ('i,n,1,2,""', (1, 2.0, "")),
        (r"i,n,1,2,a\,b", (1, 2.0, "a,b")),
        (r"i,n,1,2,C:\new\x", (1, 2.0, r"C:\new\x")),
        (r"i,n,1,2,\\server", (1, 2.0, r"\\server")),
        ('i,n,1,2,"a,""b"" \\"c\\" \\\\ \\n"', (1, 2.0, 'a,"b" "c" \\ \\n')),
        ('i,n,"1", "2" ,x', (1, 2.0, "x")),
        ('i,n,1,2,5" pipe', (1, 2.0, '5" pipe')),
        ("i,n,1,2,äöü\r", (1, 2.0, "äöü")),
        ('i,n,1,2,"x"\r', (1, 2.0, "x")),
        ('i,n,1,2,"two\nlines"', (1, 2.0, "two\nlines")),
        ("\ufeffi,n,1,2,x", (1, 2.0, "x")),
        ('i,n,1,2,"x"\t', (1, 2.0, "x")),
        ('i,n,"1"\t,\t2 ,\t "x\t"\t ', (1, 2.0, "x\t")),
        ("i,n,1,2,\tx\ty\t", (1, 2.0, "x\ty")),
        ("i,n,1,2,\t", (1, 2.0, None)),
    ],
)
def test_fields(row: str, values: tuple[object, ...]) -> None:
    """SPEC 5.2: blanks around values, escaped commas, quotes, empty is null (SPEC A13)."""
    assert opaque_values(row) == values


def test_blanks_around_a_text_are_no_part_of_it() -> None:
    """SPEC 5.2. In quotes they are part of it, and outputs with such texts are quoted."""
    schema = Schema((Field("k", FieldType.STRING, KeyRole.KEY), Field("s", FieldType.STRING)))
    assert opaque_values("I,N, a b,   c d  ", schema=schema) == ("a b", "c d")
    assert opaque_values("I,N,   a\\, b ,    ", schema=schema) == ("a, b", None)
    assert opaque_values('I,N, " a" ,"  "', schema=schema) == (" a", "  ")
    assert opaque_values('I,N,     "a""b"   ,x\\  ', schema=schema) == ('a"b', "x\\")


@pytest.mark.parametrize(
    ("row", "reason", "part"),
    [
        (b"i,n,1,2", "column-count", "the row has 4 columns, 5 are expected"),
        (b"i,n,1,2,x,y", "column-count", "the row has 6 columns, 5 are expected"),
        (b'i,n,1,"2"', "column-count", "the row has 4 columns, 5 are expected"),
        (b"", "", ""),
        (b"q,n,1,2,x", "opcode", "'q' is not an opcode"),
        (b",n,1,2,x", "opcode", "nothing is not an opcode"),
        (b"i,z,1,2,x", "flag", "'z' is not a flag"),
        (b"i,n,12.12,2,x", "field-type", "'12.12' is no int64 for field id"),
        (b"i,n,1,zwei,x", "field-type", "'zwei' is no double for field x"),
        (b"i,n,one,zwei,x", "field-type", "'one' is no int64 for field id"),
        (b"q,z,one,zwei,x", "opcode", "'q' is not an opcode"),
        (b"i,n,99999999999999999999,2,x", "field-type", "is no int64 for field id"),
        (b'i,n,1,2,"open', "quote", "a quoted field does not end"),
        (b'i,n,1,2,"a"b', "quote", "a quoted field does not end"),
        (b"i,n,1,2,\xff", "utf8", "not UTF-8"),
    ],
)
def test_bad_rows_say_what_is_wrong(row: bytes, reason: str, part: str) -> None:
    """SPEC F15, I10: reason, row number, field and text; the head adds the window."""
    _, bad = decode_rows(pa.array([b"i,n,5,5,ok\n" + row], pa.binary()), SCHEMA)
    if not reason:
        assert len(bad) == 0
        return
    (found,) = listed(bad)
    assert (found.message, found.row, found.reason) == (0, 1, reason)
    assert part in found.sentence
    assert found.text == row.decode(errors="replace")


def test_bad_rows_stand_in_nobodys_way() -> None:
    events, bad = decoded([b'i,n,1,1,a\nx\ni,n,2,2,"open\ni,n,3,3,b\n\n  \ni,n,4,4,\xff\ni,n,5,5,c', None, b"", b"i,n,6,6,d"])
    assert [(m, i, v[0]) for m, i, _, _, v in events] == [(0, 0, 1), (0, 3, 3), (0, 5, 5), (3, 0, 6)]
    assert [(m, i, r) for m, i, r, _ in bad] == [(0, 1, "column-count"), (0, 2, "quote"), (0, 4, "utf8")]


FIELD = st.one_of(
    st.sampled_from(["1", " 2 ", "x", "", "2.5", '"', '"q"', '"a,b"', "a\\,b", "\\", " ", "é", '""', "\r", '"a\nb"', "i", "n"]),
    st.text(alphabet='a1", \\\r\n;', max_size=5),
)
ROW = st.one_of(
    st.lists(FIELD, min_size=0, max_size=6).map(",".join),
    st.tuples(st.sampled_from(["i", "U", "sd", "?"]), st.sampled_from(["n", "pr", "-"]), FIELD, FIELD, FIELD).map(",".join),
)
MESSAGE = st.one_of(
    st.none(),
    st.lists(ROW, max_size=4).map(lambda rows: "\n".join(rows).encode()),
    st.binary(max_size=8),
    st.sampled_from([b"i,n,1,2,a", b"u,n,2,3,b\np,n,3,,\n", b"i,n,4,5,\xc3\xa4", b"\xef\xbb\xbfi,n,7,7,bom"]),
)


@given(st.lists(MESSAGE, max_size=8))
def test_a_message_does_not_depend_on_its_neighbours(messages: list[bytes | None]) -> None:
    together = decoded(messages)
    alone = [decoded([message]) for message in messages]
    assert together[0] == [(i, *event[1:]) for i, (events, _) in enumerate(alone) for event in events]
    assert together[1] == [(i, *row[1:]) for i, (_, bad) in enumerate(alone) for row in bad]
    for i in range(len(messages)):
        numbers = sorted([e[1] for e in together[0] if e[0] == i] + [b[1] for b in together[1] if b[0] == i])
        assert numbers == list(range(len(numbers))), "every row has a number of its own, without gaps"


@given(st.lists(MESSAGE, max_size=8), st.integers(1, 40))
def test_how_many_messages_are_decoded_at_once_does_not_show(messages: list[bytes | None], size: int) -> None:
    together = decoded(messages)
    with tuning_override(Tuning(csv_piece_bytes=size)):
        assert decoded(messages) == together


@given(st.lists(ROW, max_size=6))
def test_rows_in_one_message_are_those_of_many(rows: list[str]) -> None:
    """A block equals its rows one after another, if no row holds a line feed or an open quote."""
    rows = [row for row in rows if "\n" not in row and '"' not in row]
    block = decoded(["\n".join(rows).encode()])
    single = decoded([row.encode() for row in rows])
    assert [e[2:] for e in block[0]] == [e[2:] for e in single[0]]
    assert [b[2:] for b in block[1]] == [b[2:] for b in single[1]]


def test_columns_that_are_missing() -> None:
    """SPEC I5: addcsvopcode, addcsvflags, noautogenfield, csvfielddelimiter."""
    options = CsvOptions(delimiter=";", opcode=Opcode.UPSERT, flags=Flag.PARTIAL, key_column=KeyColumn.ABSENT)
    ((_, _, opcode, flags, values),), bad = decoded([b"2.5;a,b"], options)
    assert (opcode, flags, values, bad) == (3, 2, (None, 2.5, "a,b"), [])


def test_dateformat_is_used_for_dates_and_stamps() -> None:
    schema = Schema((Field("t", FieldType.STAMP, KeyRole.KEY), Field("d", FieldType.DATE)))
    parts, _ = decode_rows(
        pa.array([b"i,n,17.10.2024 08:40:25.5,17.10.2024 08:40:25"]), schema, CsvOptions(dateformat="%d.%m.%Y %H:%M:%S")
    )
    assert [c.cast(pa.int64()).to_pylist() for c in parts[0].columns] == [[1_729_154_425_500_000], [1_729_154_425]]


@pytest.mark.parametrize("delimiter", ["", ",,", '"', "\\", "\n", "ä", " "])
def test_a_delimiter_that_cannot_be_used_is_refused(delimiter: str) -> None:
    with pytest.raises(UsageError, match="delimiter"):
        CsvOptions(delimiter=delimiter)


def test_a_dateformat_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(UsageError, match="dateformat"):
        CsvOptions(dateformat="%Y %q")
