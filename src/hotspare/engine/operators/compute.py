"""Compute window (SPEC A24): one event out per event in, keys by name, the other fields by expressions.

It stores nothing, whatever its index: the expressions are pure, so a delete is computed from the old values that its input carries,
and equals what was put out before.
"""

from __future__ import annotations

from collections.abc import Sequence

from hotspare.engine.chunk import Chunk, Timeline
from hotspare.engine.expressions.windows import compile_compute
from hotspare.engine.operators.assigning import Assigner
from hotspare.engine.operators.contract import Applied, Operator
from hotspare.engine.pages import Page
from hotspare.engine.strings import StringTable
from hotspare.model.resolve import ResolvedWindow
from hotspare.model.types import Schema


class ComputeOperator(Operator):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[Schema]) -> None:
        super().__init__(window, inputs)
        (given,) = self.inputs
        self._assigner = Assigner(compile_compute(window, given), given, self.schema)

    @property
    def can_drop(self) -> bool:
        return self._assigner.can_drop

    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        (given,) = inputs
        return Applied(*self._assigner.run(given, strings, {}))
