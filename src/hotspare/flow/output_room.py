"""Room for outputs that come a few at a time: to make the columns of a batch costs far more than to fill them.

Columns are made once, for many rows, and filled row by row. Each batch of outputs is a slice of them: of rows that are written once
and never again, so whoever holds it sees no change.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from hotspare.rows.elementwise import shared
from hotspare.table.lanes import OutputForm
from hotspare.table.loops.outputs import OutputColumns

FEW_ROWS_MAX = 64
"""More outputs at once have columns of their own."""
_ROWS = 256


class OutputRoom:
    """Of one stream. A copy of it has no rows: two streams never write to the same."""

    def __init__(self) -> None:
        self.columns = OutputColumns.empty(0, 0)
        self._batch: pa.RecordBatch | None = None
        self._used = _ROWS

    def __reduce__(self) -> tuple[Callable[..., OutputRoom], tuple[object, ...]]:
        return OutputRoom, ()

    def reserve(self, count: int, form: OutputForm) -> int:
        """The row from which so many can be written. `form` is always the same, and `is_plain`."""
        if self._used + count > _ROWS:
            self.columns, self._used = OutputColumns.empty(len(form.schema), _ROWS), 0
            self._batch = form.batch(_arrays(self.columns, form))
        return self._used

    def taken(self, count: int) -> pa.RecordBatch:
        """The rows that were written."""
        assert self._batch is not None
        self._used += count
        return self._batch.slice(self._used - count, count)


def _arrays(columns: OutputColumns, form: OutputForm) -> list[pa.Array]:
    """In the order of `batch.output_schema`."""
    sequence, offset, *fields = columns.longs
    topic, partition, index, ordinal = columns.ints
    opcode, flags = columns.bytes
    ours = [sequence, topic, partition, offset, index, ordinal, columns.digests, opcode, flags]
    return [shared(values, field.type) for values, field in zip([*ours, *fields], form.arrow, strict=True)]
