"""Encodes outputs as CSV text (SPEC 5.2), `OPCODE,FLAG, field,...`, which `csv.decode` reads."""

from __future__ import annotations

import base64
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from hotspare.formats.encoding.loops import (
    QUOTABLE,
    SHORTEST,
    SIX_DECIMALS,
    TEXT,
    VALUE_BYTES_MAX,
    WHOLE,
    WORD,
    CsvColumns,
    doubtful_doubles,
    write_csv_rows,
)
from hotspare.rows.arrays import texts_of
from hotspare.rows.chunk import Int64s, UInt8s
from hotspare.rows.elementwise import valid_mask
from hotspare.rows.letters import FLAG_TEXTS, OPCODE_TEXTS

_FIRST_WORD = {"opcode": 0, "flags": len(OPCODE_TEXTS)}
"""The number of the first word of each column before the fields."""
_WORDS = [*OPCODE_TEXTS.to_pylist(), *FLAG_TEXTS.to_pylist()]
_WORD_ENDS, _WORD_DATA = np.cumsum([0, *map(len, _WORDS)]), np.frombuffer("".join(_WORDS).encode(), np.uint8)
_ROWS_AT_ONCE = 1 << 12
"""The rows that are written at once: few enough that their columns and their text stay in the processor's cache."""


class CsvStyle(Enum):
    """The format of doubles, and whether a blank follows the flag."""

    FILE = "file"
    """The format of SAS Event Stream Processing (SPEC 5.2): six decimals, a blank after the flag."""
    EXACT = "exact"
    """The shortest text that parses to the same double; no blank."""


class RowPrefix(Enum):
    """The columns before the fields. The value names them without the prefix `hs:` that they have in the batch."""

    EVENT = ("opcode", "flags")
    OPCODE = ("opcode",)
    NONE = ()


_INT32, _INT64, _DOUBLE = pa.int32(), pa.int64(), pa.float64()
_DOUBLES = {CsvStyle.FILE: SIX_DECIMALS, CsvStyle.EXACT: SHORTEST}


def rows_to_csv(batch: pa.RecordBatch, style: CsvStyle, prefix: RowPrefix = RowPrefix.EVENT) -> bytes:
    """Returns one CSV line per row of a batch of `rows.batch.output_schema`, each with a line feed.

    Null is empty; an empty string or blob is `""`. Strings with commas, quotes, backslashes, line ends or outer blanks are
    quoted. Dates are seconds and stamps microseconds since 1970, money has 4 decimals, blobs are base64, arrays `[a;b;c]`.
    """
    return b"".join(_written(piece, style, prefix).text.tobytes() for piece in _pieces(batch))


def row_messages(batch: pa.RecordBatch, style: CsvStyle) -> list[bytes]:
    """Returns the CSV text of each row as `rows_to_csv` writes it, without the line feed."""
    return [row for piece in _pieces(batch) for row in _written(piece, style, RowPrefix.EVENT).rows()]


def row_texts(batch: pa.RecordBatch, style: CsvStyle) -> list[str]:
    """Returns the CSV text of each row (`row_messages`) as a Python string."""
    return [row.decode() for row in row_messages(batch, style)]


def field_texts(rows: pa.Table, style: CsvStyle) -> list[str]:
    """Returns the CSV text of each row with only the fields, for tables whose rows are not events."""
    batches = rows.combine_chunks().to_batches()
    return [row.decode() for batch in batches for piece in _pieces(batch) for row in _written(piece, style, RowPrefix.NONE).rows()]


def value_texts(column: pa.Array, style: CsvStyle) -> pa.Array:
    """Returns the values of a column as unquoted text; null for null."""
    type_ = column.type
    if pa.types.is_floating(type_):
        if style is CsvStyle.EXACT:
            return column.cast(pa.string())
        return pa.array([None if value is None else f"{value:.6f}" for value in column.to_pylist()], pa.string())
    if pa.types.is_timestamp(type_):
        return column.cast(pa.int64()).cast(pa.string())
    if pa.types.is_binary(type_):
        return pa.array([None if v is None else base64.b64encode(v).decode() for v in column.to_pylist()], pa.string())
    if pa.types.is_list(type_):
        return texts_of(column, lambda elements: value_texts(elements, style))
    return column.cast(pa.string())


class _Written(NamedTuple):
    """Rows as CSV text, each with a line feed: row i is `text[ends[i] : ends[i + 1]]`."""

    text: UInt8s
    ends: Int64s

    def rows(self) -> list[bytes]:
        """Returns the text of each row, without the line feed."""
        text = self.text.tobytes()
        return [text[begin : end - 1] for begin, end in pairwise(self.ends.tolist())]


