"""CSV messages to columns of text, as `csv.grammar` says.

Nearly all rows are cut together, by a search for line feeds, delimiters, quotes and backslashes over the bytes of all messages:
those whose quotes, if any, stand around whole fields. Only the others are read one by one. What a row becomes depends on that row
alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.engine.codec.csv.grammar import BYTE_ORDER_MARK, ESCAPED_IN_QUOTES, RowSpan, Verdict, grammar, is_blank
from hotspare.engine.codec.utf8 import is_utf8, not_utf8
from hotspare.engine.rows.bad_reasons import RowReason
from hotspare.engine.rows.elementwise import Rows
from hotspare.engine.rows.refusals import BAD_TEXT_LENGTH_MAX, NO_BAD_ROWS, BadRows, clipped

_NOT_UTF8 = "the row is not UTF-8"
_NOT_CLOSED = "a quoted field does not end before the next delimiter"
_NOTHING = pa.array([b""], pa.binary())
_ZERO = pa.scalar(0, pa.int32())
_QUOTE, _ESCAPE = ord('"'), ord("\\")
_MAY_FOLLOW = np.frombuffer(b" \r", np.uint8)
"""What may stand behind a closing quote before the field ends."""
_BLANK_BEGINNINGS = np.frombuffer(b" \t\v\f\r\xef", np.uint8)
"""What a line of nothing begins with."""


@dataclass(frozen=True, slots=True)
class TextRows:
    """Rows as text: which message, which of its rows, one string array per column (null where empty); whole rows by numbers."""

    message: Rows
    index: npt.NDArray[np.int32]
    columns: list[pa.Array]
    whole: Callable[[Rows], pa.Array]


@dataclass(frozen=True, slots=True)
class TextLayout:
    """How many columns a row has, what stands between them, and in which column a blank before the text is not part of it: files
    have one between the flag and the first field (-1: in none)."""

    columns: int
    delimiter: str = ","
    blank_before: int = -1


def split(values: pa.Array, layout: TextLayout) -> tuple[list[TextRows], BadRows]:
    """Rows of an Arrow binary array of messages, in order, at most one result; and those that are none."""
    if len(values) == 0:
        return [], NO_BAD_ROWS
    lines = _lines(values)
    blank = _blank_lines(lines)
    marks = _without_literal_quotes(lines, _marks(lines.data, layout))
    is_special, is_misplaced = _is_special(lines, marks)
    scanned = _scanned(lines, np.flatnonzero(is_special & ~blank), layout)
    is_row, is_plain = ~blank, ~blank
    heads = np.array(list(scanned), np.int64)
    behind = np.searchsorted(lines.begin, np.array([row.line_end for row in scanned.values()], np.int64))
    is_plain[heads] = False
    for each in np.flatnonzero(behind > heads + 1).tolist():
        is_plain[heads[each] : behind[each]] = is_row[heads[each] + 1 : behind[each]] = False
    index = np.zeros(len(is_row), np.int32)
    index[is_row] = numbered(lines.parent[is_row])
    parts, bad = [], [NO_BAD_ROWS]
    is_unreadable = is_plain & _is_unreadable(lines, values)
    if is_unreadable.any():
        bad.append(_unreadable(lines, np.flatnonzero(is_unreadable), index))
    is_misplaced &= is_plain & ~is_unreadable
    if is_misplaced.any():
        at = np.flatnonzero(is_misplaced)
        bad.append(_refused(lines, at, index, RowReason.QUOTE, _NOT_CLOSED, lines.texts(at)))
    is_plain &= ~(is_unreadable | is_misplaced)
    if is_plain.any():
        parts.append(_split_plain(lines.kept(is_plain), index[is_plain], marks, layout))
    if scanned:
        parts.append(_written_out(lines, scanned, index, layout))
    texts = [rows for rows, _ in parts]
    return [_merged(*texts)] if len(texts) == 2 else texts, BadRows.joined([*bad, *(refused for _, refused in parts)])


def _merged(plain: TextRows, others: TextRows) -> TextRows:
    """The rows of both, in order."""
    count = len(plain.message)
    message, index = np.concatenate([plain.message, others.message]), np.concatenate([plain.index, others.index])
    order = np.lexsort((index, message))
    pairs = zip(plain.columns, others.columns, strict=True)
    columns = [pa.concat_arrays(pair).take(pa.array(order)) for pair in pairs]

    def whole(rows: Rows) -> pa.Array:
        at = order[rows]
        is_plain = at < count
        texts = pa.concat_arrays([plain.whole(at[is_plain]), others.whole(at[~is_plain] - count)])
        return texts.take(pa.array(np.argsort(np.argsort(~is_plain, kind="stable"), kind="stable")))

    return TextRows(message[order], index[order], columns, whole)


def _count_sentences(found: Rows, layout: TextLayout) -> pa.Array:
    what = f" columns, {layout.columns} are expected"
    return pc.binary_join_element_wise("the row has ", pa.array(found).cast(pa.string()), what, "")


@dataclass(frozen=True, slots=True)
class _Marks:
    """Where delimiters and quotes stand that no backslash before them takes; and whether there are backslashes."""

    delimiters: Rows
    quotes: Rows
    has_escapes: bool


def _marks(data: npt.NDArray[np.uint8], layout: TextLayout) -> _Marks:
    delimiters, quotes = (np.flatnonzero(data == byte) for byte in (ord(layout.delimiter), _QUOTE))
    escapes = np.flatnonzero(data == _ESCAPE)
    if not len(escapes):
        return _Marks(delimiters, quotes, has_escapes=False)
    first = np.maximum.accumulate(np.where(np.diff(escapes, prepend=-2) > 1, escapes, 0))
    taken = np.zeros(len(data), np.bool_)
    taken[escapes[(escapes - first) % 2 == 0] + 1] = True  # of several in a row, each second one is taken itself
    return _Marks(delimiters[~taken[delimiters]], quotes[~taken[quotes]], has_escapes=True)


def _without_literal_quotes(lines: _Lines, marks: _Marks) -> _Marks:
    """Quotes mean nothing in a line in which none is the first thing in a field but spaces."""
    quotes = marks.quotes
    if not len(quotes):
        return marks
    line = lines.of(quotes)
    may_open = _follow_delimiters(lines, marks, line) | (lines.data[quotes - 1] == ord(" "))
    has_quoted = np.zeros(len(lines.begin), np.bool_)
    has_quoted[line[may_open]] = True
    return replace(marks, quotes=quotes[has_quoted[line]])


def _follow_delimiters(lines: _Lines, marks: _Marks, line: Rows) -> npt.NDArray[np.bool_]:
    """Which quotes, standing in these lines, are the first byte of a field, if none before them opens one."""
    delimits = np.zeros(len(lines.data), np.bool_)
    delimits[marks.delimiters] = True
    follow: npt.NDArray[np.bool_] = (marks.quotes == lines.begin[line]) | delimits[marks.quotes - 1]
    return follow


def _is_special(lines: _Lines, marks: _Marks) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which lines are read one by one: those with a byte order mark at the beginning, or a quote that is not closed, or neither
    first nor last of a field nor doubled inside of a quoted one. And those that are none of these, but no rows: there more than
    spaces follow the first quote that is wrong, which closes a field."""
    special: npt.NDArray[np.bool_] = lines.data[lines.begin] == BYTE_ORDER_MARK[0]
    misplaced, quotes = np.zeros(len(special), np.bool_), marks.quotes
    if not len(quotes):
        return special, misplaced
    line = lines.of(quotes)
    first = np.searchsorted(quotes, lines.begin)
    opens = (np.arange(len(quotes)) - first[line]) % 2 == 0
    begins = _follow_delimiters(lines, marks, line)
    behind = np.zeros(len(lines.data), np.bool_)
    behind[marks.delimiters] = True
    ends = (quotes + 1 == lines.end[line]) | behind[quotes + 1]
    is_last = np.append(line[1:] != line[:-1], True)
    doubled = np.append(np.diff(quotes) == 1, False) & ~is_last & ~opens
    ends |= doubled
    begins[1:] |= doubled[:-1]
    odd = np.flatnonzero(np.where(opens, ~begins | is_last, ~ends))
    odd = odd[np.diff(line[odd], prepend=-1) > 0]
    closes = ~opens[odd] & ~np.isin(lines.data[quotes[odd] + 1], _MAY_FOLLOW)
    misplaced[line[odd[closes]]] = True
    misplaced &= ~special
    special[line[odd[~closes]]] = True
    return special, misplaced


