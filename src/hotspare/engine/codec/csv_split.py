"""CSV messages to columns of text, as `csv_grammar` says.

Nearly all rows are cut together, by a search for line feeds, delimiters and quotes over the bytes of all messages: those without
backslashes whose quotes, if any, stand around whole fields. Only the others are read one by one. What a row becomes depends on that
row alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.engine.codec.csv_grammar import BYTE_ORDER_MARK, RowSpan, Verdict, grammar, is_blank
from hotspare.engine.elementwise import Rows

BAD_TEXT_LENGTH_MAX = 4096
"""Limit on the text of a bad row, in characters."""
_NOTHING = pa.array([b""], pa.binary())
_ZERO = pa.scalar(0, pa.int32())
_QUOTE, _ESCAPE = ord('"'), ord("\\")
_BLANK_BEGINNINGS = np.frombuffer(b" \t\v\f\r\xef", np.uint8)
"""What a line of nothing begins with."""


class RowReason(StrEnum):
    """Why a row could not be decoded. The values are stable: scripts match on them."""

    UTF8 = "utf8"
    QUOTE = "quote"
    COLUMN_COUNT = "column-count"
    OPCODE = "opcode"
    FLAG = "flag"
    FIELD_TYPE = "field-type"
    FORMAT = "format"
    """A message of a format that is not known, or damaged."""


class BadRow(NamedTuple):
    """`message`: which of the messages given; `index`: which of its rows, from 0. A tuple, because there may be very many."""

    message: int
    index: int  # type: ignore[assignment]
    reason: str
    sentence: str
    text: str


@dataclass(frozen=True, slots=True)
class TextRows:
    """Rows as text: which message, which of its rows, one string array per column (null where empty), the whole row by number."""

    message: Rows
    index: npt.NDArray[np.int32]
    columns: list[pa.Array]
    text: Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Layout:
    """How many columns a row has, what stands between them, and in which column a blank before the text is not part of it: files
    have one between the flag and the first field (-1: in none)."""

    columns: int
    delimiter: str = ","
    blank_before: int = -1


def split(values: pa.Array, layout: Layout) -> tuple[list[TextRows], list[BadRow]]:
    """Rows of an Arrow binary array of messages, in order; at most one result."""
    bad: list[BadRow] = []
    if len(values) == 0:
        return [], bad
    lines = _lines(values)
    blank = _blank_lines(lines)
    scanned = _scanned(lines, np.flatnonzero(_is_special(lines, values, layout) & ~blank), layout)
    is_row, is_plain = ~blank, ~blank
    heads = np.array(list(scanned), np.int64)
    behind = np.searchsorted(lines.begin, np.array([row.line_end for row in scanned.values()], np.int64))
    is_plain[heads] = False
    for each in np.flatnonzero(behind > heads + 1).tolist():
        is_plain[heads[each] : behind[each]] = is_row[heads[each] + 1 : behind[each]] = False
    index = np.zeros(len(is_row), np.int32)
    index[is_row] = numbered(lines.parent[is_row])
    parts = [_split_plain(lines.kept(is_plain), index[is_plain], layout, bad)] if is_plain.any() else []
    if scanned:
        parts.append(_written_out(lines, scanned, index, layout, bad))
    return [_merged(*parts)] if len(parts) == 2 else parts, bad


def _merged(plain: TextRows, others: TextRows) -> TextRows:
    """The rows of both, in order."""
    count = len(plain.message)
    message, index = np.concatenate([plain.message, others.message]), np.concatenate([plain.index, others.index])
    order = np.lexsort((index, message))
    pairs = zip(plain.columns, others.columns, strict=True)
    columns = [pa.concat_arrays(pair).take(pa.array(order)) for pair in pairs]

    def text(row: int) -> str:
        at = int(order[row])
        return plain.text(at) if at < count else others.text(at - count)

    return TextRows(message[order], index[order], columns, text)


def count_sentence(found: int, layout: Layout) -> str:
    return f"the row has {found} columns, {layout.columns} are expected"


def _bytes_of(array: pa.Array) -> npt.NDArray[np.uint8]:
    """The bytes of all values, one after another."""
    _, offsets, data = array.buffers()
    if data is None or len(array) == 0:
        return np.empty(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int32)
    return np.frombuffer(data, np.uint8)[bounds[array.offset] : bounds[array.offset + len(array)]]


def _is_special(lines: _Lines, values: pa.Array, layout: Layout) -> npt.NDArray[np.bool_]:
    """Which lines are not cut together with others: those with a backslash, a byte order mark at the beginning, bytes that are not
    UTF-8, or a quote that does not begin or end a field."""
    special = np.zeros(len(lines.begin), np.bool_)
    special[lines.of(np.flatnonzero(lines.data == _ESCAPE))] = True
    quotes = np.flatnonzero(lines.data == _QUOTE)
    if len(quotes):
        special[_oddly_quoted(lines, quotes, ord(layout.delimiter))] = True
    special[lines.data[lines.begin] == BYTE_ORDER_MARK[0]] = True
    high = lines.data >= 0x80
    if high.any():
        try:
            values.cast(pa.string())
        except pa.ArrowInvalid:
            for line in np.unique(lines.of(np.flatnonzero(high))).tolist():
                special[line] |= not is_utf8(lines.bytes_of(line))
    return special


def _oddly_quoted(lines: _Lines, quotes: Rows, delimiter: int) -> Rows:
    """The lines, some more than once, in which a quote is not closed, or not the first or the last of a field. `quotes` are all."""
    line = lines.of(quotes)
    first = np.searchsorted(quotes, lines.begin)
    opens = (np.arange(len(quotes)) - first[line]) % 2 == 0
    begins = (quotes == lines.begin[line]) | (lines.data[quotes - 1] == delimiter)
    ends = (quotes + 1 == lines.end[line]) | (lines.data[quotes + 1] == delimiter)
    is_last = np.append(line[1:] != line[:-1], True)
    odd: Rows = line[np.where(opens, ~begins | is_last, ~ends)]
    return odd


def _blank_lines(lines: _Lines) -> npt.NDArray[np.bool_]:
    blank = np.isin(lines.data[lines.begin], _BLANK_BEGINNINGS)
    blank[blank] = [is_blank(lines.bytes_of(line)) for line in np.flatnonzero(blank).tolist()]
    return blank


def _scanned(lines: _Lines, special: Rows, layout: Layout) -> dict[int, RowSpan]:
    """The rows that begin with these lines, by line. One in quotes may go on over lines that follow."""
    found: dict[int, RowSpan] = {}
    rules, data, behind = grammar(layout.delimiter.encode()), lines.data.tobytes() if len(special) else b"", 0
    for line in special.tolist():
        at = int(lines.begin[line])
        if at < behind:
            continue
        row = rules.row(data, at, int(lines.stop[line]))
        behind = row.line_end + 1
        found[line] = row
    return found


def is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Lines:
    """Pieces of one buffer of bytes: line i is `data[begin[i]:end[i]]`, of message `parent[i]`, which ends at `stop[i]`."""

    data: npt.NDArray[np.uint8]
    begin: Rows
    end: Rows
    parent: Rows
    stop: Rows

    def kept(self, mask: npt.NDArray[np.bool_]) -> _Lines:
        if mask.all():
            return self
        return _Lines(self.data, self.begin[mask], self.end[mask], self.parent[mask], self.stop[mask])

    def of(self, places: Rows) -> Rows:
        """The lines in which bytes stand that are in some line."""
        return np.searchsorted(self.begin, places, side="right") - 1

    def bytes_of(self, line: int) -> bytes:
        return self.data[self.begin[line] : self.end[line]].tobytes()

    def text(self, line: int) -> str:
        return self.bytes_of(line).decode()


def _split_plain(lines: _Lines, index: npt.NDArray[np.int32], layout: Layout, bad: list[BadRow]) -> TextRows:
    """Rows that are lines of UTF-8 without backslashes, whose quotes stand around whole fields."""
    places = np.flatnonzero(lines.data == ord(layout.delimiter))
    quotes = np.flatnonzero(lines.data == _QUOTE)
    if len(quotes):
        before = np.searchsorted(quotes, places) - np.searchsorted(quotes, lines.begin)[np.maximum(lines.of(places), 0)]
        places = places[before % 2 == 0]
    first, count = _delimiters_per_line(lines, places, layout.columns - 1)
    wrong = count != layout.columns - 1
    for line in np.flatnonzero(wrong).tolist():
        sentence = count_sentence(int(count[line]) + 1, layout)
        bad.append(_bad(int(lines.parent[line]), int(index[line]), RowReason.COLUMN_COUNT, sentence, lines.text(line)))
    lines, first, index = lines.kept(~wrong), first[~wrong], index[~wrong]
    columns, begin = [], lines.begin
    for column in range(layout.columns):
        end = places[first + column] if column < layout.columns - 1 else lines.end
        if column == layout.blank_before:
            begin = begin + ((lines.data[begin] == ord(" ")) & (begin < end))
        is_quoted = lines.data[begin] == _QUOTE if len(quotes) else np.zeros(len(begin), np.bool_)
        columns.append(_strings(lines.data, begin + is_quoted, end - is_quoted, is_quoted))
        begin = end + 1
    return TextRows(lines.parent, index, columns, lines.text)


def _lines(values: pa.Array) -> _Lines:
    """All lines that are not empty, without their line ends."""
    data = np.frombuffer(joined(values), np.uint8)
    end = np.flatnonzero(data == ord("\n"))
    begin = np.concatenate([np.zeros(1, np.int64), end[:-1] + 1])
    if len(end) == len(values):
        parent, stop = np.arange(len(values), dtype=np.int64), end
    else:
        sizes = pc.binary_length(values).fill_null(_ZERO).to_numpy().astype(np.int64)
        stops = np.cumsum(sizes + 1)
        parent = np.searchsorted(stops, begin, side="right").astype(np.int64)
        stop = stops[parent] - 1
    while (returns := (end > begin) & (data[end - 1] == ord("\r"))).any():
        end = end - returns
    lines = _Lines(data, begin, end, parent, stop)
    return lines.kept(end > begin)


def joined(values: pa.Array) -> pa.Buffer:
    """All values, a line feed after each."""
    every = pa.concat_arrays([values.fill_null(_NOTHING[0]) if values.null_count else values, _NOTHING])
    every = pa.ListArray.from_arrays(pa.array(np.array([0, len(every)], np.int32)), every)
    return pc.binary_join(every, b"\n").buffers()[2]


def _delimiters_per_line(lines: _Lines, places: Rows, expected: int) -> tuple[Rows, Rows]:
    """Number of the first delimiter of each line in `places`, and how many delimiters the line has."""
    count = len(lines.begin)
    if expected and len(places) == count * expected:
        table = places.reshape(count, expected)
        if (table[:, 0] >= lines.begin).all() and (table[:, -1] < lines.end).all():
            return np.arange(count, dtype=np.int64) * expected, np.full(count, expected, np.int64)
    first = np.searchsorted(places, lines.begin).astype(np.int64)
    return first, np.searchsorted(places, lines.end).astype(np.int64) - first


def _strings(data: npt.NDArray[np.uint8], begin: Rows, end: Rows, is_quoted: npt.NDArray[np.bool_]) -> pa.Array:
    """The strings `data[begin[i]:end[i]]`, null where empty and not quoted; `begin` and `end` rise together without crossing."""
    count = len(begin)
    if count == 0:
        return pa.nulls(0, pa.string())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2], bounds[1::2] = begin, end
    pieces = pa.Array.from_buffers(pa.string(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    strings = pieces.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
    empty = (begin == end) & ~is_quoted
    if not empty.any():
        return strings
    validity = pa.py_buffer(np.packbits(~empty, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), count, [validity, *strings.buffers()[1:]])


def numbered(parents: Rows) -> npt.NDArray[np.int32]:
    """The number of each row among those of its message; `parents` never falls."""
    count = len(parents)
    new = parents[1:] != parents[:-1]
    if count == 0 or new.all():
        return np.zeros(count, np.int32)
    begins = np.flatnonzero(np.concatenate([[True], new]))
    lengths = np.diff(np.append(begins, count))
    return (np.arange(count) - np.repeat(begins, lengths)).astype(np.int32)


def _written_out(
    lines: _Lines, scanned: dict[int, RowSpan], index: npt.NDArray[np.int32], layout: Layout, bad: list[BadRow]
) -> TextRows:
    """The good ones among rows that were read one by one."""
    rules, data = grammar(layout.delimiter.encode()), lines.data.tobytes()
    good: list[int] = []
    texts: list[str] = []
    columns: list[list[str | None]] = [[] for _ in range(layout.columns)]
    for line, row in scanned.items():
        text = row.text(data)
        why = _why_bad(text, row, layout)
        if why is not None:
            shown = text.decode(errors="replace")
            bad.append(_bad(int(lines.parent[line]), int(index[line]), *why, shown))
            continue
        good.append(line)
        texts.append(text.decode())
        for place, (begin, end) in enumerate(row.columns):
            written = data[begin:end]
            value = rules.value(written.removeprefix(b" ") if place == layout.blank_before else written)
            columns[place].append(None if value is None else value.decode())
    arrays = [pa.array(column, pa.string()) for column in columns]
    return TextRows(lines.parent[good], index[good], arrays, texts.__getitem__)


def _why_bad(text: bytes, row: RowSpan, layout: Layout) -> tuple[RowReason, str] | None:
    if not is_utf8(text):
        return RowReason.UTF8, "the row is not UTF-8"
    if row.verdict is not Verdict.CLOSED:
        return RowReason.QUOTE, "a quoted field does not end before the next delimiter"
    if len(row.columns) != layout.columns:
        return RowReason.COLUMN_COUNT, count_sentence(len(row.columns), layout)
    return None


def _bad(message: int, index: int, reason: RowReason, sentence: str, text: str) -> BadRow:
    return BadRow(message, index, reason, sentence, text[:BAD_TEXT_LENGTH_MAX])
