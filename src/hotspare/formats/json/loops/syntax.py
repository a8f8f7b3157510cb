"""The syntax of JSON, byte by byte, with the errors that Python's decoder reports.

Functions whose name ends with `_end` return the place behind what they read, or minus the code of an error. All stop at `stop`.
"""

from __future__ import annotations

import numpy as np

from hotspare.formats.json.plain import DEPTH_MAX
from hotspare.formats.loops import character_end
from hotspare.rows.chunk import UInt8s
from hotspare.rows.compile import Whole, called, kernel

VALUE, NAME, COLON, COMMA, OBJECT_COMMA, ARRAY_COMMA, UNCLOSED, CONTROL, ESCAPE, UNICODE, DEEP, UTF8 = range(1, 13)
"""Codes of errors: a missing token, from VALUE to COMMA; a comma before a closing bracket; an unclosed string; a control character
or an invalid escape in a string (UNICODE: an invalid `\\uXXXX`); too deep nesting; bytes that are not UTF-8."""
NULL, WORD, NUMBER, STRING, OBJECT, ARRAY = range(6)
"""Kinds of values; a WORD is true or false."""

FEED, SPACE, QUOTE, BACKSLASH, OPEN, CLOSE, OPEN_ARRAY, CLOSE_ARRAY, COLON_BYTE, COMMA_BYTE = b'\n "\\{}[]:,'
LOWER_U = ord("u")
_ZERO, _NINE, _POINT, _PLUS, _MINUS, _LOWER_E, _CASE = *b"09.+-e", 0x20
_NULL_WORD, _TRUE, _FALSE, _NAN, _INFINITY, _MINUS_INFINITY = (
    np.frombuffer(word, np.uint8) for word in (b"null", b"true", b"false", b"NaN", b"Infinity", b"-Infinity")
)
GAP, BLANK, BETWEEN, STOPS_STRING, OPENS, CLOSES = 1, 2, 4, 8, 16, 32
"""Bits of `KINDS`: blanks of JSON; these and other blanks; the bytes that separate rows; bytes in a string that need a look;
brackets that open, and that close."""


def _kinds() -> UInt8s:
    table = np.zeros(256, np.uint8)
    blanks = b" \t\r\n"
    members = {GAP: blanks, BLANK: blanks + b"\v\f", BETWEEN: blanks + b"\v\f,[]", STOPS_STRING: b'"\\'}
    members |= {OPENS: b"{[", CLOSES: b"}]"}
    for bit, bytes_ in members.items():
        table[list(bytes_)] |= bit
    table[:SPACE] |= STOPS_STRING
    table[0x80:] |= STOPS_STRING
    return table