def _pieces(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    return [batch.slice(at, _ROWS_AT_ONCE) for at in range(0, batch.num_rows, _ROWS_AT_ONCE)]


def _written(batch: pa.RecordBatch, style: CsvStyle, prefix: RowPrefix) -> _Written:
    """Writes rows, at least one. Values that are neither numbers nor strings are converted to text before."""
    writing = _RowWriting(batch.num_rows, batch.num_columns)
    for name in prefix.value:
        writing.add_words(batch.column(f"hs:{name}"), _FIRST_WORD[name])
    for field, column in zip(batch.schema, batch.columns, strict=True):
        type_ = field.type
        if field.name.startswith("hs:"):
            continue
        if type_ in (_INT32, _INT64) or pa.types.is_timestamp(type_):
            writing.add_numbers(column, WHOLE, type_.bit_width // 8)
        elif type_ == _DOUBLE:
            writing.add_numbers(column, _DOUBLES[style])
        elif pa.types.is_string(type_):
            writing.add_texts(column, QUOTABLE)
        else:
            writing.add_texts(value_texts(column, style), QUOTABLE if pa.types.is_binary(type_) else TEXT)
    return writing.written(style, len(prefix.value) if style is CsvStyle.FILE and prefix.value else -1)


class _RowWriting:
    """Collects the columns of `count` rows, at most `columns`, in the form in which a kernel writes them."""

    def __init__(self, count: int, columns: int) -> None:
        self._count = count
        self._kinds, self._at = list[int](), list[int]()
        self._numbers, self._number_columns = np.empty((columns, count), np.int64), 0
        self._ends, self._data = list[Int64s](), list[UInt8s]()
        self._nulls = dict[int, pa.Array]()
        """The columns with nulls, by place."""
        self._bytes_max = 2 * count

    def add_words(self, column: pa.Array, first: int) -> None:
        """Adds numbers of words, counted from the word `first`."""
        np.add(column.to_numpy(), first, out=self._next_numbers(), casting="unsafe")
        self._add(column, WORD, self._number_columns - 1)

    def add_numbers(self, column: pa.Array, kind: int, width: int = 8) -> None:
        """Adds whole numbers of `width` bytes (WHOLE), or doubles (SIX_DECIMALS, SHORTEST)."""
        type_ = np.int64 if width == 8 else np.int32
        self._next_numbers()[:] = np.frombuffer(column.buffers()[1], type_, self._count, column.offset * width)
        self._add(column, kind, self._number_columns - 1)

    def _next_numbers(self) -> Int64s:
        self._number_columns += 1
        numbers: Int64s = self._numbers[self._number_columns - 1]
        return numbers

    def add_texts(self, column: pa.Array, kind: int) -> None:
        """Adds strings, which are written as they are (TEXT), or quoted where necessary (QUOTABLE)."""
        ends, data = _texts_in(column)
        self._ends.append(ends + sum(map(len, self._data)))
        self._data.append(data)
        self._bytes_max += 2 * len(data)
        self._add(column, kind, len(self._ends) - 1)

    def _add(self, column: pa.Array, kind: int, at: int) -> None:
        if column.null_count:
            self._nulls[len(self._kinds)] = column
        self._kinds.append(kind)
        self._at.append(at)
        self._bytes_max += self._count * VALUE_BYTES_MAX[kind]

    def written(self, style: CsvStyle, blank_before: int) -> _Written:
        """Returns the rows as CSV, each with a line feed, and the end of each row in these bytes. `blank_before`: the column (0 =
        first) before whose value a blank is written; -1 for none."""
        valid = np.ones((len(self._kinds) if self._nulls else 0, self._count), np.bool_)
        for place, column in self._nulls.items():
            valid[place] = valid_mask(column)
        ends = np.array(self._ends, np.int64).reshape(-1, self._count + 1)
        kinds, at, data = np.array(self._kinds), np.array(self._at), np.concatenate([_NO_BYTES, *self._data])
        data.flags.writeable = False  # as Arrow's are: kernels are compiled for read-only arrays
        columns = CsvColumns(kinds, at, valid, self._numbers, ends, data, _WORD_ENDS, _WORD_DATA)
        doubtful_ends, doubtful = self._doubtful(columns, style)
        out, row_ends = np.empty(self._bytes_max + len(doubtful), np.uint8), np.zeros(self._count + 1, np.int64)
        write_csv_rows(columns, blank_before, doubtful_ends, doubtful, out, row_ends)
        return _Written(out[: row_ends[-1]], row_ends)

    def _doubtful(self, columns: CsvColumns, style: CsvStyle) -> tuple[Int64s, UInt8s]:
        """Returns the texts of the doubles that the kernel cannot write itself: where each begins, with the end; and the texts."""
        if _DOUBLES[style] not in self._kinds:
            return _NO_ENDS, _NO_BYTES
        values = np.empty(self._kinds.count(_DOUBLES[style]) * self._count)
        count = doubtful_doubles(columns, self._count, values)
        if not count:
            return _NO_ENDS, _NO_BYTES
        return _texts_in(value_texts(pa.array(values[:count]), style))


_NO_BYTES, _NO_ENDS = np.frombuffer(b"", np.uint8), np.zeros(1, np.int64)


def _texts_in(column: pa.Array) -> tuple[Int64s, UInt8s]:
    """Returns where each string of a column begins in the bytes of all, with the end of the last; and these bytes."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)
    first, size = int(ends[0]), int(ends[-1] - ends[0])
    return ends - first, np.frombuffer(data, np.uint8, size, first) if size else _NO_BYTES
