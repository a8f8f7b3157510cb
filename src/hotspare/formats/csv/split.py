"""Splits CSV messages into columns of text, by `csv.grammar`.

All rows are split together, by a search for line feeds, delimiters, quotes and backslashes over the bytes of all messages. The
result for a row depends on that row alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.formats.csv.lines import (
    LAST_BLANK,
    LINE_FEED,
    Bytes,
    TextLines,
    are_blanks,
    joined,
    lines_of,
    null_where,
    numbered,
    strings_of,
)
from hotspare.formats.csv.quoting import Quoting, SyntaxBytes, quoting_of
from hotspare.formats.utf8 import not_utf8
from hotspare.rows.bad_reasons import RowReason
from hotspare.rows.elementwise import Rows
from hotspare.rows.refusals import BAD_TEXT_LENGTH_MAX, NO_BAD_ROWS, BadRows, clipped

_NOT_UTF8 = "the row is not UTF-8"
_NOT_CLOSED = "a quoted field does not end before the next delimiter"
_QUOTE = ord('"')


@dataclass(frozen=True, slots=True)
class TextRows:
    """Rows as text: for each its message number and its index in the message. `columns`: a string array per column (null if empty).
    `whole`: returns the complete texts of the rows with these indexes."""

    message: Rows
    index: npt.NDArray[np.int32]
    columns: list[pa.Array]
    whole: Callable[[Rows], pa.Array]


@dataclass(frozen=True, slots=True)
class TextLayout:
    """The number of columns of a row, and the delimiter between them."""

    columns: int
    delimiter: str = ","


def split(values: pa.Array, layout: TextLayout) -> tuple[list[TextRows], BadRows]:
    """Splits an Arrow binary array of messages. Returns the rows, in order, as a list of at most one `TextRows`, and the bad
    rows."""
    lines = lines_of(values) if len(values) else None
    if lines is None or not len(lines.begin):
        return [], NO_BAD_ROWS
    syntax = SyntaxBytes.from_buffer(lines.data, ord(layout.delimiter))
    found = quoting_of(lines, syntax)
    rows, index, bad = found.rows, numbered(found.rows.parent), [NO_BAD_ROWS]
    is_unreadable = _is_unreadable(rows, values)
    if is_unreadable.any():
        bad.append(_unreadable(rows, np.flatnonzero(is_unreadable), index))
    is_misplaced = found.is_none & ~is_unreadable
    if is_misplaced.any():
        at = np.flatnonzero(is_misplaced)
        bad.append(_refused(rows, at, index, RowReason.QUOTE, _NOT_CLOSED, rows.texts(at)))
    places = syntax.delimiters(found.is_quoted)
    first, count = _delimiters_per_row(rows, places, layout.columns - 1)
    is_good = ~(is_unreadable | is_misplaced)
    wrong = is_good & (count != layout.columns - 1)
    if wrong.any():
        at = np.flatnonzero(wrong)
        reason, sentence = pa.repeat(str(RowReason.COLUMN_COUNT), len(at)), _count_sentences(count[at] + 1, layout)
        bad.append(BadRows(rows.parent[at], index[at].astype(np.int64), reason, sentence, clipped(rows.texts(at))))
        is_good &= ~wrong
    if not is_good.all():
        rows, first, index = rows.kept(is_good), first[is_good], index[is_good]
    if not len(rows.begin):
        return [], BadRows.joined(bad)
    blanks = _Blanks(lines, ord(layout.delimiter))
    columns = _columns(rows, places, first, found, blanks, layout.columns)
    return [TextRows(rows.parent, index, columns, rows.texts)], BadRows.joined(bad)


def _columns(rows: TextLines, places: Rows, first: Rows, found: Quoting, blanks: _Blanks, count: int) -> list[pa.Array]:
    """Returns the columns of rows that have the right number of delimiters. `places`: the places of all delimiters; `first`: the
    index in `places` of each row's first delimiter; `count`: the number of columns."""
    texts = _Texts.from_quoting(rows.data, found)
    columns, begin, moved = [], rows.begin, None
    for column in range(count):
        end = places[first + column] if column < count - 1 else rows.end
        inner, last = blanks.within(begin, end)
        strings, after = texts.between(inner, last, moved if inner is begin else None)
        columns.append(null_where(inner == last, strings))
        begin, moved = end + 1, after if last is end else None
    return columns


