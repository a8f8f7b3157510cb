"""Splits CSV messages into rows and typed columns, by `csv.grammar`; cuts texts into rows as messages are.

The bytes of all messages are walked once, by `csv.loops`. The result for a row depends on that row alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.formats.csv import grammar, loops
from hotspare.formats.csv.lines import joined, strings_of
from hotspare.formats.fields import FieldColumns, fixed
from hotspare.formats.loops import TEXTS, Fields, FieldTexts
from hotspare.rows.bad_reasons import RowReason
from hotspare.rows.chunk import Bools, Int32s, Int64s, UInt8s
from hotspare.rows.elementwise import Rows
from hotspare.rows.refusals import BAD_TEXT_LENGTH_MAX, NO_BAD_ROWS, BadRows, clipped

_NOT_UTF8 = "the row is not UTF-8"
_NOT_CLOSED = "a quoted field does not end before the next delimiter"
_LINE_FEED = ord("\n")


@dataclass(frozen=True, slots=True)
class TextLayout:
    """The number of columns of a row, and the delimiter between them."""

    columns: int
    delimiter: str = ","


@dataclass(frozen=True, slots=True)
class Messages:
    """Texts in one buffer: text i is `data[bounds[i]:bounds[i + 1]]`, and has number `first + i`. Both arrays are read-only."""

    data: UInt8s
    bounds: Int32s
    first: int = 0

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @classmethod
    def from_values(cls, values: pa.Array) -> Messages:
        """Returns the texts of an Arrow binary array; null is empty."""
        values = values.fill_null(b"") if values.null_count else values
        if not len(values):
            return cls(fixed(np.empty(0, np.uint8)), fixed(np.zeros(1, np.int32)))
        _, bounds, data = values.buffers()
        return cls(
            fixed(np.frombuffer(data or b"", np.uint8)),
            fixed(np.frombuffer(bounds, np.int32, len(values) + 1, 4 * values.offset)),
        )

    def between(self, begin: int, end: int) -> Messages:
        return Messages(self.data, fixed(self.bounds[begin : end + 1]), self.first + begin)

    @property
    def size(self) -> int:
        """The number of bytes of all texts."""
        return int(self.bounds[-1]) - int(self.bounds[0])


@cache
def byte_kinds(delimiter: str) -> UInt8s:
    """Returns the kinds of all bytes, as `loops.Text` has them."""
    (byte,) = delimiter.encode()
    kinds = np.zeros(256, np.uint8)
    kinds[byte] |= loops.DELIMITER
    kinds[[byte, *b"\n\\"]] |= loops.STOPS_PLAIN
    kinds[list(b'\n\\"')] |= loops.STOPS_QUOTED
    kinds[list(grammar.blanks_with(delimiter.encode()))] |= loops.BLANK
    kinds[list(b" \t\v\f\r")] |= loops.SPACE
    return fixed(kinds)


@dataclass(frozen=True, slots=True)
class SplitRows:
    """Rows of `columns` columns each, in order: for each its message number, its index in the message, and the bounds of its text
    in `values.data`."""

    message: Rows
    index: Int32s
    begin: Int32s
    end: Int32s
    values: FieldTexts
    columns: int

    def __len__(self) -> int:
        return len(self.message)

    def whole(self, at: Rows) -> pa.Array:
        """Returns the complete texts of the rows with these indexes, which rise."""
        return strings_of(self.values.data, self.begin[at], self.end[at])

    def cells(self, kinds: UInt8s, words: npt.NDArray[np.uint64] | None = None) -> FieldColumns:
        """Returns the columns, which have these kinds. There must be a row."""
        limit = int(self.end[-1]) - int(self.begin[0]) if TEXTS in kinds else 0  # the texts of different fields do not overlap
        return FieldColumns(self.values, len(self), kinds, limit, *([] if words is None else [words]))

    def texts(self) -> list[pa.Array]:
        """Returns the columns as strings; null if empty."""
        if not len(self):
            return [pa.array([], pa.string())] * self.columns
        cells = self.cells(np.full(self.columns, TEXTS, np.uint8))
        return [cells.array(column, pa.string()) for column in range(self.columns)]


def split(messages: Messages, layout: TextLayout) -> tuple[SplitRows, BadRows]:
    """Splits messages. Returns the good rows, in order, and the bad rows."""
    size, columns = messages.size, layout.columns
    entries = size + len(messages) + columns  # each field of a good row has a byte after it, or ends its message
    fields = Fields(np.empty(entries, np.int32), np.empty(entries, np.int32), np.empty(size, np.uint8))
    rows, state = _found(messages, layout, loops.DECODING, fields)
    good, bad = int(state[loops.GOOD]), NO_BAD_ROWS
    used, spilled = good * columns, int(state[loops.SPILLED])
    values = FieldTexts(messages.data, fixed(fields.spill[:spilled]), fixed(fields.begin[:used]), fixed(fields.size[:used]))
    if good < len(rows.message):
        bad = _bad_rows(messages, rows, layout)
        rows = _between(rows, rows.columns == columns)
    return SplitRows(rows.message, rows.number, rows.begin, rows.end, values, columns), bad


def _found(messages: Messages, layout: TextLayout, purpose: int, fields: Fields) -> tuple[loops.FoundRows, Int64s]:
    """Returns all rows of the messages (`loops.split_rows`) and the state."""
    count, state = messages.size + len(messages), np.zeros(loops.STATE_WIDTH, np.int64)
    numbers = [np.empty(count, np.int32) for _ in range(4)]
    rows = loops.FoundRows(np.empty(count, np.int64), *numbers)
    text = loops.Text(messages.data, messages.bounds, byte_kinds(layout.delimiter))
    found = loops.split_rows(text, layout.columns, grammar.ROW_BYTES_MAX, purpose, rows, fields, state)
    rows = _between(rows, slice(0, int(found)))
    return rows._replace(message=rows.message + messages.first) if messages.first else rows, state


def _between(rows: loops.FoundRows, which: slice | Bools) -> loops.FoundRows:
    return loops.FoundRows(rows.message[which], rows.number[which], rows.begin[which], rows.end[which], rows.columns[which])


def _bad_rows(messages: Messages, rows: loops.FoundRows, layout: TextLayout) -> BadRows:
    def refused(at: Rows, why: RowReason, sentence: pa.Array, texts: pa.Array) -> BadRows:
        reasons = pa.repeat(str(why), len(at))
        return BadRows(rows.message[at], rows.number[at].astype(np.int64), reasons, sentence, clipped(texts))

    bad = []
    if len(at := np.flatnonzero(rows.columns == loops.NOT_UTF8)):
        bad.append(refused(at, RowReason.UTF8, pa.repeat(_NOT_UTF8, len(at)), _unreadable(messages, rows, at)))
    if len(at := np.flatnonzero((rows.columns == loops.OPEN) | (rows.columns == loops.MISPLACED))):
        texts = strings_of(messages.data, rows.begin[at], rows.end[at])
        bad.append(refused(at, RowReason.QUOTE, pa.repeat(_NOT_CLOSED, len(at)), texts))
    if len(at := np.flatnonzero((rows.columns > 0) & (rows.columns != layout.columns))):
        texts = strings_of(messages.data, rows.begin[at], rows.end[at])
        bad.append(refused(at, RowReason.COLUMN_COUNT, _count_sentences(rows.columns[at], layout), texts))
    return BadRows.joined(bad)


def _count_sentences(found: Int32s, layout: TextLayout) -> pa.Array:
    what = f" columns, {layout.columns} are expected"
    return pc.binary_join_element_wise("the row has ", pa.array(found).cast(pa.string()), what, "")


def _unreadable(messages: Messages, rows: loops.FoundRows, at: Rows) -> pa.Array:
    """Returns the texts of the rows with indexes `at`, which are not UTF-8, with a replacement character for each invalid byte
    sequence."""
    begin = rows.begin[at].astype(np.int64)
    end = np.minimum(rows.end[at], begin + 4 * BAD_TEXT_LENGTH_MAX)  # no character has more bytes
    texts = strings_of(messages.data, begin, end).view(pa.binary())
    feeds = np.cumsum(pc.count_substring(texts, b"\n").to_numpy() + 1)
    data = np.frombuffer(joined(texts).to_pybytes().decode(errors="replace").encode(), np.uint8)
    ends = np.flatnonzero(data == _LINE_FEED)[feeds - 1]  # a line feed stays one, whatever precedes it
    return strings_of(data, np.append(0, ends[:-1] + 1), ends)


@dataclass(frozen=True, slots=True)
class CutRows:
    """The rows of texts, including blank ones: for each its index in its text, its begin with a byte order mark and its end before
    carriage returns, both places in `data`, and whether a quote in it is not closed so far. The line feed of a row is before the
    begin of the next one; the last row of a text has none."""

    data: UInt8s
    index: Int32s
    begin: Int32s
    end: Int32s
    is_open: Bools

    def first_texts(self, count: int) -> pa.Array:
        """Returns the texts of the first `count` rows as a binary array."""
        return strings_of(self.data, self.begin[:count], self.end[:count]).view(pa.binary())


def cut(texts: Sequence[bytes], delimiter: bytes = b",") -> CutRows:
    """Cuts texts into rows as messages are: a row with an unclosed quote ends at its first line feed."""
    messages, none = Messages.from_values(pa.array(texts, pa.binary())), np.empty(0, np.int32)
    rows, _ = _found(messages, TextLayout(0, delimiter.decode()), loops.CUTTING, Fields(none, none, np.empty(0, np.uint8)))
    return CutRows(messages.data, rows.number, rows.begin, rows.end, rows.columns == loops.OPEN)


def begin_open(texts: Sequence[bytes], delimiter: bytes = b",") -> list[bool]:
    """Whether the first row of each text has an unclosed quote. If the text were joined with later rows in a message, these could
    close the quote."""
    if not any(b'"' in text for text in texts):
        return [False] * len(texts)
    rows = cut(texts, delimiter)
    found: list[bool] = rows.is_open[rows.index == 0].tolist()
    return found