def _escaped() -> UInt8s:
    table = np.zeros(256, np.uint8)
    table[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
    return table


def _hex_digits() -> UInt8s:
    table = np.full(256, 16, np.uint8)
    for digits in (b"0123456789abcdef", b"0123456789ABCDEF"):
        table[list(digits)] = range(16)
    return table


KINDS, ESCAPED, HEX_DIGIT = _kinds(), _escaped(), _hex_digits()
"""For each byte: its kinds; what it means after a backslash, or 0; its value as a hexadecimal digit, or 16."""


@kernel
def gap_end(data: UInt8s, at: Whole, stop: Whole) -> Whole:
    """Returns the first place from `at` on that is not a blank of JSON, or `stop`."""
    while at < stop and KINDS[data[at]] & GAP:
        at += 1
    return at


@kernel
def is_at(data: UInt8s, at: Whole, stop: Whole, byte: Whole) -> bool:
    return bool(at < stop and data[at] == byte)


@kernel
def is_digit(byte: Whole) -> bool:
    return bool(_ZERO <= byte <= _NINE)


@kernel
def is_sign(byte: Whole) -> bool:
    return bool(byte == _PLUS) or bool(byte == _MINUS)


@kernel
def has_word(data: UInt8s, at: Whole, stop: Whole, word: UInt8s) -> bool:
    i = 0
    while i < len(word) and at + i < stop and data[at + i] == word[i]:
        i += 1
    return bool(i == len(word))


@kernel
def string_end(data: UInt8s, at: Whole, stop: Whole) -> tuple[Whole, Whole]:
    """Returns the place of the quote that closes the string whose opening quote is before `at`, and whether the string has
    backslashes (0 or 1)."""
    has_escapes = 0
    while at < stop:
        byte = data[at]
        if not KINDS[byte] & STOPS_STRING:
            at += 1
        elif byte == QUOTE:
            return at, has_escapes
        elif byte == BACKSLASH:
            has_escapes = 1
            at = escape_end(data, at + 1, stop)
            if at < 0:
                return at, has_escapes
        elif byte < SPACE:
            return -CONTROL, has_escapes
        else:
            at = character_end(data, at, stop)
            if at < 0:
                return -UTF8, has_escapes
    return -UNCLOSED, has_escapes


@kernel
def escape_end(data: UInt8s, at: Whole, stop: Whole) -> Whole:
    """Returns the end of an escape whose backslash is before `at`."""
    if at >= stop:
        return -UNCLOSED
    if data[at] != LOWER_U:
        return at + 1 if ESCAPED[data[at]] else -ESCAPE
    if at + 5 >= stop:
        return -UNICODE
    for i in range(at + 1, at + 5):
        if HEX_DIGIT[data[i]] > 15:
            return -UNICODE
    return at + 5


@kernel
def number_end(data: UInt8s, at: Whole, stop: Whole) -> Whole:
    """Returns the end of a number in digits, which is at `at` or minus VALUE."""
    if data[at] == _MINUS:
        at += 1
    if at >= stop or not is_digit(data[at]):
        return -VALUE
    is_zero = data[at] == _ZERO
    at += 1
    if not is_zero:
        while at < stop and is_digit(data[at]):
            at += 1
    if at + 1 < stop and data[at] == _POINT and is_digit(data[at + 1]):
        at += 2
        while at < stop and is_digit(data[at]):
            at += 1
    if at + 1 < stop and data[at] | _CASE == _LOWER_E:
        last = at + 1
        if last + 1 < stop and is_sign(data[last]):
            last += 1
        while last < stop and is_digit(data[last]):
            last += 1
        if is_digit(data[last - 1]):
            at = last
    return at


@called
def scalar_end(data: UInt8s, at: Whole, stop: Whole) -> tuple[Whole, Whole]:
    """Returns the end of a value that is not a string, an object or an array, and its kind."""
    byte = data[at]
    if byte == _MINUS or is_digit(byte):
        if has_word(data, at, stop, _MINUS_INFINITY):
            return at + len(_MINUS_INFINITY), NUMBER
        return number_end(data, at, stop), NUMBER
    if has_word(data, at, stop, _NULL_WORD):
        return at + len(_NULL_WORD), NULL
    if has_word(data, at, stop, _TRUE):
        return at + len(_TRUE), WORD
    if has_word(data, at, stop, _FALSE):
        return at + len(_FALSE), WORD
    if has_word(data, at, stop, _NAN):
        return at + len(_NAN), NUMBER
    if has_word(data, at, stop, _INFINITY):
        return at + len(_INFINITY), NUMBER
    return -VALUE, NULL


@kernel
def name_end(data: UInt8s, at: Whole, stop: Whole) -> tuple[Whole, Whole, Whole]:
    """Returns the place of the quote that closes the member's name at `at`, whether the name has backslashes, and the begin of the
    member's value."""
    if not is_at(data, at, stop, QUOTE):
        return -NAME, 0, 0
    close, has_escapes = string_end(data, at + 1, stop)
    if close < 0:
        return close, 0, 0
    at = gap_end(data, close + 1, stop)
    if not is_at(data, at, stop, COLON_BYTE):
        return -COLON, 0, 0
    return close, has_escapes, gap_end(data, at + 1, stop)


@kernel
def next_part(data: UInt8s, at: Whole, stop: Whole, close: Whole) -> tuple[Whole, Whole]:
    """Returns what follows the value of a member or an item that ends at `at`: the begin of the next one, and 0; or the end of the
    object or array that `close` closes, and 1."""
    at = gap_end(data, at, stop)
    if is_at(data, at, stop, close):
        return at + 1, 1
    if not is_at(data, at, stop, COMMA_BYTE):
        return -COMMA, 0
    at = gap_end(data, at + 1, stop)
    if is_at(data, at, stop, close):
        return -OBJECT_COMMA if close == CLOSE else -ARRAY_COMMA, 0
    return at, 0


@called
def value_end(data: UInt8s, at: Whole, stop: Whole, depth_max: Whole, opened: UInt8s) -> Whole:
    """Returns the end of any value. Objects and arrays in it may be nested `depth_max` deep."""
    depth: Whole = 0
    while True:
        if at >= stop:
            return -VALUE
        byte = data[at]
        is_done: Whole = 1
        if KINDS[byte] & OPENS:
            if depth == depth_max:
                return -DEEP
            opened[depth] = byte
            depth += 1
            at = gap_end(data, at + 1, stop)
            is_done = np.int64(is_at(data, at, stop, CLOSE if byte == OPEN else CLOSE_ARRAY))
            if is_done:
                depth -= 1
                at += 1
        elif byte == QUOTE:
            at, _ = string_end(data, at + 1, stop)
            if at < 0:
                return at
            at += 1
        else:
            at, _ = scalar_end(data, at, stop)
            if at < 0:
                return at
        while is_done and depth > 0:
            at, is_done = next_part(data, at, stop, CLOSE if opened[depth - 1] == OPEN else CLOSE_ARRAY)
            if at < 0:
                return at
            depth -= is_done
        if is_done:
            return at
        if opened[depth - 1] == OPEN:
            close, _, at = name_end(data, at, stop)
            if close < 0:
                return close


@kernel
def is_deep(data: UInt8s, at: Whole, end: Whole) -> bool:
    """Whether brackets outside strings are nested deeper than DEPTH_MAX; an unclosed string extends to `end`."""
    depth = 0
    while at < end:
        byte = data[at]
        at += 1
        if KINDS[byte] & OPENS:
            depth += 1
            if depth > DEPTH_MAX:
                return True
        elif KINDS[byte] & CLOSES:
            depth -= 1
        elif byte == QUOTE:
            while at < end and data[at] != QUOTE:
                at += 2 if data[at] == BACKSLASH else 1
            at += 1
    return False
