"""Loops over the fields of text formats: UTF-8, and typed columns of texts, words, and numbers of simple forms."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hotspare.rows.chunk import Int32s, Int64s, UInt8s
from hotspare.rows.compile import Whole, kernel
from hotspare.rows.loops import NOT_SIMPLE, simple_double, simple_whole

TEXTS, WHOLE, NARROW, DOUBLES, WORDS = 0, 1, 2, 3, 4
"""Kinds of columns: texts, int64, int32, double, and words of the table; a column of kind WORDS + i has words of set i."""
NULLS, ODD_END, TEXT_END = 0, 1, 2
"""Columns of `Cells.ends`: the number of nulls; the ends of the column's entries in `odd`, and of its bytes in `texts`."""
ENDS_WIDTH = 3
WORD_BYTES_MAX, _NULL_SIZE = 7, 15
_WORD_BITS, _SET_BITS = np.uint64(8 * WORD_BYTES_MAX), np.uint64(60)
_UPPER_FIRST, _UPPER_LAST, _CASE = *b"AZ", 0x20
_NARROW_END = 1 << 31
UInt64s = npt.NDArray[np.uint64]
NOT_UTF8 = -1


class Fields(NamedTuple):
    """The values of fields: begin in the data, or `~begin` in `spill`, and size; the size of null is -1. `spill`: values that
    differ from their slice of the data."""

    begin: Int32s
    size: Int32s
    spill: UInt8s


class FieldTexts(NamedTuple):
    """The values of all fields of good rows, row by row, as in `Fields`; all read-only."""

    data: UInt8s
    spill: UInt8s
    begin: Int32s
    size: Int32s


class Cells(NamedTuple):
    """The values of `n` good rows by column.

    Column c has 8 * n bytes from 8 * n * c on in a memory of which `whole`, `doubles`, `narrow` and `small` are views: n numbers as
    wide as its kind, or n + 1 offsets (int32) of texts. `validity`: a bit per cell, (n + 7) // 8 bytes per column, initially
    ones. `texts`: the bytes of all columns of texts. `odd`: by column, the rows whose text is not of a simple form; their value is
    0.
    """

    whole: Int64s
    doubles: npt.NDArray[np.float64]
    narrow: Int32s
    small: UInt8s
    validity: UInt8s
    texts: UInt8s
    odd: Int32s
    ends: Int64s


@kernel
def character_end(data: UInt8s, begin: Whole, stop: Whole) -> Whole:
    """Returns the end of the character of several bytes that begins at `begin`; NOT_UTF8 if the bytes up to `stop` begin with no
    such character."""
    lead = np.int64(data[begin])
    size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    if lead < 0xC2 or lead > 0xF4 or begin + size > stop:
        return NOT_UTF8
    second = np.int64(data[begin + 1])
    least = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
    most = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
    if second < least or second > most:
        return NOT_UTF8
    for other in range(begin + 2, begin + size):
        if data[other] & 0xC0 != 0x80:
            return NOT_UTF8
    return begin + size


@kernel
def is_utf8(data: UInt8s, begin: Whole, end: Whole) -> bool:
    """Whether `data[begin:end]` is valid UTF-8."""
    seen = np.uint8(0)
    for i in range(np.uint64(begin), np.uint64(end)):
        seen |= data[i]
    if seen < 0x80:
        return True
    place = begin
    while 0 <= place < end:
        place = place + 1 if data[place] < 0x80 else character_end(data, place, end)
    return bool(place == end)


@kernel
def copy_value(values: FieldTexts, number: Whole, target: UInt8s, at: Whole) -> Whole:
    """Copies the bytes of field `number`. Returns their end in `target`."""
    begin, size = np.int64(values.begin[number]), np.int64(values.size[number])
    if size <= 0:
        return at
    source = values.data if begin >= 0 else values.spill
    b, t = np.uint64(begin if begin >= 0 else ~begin), np.uint64(at)
    for i in range(np.uint64(size)):
        target[t + i] = source[b + i]
    return at + size


@kernel
def word_key(data: UInt8s, begin: Whole, end: Whole, words: Whole) -> np.uint64:
    """Returns a number for an ASCII word of 1 to WORD_BYTES_MAX bytes in any case, of the set number `words`; another one for null,
    whose `end` is before `begin`; 0 for other texts."""
    size, key = end - begin, np.uint64(0)
    if size < 0:
        size = _NULL_SIZE
    elif size < 1 or size > WORD_BYTES_MAX:
        return key
    for place in range(begin, end):
        byte = np.uint64(data[place])
        if _UPPER_FIRST <= data[place] <= _UPPER_LAST:
            byte |= np.uint64(_CASE)
        key = key << np.uint64(8) | byte
    return key | np.uint64(size) << _WORD_BITS | np.uint64(words) << _SET_BITS


