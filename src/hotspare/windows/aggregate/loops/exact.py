"""Sums without rounding: whole numbers of many limbs, in lanes of a row. Subtracting what was added restores the sum exactly.

A sum occupies the columns from `at` on: LOW, and then `limbs` words of 64 bits, the lowest first, in two's complement. Its value is

    (sum of word[i] * 2**(64 * i)) * 2**(64 * LOW - bias)

where `bias` is 0 for whole numbers, DOUBLE_BIAS for doubles, so that the smallest one is 1, and twice that for their products.

Proof that no bit is lost. An addend covers adjacent words; it is only added if all of them lie between the lowest word and the last
but one. So it is smaller than 2**(64 * (limbs - 1)), and each addition changes the last word by 1 at most, by a carry or borrow.
From 2**62 it takes 2**62 additions to overflow, more than any engine can run. If an addend lies elsewhere, the words are moved,
provided that the words that are dropped are empty: zeros at the low end, copies of the sign at the high end. Else the sum needs
more words, and is not changed. A sum with DOUBLE_LIMBS, or PRODUCT_LIMBS, covers all doubles, or products of two, and never needs
more.

A sum is rounded once, to the nearest double, ties to even: so it depends on its current addends alone, not on its history.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hotspare.rows.chunk import Int64s
from hotspare.rows.compile import Whole, called, kernel

UInt64s = npt.NDArray[np.uint64]

DOUBLE_BIAS = 1074
"""The smallest positive double is 2**-1074; sums of doubles count in units of it."""
DOUBLE_LIMBS, PRODUCT_LIMBS = 34, 67
"""Words that suffice for any sum of doubles, and of products of two doubles: 2098 and 4196 bits, and one word more."""
NUMERATOR_LIMBS = 2 * PRODUCT_LIMBS + 4

POWERS = np.ldexp(1.0, np.arange(-1074, 1024))
"""All finite powers of two that are doubles, ascending: entry i is 2**(i - 1074)."""

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_HALF = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_TOP = np.uint64(1 << 63)
_MANTISSA = np.uint64((1 << 52) - 1)
_HIDDEN = np.uint64(1 << 52)
_EXPONENT = np.uint64(0x7FF)
_TWO = np.uint64(2)
_LOW_BITS = np.uint64((1 << 12) - 1)
_TWO_33, _TWO_53 = np.float64(2.0**33), np.float64(2.0**53)
POWER_MAX = 900
"""The largest exponent allowed in `likely_rounded`: a number below 2**107, times 2**900, is certainly a finite double."""


class Scratch(NamedTuple):
    """Temporary numbers. `first` and `second` have PRODUCT_LIMBS + 1 words, `square` twice as many. `numerator` int64[1,
    NUMERATOR_LIMBS + 1] is itself a sum.
    """

    first: UInt64s
    second: UInt64s
    square: UInt64s
    numerator: Int64s


@kernel
def mul_high(a: np.uint64, b: np.uint64) -> np.uint64:
    """Returns the upper 64 bits of the product a * b, which has 128 bits."""
    a0, a1, b0, b1 = a & _LOW_HALF, a >> _HALF, b & _LOW_HALF, b >> _HALF
    middle = a1 * b0 + ((a0 * b0) >> _HALF)
    other = a0 * b1 + (middle & _LOW_HALF)
    return a1 * b1 + (middle >> _HALF) + (other >> _HALF)


@kernel
def bit_length(word: np.uint64) -> Whole:
    """Returns the number of bits of a word that is not 0."""
    length = np.int64(1)
    for step in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(step) != _ZERO:
            word = word >> np.uint64(step)
            length += step
    return length


@kernel
def is_filled_with(lanes: Int64s, row: Whole, begin: Whole, end: Whole, word: Whole) -> bool:
    """Whether the columns of `row` from `begin` to before `end` all hold `word`."""
    same = True
    for j in range(begin, end):
        same &= lanes[row, j] == word
    return same


@kernel
def move_words(lanes: Int64s, row: Whole, at: Whole, limbs: Whole, first: Whole, last: Whole) -> bool:
    """Moves the words of a sum so that they cover the words numbered `first` to `last`, and one word above them. Returns False if
    this would drop bits. The value of the sum never changes.
    """
    low, begin, end = lanes[row, at], at + 1, at + 1 + limbs
    if is_filled_with(lanes, row, begin, end, 0):
        lanes[row, at] = first - 1 if first > 0 and last - first + 1 <= limbs - 2 else first
        return True
    sign = np.int64(lanes[row, end - 1] >> 63)
    if first < low:
        by = low - first
        if by >= limbs or not is_filled_with(lanes, row, end - by, end, sign) or lanes[row, end - by - 1] >> 62 != sign:
            return False
        for j in range(end - 1, begin - 1, -1):
            lanes[row, j] = lanes[row, j - by] if j - by >= begin else 0
        lanes[row, at] = first
    else:
        by = last - (low + limbs - 2)
        if by >= limbs or not is_filled_with(lanes, row, begin, begin + by, 0):
            return False
        for j in range(begin, end):
            lanes[row, j] = lanes[row, j + by] if j + by < end else sign
        lanes[row, at] = low + by
    return bool(lanes[row, at] <= first and last <= lanes[row, at] + limbs - 2)


@called
def add_words(
    lanes: Int64s, row: Whole, at: Whole, limbs: Whole, position: Whole, low: np.uint64, high: np.uint64, sign: Whole
) -> bool:
    """Adds (high * 2**64 + low) * 2**position to a sum, multiplied by `sign`, 1 or -1. Returns False if the sum needs more words;
    its value is then unchanged.
    """
    shift = np.uint64(position & 63)
    first = position >> 6
    a, b, c = low, high, _ZERO
    if shift != _ZERO:
        back = np.uint64(64) - shift
        a, b, c = low << shift, (low >> back) | (high << shift), high >> back
    last = first + (2 if c != _ZERO else 1 if b != _ZERO else 0)
    if (lanes[row, at] > first or last > lanes[row, at] + limbs - 2) and not move_words(lanes, row, at, limbs, first, last):
        return False
    j, end, carry = at + 1 + first - lanes[row, at], at + 1 + limbs, _ZERO
    while j < end and (a | b | c | carry) != _ZERO:
        word = np.uint64(lanes[row, j])
        if sign > 0:
            total = word + a
            made = total + carry
            carry = (_ONE if total < word else _ZERO) | (_ONE if made < total else _ZERO)
        else:
            total = word - a
            made = total - carry
            carry = (_ONE if total > word else _ZERO) | (_ONE if made > total else _ZERO)
        lanes[row, j] = np.int64(made)
        a, b, c = b, c, _ZERO
        j += 1
    return True


@kernel
def add_within(lanes: Int64s, row: Whole, at: Whole, limbs: Whole, bits: np.uint64, sign: Whole) -> bool:
    """Adds a double with these bits, multiplied by `sign`, if the words of the sum cover it as they are; the result is that of
    `add_words`. Returns False if the double is not finite, or words have to be moved; then nothing is changed.
    """
    exponent = (bits >> np.uint64(52)) & _EXPONENT
    position = np.int64(exponent) - 1 if exponent > _ZERO else np.int64(0)
    first = (position >> 6) - lanes[row, at]
    if exponent == _EXPONENT or first < 0 or first > limbs - 3:
        return False
    mantissa, shift = mantissa_of(bits), np.uint64(position & 63)
    rest = _ONE if (bits >= _TOP) != (sign < 0) else _ZERO
    others = _ZERO - rest
    low, high = (mantissa << shift) ^ others, ((mantissa >> _ONE) >> (np.uint64(63) - shift)) ^ others
    words, j = np.uint64(at + 1), np.uint64(first)
    while j < np.uint64(limbs):
        word = np.uint64(lanes[row, words + j])
        made = word + low
        total = made + rest
        rest = (_ONE if made < word else _ZERO) | (_ONE if total < made else _ZERO)
        lanes[row, words + j] = np.int64(total)
        low, high = high, others
        j += _ONE
        if low == others and ((others ^ (_ZERO - rest)) == _ZERO):
            break
    return True


@kernel
def mantissa_of(bits: np.uint64) -> np.uint64:
    """Returns the mantissa of a finite double without its sign: the double is mantissa * 2**(position_of(bits) - DOUBLE_BIAS)."""
    fraction = bits & _MANTISSA
    return fraction if (bits >> np.uint64(52)) & _EXPONENT == _ZERO else fraction | _HIDDEN


@kernel
def position_of(bits: np.uint64) -> Whole:
    exponent = np.int64((bits >> np.uint64(52)) & _EXPONENT)
    return exponent - 1 if exponent > 0 else np.int64(0)


@kernel
def magnitude(lanes: Int64s, row: Whole, begin: Whole, lowest: Whole, j: Whole, sign: Whole) -> np.uint64:
    """Returns word `j` of the magnitude of the sum whose words are in `lanes[row]` from column `begin` on. `lowest`: the number of
    its first word that is not 0; `sign`: -1 if the sum is negative, else 0.
    """
    word = np.uint64(lanes[row, begin + j])
    if sign == 0:
        return word
    if j < lowest:
        return _ZERO
    return ~word + _ONE if j == lowest else ~word


@kernel
def lowest_word(lanes: Int64s, row: Whole, begin: Whole, limbs: Whole) -> Whole:
    """Returns the number of the first word of a sum that is not 0; `limbs` if all are 0."""
    j = np.int64(0)
    while j < limbs and lanes[row, begin + j] == 0:
        j += 1
    return j


@kernel
def highest_word(lanes: Int64s, row: Whole, begin: Whole, limbs: Whole, lowest: Whole, sign: Whole) -> Whole:
    """Returns the number of the last word of the magnitude that is not 0. The sum must not be 0."""
    j = np.int64(limbs - 1)
    while magnitude(lanes, row, begin, lowest, j, sign) == _ZERO:
        j -= 1
    return j


@kernel
def likely_rounded(lanes: Int64s, row: Whole, at: Whole, limbs: Whole, bias: Whole) -> np.float64:
    """Returns the result of `rounded`, or NaN if this shortcut cannot decide it. The highest word that is not only sign, the word
    below it, and whether any lower bit is set, form two doubles. The lower double gets an odd last bit if lower bits are set, so
    that one addition rounds correctly.
    """
    words, top = np.uint64(at + 1), np.int64(limbs - 1)
    sign = np.int64(lanes[row, words + np.uint64(top)] >> 63)
    while top > 0 and lanes[row, words + np.uint64(top)] == sign:
        top -= 1
    behind = False
    for j in range(top - 1):
        behind |= lanes[row, words + np.uint64(j)] != 0
    word = np.uint64(lanes[row, words + np.uint64(top)])
    below = np.uint64(lanes[row, words + np.uint64(top - 1)]) if top > 0 else _ZERO
    if sign < 0:
        word, below = ~word, (~below if behind else ~below + _ONE) if top > 0 else _ZERO
        word += _ONE if below == _ZERO and not behind else _ZERO
    power = 64 * (lanes[row, at] + top) - bias
    if word < _HIDDEN << _ONE:
        power -= 53
        lower = ((below >> np.uint64(12)) << _ONE) | (_ONE if behind or below & _LOW_BITS != _ZERO else _ZERO)
        value = np.float64(np.int64(word)) * _TWO_53 + np.float64(np.int64(lower))
    else:
        power -= 1
        lower = ((word & _LOW_HALF) << _ONE) | (_ONE if behind or below != _ZERO else _ZERO)
        value = np.float64(np.int64(word >> _HALF)) * _TWO_33 + np.float64(np.int64(lower))
    if word < _TWO or power < -1074 or power > POWER_MAX:
        return np.float64(np.nan)
    value = value * POWERS[power + 1074]
    return np.float64(-value if sign < 0 else value)


@called
def rounded(lanes: Int64s, row: Whole, at: Whole, limbs: Whole, bias: Whole) -> np.float64:
    """Returns the double nearest to a sum, ties to even; an infinity if the sum is beyond all doubles."""
    begin = at + 1
    lowest = lowest_word(lanes, row, begin, limbs)
    if lowest == limbs:
        return np.float64(0.0)
    sign = np.int64(lanes[row, begin + limbs - 1] >> 63)
    top = highest_word(lanes, row, begin, limbs, lowest, sign)
    word = magnitude(lanes, row, begin, lowest, top, sign)
    below = magnitude(lanes, row, begin, lowest, top - 1, sign) if top > 0 else _ZERO
    length = bit_length(word)
    exponent = 64 * (lanes[row, at] + top) + length - 1 - bias
    if exponent > 1023:
        return np.float64(-np.inf) if sign < 0 else np.float64(np.inf)
    if length < 64:
        shift = np.uint64(64 - length)
        word, below = (word << shift) | (below >> (np.uint64(64) - shift)), below << shift
    inexact = below != _ZERO or lowest < top - 1
    kept = min(np.int64(53), exponent + 1075)
    if kept < 0:
        return np.float64(-0.0) if sign < 0 else np.float64(0.0)
    mantissa = word >> np.uint64(64 - kept) if kept > 0 else _ZERO
    rest = word << np.uint64(kept)
    if rest > _TOP or (rest == _TOP and (inexact or mantissa & _ONE == _ONE)):
        mantissa += _ONE
    value = np.float64(np.float64(mantissa) * POWERS[exponent - kept + 1 + 1074])
    return -value if sign < 0 else value


@called
def copy_words(lanes: Int64s, row: Whole, at: Whole, limbs: Whole, words: UInt64s) -> tuple[Whole, Whole]:
    """Writes the magnitude of a sum that is not 0 to `words`, from its lowest to its highest word that is not 0. Returns the number
    of words written, and the position of the lowest one, in words as LOW is.
    """
    begin = at + 1
    lowest = lowest_word(lanes, row, begin, limbs)
    sign = np.int64(lanes[row, begin + limbs - 1] >> 63)
    top = highest_word(lanes, row, begin, limbs, lowest, sign)
    for j in range(lowest, top + 1):
        words[j - lowest] = magnitude(lanes, row, begin, lowest, j, sign)
    return top - lowest + 1, lanes[row, at] + lowest


@called
def multiply(x: UInt64s, x_length: Whole, y: UInt64s, y_length: Whole, out: UInt64s) -> None:
    """Writes the product of two numbers of `x_length` and `y_length` words to the first `x_length + y_length` words of `out`."""
    for i in range(x_length + y_length):
        out[i] = _ZERO
    for i in range(x_length):
        carry = _ZERO
        for j in range(y_length):
            low = x[i] * y[j]
            total = out[i + j] + low
            made = total + carry
            carry = mul_high(x[i], y[j]) + (_ONE if total < low else _ZERO) + (_ONE if made < total else _ZERO)
            out[i + j] = made
        out[i + y_length] = carry


@called
def add_number(out: Int64s, words: UInt64s, length: Whole, at: Whole, sign: Whole) -> None:
    """Adds a number of `length` words, multiplied by `sign`, to the sum `out[0]`, from its word `at` on."""
    for j in range(length):
        add_words(out, np.int64(0), np.int64(0), np.int64(out.shape[1] - 1), 64 * (out[0, 0] + at + j), words[j], _ZERO, sign)


@called
def spread(lanes: Int64s, row: Whole, sums: Whole, limbs: Whole, squares: Whole, wide: Whole, count: Whole, s: Scratch) -> None:
    """Writes count * (sum of squares) - (sum)**2 to `s.numerator`, with the bias of the squares. That is `count` times the sum of
    squared differences from the mean. `sums` and `squares` are the first columns of both sums, with `limbs` and `wide` words.
    """
    out = s.numerator
    out[0, :] = 0
    if is_filled_with(lanes, row, squares + 1, squares + 1 + wide, 0):
        return
    length, place = copy_words(lanes, row, squares, wide, s.second)
    s.first[0] = np.uint64(count)
    multiply(s.second, length, s.first, np.int64(1), s.square)
    length += 1
    if is_filled_with(lanes, row, sums + 1, sums + 1 + limbs, 0):
        out[0, 0] = place
        add_number(out, s.square, length, np.int64(0), np.int64(1))
        return
    of_sum, at = copy_words(lanes, row, sums, limbs, s.first)
    out[0, 0] = min(place, 2 * at)
    add_number(out, s.square, length, place - out[0, 0], np.int64(1))
    multiply(s.first, of_sum, s.first, of_sum, s.square)
    add_number(out, s.square, 2 * of_sum, 2 * at - out[0, 0], np.int64(-1))
