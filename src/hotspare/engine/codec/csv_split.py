"""CSV text to columns of text: where rows and fields end (SPEC 5.2).

A row ends at a line feed outside quotes; a carriage return before it is dropped; blank lines are no rows. A field is quoted if a
quote is the first thing in it but blanks: inside, a doubled quote or one behind a backslash is a quote, and a doubled backslash a
backslash; after the closing quote only blanks may follow. Outside of quotes a backslash before the delimiter makes it a part of the
field, and every other backslash is itself. An empty field is null, a quoted empty one is an empty string. A quote that nobody
closes makes its line a bad row.

What a message becomes depends on that message alone: messages without quotes and backslashes are cut together, by a search for
delimiters over all their bytes, the others one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.engine.elementwise import Rows

BAD_TEXT_LENGTH_MAX = 4096
"""Limit on the text of a bad row, in characters."""
_BYTE_ORDER_MARK = "\ufeff"
_NOTHING = pa.array([b""], pa.binary())
_ZERO = pa.scalar(0, pa.int32())
_SPECIAL = (ord('"'), ord("\\"), 0xEF)
"""Bytes that send a message the slow way: quotes, escapes, and what a byte order mark begins with."""


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


@dataclass(frozen=True, slots=True)
class BadRow:
    """`message`: which of the messages given; `index`: which of its rows, from 0."""

    message: int
    index: int
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
    """Rows of an Arrow binary array of messages; each message's rows are in order within one of the results."""
    bad: list[BadRow] = []
    if len(values) == 0:
        return [], bad
    special = _special_messages(values)
    if len(special) == 0:
        return [_split_plain(values, np.arange(len(values), dtype=np.int64), layout, bad)], bad
    parts = []
    plain = np.setdiff1d(np.arange(len(values), dtype=np.int64), special)
    if len(plain):
        parts.append(_split_plain(values.take(pa.array(plain)), plain, layout, bad))
    parts.append(_split_special(values.take(pa.array(special)), special, layout, bad))
    return parts, bad


def count_sentence(found: int, layout: Layout) -> str:
    return f"the row has {found} columns, {layout.columns} are expected"


def _bytes_of(array: pa.Array) -> npt.NDArray[np.uint8]:
    """The bytes of all values, one after another."""
    _, offsets, data = array.buffers()
    if data is None or len(array) == 0:
        return np.empty(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int32)
    return np.frombuffer(data, np.uint8)[bounds[array.offset] : bounds[array.offset + len(array)]]


def _special_messages(values: pa.Array) -> Rows:
    """Messages with a special byte or that are not UTF-8, rising."""
    data = _bytes_of(values)
    special = np.zeros(len(values), np.bool_)
    for byte in _SPECIAL:
        if (data == byte).any():
            special |= pc.match_substring(values, bytes([byte])).fill_null(fill_value=False).to_numpy(zero_copy_only=False)
    if (data >= 0x80).any():
        try:
            values.cast(pa.string())
        except pa.ArrowInvalid:
            special |= np.array([not is_utf8(value) for value in values.to_pylist()], np.bool_)
    return np.flatnonzero(special)


def is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Lines:
    """Pieces of one buffer of bytes: line i is `data[begin[i]:end[i]]`, of message `parent[i]`."""

    data: npt.NDArray[np.uint8]
    begin: Rows
    end: Rows
    parent: Rows

    def kept(self, mask: npt.NDArray[np.bool_]) -> _Lines:
        return self if mask.all() else _Lines(self.data, self.begin[mask], self.end[mask], self.parent[mask])

    def text(self, line: int) -> str:
        return self.data[self.begin[line] : self.end[line]].tobytes().decode()


def _split_plain(values: pa.Array, messages: Rows, layout: Layout, bad: list[BadRow]) -> TextRows:
    """Messages that are UTF-8 without quotes and backslashes."""
    lines = _lines(values)
    places = np.flatnonzero(lines.data == ord(layout.delimiter))
    first, count = _delimiters_per_line(lines, places, layout.columns - 1)
    wrong = count != layout.columns - 1
    if wrong.any():
        blank = np.zeros(len(wrong), np.bool_)
        blank[wrong] = [not lines.text(line).strip() for line in np.flatnonzero(wrong).tolist()]
        lines, first, count, wrong = lines.kept(~blank), first[~blank], count[~blank], wrong[~blank]
    index = numbered(lines.parent)
    for line in np.flatnonzero(wrong).tolist():
        sentence = count_sentence(int(count[line]) + 1, layout)
        where = int(messages[lines.parent[line]]), int(index[line])
        bad.append(_bad(*where, RowReason.COLUMN_COUNT, sentence, lines.text(line)))
    lines, first, index = lines.kept(~wrong), first[~wrong], index[~wrong]
    columns, begin = [], lines.begin
    for column in range(layout.columns):
        end = places[first + column] if column < layout.columns - 1 else lines.end
        if column == layout.blank_before:
            begin = begin + ((lines.data[begin] == ord(" ")) & (begin < end))
        columns.append(_strings(lines.data, begin, end))
        begin = end + 1
    return TextRows(messages[lines.parent], index, columns, lines.text)


def _lines(values: pa.Array) -> _Lines:
    """All lines that are not empty, without their line ends."""
    data = np.frombuffer(joined(values), np.uint8)
    end = np.flatnonzero(data == ord("\n"))
    begin = np.concatenate([np.zeros(1, np.int64), end[:-1] + 1])
    if len(end) == len(values):
        parent = np.arange(len(values), dtype=np.int64)
    else:
        sizes = pc.binary_length(values).fill_null(_ZERO).to_numpy().astype(np.int64)
        parent = np.searchsorted(np.cumsum(sizes + 1), begin, side="right").astype(np.int64)
    if (data == ord("\r")).any():
        end = end - ((end > begin) & (data[end - 1] == ord("\r")))
    lines = _Lines(data, begin, end, parent)
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


