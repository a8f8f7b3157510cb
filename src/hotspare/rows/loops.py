"""Numbers of simple forms, by a loop over the bytes of their texts, as `rows.values.parse` gives them, bit for bit. Other texts,
valid or not, are left to `parse`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hotspare.rows.chunk import UInt8s
from hotspare.rows.compile import Whole, kernel

NOT_SIMPLE = -(1 << 63)
_PLUS, _MINUS, _POINT, _ZERO, _EXPONENT, _CASE = *b"+-.0e", 0x20
_DIGITS_MAX = 18
"""The most digits of a number of a simple form: no integer of so many overflows."""
_EXACT_MAX, _TOO_LARGE = 1 << 53, 1000
_POWERS = np.array([float(10**power) for power in range(23)])
"""The powers of ten that are doubles. A whole number up to `_EXACT_MAX` multiplied or divided by one of them is rounded once, so
correctly."""
_POWER_MAX = 64
"""The greatest power of ten that `rounded_product` takes; the least is its negative."""
_TOP, _HALF_BITS, _LOW_HALF, _ONE = np.uint64(63), np.uint64(32), np.uint64(0xFFFFFFFF), np.uint64(1)
_REST_BITS, _REST, _TIE = np.uint64(11), np.uint64(0x7FF), np.uint64(0x400)
_NEARLY_CARRIED = np.uint64(2**64 - 2)


def _powers_of_five() -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Returns for each power of five, rounded down to 128 significant bits: its upper and its lower 64 bits; and the power of two
    by which `rounded_product` scales."""
    halves, scales = [], []
    for power in range(-_POWER_MAX, _POWER_MAX + 1):
        five = 5 ** abs(power)
        scale = 128 - five.bit_length() if power >= 0 else 127 + five.bit_length()
        bits = (five << 128 >> five.bit_length()) if power >= 0 else (1 << scale) // five
        halves.append((bits >> 64, bits & 2**64 - 1))
        scales.append(128 + 11 + power - scale)
    return np.array(halves, np.uint64), np.array(scales, np.int64)


_FIVES, _SCALES = _powers_of_five()


@kernel
def simple_whole(data: UInt8s, begin: Whole, end: Whole) -> Whole:
    """Returns the integer with the text `data[begin:end]`, at most 18 digits with or without a minus sign; else NOT_SIMPLE."""
    i, stop = np.uint64(begin), np.uint64(end)
    is_negative = i < stop and data[i] == _MINUS
    if is_negative:
        i += np.uint64(1)
    if i == stop or stop - i > np.uint64(_DIGITS_MAX):
        return NOT_SIMPLE
    value: Whole = 0
    while i < stop:
        digit = np.int64(data[i]) - _ZERO
        if digit < 0 or digit > 9:
            return NOT_SIMPLE
        value = 10 * value + digit
        i += np.uint64(1)
    return -value if is_negative else value


@kernel
def simple_double(data: UInt8s, begin: Whole, end: Whole) -> float:
    """Returns the double with the text `data[begin:end]`: at most 18 digits with or without a minus sign, a point and an exponent;
    NaN for other texts, and if the double is not certain."""
    i, stop = np.uint64(begin), np.uint64(end)
    is_negative = i < stop and data[i] == _MINUS
    if is_negative:
        i += np.uint64(1)
    value: Whole = 0
    significant: Whole = 0
    digits, fraction, step = 0, 0, 0
    while i < stop:
        digit = np.int64(data[i]) - _ZERO
        if 0 <= digit <= 9:
            significant += np.int64(value > 0 or digit > 0)
            if significant > _DIGITS_MAX:
                return np.nan  # `value` would overflow
            value = 10 * value + digit
            digits += 1
            fraction += step
        elif data[i] == _POINT and step == 0:
            step = 1
        else:
            break
        i += np.uint64(1)
    power = simple_exponent(data, np.int64(i), end) - fraction
    if digits == 0 or power < -_POWER_MAX or power > _POWER_MAX:
        return np.nan
    number = np.float64(value)
    if value > _EXACT_MAX or power < -22 or power > 22:
        number = rounded_product(value, power)
    else:
        number = np.float64(number / _POWERS[-power] if power < 0 else number * _POWERS[power])
    return -number if is_negative else number


@kernel
def upper_product(a: np.uint64, b: np.uint64) -> np.uint64:
    """Returns the upper 64 bits of the product."""
    low, other = a & _LOW_HALF, b & _LOW_HALF
    middle = (a >> _HALF_BITS) * other + (low * other >> _HALF_BITS)
    rest = low * (b >> _HALF_BITS) + (middle & _LOW_HALF)
    return np.uint64((a >> _HALF_BITS) * (b >> _HALF_BITS) + (middle >> _HALF_BITS) + (rest >> _HALF_BITS))


@kernel
def rounded_product(value: Whole, power: Whole) -> np.float64:
    """Returns `value`, from 0 on, times a power of ten up to _POWER_MAX, rounded to a double. Returns NaN if the product, of which
    128 bits are computed, is so close to the middle of two doubles that they do not decide."""
    if value == 0:
        return np.float64(0.0)
    factor, shift = np.uint64(value), 0
    while factor >> _TOP == np.uint64(0):
        factor <<= _ONE
        shift += 1
    upper, lower = _FIVES[power + _POWER_MAX, 0], factor * _FIVES[power + _POWER_MAX, 0]
    upper = upper_product(factor, upper)
    more = upper_product(factor, _FIVES[power + _POWER_MAX, 1])
    lower = lower + more
    if lower < more:
        upper += _ONE
    if upper >> _TOP == np.uint64(0):
        upper = upper << _ONE | lower >> _TOP
        lower <<= _ONE
        shift += 1
    rest, mantissa = upper & _REST, upper >> _REST_BITS
    if (rest == _TIE and lower == np.uint64(0)) or (rest == _TIE - _ONE and lower >= _NEARLY_CARRIED):
        return np.float64(np.nan)
    if rest >= _TIE:
        mantissa += _ONE
    return np.float64(np.ldexp(np.float64(mantissa), _SCALES[power + _POWER_MAX] - shift))


@kernel
def simple_exponent(data: UInt8s, begin: Whole, end: Whole) -> Whole:
    """Returns the exponent with the text `data[begin:end]`, an `e` and at most two digits; 0 if the text is empty, _TOO_LARGE for
    other texts."""
    if begin == end:
        return 0
    place = begin + 1
    is_negative = place < end and data[place] == _MINUS
    if is_negative or (place < end and data[place] == _PLUS):
        place += 1
    if (data[begin] | _CASE) != _EXPONENT or place == end or end - place > 2:
        return _TOO_LARGE
    value: Whole = 0
    for i in range(place, end):
        digit = np.int64(data[i]) - _ZERO
        if digit < 0 or digit > 9:
            return _TOO_LARGE
        value = 10 * value + digit
    return -value if is_negative else value
