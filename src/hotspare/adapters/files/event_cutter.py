"""Cuts the bytes of a JSON or XML file into events, however they arrive (SPEC I5).

JSON: every object that is not inside another one is an event, wherever lines end: one per line, over several lines, in an array, in
arrays of arrays. XML: every element `<event>`; elements around them, such as `<events>` and `<transaction>`, are passed over.
What is neither is a row of its own up to the end of its line, and becomes a bad event. So does a JSON object that cannot be one, up
to the end of the line where that shows: a string with a line end in it, a bracket that closes another one, or an object that begins
where no value may. A quote or brace that is missing harms no line but its own. The same bytes give the same events, and the end of
each is known at its last byte, so a publisher that was killed goes on behind any of them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

from hotspare.adapters.files.file_rows import FileRows, Row
from hotspare.adapters.files.row_cutter import LINE_BYTES_MAX, LineTooLong

_BETWEEN = re.compile(rb"[\s,\[\]]*")
_JSON_TOKEN = re.compile(rb'"(?:[^"\\\n]++|\\[^\n])*+(?P<closed>"|\\?\n|\\?\Z)|[{}\[\]]')
_XML_OPEN = rb"""<event(?=[\s>/])(?:(?:[^<>"']|"[^<"]*"|'[^<']*')*+>|[^<>]*+>(?=[^<]*+<))"""
"""A tag, up to its end outside of quotes; if one of them is not closed before the next tag, up to the first that may be one."""
_XML_TOKEN = re.compile(
    rb"<!--.*?(?P<comment>-->|\Z)|<!\[CDATA\[.*?(?P<cdata>\]\]>|\Z)|(?P<open>" + _XML_OPEN + rb")|(?P<close></event\s*>)", re.DOTALL
)
_XML_OPENS = re.compile(rb"<event[\s>/]")
_CLOSES = {b"}": b"{", b"]": b"["}
_BEFORE_OBJECT = {b"{": b":", b"[": b",["}
"""What stands before an object, by the bracket around it."""


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
        rows, consumed = self._cut(self._rest + data)
        self._rest = (self._rest + data)[consumed:]
        if len(self._rest) > LINE_BYTES_MAX:
            raise LineTooLong(self._position)
        return rows

    def cut(self, data: bytes) -> FileRows:
        """The same as columns."""
        return FileRows.of(self.feed(data))

    def finish(self) -> list[Row]:
        """What is left of a file that will not grow is an event that has no end."""
        text = self._rest
        self._rest = b""
        if not self._is_event(text):
            return []
        return [self._row(text, 0, len(text))]

    def _row(self, text: bytes, begin: int, end: int) -> Row:
        """`text` begins at the cutter's position, which goes on to `end`."""
        line = self._line + text.count(b"\n", 0, begin)
        self._line += text.count(b"\n", 0, end)
        self._position += end
        return Row(text[begin:end].strip(), self._position, line)

    @abstractmethod
    def _cut(self, text: bytes) -> tuple[list[Row], int]:
        """The complete events of a text that begins outside of events, and how much of it is done with. Rows are made by `_row`,
        each of what is left of the text behind the one before."""

    @abstractmethod
    def _is_event(self, text: bytes) -> bool:
        """Whether the rest of a file is to be shown as a bad event."""

    def _skip(self, text: bytes, count: int) -> None:
        self._line += text.count(b"\n", 0, count)
        self._position += count


class JsonCutter(EventCutter):
    def _cut(self, text: bytes) -> tuple[list[Row], int]:
        rows: list[Row] = []
        done = 0
        while True:
            begin = _BETWEEN.match(text, done)
            assert begin is not None  # it matches nothing at all, too
            at = begin.end()
            end = self._event_end(text, at)
            if end <= at:
                self._skip(text[done:at], at - done)
                return rows, at
            rows.append(self._row(text[done:end], at - done, end - done))
            done = end

    def _event_end(self, text: bytes, at: int) -> int:
        """Where what begins there ends; not behind it if its end is not there yet."""
        line_end = text.find(b"\n", at)
        if text[at : at + 1] != b"{":
            return line_end + 1
        line = text[at:line_end].rstrip() if line_end >= 0 else b""
        if line.endswith(b"}") and line.count(b"{") == 1 and line.count(b"}") == 1:  # one flat object per line is the rule
            return at + len(line)
        opened: list[bytes] = []
        for token in _JSON_TOKEN.finditer(text, at):
            closed, bracket = token["closed"], token[0]
            if closed is not None:
                if closed.endswith(b"\n"):
                    return token.end()
                if closed != b'"':
                    return -1
            elif bracket in _CLOSES:
                if opened.pop() != _CLOSES[bracket]:
                    return text.find(b"\n", token.end()) + 1
                if not opened:
                    return token.end()
            elif bracket == b"{" and opened and _last_before(text, token.start()) not in _BEFORE_OBJECT[opened[-1]]:
                return (text.rfind(b"\n", at, token.start()) + 1) or (text.find(b"\n", token.end()) + 1)
            else:
                opened.append(bracket)
        return -1

    def _is_event(self, text: bytes) -> bool:
        return bool(text.strip())


def _last_before(text: bytes, at: int) -> bytes:
    """The last byte before a place that is not blank."""
    while text[at - 1 : at].isspace():
        at -= 1
    return text[at - 1 : at]


class XmlCutter(EventCutter):
    def _cut(self, text: bytes) -> tuple[list[Row], int]:
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
        rest = begin if begin >= 0 else max(done, kept)
        self._skip(text[done:rest], rest - done)
        return rows, rest

    def _partial(self, text: bytes) -> int:
        """Where a tag begins that may go on in the next portion."""
        last = text.rfind(b"<")
        if last < 0 or (b">" in text[last:] and (_XML_OPENS.match(text, last) is None or _XML_TOKEN.match(text, last) is not None)):
            return len(text)
        return last

    def _is_event(self, text: bytes) -> bool:
        return text.lstrip().startswith(b"<event")
