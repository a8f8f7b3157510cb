"""Rows of a file as columns: a file of millions of plain rows never becomes a Python object per row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s: TypeAlias = npt.NDArray[np.int64]
_FIRST_ROWS = 100
_FIRST_OF_TEXT = np.array([chr(byte).isalnum() and byte < 128 for byte in range(256)])
"""bool[256]: whether a row that begins with this byte is never blank."""


class Row(NamedTuple):
    """A row of a file. `text` has no line end; `end` is the offset in the file of the byte after the line end; `line` is the number
    of the line on which the row begins, 1 for the cutter's first line."""

    text: bytes
    end: int
    line: int


_ROW_OF = partial(tuple.__new__, Row)
"""Makes a row of a tuple of its three values, faster than a call of `Row`."""


class FileRows:
    """Adjacent rows of a file. `texts`: a binary array without nulls; `ends`, `lines`: int64[n], rising."""

    def __init__(self, texts: pa.Array, ends: Int64s, lines: Int64s) -> None:
        self.texts, self.ends, self.lines = texts, ends, lines

    @classmethod
    def from_rows(cls, rows: Sequence[Row]) -> FileRows:
        texts = pa.array([row.text for row in rows], pa.binary())
        return cls(texts, np.array([row.end for row in rows], np.int64), np.array([row.line for row in rows], np.int64))

    @classmethod
    def concat_rows(cls, parts: Iterable[FileRows]) -> FileRows:
        found = [part for part in parts if len(part)]
        if len(found) == 1:
            return found[0]
        texts = pa.concat_arrays([pa.array([], pa.binary()), *(part.texts for part in found)])
        none = np.empty(0, np.int64)
        ends = np.concatenate([none, *(part.ends for part in found)])
        return cls(texts, ends, np.concatenate([none, *(part.lines for part in found)]))

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[Row]:
        return map(_ROW_OF, zip(self.texts.to_pylist(), self.ends.tolist(), self.lines.tolist(), strict=True))

    def slice_rows(self, begin: int, end: int) -> FileRows:
        """Returns the rows from `begin` to before `end`, sharing the columns."""
        return FileRows(self.texts.slice(begin, max(0, end - begin)), self.ends[begin:end], self.lines[begin:end])

    def first_texts(self) -> list[bytes]:
        """Returns the texts of at most `_FIRST_ROWS` first rows."""
        found: list[bytes] = self.texts.slice(0, _FIRST_ROWS).to_pylist()
        return found

    def filter_rows(self, mask: npt.NDArray[np.bool_]) -> FileRows:
        if mask.all():
            return self
        return FileRows(self.texts.filter(pa.array(mask)), self.ends[mask], self.lines[mask])

    @property
    def text_bytes(self) -> int:
        """The total size of all texts."""
        bounds = text_bounds(self.texts)
        return int(bounds[-1] - bounds[0])

    @property
    def starts_with_alphanumeric(self) -> npt.NDArray[np.bool_]:
        """Whether each row begins with a letter or digit of ASCII, so that it is not blank."""
        bounds = text_bounds(self.texts)
        first, is_some = bounds[:-1], bounds[1:] > bounds[:-1]
        data = np.frombuffer(self.texts.buffers()[2] or b"", np.uint8)
        found = np.zeros(len(self), np.bool_)
        found[is_some] = _FIRST_OF_TEXT[data[first[is_some]]]
        return found


def text_bounds(texts: pa.Array) -> npt.NDArray[np.int32]:
    """Returns int32[n + 1]: the begin of each text of a binary array in its data, and the end of the last one."""
    buffer = texts.buffers()[1]
    if buffer is None or not len(texts):
        return np.zeros(1, np.int32)
    return np.frombuffer(buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]