def _is_unreadable(lines: _Lines, values: pa.Array) -> npt.NDArray[np.bool_]:
    """Lines that are not UTF-8."""
    unreadable = np.zeros(len(lines.begin), np.bool_)
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        unreadable[lines.of(not_utf8(lines.data))] = True
    return unreadable


def _unreadable(lines: _Lines, at: Rows, index: npt.NDArray[np.int32]) -> BadRows:
    """These lines as bad rows, with a mark in place of what is not UTF-8."""
    begin = lines.begin[at]
    end = np.minimum(lines.end[at], begin + 4 * BAD_TEXT_LENGTH_MAX)  # no character has more bytes
    raw = joined(strings_of(lines.data, begin, end).view(pa.binary())).to_pybytes()
    data = np.frombuffer(raw.decode(errors="replace").encode(), np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    texts = strings_of(data, np.concatenate([np.zeros(1, np.int64), ends + 1])[: len(at)], ends)
    return _refused(lines, at, index, RowReason.UTF8, _NOT_UTF8, texts)


def _refused(lines: _Lines, at: Rows, index: npt.NDArray[np.int32], why: RowReason, sentence: str, texts: pa.Array) -> BadRows:
    reasons, sentences = pa.repeat(str(why), len(at)), pa.repeat(sentence, len(at))
    return BadRows(lines.parent[at], index[at].astype(np.int64), reasons, sentences, clipped(texts))


def _blank_lines(lines: _Lines) -> npt.NDArray[np.bool_]:
    blank = np.isin(lines.data[lines.begin], _BLANK_BEGINNINGS)
    blank[blank] = [is_blank(lines.bytes_of(line)) for line in np.flatnonzero(blank).tolist()]
    return blank


def _scanned(lines: _Lines, special: Rows, layout: TextLayout) -> dict[int, RowSpan]:
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

    def texts(self, lines: Rows) -> pa.Array:
        """Those of UTF-8 as strings; numbers of lines rise."""
        return strings_of(self.data, self.begin[lines], self.end[lines])


def _split_plain(lines: _Lines, index: npt.NDArray[np.int32], marks: _Marks, layout: TextLayout) -> tuple[TextRows, BadRows]:
    """Rows that are lines of UTF-8, whose quotes stand around whole fields."""
    places, quotes = marks.delimiters, marks.quotes
    if len(quotes):
        before = np.searchsorted(quotes, places) - np.searchsorted(quotes, lines.begin)[np.maximum(lines.of(places), 0)]
        places = places[before % 2 == 0]
    first, count = _delimiters_per_line(lines, places, layout.columns - 1)
    wrong, bad = count != layout.columns - 1, NO_BAD_ROWS
    if wrong.any():
        at = np.flatnonzero(wrong)
        reason, sentence = pa.repeat(str(RowReason.COLUMN_COUNT), len(at)), _count_sentences(count[at] + 1, layout)
        bad = BadRows(lines.parent[at], index[at].astype(np.int64), reason, sentence, clipped(lines.texts(at)))
        lines, first, index = lines.kept(~wrong), first[~wrong], index[~wrong]
    columns, begin = [], lines.begin
    for column in range(layout.columns):
        end = places[first + column] if column < layout.columns - 1 else lines.end
        if column == layout.blank_before:
            begin = begin + ((lines.data[begin] == ord(" ")) & (begin < end))
        if len(quotes) or marks.has_escapes:
            texts = _values(lines.data, begin, end, layout.delimiter)
        else:
            texts = strings_of(lines.data, begin, end)
        columns.append(null_where(begin == end, texts))
        begin = end + 1
    return TextRows(lines.parent, index, columns, lines.texts), bad


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


def strings_of(data: npt.NDArray[np.uint8], begin: Rows, end: Rows) -> pa.Array:
    """The strings `data[begin[i]:end[i]]`; `begin` and `end` rise together without crossing."""
    count = len(begin)
    if count == 0:
        return pa.nulls(0, pa.string())
    if len(data) >= 1 << 31:
        raise OverflowError("the texts are more than an Arrow array can hold")
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2], bounds[1::2] = begin, end
    pieces = pa.Array.from_buffers(pa.string(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return pieces.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def _values(data: npt.NDArray[np.uint8], begin: Rows, end: Rows, delimiter: str) -> pa.Array:
    """The same of fields that may stand in quotes, where quotes are doubled or behind backslashes; outside of them quotes are not
    doubled, and delimiters are behind backslashes."""
    is_quoted = data[begin] == _QUOTE
    texts = strings_of(data, begin + is_quoted, end - is_quoted)
    if not pc.any(pc.match_substring(texts, "\\")).as_py():
        return pc.if_else(pa.array(is_quoted), pc.replace_substring(texts, '""', '"'), texts) if is_quoted.any() else texts
    bare = pc.replace_substring(texts, "\\" + delimiter, delimiter)
    if not is_quoted.any():
        return bare
    return pc.if_else(pa.array(is_quoted), pc.replace_substring_regex(texts, ESCAPED_IN_QUOTES, r"\1\2"), bare)


def null_where(empty: npt.NDArray[np.bool_], strings: pa.Array) -> pa.Array:
    if not empty.any():
        return strings
    validity = pa.py_buffer(np.packbits(~empty, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), len(strings), [validity, *strings.buffers()[1:]])


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
    lines: _Lines, scanned: dict[int, RowSpan], index: npt.NDArray[np.int32], layout: TextLayout
) -> tuple[TextRows, BadRows]:
    """Rows that were read one by one."""
    rules, data = grammar(layout.delimiter.encode()), lines.data.tobytes()
    good: list[int] = []
    bad: list[tuple[int, int, str, str, str]] = []
    texts: list[str] = []
    columns: list[list[str | None]] = [[] for _ in range(layout.columns)]
    for line, row in scanned.items():
        text = row.text(data)
        why = _why_bad(text, row, layout)
        if why is not None:
            shown = text.decode(errors="replace")
            bad.append((int(lines.parent[line]), int(index[line]), *why, shown))
            continue
        good.append(line)
        texts.append(text.decode())
        for place, (begin, end) in enumerate(row.columns):
            written = data[begin:end]
            value = rules.value(written.removeprefix(b" ") if place == layout.blank_before else written)
            columns[place].append(None if value is None else value.decode())
    arrays = [pa.array(column, pa.string()) for column in columns]
    every = pa.array(texts, pa.string())
    return TextRows(lines.parent[good], index[good], arrays, lambda rows: every.take(pa.array(rows))), BadRows.of(bad)


def _why_bad(text: bytes, row: RowSpan, layout: TextLayout) -> tuple[RowReason, str] | None:
    if not is_utf8(text):
        return RowReason.UTF8, _NOT_UTF8
    if row.verdict is not Verdict.CLOSED:
        return RowReason.QUOTE, _NOT_CLOSED
    if len(row.columns) != layout.columns:
        return RowReason.COLUMN_COUNT, _count_sentences(np.array([len(row.columns)]), layout)[0].as_py()
    return None
