"""The common grammar of CSV (SPEC 5.2): rows, columns and verdicts are the same for publisher, engine and files."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.files.canonical import RowForm
from hotspare.adapters.files.cutters import RowCutter
from hotspare.formats.csv.grammar import grammar, is_blank, quoted
from hotspare.formats.csv.split import Messages, TextLayout, split
from hotspare.rows.bad_reasons import RowReason
from tests.examples import examples
from tests.formats.bad_rows import listed
from tests.formats.csv_model import Verdict, row_at

pieces = st.sampled_from(
    [b"a", b",", b'"', b"\\", b" ", b"\t", b"\n", b"\r\n", b"\xef\xbb\xbf", b"\xff", "é".encode(), b"\\\\", b'""']
)
texts = st.lists(pieces, max_size=24).map(b"".join)


def cut(data: bytes) -> list[bytes]:
    cutter = RowCutter(0)
    return [row.text for row in [*cutter.feed(data), *cutter.finish()] if not is_blank(row.text)]


def decoded(messages: list[bytes], columns: int) -> list[tuple[int, int, object]]:
    """Returns (message, row, its columns or the reason why it is bad), in order."""
    rows, bad = split(Messages.from_values(pa.array(messages, pa.binary())), TextLayout(columns))
    found: list[tuple[int, int, object]] = [(row.message, row.row, row.reason) for row in listed(bad)]
    values = zip(*(column.to_pylist() for column in rows.texts()), strict=True)
    found += zip(rows.message.tolist(), rows.index.tolist(), values, strict=True)
    return sorted(found, key=lambda row: row[:2])


@examples(8)
@given(texts)
def test_publisher_and_engine_agree_on_columns_and_verdict(data: bytes) -> None:
    """Both find as many columns in any row, with the same values, or both find it bad."""
    for text in cut(data):
        span = row_at(text)
        columns = RowForm().split_row(text)
        ((_, _, found),) = decoded([text], len(columns))
        if found == RowReason.UTF8:
            continue
        assert (found == RowReason.QUOTE) == (span.verdict is not Verdict.CLOSED)
        if span.verdict is Verdict.CLOSED:
            assert found == tuple(None if v is None else v.decode() for v in map(grammar().value, columns))


@examples(8)
@given(texts)
def test_no_row_vanishes(data: bytes) -> None:
    """A message has the rows that each would be alone: numbered consecutively, good or bad."""
    rows = [text for text in cut(data) if row_at(text).verdict is not Verdict.OPEN]
    together = decoded([b"\n".join(rows)], 3)
    assert [index for _, index, _ in together] == list(range(len(rows)))
    assert [found for _, _, found in together] == [found for _, _, found in decoded(rows, 3)]


@examples(5)
@given(st.lists(texts, max_size=6))
def test_rows_that_are_cut_together_are_those_that_are_cut_one_by_one(messages: list[bytes]) -> None:
    """A message does not affect others."""
    assert decoded(messages, 2) == [(i, *row[1:]) for i, each in enumerate(messages) for row in decoded([each], 2)]


@given(st.lists(st.text('a;,\\" é', max_size=5), min_size=1, max_size=4))
def test_a_file_with_another_delimiter_keeps_its_values(values: list[str]) -> None:
    """The value of a column is the same after the rewriting to commas."""
    row = b";".join([b"i", b"n", *(quoted(value.encode()) for value in values)])
    (text,) = RowForm(delimiter=";").canonicalize_rows([row])
    ((_, _, found),) = decoded([text], 2 + len(values))
    assert found == ("i", "n", *values)


@given(texts.filter(lambda text: b"\n" not in text and b"\xff" not in text))
def test_escapes_mean_the_same_behind_another_delimiter(column: bytes) -> None:
    text = b"i;n;" + column.replace(b",", b";")
    if row_at(text, 0, b";").verdict is not Verdict.CLOSED:
        return
    (canonical,) = RowForm(delimiter=";").canonicalize_rows([text])
    assert _values(b",", canonical) == _values(b";", text)


def _values(delimiter: bytes, row: bytes) -> list[bytes | None]:
    """Returns the values of the columns."""
    return [grammar(delimiter).value(each) for each in grammar(delimiter).columns(row)]


def test_two_backslashes_before_a_comma_end_the_field() -> None:
    """Two rows remain two, however they are put into messages."""
    rows = [b'i,n,1,C:\\\\,"a', b'i,n,2,x,b"']
    assert cut(b"\n".join(rows) + b"\n") == [b"\n".join(rows)]
    ((_, _, found),) = decoded([b"\n".join(rows)], 5)
    assert found == ("i", "n", "1", "C:\\\\", "a\ni,n,2,x,b")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (b'a;"b', Verdict.OPEN),
        (b'a,"b', Verdict.CLOSED),
        (b'a;"b"', Verdict.CLOSED),
        (b'a;"b" ;"c"\r', Verdict.CLOSED),
        (b'a;"b"c;"d', Verdict.MISPLACED),
        (b'a; "b""', Verdict.OPEN),
        (b'a;b"', Verdict.CLOSED),
    ],
)
def test_quotes_count_only_where_a_field_begins(row: bytes, expected: Verdict) -> None:
    assert row_at(row, 0, b";").verdict is expected
