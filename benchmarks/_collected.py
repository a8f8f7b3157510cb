"""Collects outputs in a benchmark's own loop as an engine does: while more input is at hand."""

from __future__ import annotations

import time

import pyarrow as pa

from hotspare.ha.rules.settings import GroupSettings
from hotspare.rows.batch import NextInput

_SETTINGS = GroupSettings()


class Collected:
    """Outputs that are not published yet."""

    def __init__(self) -> None:
        self._waiting: list[pa.Table | pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._published_s = 0.0

    def due(self, made: pa.RecordBatch | None, next_input: NextInput) -> pa.Table | None:
        """Takes a batch's outputs and returns those to publish now, or None."""
        if made is not None and len(made):
            self._waiting.append(made)
            self._rows += len(made)
            self._bytes += made.nbytes
        has_waited = time.monotonic() - self._published_s >= _SETTINGS.commit_wait_ms / 1000
        is_full = self._rows >= _SETTINGS.commit_rows_max or self._bytes >= _SETTINGS.commit_bytes_max
        if not self._rows or not (next_input is NextInput.AWAITED or has_waited or is_full):
            return None
        whole = pa.Table.from_batches(self._waiting).combine_chunks()
        self._waiting, self._rows, self._bytes, self._published_s = [], 0, 0, time.monotonic()
        return whole
