"""Cuts the bytes of a JSON or XML file into events, however they arrive (SPEC I5).

JSON is cut as `formats.json.cutting` says. XML: every element `<event>`; elements around them, such as `<events>` and
`<transaction>`, are passed over. The same bytes give the same events, so a publisher that was killed goes on behind any of them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

from hotspare.adapters.files.file_rows import FileRows, Row
from hotspare.adapters.files.row_cutter import LINE_BYTES_MAX, LineTooLong
from hotspare.formats.json.cutting import TextEnd, event_begin, event_end

_XML_OPEN = rb"""<event(?=[\s>/])(?:(?:[^<>"']|"[^<"]*"|'[^<']*')*+>|[^<>]*+>(?=[^<]*+<))"""
"""A tag, up to its end outside of quotes; if one of them is not closed before the next tag, up to the first that may be one."""
_XML_TOKEN = re.compile(
    rb"<!--.*?(?P<comment>-->|\Z)|<!\[CDATA\[.*?(?P<cdata>\]\]>|\Z)|(?P<open>" + _XML_OPEN + rb")|(?P<close></event\s*>)", re.DOTALL
)
_XML_OPENS = re.compile(rb"<event[\s>/]")


class EventCutter(ABC):
    """Takes bytes in any portions, returns the events that are complete (`RowCutter` does the same for CSV)."""

    def __init__(self, position: int) -> None:
        self._position = position
        self._line = 1
        self._rest = b""

    @property
    def pending_bytes(self) -> int:
        return len(self._rest)

    def feed(self, data: bytes) -> list[Row]:
        """Events that are complete now. LineTooLong where one has no end."""
        rows, consumed = self._cut(self._rest + data, TextEnd.OPEN)
        self._rest = (self._rest + data)[consumed:]
        if len(self._rest) > LINE_BYTES_MAX:
            raise LineTooLong(self._position)
        return rows

    def cut(self, data: bytes) -> FileRows:
        """The same as columns."""
        return FileRows.of(self.feed(data))

    def finish(self) -> list[Row]:
        """Returns what is left of a file that will not grow; the last event may have no end."""
        rows, _ = self._cut(self._rest, TextEnd.FINAL)
        self._rest = b""
        return rows

    def _row(self, text: bytes, begin: int, end: int) -> Row:
        """`text` begins at the cutter's position, which goes on to `end`."""
        line = self._line + text.count(b"\n", 0, begin)
        self._line += text.count(b"\n", 0, end)
        self._position += end
        return Row(text[begin:end].strip(), self._position, line)

    @abstractmethod
    def _cut(self, text: bytes, text_end: TextEnd) -> tuple[list[Row], int]:
        """The complete events of a text that begins outside of events, and how much of it is done with. Rows are made by `_row`,
        each of what is left of the text behind the one before."""

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
            if token["comment"] == b"" or token["cdata"] == b"":  # its end is not there yet
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
        """Where a tag begins that may go on in the next portion."""
        last = text.rfind(b"<")
        if last < 0 or (b">" in text[last:] and (_XML_OPENS.match(text, last) is None or _XML_TOKEN.match(text, last) is not None)):
            return len(text)
        return last
