"""Elementwise work on Arrow arrays in which single rows may fail: what a row becomes never depends on its neighbours (law Cut)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Rows: TypeAlias = npt.NDArray[np.int64]
"""Row numbers, rising."""


def true_rows(mask: pa.Array) -> Rows:
    """Rows at which a boolean array is true; null is not."""
    rows: Rows = pc.indices_nonzero(mask).to_numpy().astype(np.int64)
    return rows


def with_nulls(array: pa.Array, rows: Rows) -> pa.Array:
    """`array` with null at `rows`."""
    if len(rows) == 0:
        return array
    keep = np.ones(len(array), np.bool_)
    keep[rows] = False
    return pc.if_else(pa.array(keep), array, pa.scalar(None, array.type))


def attempt_rows(kernel: Callable[..., Any], arrays: Sequence[pa.Array], type_: pa.DataType) -> tuple[pa.Array, Rows]:
    """Result of an elementwise kernel, null in the rows for which it raises ArrowInvalid; and those rows.

    Bad rows are found by halving: a batch without them costs one call.
    """
    pieces: list[pa.Array] = []
    bad: list[int] = []
    waiting = [(0, len(arrays[0]))]
    while waiting:
        begin, end = waiting.pop()
        try:
            pieces.append(kernel(*(a.slice(begin, end - begin) for a in arrays)))
        except pa.ArrowInvalid:
            if end - begin == 1:
                bad.append(begin)
                pieces.append(pa.nulls(1, type_))
            else:
                middle = (begin + end) // 2
                waiting += [(middle, end), (begin, middle)]
    return pa.concat_arrays(pieces), np.array(bad, np.int64)
