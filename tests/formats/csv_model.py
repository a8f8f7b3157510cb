"""A row-by-row model of `formats.csv.grammar`, against which the loops are tested."""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from hotspare.formats.csv import grammar
from hotspare.formats.csv.grammar import BYTE_ORDER_MARK, is_quoted

_LINE_FEED, _RETURN = b"\n\r"


class Verdict(Enum):
    """The verdict on the quotes of a row."""

    CLOSED = "closed"
    OPEN = "open"
    """A quote is not closed so far: later bytes could close it."""
    MISPLACED = "misplaced"
    """More than blanks follow a closing quote: a bad row, whatever follows."""


class RowSpan(NamedTuple):
    """A row within some bytes: its begin (after a byte order mark) and end (before its line end), its line feed or the end of the
    bytes, and the bounds of its columns as far as its quotes are good."""

    begin: int
    end: int
    line_end: int
    verdict: Verdict
    columns: list[tuple[int, int]]

    def text(self, data: bytes) -> bytes:
        return data[self.begin : self.end]


def row_at(data: bytes, at: int = 0, delimiter: bytes = b",", limit: int = grammar.ROW_BYTES_MAX) -> RowSpan:
    """Returns the row that begins at `at`. `limit`: the most bytes of a row with line feeds."""
    begin, stop = at + len(BYTE_ORDER_MARK) if data.startswith(BYTE_ORDER_MARK, at) else at, len(data)
    columns: list[tuple[int, int]] = []
    position = begin
    while True:
        match = _field(delimiter).match(data, position)
        assert match is not None  # the bare alternative matches anything
        end = match.end()
        if match.lastindex is None and is_quoted(data[position:end]):
            is_open = re.compile(_quoted(delimiter), re.DOTALL).match(data, position) is None
            return _cut(data, begin, Verdict.OPEN if is_open else Verdict.MISPLACED, columns)
        columns.append((position, end))
        while end < stop and data[end] == _RETURN:
            end += 1
        if end >= stop or data[end] == _LINE_FEED:
            break
        position = end + 1
    if end - at > limit and data.find(b"\n", at, end) >= 0:
        return _cut(data, begin, Verdict.OPEN, columns)
    row_end = _without_return(data, begin, end)
    last_begin, last_end = columns[-1]
    columns[-1] = last_begin, min(last_end, max(last_begin, row_end))
    return RowSpan(begin, row_end, end, Verdict.CLOSED, columns)


def _gap(delimiter: bytes) -> bytes:
    return rb" *" if delimiter == b"\t" else rb"[ \t]*"


def _quoted(delimiter: bytes) -> bytes:
    return _gap(delimiter) + rb'"(?:[^"\\]|\\.|"")*+"'


def _field(delimiter: bytes) -> re.Pattern[bytes]:
    d = re.escape(delimiter)
    whole = rb"(" + _quoted(delimiter) + _gap(delimiter) + rb")(?=" + d + rb"|\r*\n|\r*\Z)"
    bare = rb"[^\\" + d + rb"\n]*(?:\\[^\n][^\\" + d + rb"\n]*)*\\?"
    return re.compile(whole + rb"|" + bare, re.DOTALL)


def _cut(data: bytes, begin: int, verdict: Verdict, columns: list[tuple[int, int]]) -> RowSpan:
    """Returns a bad row, which ends at its first line feed."""
    line_end = data.find(b"\n", begin)
    line_end = len(data) if line_end < 0 else line_end
    return RowSpan(begin, _without_return(data, begin, line_end), line_end, verdict, columns)


def _without_return(data: bytes, begin: int, end: int) -> int:
    while end > begin and data[end - 1] == _RETURN:
        end -= 1
    return end
