"""Strings as slices of one buffer, and the numbers of rows in their messages."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.rows.chunk import Int32s
from hotspare.rows.elementwise import Rows

Bytes = npt.NDArray[np.uint8]
_NOTHING = pa.array([b""], pa.binary())


def joined(values: pa.Array) -> pa.Buffer:
    """Returns one buffer of all values, with a line feed after each; null is empty."""
    every = pa.concat_arrays([values.fill_null(_NOTHING[0]) if values.null_count else values, _NOTHING])
    every = pa.ListArray.from_arrays(pa.array(np.array([0, len(every)], np.int32)), every)
    return pc.binary_join(every, b"\n").buffers()[2]


def strings_of(data: Bytes, begin: Rows | Int32s, end: Rows | Int32s) -> pa.Array:
    """Returns the strings `data[begin[i]:end[i]]`. `begin` and `end` must rise, and the slices must not overlap. Raises
    OverflowError if `data` has 2 GiB or more."""
    count = len(begin)
    if count == 0:
        return pa.nulls(0, pa.string())
    if len(data) >= 1 << 31:
        raise OverflowError("the texts are more than an Arrow array can hold")
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2], bounds[1::2] = begin, end
    pieces = pa.Array.from_buffers(pa.string(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return pieces.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def numbered(parents: Rows) -> npt.NDArray[np.int32]:
    """Returns the index of each row within its message. `parents`: the message of each row, which never falls."""
    count = len(parents)
    new = parents[1:] != parents[:-1]
    if count == 0 or new.all():
        return np.zeros(count, np.int32)
    begins = np.flatnonzero(np.concatenate([[True], new]))
    lengths = np.diff(np.append(begins, count))
    return (np.arange(count) - np.repeat(begins, lengths)).astype(np.int32)
