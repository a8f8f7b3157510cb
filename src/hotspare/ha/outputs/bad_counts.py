"""How many bad events an engine computed since it started, by window and reason: people see them without reading the stream.

The counts are of one process and in no snapshot: the stream of bad events itself, with its sequence, is what engines agree on.
"""

from __future__ import annotations

import pyarrow as pa

_BY = ["window", "reason"]


class BadCounts:
    """Counts rows of the stream of bad events (`flow.plan.BAD_SCHEMA`). Not thread-safe."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, outputs: pa.RecordBatch | None) -> None:
        """Counts a batch of the stream; None is an empty one."""
        if outputs is None or not outputs.num_rows:
            return
        counted = pa.Table.from_batches([outputs]).select(_BY).group_by(_BY).aggregate([([], "count_all")])
        names, counts = zip(counted["window"].to_pylist(), counted["reason"].to_pylist(), strict=True), counted["count_all"]
        for (window, reason), count in zip(names, counts.to_pylist(), strict=True):
            key = window or "", reason or ""
            self._counts[key] = self._counts.get(key, 0) + count

    def largest(self, count_max: int) -> list[tuple[str, str, int]]:
        """Returns at most `count_max` rows (window, reason, count), the greatest counts first."""
        rows = sorted(self._counts.items(), key=lambda each: (-each[1], each[0]))
        return [(window, reason, count) for (window, reason), count in rows[:count_max]]
