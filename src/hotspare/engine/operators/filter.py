"""Filter window (SPEC A26): keeps events for which the condition is true; null counts as false.

An update passes as what it is to those behind the filter: an update block if old and new values pass, an insert if only the new
ones do, a delete of the old ones if only those did. It stores nothing: the old values come with the input.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hotspare.engine.chunk import Chunk, Timeline
from hotspare.engine.elementwise import true_rows
from hotspare.engine.expressions.windows import compile_filter
from hotspare.engine.operators.assigning import failed_events, named_columns, passed_rows
from hotspare.engine.operators.contract import Applied, Operator
from hotspare.engine.pages import Page
from hotspare.engine.strings import StringTable
from hotspare.model.resolve import ResolvedWindow
from hotspare.model.types import Schema


class FilterOperator(Operator):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[Schema]) -> None:
        super().__init__(window, inputs)
        (given,) = self.inputs
        self._condition = compile_filter(window, given)

    @property
    def can_drop(self) -> bool:
        return True

    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        (given,) = inputs
        if not len(given):
            return Applied(given)
        columns = named_columns(given, self.schema, self._condition.fields, strings)
        values, failures = self._condition.evaluate(columns, len(given))
        passes = np.zeros(len(given), np.bool_)
        passes[true_rows(values)] = True
        return Applied(passed_rows(given, passes), failed_events(failures, given, self.schema, strings))