class _Blanks:
    """The blanks in the bytes of `lines`, which are not part of the fields next to them. `lines`: all lines that are not blank."""

    def __init__(self, lines: TextLines, delimiter: int) -> None:
        self._data = lines.data
        self._delimiter = delimiter
        self._are_there = np.count_nonzero(lines.data <= LAST_BLANK) > len(
            lines.feed
        )  # or other bytes as small: one pass is quicker

    @cached_property
    def _others(self) -> Rows:
        """The rising places of all bytes that are not blanks, and the end of the data."""
        return np.append(np.flatnonzero(~are_blanks(self._data, self._delimiter)), len(self._data))

    def _at(self, places: Rows) -> npt.NDArray[np.bool_]:
        found = self._data[places]
        is_small: npt.NDArray[np.bool_] = found <= LAST_BLANK
        return are_blanks(found, self._delimiter) if is_small.any() else is_small

    def within(self, begin: Rows, end: Rows) -> tuple[Rows, Rows]:
        """Returns the bounds of each field without outer blanks. If no begin, or no end, changes, that array itself is returned.
        One blank is skipped directly, since most fields have at most one; further blanks are skipped by a search."""
        if not self._are_there:
            return begin, end
        outer = self._at(begin) & (begin < end)
        if outer.any():
            begin = begin + outer
            more = np.flatnonzero(outer & self._at(begin) & (begin < end))
            begin[more] = np.minimum(self._others[np.searchsorted(self._others, begin[more])], end[more])
        outer = self._at(end - 1) & (begin < end)
        if outer.any():
            end = end - outer
            more = np.flatnonzero(outer & self._at(end - 1))
            end[more] = self._others[np.searchsorted(self._others, end[more]) - 1] + 1
        return begin, end


@dataclass(frozen=True, slots=True)
class _Texts:
    """Slices the values of fields from bytes. `given`: all bytes; `data`: the bytes without those that `found` drops."""

    given: Bytes
    data: Bytes
    found: Quoting

    @classmethod
    def from_quoting(cls, given: Bytes, found: Quoting) -> _Texts:
        if not len(found.dropped):
            return cls(given, given, found)
        is_kept = np.ones(len(given), np.bool_)
        is_kept[found.dropped] = False
        return cls(given, given[is_kept], found)

    def between(self, begin: Rows, end: Rows, moved: Rows | None) -> tuple[pa.Array, Rows | None]:
        """Returns the values of the fields with these bounds in `given` (an empty text for null). Also returns the begins of the
        next column's fields in `data`; None if unknown.

        `moved`: the begins of these fields in `data`; None if unknown.
        """
        dropped, data, is_quoted, after = self.found.dropped, self.given, None, None
        if self.found.has_quoted:
            is_quoted = data[begin] == _QUOTE
        if len(dropped) and (self.found.has_escapes or (is_quoted is not None and is_quoted.any())):
            begin = begin - np.searchsorted(dropped, begin) if moved is None else moved
            end = end - np.searchsorted(dropped, end)
            data, after = self.data, end + 1
            is_quoted = data[begin] == _QUOTE if self.found.has_quoted else None
        if is_quoted is not None:
            begin, end = begin + is_quoted, end - is_quoted
        return strings_of(data, begin, end), after


def _count_sentences(found: Rows, layout: TextLayout) -> pa.Array:
    what = f" columns, {layout.columns} are expected"
    return pc.binary_join_element_wise("the row has ", pa.array(found).cast(pa.string()), what, "")


def _is_unreadable(rows: TextLines, values: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether each row is not UTF-8."""
    unreadable = np.zeros(len(rows.begin), np.bool_)
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        unreadable[rows.lines_at(not_utf8(rows.data))] = True
    return unreadable


def _unreadable(rows: TextLines, at: Rows, index: npt.NDArray[np.int32]) -> BadRows:
    """Returns the rows with indexes `at`, which are not UTF-8, as bad rows. Their texts have a replacement character for each
    invalid byte sequence."""
    begin = rows.begin[at]
    end = np.minimum(rows.end[at], begin + 4 * BAD_TEXT_LENGTH_MAX)  # no character has more bytes
    texts = strings_of(rows.data, begin, end).view(pa.binary())
    feeds = np.cumsum(pc.count_substring(texts, b"\n").to_numpy() + 1)
    data = np.frombuffer(joined(texts).to_pybytes().decode(errors="replace").encode(), np.uint8)
    ends = np.flatnonzero(data == LINE_FEED)[feeds - 1]  # a line feed stays one, whatever precedes it
    texts = strings_of(data, np.append(0, ends[:-1] + 1), ends)
    return _refused(rows, at, index, RowReason.UTF8, _NOT_UTF8, texts)


def _refused(rows: TextLines, at: Rows, index: npt.NDArray[np.int32], why: RowReason, sentence: str, texts: pa.Array) -> BadRows:
    reasons, sentences = pa.repeat(str(why), len(at)), pa.repeat(sentence, len(at))
    return BadRows(rows.parent[at], index[at].astype(np.int64), reasons, sentences, clipped(texts))


def _delimiters_per_row(rows: TextLines, places: Rows, expected: int) -> tuple[Rows, Rows]:
    """Returns the index in `places` of each row's first delimiter, and the row's number of delimiters. `expected`: the usual
    number."""
    count = len(rows.begin)
    if expected and len(places) == count * expected:
        table = places.reshape(count, expected)
        if (table[:, 0] >= rows.begin).all() and (table[:, -1] < rows.end).all():
            return np.arange(count, dtype=np.int64) * expected, np.full(count, expected, np.int64)
    first = np.searchsorted(places, rows.begin).astype(np.int64)
    return first, np.searchsorted(places, rows.end).astype(np.int64) - first