@kernel
def word_value(words: UInt64s, key: np.uint64) -> Whole:
    """Returns the value of a word; -1 for an unknown one. `words`: keys and values in turn."""
    for i in range(0, len(words), 2):
        if words[i] == key and key != np.uint64(0):
            return np.int64(words[i + 1])
    return -1


@kernel
def clear_bit(bits: UInt8s, first: Whole, number: Whole) -> None:
    """Clears bit `number` of the bits that begin at byte `first`."""
    bits[first + (number >> 3)] &= np.uint8(~(1 << (number & 7)) & 0xFF)


@kernel
def write_texts(values: FieldTexts, column: Whole, columns: Whole, rows: Whole, cells: Cells, begin: Whole) -> Whole:
    """Writes a column of texts, whose bytes are in `texts` from `begin` on. Returns their end."""
    first, bits, end, nulls = 2 * rows * column, column * ((rows + 7) >> 3), begin, 0
    cells.narrow[first] = 0
    for row in range(rows):
        number = row * columns + column
        if values.size[number] < 0:
            clear_bit(cells.validity, bits, row)
            nulls += 1
        end = copy_value(values, number, cells.texts, end)
        cells.narrow[first + row + 1] = end - begin
    cells.ends[column, NULLS] = nulls
    return end


@kernel
def write_numbers(values: FieldTexts, column: Whole, columns: Whole, kind: Whole, rows: Whole, cells: Cells, odd: Whole) -> Whole:
    """Writes a column of numbers. Returns the end of its entries in `cells.odd`, which begin at `odd`."""
    first, bits, nulls = rows * column, column * ((rows + 7) >> 3), 0
    for row in range(rows):
        begin, size = np.int64(values.begin[row * columns + column]), np.int64(values.size[row * columns + column])
        data = values.data if begin >= 0 else values.spill
        begin = begin if begin >= 0 else ~begin
        value: Whole = np.int64(0)
        double, is_odd = np.float64(0.0), False
        if size < 0:
            clear_bit(cells.validity, bits, row)
            nulls += 1
        elif kind == DOUBLES:
            double = np.float64(simple_double(data, begin, begin + size))
            is_odd = bool(double != double)
        else:
            value = simple_whole(data, begin, begin + size)
            is_odd = bool(value == NOT_SIMPLE or (kind == NARROW and not -_NARROW_END <= value < _NARROW_END))
        if is_odd:
            cells.odd[odd] = row
            odd, value, double = odd + 1, np.int64(0), np.float64(0.0)
        if kind == DOUBLES:
            cells.doubles[first + row] = double
        elif kind == WHOLE:
            cells.whole[first + row] = value
        else:
            cells.narrow[2 * first + row] = value
    cells.ends[column, NULLS] = nulls
    return odd


@kernel
def write_words(
    values: FieldTexts, column: Whole, columns: Whole, kind: Whole, words: UInt64s, rows: Whole, cells: Cells, odd: Whole
) -> Whole:
    """Writes a column of words. Returns the end of its entries in `cells.odd`, which begin at `odd`. Null is odd unless it
    has a number."""
    last_key, value = np.uint64(0), np.int64(-1)
    for row in range(rows):
        begin, size = np.int64(values.begin[row * columns + column]), np.int64(values.size[row * columns + column])
        data = values.data if begin >= 0 else values.spill
        begin = begin if begin >= 0 else ~begin
        key = word_key(data, begin, begin + size, kind - WORDS)
        if key != last_key:
            last_key, value = key, np.int64(word_value(words, key))
        if value < 0:
            cells.odd[odd] = row
            odd += 1
        cells.small[8 * rows * column + row] = value if value >= 0 else 0
    cells.ends[column, NULLS] = 0
    return odd


@kernel
def read_cells(values: FieldTexts, kinds: UInt8s, words: UInt64s, rows: Whole, cells: Cells) -> None:
    """Writes the cells of `rows` good rows, whose columns are of these kinds. `words`: keys (`word_key`) and values in turn."""
    columns = len(kinds)
    odd: Whole = 0
    text: Whole = 0
    for column in range(columns):
        kind = np.int64(kinds[column])
        if kind == TEXTS:
            text = write_texts(values, column, columns, rows, cells, text)
        elif kind >= WORDS:
            odd = write_words(values, column, columns, kind, words, rows, cells, odd)
        else:
            odd = write_numbers(values, column, columns, kind, rows, cells, odd)
        cells.ends[column, ODD_END] = odd
        cells.ends[column, TEXT_END] = text


@kernel
def gather_values(values: FieldTexts, numbers: Int64s, offsets: Int32s, target: UInt8s) -> None:
    """Copies the bytes of the fields `numbers` to `target`, one after the other, and writes their offsets."""
    offsets[0] = 0
    for i in range(len(numbers)):
        offsets[i + 1] = copy_value(values, numbers[i], target, np.int64(offsets[i]))
