"""Numbers of simple forms, by a loop over the bytes of their texts, as `rows.values.parse` gives them, bit for bit. Other texts,
valid or not, are left to `parse`."""

from __future__ import annotations

import numpy as np

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
    """Returns the double with the text `data[begin:end]`: digits with or without a minus sign, a point and an exponent, if one
    multiplication or division gives it exactly rounded; else NaN."""
    i, stop = np.uint64(begin), np.uint64(end)
    is_negative = i < stop and data[i] == _MINUS
    if is_negative:
        i += np.uint64(1)
    value: Whole = 0
    digits, fraction, step = 0, 0, 0
    while i < stop:
        digit = np.int64(data[i]) - _ZERO
        if 0 <= digit <= 9:
            value = 10 * value + digit
            digits += 1
            fraction += step
        elif data[i] == _POINT and step == 0:
            step = 1
        else:
            break
        if digits > _DIGITS_MAX:
            return np.nan
        i += np.uint64(1)
    power = simple_exponent(data, np.int64(i), end) - fraction
    if digits == 0 or value > _EXACT_MAX or power < -22 or power > 22:
        return np.nan
    number = np.float64(value)
    number = np.float64(number / _POWERS[-power] if power < 0 else number * _POWERS[power])
    return -number if is_negative else number


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
