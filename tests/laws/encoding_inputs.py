"""Inputs for the law Twin of the kernels that write rows as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hotspare.formats.encoding.loops import (
    QUOTABLE,
    SHORTEST,
    SIX_DECIMALS,
    TEXT,
    VALUE_BYTES_MAX,
    WHOLE,
    WORD,
    CsvColumns,
)

_DOUBLES = (0.0, -0.0, 5e-7, -1e-9, 0.00012, 1.5, -2.25, 1 / 3, 999_999_999.999_999, 1e9, -1e300, np.inf, np.nan)
_WHOLE = (0, 7, -10, 99, 100, -(2**63), 2**63 - 1, 10**18)
_TEXTS = ("", "a", "a,b", '"', "\\", " a", "a\t", "b\nc", "\r", "é")
_WORDS = ("I", "UB")


def columns() -> Iterator[CsvColumns]:
    """Yields columns of every kind with as many rows as there are doubles, without nulls and with some."""
    count = len(_DOUBLES)
    numbers = np.empty((4, count), np.int64)
    numbers[0], numbers[1], numbers[2] = np.resize(_WHOLE, count), np.array(_DOUBLES).view(np.int64), np.arange(count) % len(_WORDS)
    numbers[3] = numbers[1, ::-1]
    texts = [text.encode() for text in np.resize(_TEXTS, count).tolist()]
    ends = np.cumsum([0, *map(len, texts)])
    data, words = (np.frombuffer(joined, np.uint8) for joined in (b"".join(texts), "".join(_WORDS).encode()))
    kinds = np.array([WORD, WHOLE, SIX_DECIMALS, SHORTEST, TEXT, QUOTABLE])
    at, word_ends = np.array([2, 0, 1, 3, 0, 1]), np.cumsum([0, *map(len, _WORDS)])
    some = np.random.default_rng(5).random((len(kinds), count)) < 0.7
    for valid in (np.ones((0, count), np.bool_), some):
        yield CsvColumns(kinds, at, valid, numbers, np.array([ends, ends]), data, word_ends, words)


def doubtful_doubles() -> Iterator[tuple[Any, ...]]:
    for each in columns():
        yield each, len(_DOUBLES), np.zeros(2 * len(_DOUBLES))


def write_csv_rows() -> Iterator[tuple[Any, ...]]:
    count, texts = len(_DOUBLES), [f"{number:.3e}" for number in range(2 * len(_DOUBLES))]
    doubtful_ends, doubtful = np.cumsum([0, *map(len, texts)]), np.frombuffer("".join(texts).encode(), np.uint8)
    for each in columns():
        size = sum(VALUE_BYTES_MAX) * count + 4 * len(each.data) + len(doubtful) + 2 * count
        for blank_before in (-1, 1):
            yield each, blank_before, doubtful_ends, doubtful, np.zeros(size, np.uint8), np.zeros(count + 1, np.int64)
