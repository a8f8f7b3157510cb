"""Copy window (SPEC A19-A23): the rows of its input, evicted by retention; `hotspare.table.relation` has the semantics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hotspare.model.project import IndexType
from hotspare.model.resolved import ResolvedWindow
from hotspare.rows.chunk import Chunk, Timeline
from hotspare.table.pages import Page
from hotspare.table.strings import StringTable
from hotspare.windows.copy.declaration import CopyWindow
from hotspare.windows.shared.contract import Applied, Input, Operator
from hotspare.windows.shared.keyed import KeptRows


class CopyOperator(Operator):
    """Keeps the rows of its input. With the index pi_EMPTY it keeps nothing and passes everything on."""

    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input]) -> None:
        super().__init__(window, inputs)
        declared = cast(CopyWindow, window.window)
        self._kept: KeptRows | None = None
        self.leaving = self.inputs[0].changelog
        if declared.index is not IndexType.EMPTY:
            self._kept = KeptRows(window, declared.retention, self.leaving)
            self.clock, self.leaving = self._kept.clock, self._kept.leaving

    def open(self) -> Page:
        return Page(self._kept.parts() if self._kept is not None else {})

    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        (chunk,) = inputs
        return Applied(chunk) if self._kept is None else self._kept.apply(page, chunk, timeline, strings)
