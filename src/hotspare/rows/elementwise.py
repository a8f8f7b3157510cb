"""Elementwise work on Arrow arrays in which single rows may fail: what a row becomes never depends on its neighbours (law Cut)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.base.errors import HotspareError

Rows: TypeAlias = npt.NDArray[np.int64]
"""Row numbers, rising."""
_Result = TypeVar("_Result")
_MICROS = pa.scalar(1_000_000, pa.int64())
_NO_ROWS: Rows = np.empty(0, np.int64)
_BLOCK = 4096


def true_rows(mask: pa.Array) -> Rows:
    """Rows at which a boolean array is true; null is not."""
    rows: Rows = pc.indices_nonzero(mask).to_numpy().astype(np.int64)
    return rows


def true_mask(mask: pa.Array) -> npt.NDArray[np.bool_]:
    """Where a boolean array is true; null is not."""
    known = mask.fill_null(False) if mask.null_count else mask  # noqa: FBT003
    found: npt.NDArray[np.bool_] = known.to_numpy(zero_copy_only=False)
    return found


def chosen(array: pa.Array, rows: Rows) -> pa.Array:
    """The values of `rows`, rising; without a copy where they follow each other."""
    if not len(rows):
        return array.slice(0, 0)
    begin, end = int(rows[0]), int(rows[-1]) + 1
    return array.slice(begin, end - begin) if end - begin == len(rows) else array.take(pa.array(rows))


def either(count: int, *parts: Rows) -> Rows:
    """Of `count` rows those that are in any part, rising."""
    mask = np.zeros(count, np.bool_)
    for rows in parts:
        mask[rows] = True
    return np.flatnonzero(mask)


def with_nulls(array: pa.Array, rows: Rows) -> pa.Array:
    """`array` with null at `rows`, and nothing behind it: texts that are refused because they are long take no memory any more."""
    if len(rows) == 0:
        return array
    keep = np.ones(len(array), np.bool_)
    keep[rows] = False
    if pa.types.is_nested(array.type) or pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        return array.take(pa.array(np.arange(len(array)), mask=~keep))
    return pc.if_else(pa.array(keep), array, pa.scalar(None, array.type))


def cut_texts(array: pa.Array, bytes_max: int) -> pa.Array:
    """Strings of at most so many bytes of UTF-8, longer ones without their ends, and without a character that is cut. Other types
    are left as they are, and all where it says 0 bytes."""
    if not bytes_max or not pa.types.is_string(array.type):
        return array
    is_long = true_mask(pc.greater(pc.binary_length(array), bytes_max))
    if not is_long.any():
        return array
    long = array.filter(pa.array(is_long)).to_pylist()
    kept = pa.array([text.encode()[:bytes_max].decode(errors="ignore") for text in long], pa.string())
    return pc.replace_with_mask(array, pa.array(is_long), kept)


def shared(values: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    """Numbers that are given away, contiguous and as wide as `type_` wants them, as an Arrow array."""
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])


def nothing(count: int, type_: pa.DataType) -> pa.Array:
    """Nulls, all buffers of which are the same zeros: memory that nobody has touched."""
    return _of_zeros(count, type_, pa.py_buffer(np.zeros(_VALUE_BYTES_MAX * (count + 1), np.uint8)))


_VALUE_BYTES_MAX = 16
"""What one value of a decimal takes, the widest type that a field has; the offsets of texts have one more than there are texts."""


def _of_zeros(count: int, type_: pa.DataType, zeros: pa.Buffer) -> pa.Array:
    if pa.types.is_struct(type_):
        children = [_of_zeros(count, field.type, zeros) for field in type_]
        return pa.Array.from_buffers(type_, count, [zeros], count, children=children)
    if pa.types.is_list(type_):
        return pa.Array.from_buffers(type_, count, [zeros, zeros], count, children=[_of_zeros(0, type_.value_type, zeros)])
    return pa.Array.from_buffers(type_, count, [zeros] * type_.num_buffers, count)


def whole_seconds(stamps: Any) -> Any:
    """Stamps (us) rounded down to dates (s). Arrow's own rounding leaves int64 near its end."""
    micros = pc.cast(stamps, pa.int64())
    seconds = pc.divide(micros, _MICROS)
    below = pc.cast(pc.less(pc.subtract(micros, pc.multiply(seconds, _MICROS)), 0), pa.int64())
    return pc.cast(pc.subtract(seconds, below), pa.timestamp("s"))


class RowsResult(NamedTuple, Generic[_Result]):
    """What came of the rows from `begin` on: a result of them all, or the error that the one row meets alone."""

    begin: int
    result: _Result | None
    error: Exception | None = None


def comes_of_rows(error: Exception) -> bool:
    """Whether other rows may not meet it: want of memory, input and output, and what hotspare raises on purpose are no row's."""
    return not isinstance(error, MemoryError | OSError | HotspareError)


def halved(
    attempt: Callable[[int, int], _Result], count: int, is_tried_again: Callable[[Exception], bool] = comes_of_rows
) -> Iterator[RowsResult[_Result]]:
    """`attempt(begin, end)` over the rows from 0 to `count`, in order; where it raises, the rows are halved. A batch in which
    nothing is wrong costs one call."""
    waiting = [(0, count)] if count else []
    while waiting:
        begin, end = waiting.pop()
        try:
            yield RowsResult(begin, attempt(begin, end))
        except Exception as error:
            if not is_tried_again(error):
                raise
            if end - begin == 1:
                yield RowsResult(begin, None, error)
            else:
                middle = (begin + end) // 2
                waiting += [(middle, end), (begin, middle)]


def attempt_rows(kernel: Callable[..., Any], arrays: Sequence[pa.Array], type_: pa.DataType) -> tuple[pa.Array, Rows]:
    """Result of an elementwise kernel, null in the rows for which it raises ArrowInvalid; and those rows."""

    def attempt(begin: int, end: int) -> Any:
        return kernel(*(a.slice(begin, end - begin) for a in arrays))

    parts = list(halved(attempt, len(arrays[0]), lambda error: isinstance(error, pa.ArrowInvalid)))
    pieces = [pa.nulls(1, type_) if part.error else part.result for part in parts]
    return pa.concat_arrays([pa.nulls(0, type_), *pieces]), np.array([part.begin for part in parts if part.error], np.int64)


def cast_blocks(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Casts block by block: of a block Arrow makes an error for each text that is wrong."""
    blocks = [array.slice(at, _BLOCK) for at in range(0, max(1, len(array)), _BLOCK)]
    return pa.concat_arrays([block.cast(target) for block in blocks])


def converted(texts: pa.Array, target: pa.DataType, fits: str) -> tuple[pa.Array, Rows]:
    """Values of texts of the right shape, and the rows that do not fit: nearly all of them are not matched by `fits`."""
    try:
        return cast_blocks(texts, target), _NO_ROWS
    except pa.ArrowInvalid:
        outside = true_rows(pc.invert(pc.match_substring_regex(texts, fits)))
    values, unfit = attempt_rows(lambda a: a.cast(target), [with_nulls(texts, outside)], target)
    return values, either(len(texts), outside, unfit)


def filled(values: pa.Array, rows: Rows, found: tuple[pa.Array, Rows]) -> tuple[pa.Array, Rows]:
    """`values` with those found for `rows`; the rows that stay bad."""
    mask = np.zeros(len(values), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(values, pa.array(mask), found[0]), rows[found[1]]
