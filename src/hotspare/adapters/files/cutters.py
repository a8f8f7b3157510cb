"""Cuts the bytes of a file into rows of CSV, or into events of JSON or XML, in portions of any size (SPEC I5).

The same bytes give the same rows, so a publisher that was killed continues at the end of any row.

CSV is cut by `formats.csv.grammar`. An unclosed quote would include the rest of the file in its row. So a row that is open after
the grammar's limit, or at the end of the file, ends at its first line feed: one bad event instead of many.

JSON is cut by `formats.json.cutting`. In XML every element `<event>` is an event; elements around them, such as `<events>` and
`<transaction>`, are skipped.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.adapters.files.file_rows import FileRows, Int64s, Row
from hotspare.formats.csv import grammar as csv_grammar
from hotspare.formats.csv.split import cut
from hotspare.formats.json.cutting import TextEnd, event_begin, event_end

LINE_BYTES_MAX = 16 << 20
"""Limit on one line."""
_LINE_FEED = ord("\n")
_XML_OPEN = rb"""<event(?=[\s>/])(?:(?:[^<>"']|"[^<"]*"|'[^<']*')*+>|[^<>]*+>(?=[^<]*+<))"""
"""Matches an opening tag of an event up to the first `>` outside of quotes; up to the first `>` of all if a quote is not closed
before the next tag."""
_XML_TOKEN = re.compile(
    rb"<!--.*?(?P<comment>-->|\Z)|<!\[CDATA\[.*?(?P<cdata>\]\]>|\Z)|(?P<open>" + _XML_OPEN + rb")|(?P<close></event\s*>)", re.DOTALL
)
_XML_OPENS = re.compile(rb"<event[\s>/]")


class Cutter(Protocol):
    """Cuts bytes, in portions of any size, into complete rows; begins at a position that is the end of a row."""

    @property
    def pending_bytes(self) -> int: ...

    def cut_rows(self, data: bytes) -> FileRows: ...

    def feed(self, data: bytes) -> list[Row]: ...

    def finish(self) -> list[Row]: ...


class LineTooLong(Exception):
    """A line without an end within LINE_BYTES_MAX; `offset` is its begin."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class RowCutter:
    """Cuts bytes, in portions of any size, into complete rows. Blank rows are returned too: the caller skips them."""

    def __init__(self, position: int, delimiter: bytes = b",") -> None:
        self._delimiter = delimiter
        self._position = position
        self._line = 1
        self._rest = b""

    @property
    def pending_bytes(self) -> int:
        """The number of bytes that belong to an incomplete row."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[Row]:
        """Returns the result of `cut_rows`, as rows."""
        return list(self.cut_rows(data))

    def cut_rows(self, data: bytes) -> FileRows:
        """Returns the rows that are complete now. Raises LineTooLong for a line without an end within LINE_BYTES_MAX."""
        text = self._rest + data
        rows, consumed = self._cut(text, TextEnd.OPEN)
        self._keep(text, consumed)
        if len(self._rest) > LINE_BYTES_MAX:
            raise LineTooLong(self._position)
        return rows

    def finish(self) -> list[Row]:
        """Returns the rows at the end of a file that will not grow. The last row needs no line end, and a row with an open quote
        ends at its first line."""
        text = self._rest
        found, consumed = self._cut(text, TextEnd.FINAL)
        rows = list(found)
        self._keep(text, consumed)
        if self._rest:
            self._position += len(self._rest)
            rows.append(Row(_without_return(self._rest), self._position, self._line))
            self._rest = b""
        return rows

    def _keep(self, text: bytes, consumed: int) -> None:
        self._rest = text[consumed:]
        self._position += consumed

    def _cut(self, text: bytes, text_end: TextEnd) -> tuple[FileRows, int]:
        if b'"' not in text:
            return self._cut_plain(text)
        found = cut([text], self._delimiter)
        is_last = np.zeros(len(found.begin), np.bool_)
        is_last[-1] = True  # it has no line end yet
        if text_end is TextEnd.OPEN:
            is_last |= found.is_open & (len(text) - found.begin <= csv_grammar.ROW_BYTES_MAX)
        rest = int(np.argmax(is_last))
        lines = self._line + np.searchsorted(_line_feeds(text), found.begin[: rest + 1])
        ends = self._position + found.begin[1 : rest + 1].astype(np.int64)
        self._line = int(lines[rest])
        return FileRows(found.first_texts(rest), ends, lines[:rest]), int(found.begin[rest])

    def _cut_plain(self, text: bytes) -> tuple[FileRows, int]:
        """Cuts a text without quotes: each line is a row."""
        feeds = _line_feeds(text)
        if not len(feeds):
            return FileRows.from_rows([]), 0
        consumed, first_line = int(feeds[-1]) + 1, self._line
        lines = pc.split_pattern(pa.array([text[: consumed - 1]], pa.binary()), b"\n").values
        self._line += len(feeds)
        if b"\r" in text:
            lines = pa.array([_without_return(line) for line in lines.to_pylist()], pa.binary())
        return FileRows(lines, self._position + 1 + feeds, np.arange(first_line, self._line)), consumed


def _line_feeds(text: bytes) -> Int64s:
    """Returns the places of all line feeds."""
    return np.flatnonzero(np.frombuffer(text, np.uint8) == _LINE_FEED)


def rows_of_text(text: bytes, delimiter: bytes = b",") -> list[bytes]:
    """Returns the rows of a complete text except blank ones; the text itself if a line in it is too long."""
    cutter = RowCutter(0, delimiter)
    try:
        return [row.text for row in (*cutter.feed(text), *cutter.finish()) if not csv_grammar.is_blank(row.text)]
    except LineTooLong:
        return [text]


def _without_return(line: bytes) -> bytes:
    return line.rstrip(b"\r")


class EventCutter(ABC):
    """Cuts bytes, in portions of any size, into complete events (`RowCutter` does the same for CSV)."""

    def __init__(self, position: int) -> None:
        self._position = position
        self._line = 1
        self._rest = b""

    @property
    def pending_bytes(self) -> int:
        return len(self._rest)

    def feed(self, data: bytes) -> list[Row]:
        """Returns the events that are complete now. Raises LineTooLong for an event without an end within LINE_BYTES_MAX."""
        rows, consumed = self._cut(self._rest + data, TextEnd.OPEN)
        self._rest = (self._rest + data)[consumed:]
        if len(self._rest) > LINE_BYTES_MAX:
            raise LineTooLong(self._position)
        return rows

    def cut_rows(self, data: bytes) -> FileRows:
        """Returns the result of `feed` as columns."""
        return FileRows.from_rows(self.feed(data))

    def finish(self) -> list[Row]:
        """Returns the events at the end of a file that will not grow; the last one may be incomplete."""
        rows, _ = self._cut(self._rest, TextEnd.FINAL)
        self._rest = b""
        return rows

    def _row(self, text: bytes, begin: int, end: int) -> Row:
        """Returns a row of `text`, which begins at the cutter's position, and moves the position on to `end`."""
        line = self._line + text.count(b"\n", 0, begin)
        self._line += text.count(b"\n", 0, end)
        self._position += end
        return Row(text[begin:end].strip(), self._position, line)

    @abstractmethod
    def _cut(self, text: bytes, text_end: TextEnd) -> tuple[list[Row], int]:
        """Returns the complete events of a text that begins outside of events, and the number of bytes consumed.

        An implementation makes each row by `_row`, from the text after the previous row.
        """

    def _skip(self, text: bytes, count: int) -> None:
        self._line += text.count(b"\n", 0, count)
        self._position += count


class JsonCutter(EventCutter):
    def _cut(self, text: bytes, text_end: TextEnd) -> tuple[list[Row], int]:
        rows: list[Row] = []
        done = 0
        while True:
            at = event_begin(text, done)
            end = event_end(text, at, text_end) if at < len(text) else -1
            if end < 0:
                self._skip(text[done:at], at - done)
                return rows, at
            rows.append(self._row(text[done:end], at - done, end - done))
            done = end


class XmlCutter(EventCutter):
    def _cut(self, text: bytes, text_end: TextEnd) -> tuple[list[Row], int]:
        rows: list[Row] = []
        done, begin, kept, depth = 0, -1, self._partial(text), 0
        for token in _XML_TOKEN.finditer(text):
            if token["comment"] == b"" or token["cdata"] == b"":  # its end has not arrived yet
                kept = min(kept, token.start())
                break
            if token["open"] is not None:
                begin = token.start() if begin < 0 else begin
                depth += 0 if token["open"].endswith(b"/>") else 1
            elif token["close"] is not None and begin >= 0:
                depth -= 1
            if begin < 0 or depth > 0:
                continue
            rows.append(self._row(text[done : token.end()], begin - done, token.end() - done))
            done, begin, depth = token.end(), -1, 0
        if text_end is TextEnd.FINAL and text[done:].lstrip().startswith(b"<event"):
            rows.append(self._row(text[done:], 0, len(text) - done))
            done, begin, kept = len(text), -1, len(text)
        rest = begin if begin >= 0 else max(done, kept)
        self._skip(text[done:rest], rest - done)
        return rows, rest

    def _partial(self, text: bytes) -> int:
        """Returns the place of a tag that may continue in the next portion; the length of `text` if there is none."""
        last = text.rfind(b"<")
        if last < 0 or (b">" in text[last:] and (_XML_OPENS.match(text, last) is None or _XML_TOKEN.match(text, last) is not None)):
            return len(text)
        return last
