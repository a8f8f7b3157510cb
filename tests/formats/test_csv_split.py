"""Messages split together have the rows and values that the grammar reads one by one (SPEC 5.2)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.formats.csv.grammar import ROW_BYTES_MAX, grammar, is_blank
from hotspare.formats.csv.split import Messages, TextLayout, split
from hotspare.formats.utf8 import is_utf8
from hotspare.rows.bad_reasons import RowReason
from tests.examples import examples
from tests.formats.bad_rows import listed
from tests.formats.csv_model import Verdict, row_at

COLUMNS = 3
Found = tuple[int, int, object, str]

pieces = [b"a", b",", b'"', b"\\", b" ", b"\t", b"\n", b"\r", b"\xef\xbb\xbf", b"\xff", "\u00e9".encode()]
words = [
    b"\r\n",
    b'""',
    b"\\\\",
    b'\\"',
    b"\\,",
    b'","',
    b'"\n"',
    b',"x\ny",',
    b'"a",',
    b" " * 7,
    b',   "',
    b'"    ,',
    b'"""',
    b'",\t "',
    b'"\t\t"',
    b"\t" * 7,
]
messages = st.lists(
    st.one_of(
        st.none(),
        st.lists(st.sampled_from(pieces + words), max_size=24).map(b"".join),
        st.lists(st.sampled_from([b'"', b",", b"\n", b"a"]), max_size=40).map(b"".join),
    ),
    max_size=4,
)


def split_together(values: list[bytes | None], columns: int = COLUMNS, delimiter: str = ",") -> list[Found]:
    """Returns (message, row, its columns or the reason why it is bad, its text), in order."""
    rows, bad = split(Messages.from_values(pa.array(values, pa.binary())), TextLayout(columns, delimiter))
    found: list[Found] = [(row.message, row.row, row.reason, row.text) for row in listed(bad)]
    texts = rows.whole(np.arange(len(rows))).to_pylist()
    fields = zip(*(column.to_pylist() for column in rows.texts()), strict=True)
    found += zip(rows.message.tolist(), rows.index.tolist(), fields, texts, strict=True)
    return sorted(found, key=lambda row: row[:2])


def read_one_by_one(values: list[bytes | None], columns: int = COLUMNS, delimiter: bytes = b",") -> list[Found]:
    found: list[Found] = []
    for message, data in enumerate(values):
        begin, number = 0, 0
        while data is not None and begin <= len(data):
            span = row_at(data, begin, delimiter)
            whole, text = data[begin : span.end], span.text(data)
            begin = span.line_end + 1
            if is_blank(whole):
                continue
            means: object = tuple(grammar(delimiter).value(data[a:b]) for a, b in span.columns)
            if not is_utf8(text):
                means = RowReason.UTF8
            elif span.verdict is not Verdict.CLOSED:
                means = RowReason.QUOTE
            elif len(span.columns) != columns:
                means = RowReason.COLUMN_COUNT
            else:
                means = tuple(value and value.decode() if value != b"" else "" for value in means)
            found.append((message, number, means, text.decode(errors="replace")))
            number += 1
    return found


@examples(16)
@given(messages, st.sampled_from([",", ";", "\t", "a"]))
def test_rows_are_those_that_are_read_one_by_one(values: list[bytes | None], delimiter: str) -> None:
    values = [value and value.replace(b",", delimiter.encode()) for value in values]
    assert split_together(values, delimiter=delimiter) == read_one_by_one(values, delimiter=delimiter.encode())


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_row_of_several_lines_has_a_limit(more: int, mark: bytes) -> None:
    """Beyond the limit the quote counts as unclosed; the limit does not apply to a single line."""
    size = ROW_BYTES_MAX + more - len(mark) - len(b'"\n",,')
    several = mark + b'"\n' + b"a" * size + b'",,'
    single = mark + b'"' + b"a" * (ROW_BYTES_MAX + more) + b'",,'
    values = [several + b"\nb,,", b"c,,", single]
    found = split_together(values)
    assert found == read_one_by_one(values)
    assert [row[2] == RowReason.QUOTE for row in found[:2]] == [more > 0, False]


@pytest.mark.parametrize(
    "data",
    [
        b'"' * 9 + b",,",
        b'"' * 10 + b",,\n" + b'"' * 8 + b",,",
        b'""",\n,""",,' + b'\r\n"\\"","\\\\",\\"',
        b' "",a,b\n "" ,,\n  ""a,,\na "",b ""c,  ""',
        b'\xef\xbb\xbf ""a,,\n\xef\xbb\xbf"",,',
        b' "a"  ,     "b"      ,      "c"\r\r',
        b'"\n\n\n",,\n\n"\r\n\r",,',
        b'"a\n"b,"\nc",,\n"d\ne",,f',
        b'x",,\n"y"z,,\n,y",\n"',
    ],
)
def test_odd_messages(data: bytes) -> None:
    values = [data, b"a,b,c", data + b"\n" + data, data[:-1]]
    assert split_together(values) == read_one_by_one(values)


@pytest.mark.parametrize("size", [2, 3, 1000])
@pytest.mark.parametrize(
    "text", [b'"', b'""', b"\\", b'\\"', b" ", b"\n", b"\r", b"\r\n", b",", b'",', b'\n"', b' "', b'" ', b"\t", b'\t"']
)
def test_one_byte_many_times(text: bytes, size: int) -> None:
    """Also in quotes, and if each line consists of it."""
    values = [text * size, b'"' + text * size, b'"' + text * size + b'",,', (b"\n" + text) * size, text * size + b'",,\n"a",,']
    assert split_together(values) == read_one_by_one(values)