def _strings(data: npt.NDArray[np.uint8], begin: Rows, end: Rows) -> pa.Array:
    """The strings `data[begin[i]:end[i]]`, null where empty; `begin` and `end` rise together without crossing."""
    count = len(begin)
    if count == 0:
        return pa.nulls(0, pa.string())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2], bounds[1::2] = begin, end
    pieces = pa.Array.from_buffers(pa.string(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    strings = pieces.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
    empty = begin == end
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


def _split_special(values: pa.Array, messages: Rows, layout: Layout, bad: list[BadRow]) -> TextRows:
    message: list[int] = []
    index: list[int] = []
    rows: list[list[str | None]] = []
    texts: list[str] = []
    for number, value in zip(messages.tolist(), values.to_pylist(), strict=True):
        for i, row in enumerate(_rows_of(value or b"", layout)):
            if row.reason is not None:
                bad.append(_bad(number, i, row.reason, row.sentence, row.text))
                continue
            message.append(number)
            index.append(i)
            rows.append(row.fields)
            texts.append(row.text)
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    columns = columns or [pa.array([], pa.string()) for _ in range(layout.columns)]
    return TextRows(np.array(message, np.int64), np.array(index, np.int32), columns, texts.__getitem__)


@dataclass(slots=True)
class _Row:
    text: str
    fields: list[str | None]
    reason: RowReason | None = None
    sentence: str = ""


def _rows_of(value: bytes, layout: Layout) -> Iterator[_Row]:
    """The rows of one message, in order."""
    if not is_utf8(value):
        for line in value.split(b"\n"):
            if is_utf8(line):
                yield from _text_rows(line.decode(), layout)
            else:
                yield _Row(line.decode(errors="replace").removesuffix("\r"), [], RowReason.UTF8, "the row is not UTF-8")
        return
    yield from _text_rows(value.decode().removeprefix(_BYTE_ORDER_MARK), layout)


def _text_rows(text: str, layout: Layout) -> Iterator[_Row]:
    at = 0
    while at < len(text):
        fields, end = _fields(text, at, layout)
        if fields is None:
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            yield _Row(
                text[at:end].removesuffix("\r"), [], RowReason.QUOTE, "a quoted field does not end before the next delimiter"
            )
        elif text[at:end].strip():
            row = _Row(text[at:end].removesuffix("\r"), fields)
            if len(fields) != layout.columns:
                row.reason, row.sentence = RowReason.COLUMN_COUNT, count_sentence(len(fields), layout)
            yield row
        at = end + 1


def _fields(text: str, at: int, layout: Layout) -> tuple[list[str | None] | None, int]:
    """Fields of the row that begins at `at`, None if a quote is not closed; and where the row's line feed (or the end) is."""
    grammar = _grammar(layout.delimiter)
    end = len(text)
    if "\n" in text:
        if (row := grammar.row.match(text, at)) is None:
            return None, at
        end = row.end()
    fields: list[str | None] = []
    for quoted, bare in grammar.field.findall(text, at, end) if at == 0 else grammar.field.findall(text[at:end]):
        if quoted:
            inner = quoted[1:-1]
            fields.append(_QUOTED_ESCAPE.sub(r"\1\2", inner) if '"' in inner or "\\" in inner else inner)
            continue
        if '"' in bare and bare.lstrip(" ").startswith('"'):
            return None, at
        value = bare.removeprefix(" ") if len(fields) == layout.blank_before else bare
        fields.append(grammar.unescaped(value) if "\\" in value else value or None)
    last = fields[-1]
    if last is not None and last.endswith("\r") and text[end - 1] == "\r":
        fields[-1] = last.removesuffix("\r") or None
    return fields, end


_QUOTED_ESCAPE = re.compile(r'\\(["\\])|"(")')


@dataclass(frozen=True, slots=True)
class _Grammar:
    """`field` finds the fields of one row, each as (with its quotes, bare), one of which is empty; `row` finds where a row that may
    hold line feeds in quotes ends."""

    field: re.Pattern[str]
    row: re.Pattern[str]
    escape: re.Pattern[str]

    def unescaped(self, value: str) -> str:
        """A backslash before the delimiter is taken away; a doubled backslash stays two."""
        return self.escape.sub(lambda m: m.group(1) or m.group(), value)


@cache
def _grammar(delimiter: str) -> _Grammar:
    d = re.escape(delimiter)
    quoted = r'"(?:[^"\\]|\\.|"")*"'
    bare = rf"[^\\{d}\n]*(?:\\[^\n][^\\{d}\n]*)*\\?"
    one = rf"(?: *{quoted} *\r?(?=[{d}\n]|\Z)|{bare})"
    return _Grammar(
        field=re.compile(rf"(?:\A|{d})(?: *({quoted}) *\r?(?={d}|\Z)|({bare}))", re.DOTALL),
        row=re.compile(rf"{one}(?:{d}{one})*", re.DOTALL),
        escape=re.compile(rf"\\({d})|\\.", re.DOTALL),
    )


def _bad(message: int, index: int, reason: RowReason, sentence: str, text: str) -> BadRow:
    return BadRow(message, index, reason, sentence, text[:BAD_TEXT_LENGTH_MAX])
