"""Decoded rows in the one order in which they are stepped.

Events of a topic stand in an array of their own, and what is told of bad rows in another, so that a row costs the same however many
topics there are: at the doors, a batch has a column per topic, as long as the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.rows.batch import HEAD_COLUMNS, RowKind
from hotspare.rows.chunk import Int64s

FIXED = tuple(name for name, _ in HEAD_COLUMNS)
"""Columns that every row has."""

Fixed: TypeAlias = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class MergedRows:
    """fixed   columns FIXED of `batch.decoded_schema`
    place   int64[rows]: where the event of a row stands in the array of its topic, or what is told of a bad row in `bad`
    events  by topic the events as structs, also such as no row is left of
    bad     of `batch.BAD_TYPE`
    """

    fixed: Fixed
    place: Int64s
    events: Mapping[int, pa.StructArray]
    bad: pa.StructArray

    @property
    def num_rows(self) -> int:
        return len(self.place)

    @property
    def nbytes(self) -> int:
        arrays = [self.place, *self.fixed.values(), self.bad, *self.events.values()]
        return sum(int(array.nbytes) for array in arrays)

    def column(self, name: str) -> npt.NDArray[Any]:
        """One of FIXED."""
        return self.fixed[name]

    def events_of(self, topic: int, rows: Int64s) -> pa.StructArray:
        """The events of `rows`, which are of that topic."""
        return _taken(self.events[topic], self.place[rows])

    def bad_of(self, rows: Int64s) -> pa.StructArray:
        """What is told of `rows`, which are bad."""
        return _taken(self.bad, self.place[rows])

    def slice(self, begin: int, count: int | None = None) -> MergedRows:
        """Rows from `begin` on, sharing the arrays."""
        if begin == 0 and (count is None or count >= self.num_rows):
            return self
        rows = slice(begin, None if count is None else begin + count)
        return replace(self, fixed={name: column[rows] for name, column in self.fixed.items()}, place=self.place[rows])

    def with_bad(self, row: int, told: pa.StructArray) -> MergedRows:
        """With a bad row, of which that is told, in place of a row."""
        kind, place = self.fixed["kind"].copy(), self.place.copy()
        kind[row], place[row] = RowKind.BAD, len(self.bad)
        return replace(self, fixed={**self.fixed, "kind": kind}, place=place, bad=pa.concat_arrays([self.bad, told]))


def _taken(array: pa.StructArray, at: Int64s) -> pa.StructArray:
    """Without a copy where the places follow each other."""
    begin, count = int(at[0]), len(at)
    is_run = int(at[-1]) - begin == count - 1 and (count < 3 or bool((np.diff(at) == 1).all()))
    return array.slice(begin, count) if is_run else array.take(pa.array(at))
