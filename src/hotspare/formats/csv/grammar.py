"""The grammar of CSV (SPEC 5.2): row ends, columns, and lines that are not rows. Publishers, engine and files share it.

- A row ends at a line feed outside quotes; carriage returns before it, and a byte order mark at its beginning, are not part of
  it. A line of only blanks is not a row.
- Blanks are spaces and, unless tabs separate the fields, tabs.
- A field is quoted if its first byte other than blanks is a quote. Inside, a doubled quote or one after a backslash is a quote,
  and a doubled backslash is a backslash; only blanks may follow the closing quote.
- Outside quotes, a backslash pairs with the character after it. A backslash before the delimiter makes the delimiter a part of the
  field and is dropped; before other characters both are kept. So a delimiter after two backslashes ends the field.
- Blanks around a field are not part of it; blanks in quotes are.
- An empty field is null; a quoted empty field is an empty text.
- A row with a misplaced quote, or a quote that is not closed within ROW_BYTES_MAX, ends at its first line feed and is a bad row.

All rules are for bytes: in UTF-8, none of these bytes occurs inside a character. The meaning of a row does not depend on other
rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

ROW_BYTES_MAX = 1 << 20
"""Limit on the bytes of a row that contains line feeds. A row of one line may be longer."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLANKS = b" \t"
"""Bytes that are not part of a field at its ends, unless they are the delimiter."""
_LINE_FEED = ord("\n")

_ESCAPED_IN_QUOTES = re.compile(rb'\\(["\\])|"(")')
"""Matches an escape inside quotes. The group that matched holds the character that the escape stands for."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """The grammar of CSV with one delimiter; created by the function `grammar`."""

    delimiter: bytes
    blanks: bytes
    _field: re.Pattern[bytes]
    _escaped: re.Pattern[bytes]

    def columns(self, row: bytes) -> list[bytes]:
        """Returns the columns of one row as written, with quotes and escapes. A column with bad quotes ends at the next
        delimiter."""
        found: list[bytes] = []
        position = len(BYTE_ORDER_MARK) if row.startswith(BYTE_ORDER_MARK) else 0
        while True:
            end = self._column_end(row, position, len(row))
            while end < len(row) and row[end] == _LINE_FEED:  # a line feed in a row with bad quotes
                end = self._column_end(row, end + 1, len(row))
            found.append(row[position:end])
            if end >= len(row):
                return found
            position = end + 1

    def value(self, column: bytes) -> bytes | None:
        """Returns the value of a column as written, without quotes and escapes; None for null."""
        if is_quoted(column):
            inner = column.strip(self.blanks)[1:-1]
            return _ESCAPED_IN_QUOTES.sub(rb"\1\2", inner) if b'"' in inner or b"\\" in inner else inner
        column = column.strip(self.blanks)
        if b"\\" in column:
            column = self._escaped.sub(lambda match: match.group(1) or match.group(), column)
        return column or None

    def _column_end(self, data: bytes, position: int, stop: int) -> int:
        match = self._field.match(data, position, stop)
        assert match is not None  # the bare alternative matches anything
        return match.end()


def is_quoted(column: bytes) -> bool:
    """Whether a column begins with a quote, not counting blanks before it."""
    return column[:1] == b'"' or (column[:1] in BLANKS and column.lstrip(BLANKS)[:1] == b'"')


def is_blank(row: bytes) -> bool:
    """Whether a line is empty or blank, and so is not a row."""
    return not row.removeprefix(BYTE_ORDER_MARK).strip()


def quoted(value: bytes) -> bytes:
    """Returns a quoted column whose value is `value`, valid for every delimiter."""
    return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'""') + b'"'


def blanks_with(delimiter: bytes) -> bytes:
    """Returns the bytes that count as blanks in CSV with this delimiter."""
    return BLANKS.replace(delimiter, b"")


@cache
def grammar(delimiter: bytes = b",") -> Grammar:
    """Returns the grammar for this delimiter: one byte other than a quote, backslash, blank or line end."""
    d, blanks = re.escape(delimiter), blanks_with(delimiter)
    gap = b"[" + blanks + b"]*"
    whole = b"(" + gap + rb'"(?:[^"\\]|\\.|"")*+"' + gap + rb")(?=" + d + rb"|\r*\n|\r*\Z)"
    bare = rb"[^\\" + d + rb"\n]*(?:\\[^\n][^\\" + d + rb"\n]*)*\\?"
    return Grammar(delimiter, blanks, re.compile(whole + rb"|" + bare, re.DOTALL), re.compile(rb"\\(" + d + rb")|\\.", re.DOTALL))
