"""Decoded rows in the one order in which they are stepped.

Events of a topic stand in an array of their own, so that a row costs the same however many topics there are: at the doors, a batch
has a column per topic, as long as the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from hotspare.engine.rows.batch import HEAD_COLUMNS
from hotspare.engine.rows.chunk import Int64s

FIXED = (*(name for name, _ in HEAD_COLUMNS), "bad")
"""Columns that every row has."""


@dataclass(frozen=True, slots=True)
class MergedRows:
    """fixed   columns FIXED of `batch.decoded_schema`
    place   int64[rows]: where the event of a row stands in the array of its topic
    events  by topic the events as structs, also such as no row is left of
    """

    fixed: pa.RecordBatch
    place: Int64s
    events: Mapping[int, pa.StructArray]

    @property
    def num_rows(self) -> int:
        return len(self.place)

    @property
    def nbytes(self) -> int:
        return int(self.fixed.nbytes + self.place.nbytes + sum(events.nbytes for events in self.events.values()))

    def column(self, name: str) -> pa.Array:
        """One of FIXED."""
        return self.fixed.column(name)

    def events_of(self, topic: int, rows: Int64s) -> pa.StructArray:
        """The events of `rows`, which are of that topic."""
        at, events = self.place[rows], self.events[topic]
        return events.slice(int(at[0]), len(at)) if (np.diff(at) == 1).all() else events.take(pa.array(at))

    def slice(self, begin: int, count: int | None = None) -> MergedRows:
        """Rows from `begin` on, sharing the arrays."""
        rows = slice(begin, None if count is None else begin + count)
        return MergedRows(self.fixed.slice(begin, count), self.place[rows], self.events)

    def with_row(self, row: int, columns: Mapping[str, pa.Array]) -> MergedRows:
        """With these columns of one value each in place of what the row has."""
        there = self.fixed.slice(row, 1)
        new = pa.RecordBatch.from_arrays([columns.get(name, there.column(name)) for name in FIXED], schema=there.schema)
        return replace(self, fixed=pa.concat_batches([self.fixed.slice(0, row), new, self.fixed.slice(row + 1)]))
