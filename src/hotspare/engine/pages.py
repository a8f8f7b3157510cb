"""Pages: what windows remember, as flat buffers.

A page is made of named parts (counters, a ring, a keyed relation). Each part knows three things: how to be shared with a snapshot
without stopping the engine, how to be written so that the bits do not depend on how the input was cut, and how to be read back.
Capacity, hash tables, free lists and string codes are derived: they are in no snapshot and never show in an output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hotspare.engine.chunk import Bools, Int64s
from hotspare.errors import SnapshotDamaged


@dataclass(frozen=True, slots=True)
class Column:
    """One flat buffer of a part. `codes`: which columns of a two-dimensional int64 array hold codes of the string table."""

    array: npt.NDArray[Any]
    codes: tuple[int, ...] = ()


Columns = Mapping[str, Column]


class Part(Protocol):
    """A piece of a page. Whoever mutates one takes care of its own copy-on-write."""

    def freeze(self) -> Part:
        """A twin with today's content, cheaply: buffers are shared until this part is next written to."""

    def columns(self) -> Columns:
        """The content, canonical: equal histories give equal arrays however they were cut into batches."""

    def load(self, columns: Columns) -> None:
        """Take over what `columns` returned; SnapshotDamaged where that cannot be."""

    def mark(self, used: Bools) -> None:
        """Set `used[code]` for every string code held."""

    def recode(self, codes: Int64s) -> None:
        """Replace every string code c by `codes[c]`."""


class Counters:
    """A few int64 numbers. `values` may be written in place; copy-on-write is not worth it for so little."""

    def __init__(self, count: int) -> None:
        self.values: Int64s = np.zeros(count, np.int64)

    def freeze(self) -> Counters:
        twin = Counters(len(self.values))
        twin.values[:] = self.values
        return twin

    def columns(self) -> Columns:
        return {"values": Column(self.values)}

    def load(self, columns: Columns) -> None:
        self.values[:] = expect(columns, "values", np.dtype(np.int64), self.values.shape).array

    def mark(self, used: Bools) -> None:
        pass

    def recode(self, codes: Int64s) -> None:
        pass


@dataclass(slots=True)
class Page:
    """The state of one window, or of a slice of it: parts by name. A stateless window has a page without parts."""

    parts: dict[str, Part] = field(default_factory=dict)

    def freeze(self) -> Page:
        return Page({name: part.freeze() for name, part in self.parts.items()})


def expect(columns: Columns, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Column:
    """The column of that name, type and shape (-1 is any length); SnapshotDamaged otherwise."""
    column = columns.get(name)
    if column is None:
        raise SnapshotDamaged(f"a page lacks its buffer {name}")
    array = column.array
    fits = array.ndim == len(shape) and all(want in (-1, have) for want, have in zip(shape, array.shape, strict=True))
    if array.dtype != dtype or not fits:
        raise SnapshotDamaged(
            f"buffer {name} of a page has another form",
            detail=f"found {array.dtype} {array.shape}, expected {dtype} {shape}",
        )
    return column
