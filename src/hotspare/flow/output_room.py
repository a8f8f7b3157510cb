"""Preallocated columns for small batches of outputs: creating a batch's columns costs far more than filling them.

Columns are created once, for many rows, and filled row by row. Each batch of outputs is a slice of them. Each row is written only
once, so a batch that a caller retains never changes.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from hotspare.rows.elementwise import shared
from hotspare.table.lanes import OutputForm
from hotspare.table.loops.outputs import OutputColumns

SMALL_OUTPUT_ROWS_MAX = 512
"""Batches with more rows do not use the preallocated columns."""
_ROWS = 2048


class OutputRoom:
    """The preallocated columns of one stream. A copy starts without rows, so two streams never write to the same columns."""

    def __init__(self) -> None:
        self.columns = OutputColumns.empty(0, 0)
        self._batch: pa.RecordBatch | None = None
        self._used = _ROWS

    def __reduce__(self) -> tuple[Callable[..., OutputRoom], tuple[object, ...]]:
        return OutputRoom, ()

    def reserve(self, count: int, form: OutputForm) -> int:
        """Returns the row from which `count` rows can be written. `form` is always the same, and plain (`OutputForm.is_plain`)."""
        if self._used + count > _ROWS:
            self.columns, self._used = OutputColumns.empty(len(form.schema), _ROWS), 0
            self._batch = form.batch(_arrays(self.columns, form))
        return self._used

    def last_written(self, count: int) -> pa.RecordBatch:
        """Returns a batch of the `count` rows just written from the index that `reserve` returned, and marks them as used."""
        assert self._batch is not None
        self._used += count
        return self._batch.slice(self._used - count, count)


def _arrays(columns: OutputColumns, form: OutputForm) -> list[pa.Array]:
    """Returns the columns as Arrow arrays, in the order of `rows.batch.output_schema`."""
    sequence, offset, *fields = columns.longs
    topic, partition, index, ordinal = columns.ints
    opcode, flags = columns.bytes
    ours = [sequence, topic, partition, offset, index, ordinal, columns.digests, opcode, flags]
    return [shared(values, field.type) for values, field in zip([*ours, *fields], form.arrow, strict=True)]
