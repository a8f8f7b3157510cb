"""The loop over CSV equals its plain twin for any bytes, ends rows where the grammar ends them, whatever the limit of a row is, and
reads no byte more than a few times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.formats.csv import loops
from hotspare.formats.csv.grammar import is_blank
from hotspare.formats.csv.split import Messages, byte_kinds
from hotspare.formats.loops import Fields
from hotspare.formats.utf8 import is_utf8
from hotspare.rows.compile import plain
from tests.examples import examples
from tests.formats.csv_model import Verdict, row_at

PIECES = [
    b"a",
    b",",
    b'"',
    b"\\",
    b" ",
    b"\t",
    b"\n",
    b"\r",
    b"\xef\xbb\xbf",
    b"\xff",
    "\u00e9".encode(),
    b"\r\n",
    b'",',
    b',"',
    b'"\n"',
]
MESSAGES = st.lists(
    st.one_of(st.none(), st.lists(st.sampled_from(PIECES), max_size=24).map(b"".join), st.binary(max_size=12)), max_size=4
)
LIMITS = st.integers(0, 30)
COLUMNS = 2
BAD = {Verdict.OPEN: loops.OPEN, Verdict.MISPLACED: loops.MISPLACED}


def csv_text(messages: Messages) -> loops.Text:
    return loops.Text(messages.data, messages.bounds, byte_kinds(","))


def found(
    values: list[bytes | None], limit: int, purpose: int, run: Callable[..., Any] = loops.split_rows
) -> tuple[loops.FoundRows, Fields, np.ndarray]:
    """Returns the rows, the fields of the good ones, and the state."""
    messages = Messages.from_values(pa.array(values, pa.binary()))
    size, columns = messages.size + len(values) + COLUMNS, COLUMNS if purpose == loops.DECODING else 0
    rows = loops.FoundRows(np.zeros(size, np.int64), *np.zeros((4, size), np.int32))
    fields = Fields(*np.zeros((2, size), np.int32), np.zeros(size, np.uint8))
    state = np.zeros(loops.STATE_WIDTH, np.int64)
    count = run(csv_text(messages), columns, limit, purpose, rows, fields, state)
    used = int(state[loops.GOOD]) * columns
    kept = Fields(fields.begin[:used], fields.size[:used], fields.spill[: state[loops.SPILLED]])
    return loops.FoundRows(*(column[:count] for column in rows)), kept, state


@examples(8)
@given(MESSAGES, LIMITS, st.sampled_from([loops.DECODING, loops.CUTTING]))
def test_it_equals_its_twin(values: list[bytes | None], limit: int, purpose: int) -> None:
    mine, other = (found(values, limit, purpose, run) for run in (loops.split_rows, plain(loops.split_rows)))
    for a, b in zip((*mine[0], *mine[1], mine[2]), (*other[0], *other[1], other[2]), strict=True):
        assert a.tobytes() == b.tobytes()


@examples(8)
@given(MESSAGES, LIMITS)
def test_rows_end_where_the_grammar_ends_them(values: list[bytes | None], limit: int) -> None:
    expected: list[tuple[int, int, int, int, int]] = []
    before = 0
    for message, data in enumerate(values):
        begin, number = 0, 0
        while data is not None and begin < len(data):
            span = row_at(data, begin, limit=limit)
            if not is_blank(data[begin : span.end]):
                verdict = BAD.get(span.verdict, len(span.columns)) if is_utf8(span.text(data)) else loops.NOT_UTF8
                expected.append((message, number, before + span.begin, before + span.end, verdict))
                number += 1
            begin = span.line_end + 1
        before += len(data or b"")
    rows = found(values, limit, loops.DECODING)[0]
    assert list(zip(*(column.tolist() for column in rows), strict=True)) == expected


@examples(8)
@given(MESSAGES.map(lambda values: [value or b"" for value in values]), LIMITS)
def test_every_byte_is_cut_into_a_row(values: list[bytes], limit: int) -> None:
    """Rows that are cut have the ends and verdicts of rows that are decoded; they are separated by line feeds and follow each
    other."""
    rows = found(list(values), limit, loops.CUTTING)[0]
    before = 0
    for message, data in enumerate(values):
        begin = 0
        for row in np.flatnonzero(rows.message == message).tolist():
            span = row_at(data, begin, limit=limit)
            assert (rows.begin[row], rows.end[row]) == (before + begin, before + span.end)
            assert (rows.columns[row] == loops.OPEN) == (span.verdict is Verdict.OPEN and not is_blank(data[begin : span.end]))
            begin = span.line_end + 1
        assert begin == len(data) + 1
        before += len(data)


class Counted(np.ndarray):
    """Bytes that count how often they are read."""

    reads = 0

    def __getitem__(self, place: Any) -> Any:
        Counted.reads += 1
        return super().__getitem__(place)


@pytest.mark.parametrize(
    "text", [b'b","\n', b'x,"""\n', b'"\n', b'"\n"\n', b'",\n,"a"b\n', b'\n"', b'"a\n\n\n', b'""\n"', b'\xff"\n']
)
@pytest.mark.parametrize("limit", [0, 50, 1 << 20])
def test_no_byte_is_read_many_times(text: bytes, limit: int) -> None:
    """A text that is repeated costs what its parts cost. One more quote changes which of them begin rows."""
    costs = []
    for count in (100, 200):
        for data in (text * count, b'"' + text * count):
            messages = Messages.from_values(pa.array([data], pa.binary()))
            counted = csv_text(messages)._replace(data=messages.data.view(Counted))
            rows, fields = (
                loops.FoundRows(*np.zeros((5, len(data)), np.int64)),
                Fields(*np.zeros((3, len(data) + COLUMNS), np.int64)),
            )
            Counted.reads = 0
            plain(loops.split_rows)(counted, COLUMNS, limit, loops.DECODING, rows, fields, np.zeros(loops.STATE_WIDTH, np.int64))
            costs.append(Counted.reads)
    assert max(costs[2:]) < 2.2 * max(costs[:2])
