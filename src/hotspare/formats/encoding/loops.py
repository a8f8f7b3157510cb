"""The loop that writes rows as CSV text, one row after the other, in one buffer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.rows.compile import Whole, kernel

WHOLE, SIX_DECIMALS, SHORTEST, WORD, TEXT, QUOTABLE = 0, 1, 2, 3, 4, 5
"""Kinds of columns: whole numbers; doubles with six decimals; doubles as the shortest text that parses to the same double; numbers
of words; texts that are written as they are; texts that are quoted where necessary."""
VALUE_BYTES_MAX = (21, 18, 18, 4, 1, 3)
"""Limit on the bytes that a value of each kind takes with the delimiter after it; of a text, in addition to twice its length."""
_COMMA, _LINE_FEED, _RETURN, _QUOTE, _BACKSLASH, _BLANK, _TAB = (np.uint8(ord(c)) for c in ',\n\r"\\ \t')
_IS_SPECIAL = np.isin(np.arange(256), [_COMMA, _LINE_FEED, _RETURN, _QUOTE, _BACKSLASH])
"""By byte: whether a text with it is quoted."""
_MINUS, _POINT, _ZERO = (np.uint8(ord(c)) for c in "-.0")
_EXACT_BELOW = 1e9
"""Doubles of smaller size have less than 2^53 millionths, so these are exact integers, of at most 15 digits."""
_PLAIN_FROM = 1e-4
"""Doubles of smaller size may have an exponent in their shortest text."""
_UNIT = 2.0**-52
_NONE, _ONE, _TWO, _SIX, _TEN, _HUNDRED = (np.uint64(number) for number in (0, 1, 2, 6, 10, 100))
_MILLION = np.uint64(1_000_000)
_PAIRS = np.frombuffer(b"".join(b"%02d" % number for number in range(100)), np.uint8)
"""The digits of the numbers below 100."""


class CsvColumns(NamedTuple):
    """The columns of rows, in the order in which they are written:

    kinds      int64[columns]                 WHOLE, ...
    at         int64[columns]                 index of the column in `numbers`, or, for texts, in `ends`
    valid      bool[columns, rows]            False is null, which is written as an empty field; bool[0, 0] without nulls
    numbers    int64[number columns, rows]    whole numbers, bits of doubles, and numbers of words
    ends       int64[text columns, rows + 1]  text i of a column is `data[ends[i] : ends[i + 1]]`
    data       uint8[.]                       the texts
    word_ends  int64[words + 1]               word i is `words[word_ends[i] : word_ends[i + 1]]`
    words      uint8[.]                       the words
    """

    kinds: Int64s
    at: Int64s
    valid: Bools
    numbers: Int64s
    ends: Int64s
    data: UInt8s
    word_ends: Int64s
    words: UInt8s


@kernel
def has_exact_millionths(value: float) -> bool:
    """Whether the millionths of a double certainly round as `%.6f` rounds them, if they are computed in double arithmetic."""
    size = abs(value)
    if not size < _EXACT_BELOW:
        return False
    millionths = size * 1e6  # wrong by at most half a unit in its last place
    return bool(abs(millionths - np.float64(np.int64(millionths)) - 0.5) > millionths * _UNIT)


@kernel
def is_millionths(value: float) -> bool:
    """Whether the shortest text of a double certainly is its millionths without trailing zeros. It is if the decimal number with
    these millionths parses to the double: two decimal numbers of at most 15 digits never parse to the same double."""
    size = abs(value)
    if not (size < _EXACT_BELOW and (size >= _PLAIN_FROM or size == 0.0)):
        return False
    return bool(np.float64(np.int64(size * 1e6 + 0.5)) / 1e6 == size)


@kernel
def is_written(kind: Whole, value: float) -> bool:
    """Whether `write_csv_rows` can write a double of a column of this kind itself."""
    return has_exact_millionths(value) if kind == SIX_DECIMALS else is_millionths(value)


@kernel
def is_null(columns: CsvColumns, column: Whole, row: Whole) -> bool:
    return len(columns.valid) > 0 and not columns.valid[np.uint64(column), np.uint64(row)]


@kernel
def doubtful_doubles(columns: CsvColumns, rows: Whole, out: npt.NDArray[np.float64]) -> int:
    """Writes to `out` the doubles that `write_csv_rows` cannot write itself, row by row. Returns their count."""
    doubles, count = columns.numbers.view(np.float64), 0
    for i in range(rows):
        for j in range(len(columns.kinds)):
            kind = columns.kinds[j]
            if (kind in (SIX_DECIMALS, SHORTEST)) and not is_null(columns, j, i):
                value = doubles[columns.at[j], i]
                if not is_written(kind, value):
                    out[count] = value
                    count += 1
    return count


@kernel
def write_pairs(value: np.uint64, count: np.uint64, out: UInt8s, at: np.uint64) -> np.uint64:
    """Writes the last `count` digits of a number, with zeros before it. Returns the place after them."""
    place, rest = at + count, value
    while place > at + _ONE:
        hundredth = rest // _HUNDRED
        pair = (rest - hundredth * _HUNDRED) * _TWO
        rest = hundredth
        place -= _TWO
        out[place], out[place + _ONE] = _PAIRS[pair], _PAIRS[pair + _ONE]
    if place > at:
        out[at] = _ZERO + np.uint8(rest)
    return at + count


@kernel
def write_digits(value: np.uint64, out: UInt8s, at: np.uint64) -> np.uint64:
    """Writes a number below 10^19. Returns the place after it."""
    count, limit = _ONE, _TEN
    while value >= limit:
        count += _ONE
        limit *= _TEN
    return write_pairs(value, count, out, at)


@kernel
def write_whole(value: Whole, out: UInt8s, at: np.uint64) -> np.uint64:
    """Writes a whole number. Returns the place after it."""
    if value >= 0:
        return write_digits(np.uint64(value), out, at)
    out[at] = _MINUS
    return write_digits(np.uint64(~value) + _ONE, out, at + _ONE)


@kernel
def write_double(kind: Whole, value: float, bits: Whole, out: UInt8s, at: np.uint64) -> np.uint64:
    """Writes a double with `is_written` in a column of this kind; `bits` are its own. Returns the place after it."""
    if bits < 0:
        out[at] = _MINUS
        at += _ONE
    millionths = abs(value) * 1e6
    below = np.int64(millionths)
    rounded = np.uint64(below + 1 if millionths - np.float64(below) > 0.5 else below)
    whole = rounded // _MILLION
    at, rest, digits = write_digits(whole, out, at), rounded - whole * _MILLION, _SIX
    if kind == SHORTEST:
        if rest == _NONE:
            return at
        while rest // _TEN * _TEN == rest:
            rest //= _TEN
            digits -= _ONE
    out[at] = _POINT
    return write_pairs(rest, digits, out, at + _ONE)


@kernel
def write_text(data: UInt8s, begin: Whole, end: Whole, out: UInt8s, at: np.uint64) -> np.uint64:
    """Copies a text. Returns the place after it."""
    for i in range(np.uint64(begin), np.uint64(end)):
        out[at] = data[i]
        at += _ONE
    return at


@kernel
def needs_quotes(data: UInt8s, begin: Whole, end: Whole) -> bool:
    """Whether a text can only be read back if it is quoted (`formats.csv.grammar`)."""
    if begin == end:
        return True
    first, last = data[np.uint64(begin)], data[np.uint64(end - 1)]
    found = first in (_BLANK, _TAB) or last in (_BLANK, _TAB)
    for i in range(np.uint64(begin), np.uint64(end)):
        found |= _IS_SPECIAL[data[i]]
    return found


@kernel
def write_quoted(data: UInt8s, begin: Whole, end: Whole, out: UInt8s, at: np.uint64) -> np.uint64:
    """Writes a text in quotes. Returns the place after it."""
    out[at] = _QUOTE
    at += _ONE
    for i in range(np.uint64(begin), np.uint64(end)):
        byte = data[i]
        if byte in (_QUOTE, _BACKSLASH):
            out[at] = byte
            at += _ONE
        out[at] = byte
        at += _ONE
    out[at] = _QUOTE
    return at + _ONE


@kernel
def write_csv_rows(
    columns: CsvColumns, blank_before: Whole, doubtful_ends: Int64s, doubtful: UInt8s, out: UInt8s, row_ends: Int64s
) -> None:
    """Writes all rows, each with a line feed, to `out`, which has room for them, and the end of each row to `row_ends`, after a 0.

    `blank_before`: the column before which a blank is written; -1 for none. `doubtful`: the texts of `doubtful_doubles`, in their
    order; `doubtful_ends`: where each begins, and the end."""
    kinds, doubles = columns.kinds, columns.numbers.view(np.float64)
    at, told = _NONE, 0
    for i in range(len(row_ends) - 1):
        row = np.uint64(i)
        for j in range(len(kinds)):
            if j > 0:
                out[at] = _COMMA
                at += _ONE
            if j == blank_before:
                out[at] = _BLANK
                at += _ONE
            if is_null(columns, j, i):
                continue
            kind, where = kinds[j], np.uint64(columns.at[j])
            if kind == WHOLE:
                at = write_whole(columns.numbers[where, row], out, at)
            elif kind in (SIX_DECIMALS, SHORTEST):
                value = doubles[where, row]
                if is_written(kind, value):
                    at = write_double(kind, value, columns.numbers[where, row], out, at)
                else:
                    at = write_text(doubtful, doubtful_ends[told], doubtful_ends[told + 1], out, at)
                    told += 1
            elif kind == WORD:
                word = np.uint64(columns.numbers[where, row])
                at = write_text(columns.words, columns.word_ends[word], columns.word_ends[word + _ONE], out, at)
            else:
                begin, end = columns.ends[where, row], columns.ends[where, row + _ONE]
                if kind == QUOTABLE and needs_quotes(columns.data, begin, end):
                    at = write_quoted(columns.data, begin, end, out, at)
                else:
                    at = write_text(columns.data, begin, end, out, at)
        out[at] = _LINE_FEED
        at += _ONE
        row_ends[i + 1] = at
