r"""The only rule for the ends of events in a JSON text, for files, messages of topics and lines.

- Blanks, commas, square brackets and byte order marks separate events: objects may follow each other, be one per line, over several
  lines, in arrays and in arrays of arrays.
- An event is an object that is not inside another one. A number, a string, true, false or null at the place of an event is a
  separate row.
- Any other text is a row up to the end of its line, together with the object before it on that line. So a part of a damaged line is
  never an event.
- An invalid object is a row up to the end of the line that shows the error: a string with a line end inside, a closing bracket of
  another kind than the open one, or an object at a place that allows no value.

Rows that are not objects are bad events. A missing quote or brace damages only its line, or also the next line if the line ends
with a colon or a square bracket. All places are byte offsets; in UTF-8 none of these bytes occurs within a character. Cutting a row
again returns the row.
"""

from __future__ import annotations

import re
from enum import Enum

_MARK = rb"\xef\xbb\xbf"
_VALUE = (
    rb'(?:"(?:[^"\\\n]|\\[^\n])*+"|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+|true|false|null|NaN|-?Infinity)'
    rb"(?=[\s,\[\]{]|" + _MARK + rb"|\Z)"
)
_BETWEEN = re.compile(rb"(?:[\s,\[\]]|" + _MARK + rb")*+")
_PLAIN_VALUE = re.compile(_VALUE)
_BEHIND = re.compile(rb"(?:[ \t\r\v\f,\[\]]|" + _MARK + rb")*+(?P<next>\n|\{|" + _VALUE + rb")?")
_TOKEN = re.compile(rb'"(?:[^"\\\n]++|\\[^\n])*+(?P<closed>"|\\?\n|\\?\Z)|[{}\[\]]')
_CLOSES = {b"}": b"{", b"]": b"["}
_BEFORE_OBJECT = {b"{": b":", b"[": b",["}
"""The bytes that may precede an object, by the bracket that encloses the object."""


class TextEnd(Enum):
    """Whether more bytes may follow a text."""

    OPEN = "more may follow"
    FINAL = "nothing follows"


def event_begin(text: bytes, at: int) -> int:
    """Returns the begin of the first row at or after `at`, which must be between rows; the end of the text if no row follows."""
    between = _BETWEEN.match(text, at)
    assert between is not None  # it also matches the empty text
    return between.end()


def event_end(text: bytes, at: int, text_end: TextEnd) -> int:
    """Returns the end of the row that begins at `at`, or -1 if it depends on bytes after the text."""
    is_all = text_end is TextEnd.FINAL
    if text[at : at + 1] == b"{":
        other = text.find(b"{", at + 1)  # searched first: a line may hold any number of objects
        line_end = text.find(b"\n", at, other if other >= 0 else len(text))
        if line_end < 0 and other < 0 and is_all:
            line_end = len(text)
        line = text[at:line_end].rstrip() if line_end >= 0 else b""
        if line.endswith(b"}") and line.count(b"}") == 1:  # one flat object per line is the rule
            return at + len(line)
        end, is_object = _object_end(text, at)
        if end < 0:
            return len(text) if is_all else -1
        if not is_object:
            return end
    else:
        value = _PLAIN_VALUE.match(text, at)
        if value is None:
            return _line_end(text, at, text_end)
        end = value.end()
    behind = _BEHIND.match(text, end)
    assert behind is not None  # as above
    if behind.end() == len(text) and not is_all and behind["next"] not in (b"\n", b"{"):
        return -1
    return end if behind["next"] is not None or behind.end() == len(text) else _line_end(text, behind.end(), text_end)


def _line_end(text: bytes, at: int, text_end: TextEnd) -> int:
    found = text.find(b"\n", at)
    return found + 1 if found >= 0 else len(text) if text_end is TextEnd.FINAL else -1


def _object_end(text: bytes, at: int) -> tuple[int, bool]:
    """Returns (end, True) for a complete object that begins at `at`. Returns (end of the line that shows the error, False) for an
    invalid object. Returns (-1, False) if the text ends before that."""
    opened: list[bytes] = []
    for token in _TOKEN.finditer(text, at):
        closed, bracket = token["closed"], token[0]
        if closed is not None:
            if closed.endswith(b"\n"):
                return token.end(), False
            if closed != b'"':
                break
        elif bracket in _CLOSES:
            if opened.pop() != _CLOSES[bracket]:
                return _line_end(text, token.end(), TextEnd.OPEN), False
            if not opened:
                return token.end(), True
        elif bracket == b"{" and opened and _last_before(text, token.start()) not in _BEFORE_OBJECT[opened[-1]]:
            return (text.rfind(b"\n", at, token.start()) + 1) or _line_end(text, token.end(), TextEnd.OPEN), False
        else:
            opened.append(bracket)
    return -1, False


def _last_before(text: bytes, at: int) -> bytes:
    """Returns the last byte before the place `at` that is not a blank."""
    while text[at - 1 : at].isspace():
        at -= 1
    return text[at - 1 : at]
