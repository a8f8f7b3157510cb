"""Decoded rows in the one order in which the core applies them.

The events of each topic are in one array, and the content of bad rows is in another, so that the cost of a row does not depend on
the number of topics: a decoded batch has a column per topic, as long as the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.rows.batch import HEAD_COLUMNS, RowKind
from hotspare.rows.chunk import Int64s, Positions

FIXED = tuple(name for name, _ in HEAD_COLUMNS)
"""The columns that every row has."""

_FEW_TIMES = 4
"""If there are at most this many times as many events as rows, the caller chooses: for few rows Arrow takes long."""

Fixed: TypeAlias = Mapping[str, npt.NDArray[Any]]


@dataclass(slots=True)
class MergedRows:
    """Rows in order:

    fixed   columns FIXED of `batch.decoded_schema`
    place   int64[rows]: index of a row's event in the array of its topic, or of a bad row in `bad`
    events  events as structs, by topic; may include events without a row
    bad     content of bad rows, of `batch.BAD_TYPE`
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

    @property
    def positions(self) -> Positions:
        fixed = self.fixed
        return Positions(fixed["topic"], fixed["partition"], fixed["offset"], fixed["index"])

    def column(self, name: str) -> npt.NDArray[Any]:
        """Returns the column `name`, which is one of FIXED."""
        return self.fixed[name]

    def events_of(self, topic: int, rows: Int64s) -> tuple[list[pa.Array], Int64s | None]:
        """Returns the fields of the events of `rows`, at least one row, and all of them events of `topic`. Also returns the indexes
        of the rows in these arrays; None if the arrays have only these rows, in their order."""
        events, at = self.events[topic], self.place[rows]
        is_run = _is_run(at)
        if is_run:
            events = events.slice(at.item(0), len(at))
        fields = [events.field(i) for i in range(events.type.num_fields)]
        if is_run:
            return fields, None
        if len(events) <= _FEW_TIMES * len(at):
            return fields, at
        chosen = pa.array(at)
        return [field.take(chosen) for field in fields], None

    def bad_of(self, rows: Int64s) -> pa.StructArray:
        """Returns the content of `rows`: at least one row, and all of them bad."""
        return _taken(self.bad, self.place[rows])

    def slice(self, begin: int, count: int | None = None) -> MergedRows:
        """Returns the rows from `begin` on, at most `count`, sharing the arrays."""
        if begin == 0 and (count is None or count >= self.num_rows):
            return self
        rows = slice(begin, None if count is None else begin + count)
        return replace(self, fixed={name: column[rows] for name, column in self.fixed.items()}, place=self.place[rows])

    def with_bad(self, row: int, told: pa.StructArray) -> MergedRows:
        """Returns the rows with a bad row in place of row number `row`. `told`: the content of the bad row, an array of one."""
        kind, place = self.fixed["kind"].copy(), self.place.copy()
        kind[row], place[row] = RowKind.BAD, len(self.bad)
        kind.flags.writeable = False  # as Arrow's are: kernels are compiled for read-only arrays
        return replace(self, fixed={**self.fixed, "kind": kind}, place=place, bad=pa.concat_arrays([self.bad, told]))


def _taken(array: pa.StructArray, at: Int64s) -> pa.StructArray:
    """Returns the elements at the indexes `at`, at least one; without a copy if these are consecutive."""
    return array.slice(at.item(0), len(at)) if _is_run(at) else array.take(pa.array(at))


def _is_run(at: Int64s) -> bool:
    """Whether the numbers, at least one, are consecutive."""
    begin, count = at.item(0), len(at)
    return at.item(-1) - begin == count - 1 and (count < 3 or at.tobytes() == np.arange(begin, begin + count).tobytes())
