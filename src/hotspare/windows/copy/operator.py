"""Copy window (SPEC A19-A23): keeps the rows of its input, and evicts them by retention; see `hotspare.table.relation`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hotspare.model.project import IndexType
from hotspare.model.resolved import ResolvedWindow
from hotspare.rows.chunk import Chunk, Timeline
from hotspare.table.pages import Page
from hotspare.table.strings import StringTable
from hotspare.windows.copy.declaration import CopyWindow
from hotspare.windows.shared.contract import Operator, OperatorInput, OperatorResult
from hotspare.windows.shared.keyed import IndexedRows


class CopyOperator(Operator):
    """Keeps the rows of its input, subject to retention. With the index pi_EMPTY it keeps no rows and passes every event."""

    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        super().__init__(window, inputs)
        declared = cast(CopyWindow, window.window)
        self._kept: IndexedRows | None = None
        self.output_changelog = self.inputs[0].changelog
        if declared.index is not IndexType.EMPTY:
            self._kept = IndexedRows(window, declared.retention, self.output_changelog)
            self.clock, self.output_changelog = self._kept.clock, self._kept.output_changelog

    def open(self) -> Page:
        return Page(self._kept.new_row_parts() if self._kept is not None else {})

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        (chunk,) = inputs
        return OperatorResult(chunk) if self._kept is None else self._kept.resolve_rows(page, chunk, timeline, strings)
