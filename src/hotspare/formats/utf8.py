"""Finds bytes that are not UTF-8, in many texts at once. The result for a text does not depend on the other texts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


def is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _by_first_byte(otherwise: int, ranges: dict[tuple[int, int], int]) -> Bytes:
    table = np.full(256, otherwise, np.uint8)
    for (first, last), value in ranges.items():
        table[first : last + 1] = value
    return table


_SIZE = _by_first_byte(0, {(0xC2, 0xDF): 2, (0xE0, 0xEF): 3, (0xF0, 0xF4): 4})
"""The byte length of a multi-byte character, by its first byte; 0 for a byte that begins no such character."""
_SECOND_MIN = _by_first_byte(0x80, {(0xE0, 0xE0): 0xA0, (0xF0, 0xF0): 0x90})
_SECOND_MAX = _by_first_byte(0xBF, {(0xED, 0xED): 0x9F, (0xF4, 0xF4): 0x8F})
"""The least and the greatest valid second byte, by the first byte: these exclude overlong forms, halves of surrogate pairs, and
characters above U+10FFFF."""


def not_utf8(data: Bytes) -> npt.NDArray[np.int64]:
    """Returns the rising places of bytes that are not part of a valid character; each invalid text has at least one. `data`: texts
    with a line feed after each."""
    high = np.flatnonzero(data >= 0x80)
    begin = data[high]
    size = _SIZE[begin]
    is_whole = size > 0
    for number in (1, 2, 3):
        byte = data[np.minimum(high + number, len(data) - 1)]
        least, most = (_SECOND_MIN[begin], _SECOND_MAX[begin]) if number == 1 else (0x80, 0xBF)
        is_whole &= (size <= number) | ((byte >= least) & (byte <= most))
    follows = np.zeros(len(data), np.bool_)
    for number in (1, 2, 3):
        follows[high[is_whole & (size > number)] + number] = True
    return high[~is_whole & ~follows[high]]
