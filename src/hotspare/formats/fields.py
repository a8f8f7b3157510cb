"""Typed columns of the fields that a text format found (`formats.loops`); texts that are not of simple forms are left to the
caller."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.formats import loops
from hotspare.rows.chunk import UInt8s
from hotspare.rows.elementwise import Rows

_NO_ROWS: Rows = np.empty(0, np.int64)
_NO_WORDS = np.empty(0, np.uint64)
_Array = TypeVar("_Array", bound=npt.NDArray[np.generic])


def fixed(array: _Array) -> _Array:
    """Makes the array read-only, and returns it: kernels are compiled for one kind of each argument."""
    array.flags.writeable = False
    return array


class FieldColumns:
    """The values of rows by column, as far as their texts are of simple forms.

    `values`: the fields of `rows` rows, at least one, row by row; `kinds`: the kind of each column (`loops.TEXTS` and others);
    `text_bytes`: a limit on the bytes of all columns of texts; `words`: keys (`loops.word_key`) and numbers in turn.
    """

    def __init__(
        self, values: loops.FieldTexts, rows: int, kinds: UInt8s, text_bytes: int, words: npt.NDArray[np.uint64] = _NO_WORDS
    ) -> None:
        columns = len(kinds)
        memory, validity = np.empty(rows * columns, np.int64), np.full(columns * ((rows + 7) // 8), 0xFF, np.uint8)
        texts, ends = np.empty(text_bytes, np.uint8), np.empty((columns, loops.ENDS_WIDTH), np.int64)
        views = memory, memory.view(np.float64), memory.view(np.int32), memory.view(np.uint8)
        cells = loops.Cells(*views, validity, texts, np.empty(rows * columns, np.int32), ends)
        loops.read_cells(values, fixed(kinds), fixed(words), rows, cells)
        self._values, self._rows, self._cells, self.kinds = values, rows, cells, kinds
        self._ends: list[list[int]] = ends.tolist()
        self._memory, self._validity, self._texts = pa.py_buffer(memory), pa.py_buffer(validity), pa.py_buffer(texts)

    def array(self, column: int, type_: pa.DataType) -> pa.Array:
        """Returns a column of texts or numbers as an array of `type_`, which is as wide as the kind of the column."""
        rows, nulls, stride = self._rows, self._ends[column][loops.NULLS], (self._rows + 7) // 8
        buffers = [
            self._validity.slice(column * stride, stride) if nulls else None,
            self._memory.slice(8 * rows * column, 8 * rows),
        ]
        if self.kinds[column] == loops.TEXTS:
            begin, end = self._between(column, loops.TEXT_END)
            buffers.append(self._texts.slice(begin, end - begin))
        return pa.Array.from_buffers(type_, rows, buffers, nulls)

    def words(self, column: int) -> UInt8s:
        """Returns the numbers of a column of words, 0 for those that are not of a simple form; the caller may change them."""
        first = 8 * self._rows * column
        return self._cells.small[first : first + self._rows]

    def odd(self, column: int) -> Rows:
        """Returns the rows whose text in this column is not of a simple form."""
        begin, end = self._between(column, loops.ODD_END)
        return self._cells.odd[begin:end].astype(np.int64) if end > begin else _NO_ROWS

    def odd_texts(self, column: int, rows: Rows) -> pa.Array:
        """Returns the texts of these rows in this column as strings."""
        numbers = rows * len(self.kinds) + column
        sizes = self._values.size[numbers]
        offsets, texts = np.empty(len(rows) + 1, np.int32), np.empty(np.maximum(sizes, 0).sum(), np.uint8)
        loops.gather_values(self._values, numbers, offsets, texts)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(texts)]
        if (sizes < 0).any():
            buffers[0] = pa.py_buffer(np.packbits(sizes >= 0, bitorder="little"))
        return pa.Array.from_buffers(pa.string(), len(rows), buffers)

    def _between(self, column: int, which: int) -> tuple[int, int]:
        return self._ends[column - 1][which] if column else 0, self._ends[column][which]
