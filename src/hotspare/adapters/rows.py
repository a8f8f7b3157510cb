"""Cuts the bytes of a CSV file into rows: a row ends at a line feed outside quotes (SPEC 5.2).

The same bytes give the same rows however they arrive, so a publisher that was killed goes on at the end of any row. A quote means
something only where a field begins. A quote that nobody closes would swallow the rest of the file; therefore a row that is still
open after `ROW_BYTES_MAX`, or at the end of the file, or whose quotes make no sense, ends at its first line feed and becomes one
bad event instead of many.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import NamedTuple

ROW_BYTES_MAX = 1 << 20
"""Limit on one row that contains line feeds. A longer single line is kept whole up to `LINE_BYTES_MAX`."""
LINE_BYTES_MAX = 16 << 20

_OPENING = re.compile(rb' *"')
_CLOSING = re.compile(rb'(?:[^"\\]|\\.|"")*+" *', re.DOTALL)


class _End(Enum):
    MORE_FOLLOWS = 0
    FILE_ENDS = 1


class Row(NamedTuple):
    """`text` without its line end; `end` is the offset of the byte after the line end, counted from the start of the file."""

    text: bytes
    end: int


class LineTooLong(Exception):
    """A line without an end within LINE_BYTES_MAX; `offset` is where it begins."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


@cache
def _rest_of_field(delimiter: bytes) -> re.Pattern[bytes]:
    """The rest of an unquoted field: a backslash takes the delimiter's meaning away, and is itself anywhere else."""
    escaped = re.escape(delimiter)
    return re.compile(rb"(?:\\" + escaped + rb"|[^" + escaped + rb"])*", re.DOTALL)


class Quotes(Enum):
    """What the quotes of a row say about where it ends."""

    CLOSED = "closed"
    OPEN = "open"
    MISPLACED = "misplaced"
    """More than blanks follow a closing quote: no row, whatever comes."""


@dataclass(frozen=True, slots=True)
class QuoteRule:
    """Judges the quotes of a row, for one delimiter; as `engine.codec.csv_split` does."""

    delimiter: bytes

    def judge(self, row: bytes) -> Quotes:
        rest = _rest_of_field(self.delimiter)
        position = 0
        while True:
            opening = _OPENING.match(row, position)
            if opening is not None:
                closing = _CLOSING.match(row, opening.end())
                if closing is None:
                    return Quotes.OPEN
                position = closing.end()
                if row[position : position + 1] not in (self.delimiter, b"") and row[position:] != b"\r":
                    return Quotes.MISPLACED
            else:
                field = rest.match(row, position)
                position = field.end() if field is not None else position
            if position >= len(row) or row[position:] == b"\r":
                return Quotes.CLOSED
            position += 1


class RowCutter:
    """Takes bytes in any portions, returns the rows that are complete. Blank rows are returned too: the caller skips them."""

    def __init__(self, position: int, delimiter: bytes = b",") -> None:
        self._rule = QuoteRule(delimiter)
        self._position = position
        self._rest = b""

    @property
    def pending_bytes(self) -> int:
        """Bytes taken that belong to no complete row yet."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[Row]:
        """Rows that are complete now. LineTooLong where a line has no end."""
        text = self._rest + data
        rows, consumed = self._cut(text, at_end=_End.MORE_FOLLOWS)
        self._keep(text, consumed)
        if len(self._rest) > LINE_BYTES_MAX:
            raise LineTooLong(self._position)
        return rows

    def finish(self) -> list[Row]:
        """The rest of a file that will not grow: its last row counts without a line end, and an open quote ends at its line."""
        text = self._rest
        rows, consumed = self._cut(text, at_end=_End.FILE_ENDS)
        self._keep(text, consumed)
        if self._rest:
            self._position += len(self._rest)
            rows.append(Row(_without_return(self._rest), self._position))
            self._rest = b""
        return rows

    def _keep(self, text: bytes, consumed: int) -> None:
        self._rest = text[consumed:]
        self._position += consumed

    def _cut(self, text: bytes, at_end: _End) -> tuple[list[Row], int]:
        if b'"' not in text:
            return self._cut_plain(text)
        rows: list[Row] = []
        start = 0
        while True:
            end = self._row_end(text, start, at_end)
            if end < 0:
                return rows, start
            rows.append(Row(_without_return(text[start:end]), self._position + end + 1))
            start = end + 1

    def _cut_plain(self, text: bytes) -> tuple[list[Row], int]:
        lines = text.split(b"\n")
        end = 0
        rows: list[Row] = []
        for line in lines[:-1]:
            end += len(line) + 1
            rows.append(Row(_without_return(line), self._position + end))
        return rows, end

    def _row_end(self, text: bytes, start: int, at_end: _End) -> int:
        """Index of the line feed that ends the row beginning at `start`, or -1."""
        first = end = text.find(b"\n", start)
        if first < 0 or text.find(b'"', start, first) < 0:
            return first
        line_start = start
        while end >= 0:
            if end - start > ROW_BYTES_MAX:
                return first
            if text.find(b'"', line_start, end) >= 0:
                quotes = self._rule.judge(text[start:end])
                if quotes is not Quotes.OPEN:
                    return end if quotes is Quotes.CLOSED else first
            line_start = end + 1
            end = text.find(b"\n", line_start)
        if at_end is _End.FILE_ENDS:
            return -1 if self._rule.judge(text[start:]) is Quotes.CLOSED else first
        return first if len(text) - start > ROW_BYTES_MAX else -1


def _without_return(line: bytes) -> bytes:
    return line[:-1] if line.endswith(b"\r") else line
