"""Elementwise work on Arrow arrays in which single rows may fail: the result for a row never depends on its neighbours (law
Cut)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.base.errors import HotspareError

Rows: TypeAlias = npt.NDArray[np.int64]
"""Row numbers, ascending."""
_Result = TypeVar("_Result")
_MICROS = pa.scalar(1_000_000, pa.int64())
_NO_ROWS: Rows = np.empty(0, np.int64)
_BLOCK = 4096


def true_rows(mask: pa.Array) -> Rows:
    """Returns the rows at which a boolean array is true; null counts as false."""
    rows: Rows = pc.indices_nonzero(mask).to_numpy().astype(np.int64)
    return rows


def true_mask(mask: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns a boolean array as a numpy mask; null counts as false."""
    known = mask.fill_null(False) if mask.null_count else mask  # noqa: FBT003
    found: npt.NDArray[np.bool_] = known.to_numpy(zero_copy_only=False)
    return found


def valid_mask(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns whether each value of an array with a validity bitmap is not null."""
    begin, count = array.offset, len(array)
    bits = np.frombuffer(array.buffers()[0], np.uint8)[begin // 8 : (begin + count + 7) // 8]
    found: npt.NDArray[np.bool_] = np.unpackbits(bits, bitorder="little").view(np.bool_)
    return found[begin % 8 : begin % 8 + count]


def chosen(array: pa.Array, rows: Rows) -> pa.Array:
    """Returns the values of `array` at `rows`, which are ascending; without a copy if `rows` are consecutive."""
    if not len(rows):
        return array.slice(0, 0)
    begin, end = int(rows[0]), int(rows[-1]) + 1
    return array.slice(begin, end - begin) if end - begin == len(rows) else array.take(pa.array(rows))


def either(count: int, *parts: Rows) -> Rows:
    """Returns the union of `parts`, ascending; all row numbers are below `count`."""
    mask = np.zeros(count, np.bool_)
    for rows in parts:
        mask[rows] = True
    return np.flatnonzero(mask)


def with_nulls(array: pa.Array, rows: Rows) -> pa.Array:
    """Returns `array` with null at `rows`, without the content there, so that long texts of refused rows take no memory."""
    if len(rows) == 0:
        return array
    keep = np.ones(len(array), np.bool_)
    keep[rows] = False
    if pa.types.is_nested(array.type) or pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        return array.take(pa.array(np.arange(len(array)), mask=~keep))
    return pc.if_else(pa.array(keep), array, pa.scalar(None, array.type))


def cut_texts(array: pa.Array, bytes_max: int) -> pa.Array:
    """Returns strings cut to at most `bytes_max` bytes of UTF-8, at the end of a character. Arrays of other types are unchanged,
    and all arrays if `bytes_max` is 0."""
    if not bytes_max or not pa.types.is_string(array.type):
        return array
    is_long = true_mask(pc.greater(pc.binary_length(array), bytes_max))
    if not is_long.any():
        return array
    long = array.filter(pa.array(is_long)).to_pylist()
    kept = pa.array([text.encode()[:bytes_max].decode(errors="ignore") for text in long], pa.string())
    return pc.replace_with_mask(array, pa.array(is_long), kept)


def shared(values: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    """Returns an Arrow array of `type_` that shares the memory of `values`, contiguous numbers as wide as `type_`. The caller must
    not change them."""
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])


def columns_of(batch: pa.RecordBatch) -> list[pa.Array]:
    """Returns the columns of a batch. Arrow's own list of them takes twice as long."""
    whole = batch.to_struct_array()
    return [whole.field(i) for i in range(batch.num_columns)]


def buffer_bytes(data: pa.Array | pa.RecordBatch) -> int:
    """Returns the size of the buffers of an array or a batch, each counted once. Sooner known than `nbytes`, and smaller only if
    arrays share a buffer, as nulls do."""
    size: int = data.get_total_buffer_size()
    return size


def null_array(count: int, type_: pa.DataType) -> pa.Array:
    """Returns `count` nulls of type `type_`; all buffers share one array of zeros, which is never written."""
    return _of_zeros(count, type_, pa.py_buffer(np.zeros(_VALUE_BYTES_MAX * (count + 1), np.uint8)))


_VALUE_BYTES_MAX = 16
"""Bytes of a decimal, the widest type of a field. `null_array` allocates one value more, because n texts have n + 1 offsets."""


def _of_zeros(count: int, type_: pa.DataType, zeros: pa.Buffer) -> pa.Array:
    if pa.types.is_struct(type_):
        children = [_of_zeros(count, field.type, zeros) for field in type_]
        return pa.Array.from_buffers(type_, count, [zeros], count, children=children)
    if pa.types.is_list(type_):
        return pa.Array.from_buffers(type_, count, [zeros, zeros], count, children=[_of_zeros(0, type_.value_type, zeros)])
    return pa.Array.from_buffers(type_, count, [zeros] * type_.num_buffers, count)


def whole_seconds(stamps: Any) -> Any:
    """Returns stamps (us) rounded down to dates (s). Arrow's own rounding overflows int64 near its limits."""
    micros = pc.cast(stamps, pa.int64())
    seconds = pc.divide(micros, _MICROS)
    below = pc.cast(pc.less(pc.subtract(micros, pc.multiply(seconds, _MICROS)), 0), pa.int64())
    return pc.cast(pc.subtract(seconds, below), pa.timestamp("s"))


class RowsResult(NamedTuple, Generic[_Result]):
    """The result of an attempt for the rows from `begin` on, or the `error` that the single row `begin` raises."""

    begin: int
    result: _Result | None
    error: Exception | None = None


def is_row_error(error: Exception) -> bool:
    """Whether single rows may cause the error, so that other rows may succeed: False for MemoryError, OSError and HotspareError."""
    return not isinstance(error, MemoryError | OSError | HotspareError)


def halved(
    attempt: Callable[[int, int], _Result], count: int, is_tried_again: Callable[[Exception], bool] = is_row_error
) -> Iterator[RowsResult[_Result]]:
    """Yields `attempt(begin, end)` over the rows from 0 to `count`, in order. If an attempt raises, retries with each half of its
    rows; yields the error of a single row that fails. Raises errors for which `is_tried_again` is False. A batch without errors
    costs one call."""
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
    """Returns the result, of type `type_`, of an elementwise Arrow function over `arrays`, null in rows for which it raises
    ArrowInvalid; and those rows."""

    def attempt(begin: int, end: int) -> Any:
        return kernel(*(a.slice(begin, end - begin) for a in arrays))

    parts = list(halved(attempt, len(arrays[0]), lambda error: isinstance(error, pa.ArrowInvalid)))
    pieces = [pa.nulls(1, type_) if part.error else part.result for part in parts]
    return pa.concat_arrays([pa.nulls(0, type_), *pieces]), np.array([part.begin for part in parts if part.error], np.int64)


def cast_blocks(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Returns `array` cast to `target`. Raises ArrowInvalid if a value does not fit. Works block by block, because Arrow creates an
    error for each invalid text of a block."""
    blocks = [array.slice(at, _BLOCK) for at in range(0, max(1, len(array)), _BLOCK)]
    return pa.concat_arrays([block.cast(target) for block in blocks])


def converted(texts: pa.Array, target: pa.DataType, fits: str) -> tuple[pa.Array, Rows]:
    """Returns the values of `texts` as `target`, and the rows whose text is not such a value (null there). After a first failure,
    only texts that match the pattern `fits` are cast: it should match valid texts and hardly any others."""
    try:
        return cast_blocks(texts, target), _NO_ROWS
    except pa.ArrowInvalid:
        outside = true_rows(pc.invert(pc.match_substring_regex(texts, fits)))
    values, unfit = attempt_rows(lambda a: a.cast(target), [with_nulls(texts, outside)], target)
    return values, either(len(texts), outside, unfit)


def filled(values: pa.Array, rows: Rows, found: tuple[pa.Array, Rows]) -> tuple[pa.Array, Rows]:
    """Returns `values` with the values of `found` at `rows`, and the rows that stay bad. `found`: a value for each of `rows`, and
    the indexes in `rows` of those without a valid value."""
    mask = np.zeros(len(values), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(values, pa.array(mask), found[0]), rows[found[1]]
