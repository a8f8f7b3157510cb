"""Rows of a CSV file (SPEC 5.2): a row ends at a line feed outside quotes, however the bytes arrive (law Cut)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.files.cutters import LINE_BYTES_MAX, LineTooLong, RowCutter
from hotspare.adapters.files.file_rows import Row
from hotspare.formats.csv.grammar import ROW_BYTES_MAX

texts = st.lists(st.sampled_from([b"a", b",", b'"', b"\n", b"\\", b" ", b"\r\n", b'x,"', b'"y']), max_size=30).map(b"".join)


def cut(data: bytes, cuts: list[int]) -> list[Row]:
    cutter = RowCutter(0)
    found: list[Row] = []
    begin = 0
    for end in [*sorted(c % (len(data) + 1) for c in cuts), len(data)]:
        found += cutter.feed(data[begin:end])
        begin = end
    return found + cutter.finish()


@given(data=texts, cuts=st.lists(st.integers(0, 1000), max_size=8))
def test_law_cut_rows_do_not_depend_on_how_bytes_arrive(data: bytes, cuts: list[int]) -> None:
    assert cut(data, cuts) == cut(data, [])


@given(data=texts)
def test_every_byte_belongs_to_one_row(data: bytes) -> None:
    found = cut(data, [])
    begin = 0
    for row in found:
        raw = data[begin : row.end]
        assert row.line == 1 + data.count(b"\n", 0, begin)
        assert raw.removesuffix(b"\n").removesuffix(b"\r") == row.text or raw == row.text + b"\r"
        begin = row.end
    assert begin == len(data)


@given(data=texts)
def test_going_on_at_any_row_gives_the_rest(data: bytes) -> None:
    found = cut(data, [])
    for index, row in enumerate(found):
        cutter = RowCutter(row.end)
        rest = cutter.feed(data[row.end :]) + cutter.finish()
        assert [each[:2] for each in rest] == [each[:2] for each in found[index + 1 :]]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a,b\nc,d\n", [b"a,b", b"c,d"]),
        (b"a,b\r\nc", [b"a,b", b"c"]),
        (b'i,n,"two\nlines"\nz\n', [b'i,n,"two\nlines"', b"z"]),
        (b'i,n,"doubled "" quote\n"\nz', [b'i,n,"doubled "" quote\n"', b"z"]),
        (b'i,n,5" pipe\nz\n', [b'i,n,5" pipe', b"z"]),
        (b'i,n,a\\,"b\nz\n', [b'i,n,a\\,"b', b"z"]),
        (b'i,n,"misplaced" quote,"x\ny"\nz', [b'i,n,"misplaced" quote,"x', b'y"', b"z"]),
        (b'i,n,"never closed\nb\nc', [b'i,n,"never closed', b"b", b"c"]),
        (b'i,n,"closed by the end\nof the file"', [b'i,n,"closed by the end\nof the file"']),
    ],
)
def test_rows(data: bytes, expected: list[bytes]) -> None:
    assert [row.text for row in cut(data, [])] == expected


def test_an_open_quote_waits_for_more() -> None:
    cutter = RowCutter(0)
    assert cutter.feed(b'i,n,"two\n') == []
    assert cutter.pending_bytes == 9
    assert cutter.feed(b'lines"\nnext') == [Row(b'i,n,"two\nlines"', 16, 1)]


def test_an_open_quote_takes_no_more_than_its_line_beyond_the_limit() -> None:
    cutter, row = RowCutter(0), b"row".ljust(ROW_BYTES_MAX // 10)
    assert cutter.feed(b'"open\n' + 9 * (row + b"\n")) == []
    assert [each.text for each in cutter.feed(2 * (row + b"\n"))] == [b'"open'] + 11 * [row]


def test_a_line_without_an_end_is_refused() -> None:
    cutter = RowCutter(100)
    assert cutter.feed(b"x" * LINE_BYTES_MAX) == []
    with pytest.raises(LineTooLong) as caught:
        cutter.feed(b"x")
    assert caught.value.offset == 100
