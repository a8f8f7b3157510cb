"""Copy window (SPEC A19-A23): the rows of its input, forgotten by retention; `hotspare.engine.state.relation` has the semantics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hotspare.engine.operators.contract import Applied, Input, Operator
from hotspare.engine.operators.keyed import apply_relation, clock_of, kept_by, relation_of
from hotspare.engine.rows.chunk import Chunk, Timeline
from hotspare.engine.state.pages import Page
from hotspare.engine.state.relation import Relation
from hotspare.engine.state.strings import StringTable
from hotspare.model.project import IndexType
from hotspare.model.resolve import ResolvedWindow
from hotspare.model.windows.copy import CopyWindow


class CopyOperator(Operator):
    """With index pi_EMPTY it keeps nothing and passes everything, as it is."""

    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input]) -> None:
        super().__init__(window, inputs)
        declared = cast(CopyWindow, window.window)
        self._retention = declared.retention
        self._keeps = declared.index is not IndexType.EMPTY
        self._given = self.inputs[0].changelog
        self.leaving = self._given
        if self._keeps:
            self.clock = clock_of(self._retention)
            self.leaving = kept_by(self._given, self._retention)

    def open(self) -> Page:
        return Page({"rows": relation_of(self.schema, self._retention, self._given)} if self._keeps else {})

    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        (chunk,) = inputs
        if not self._keeps:
            return Applied(chunk)
        return apply_relation(cast(Relation, page.parts["rows"]), chunk, timeline, self.schema, self._retention, strings)
