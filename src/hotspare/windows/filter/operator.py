"""Filter window (SPEC A26): keeps events for which the condition is true; null counts as false.

An update passes as what it is to those behind the filter: an update block if old and new values pass, an insert if only the new
ones do, a delete of the old ones if only those did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hotspare.expressions.compiled import compile_condition
from hotspare.model.code import Script
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.window_type import Counting
from hotspare.rows.chunk import Chunk, Timeline
from hotspare.table.pages import Page
from hotspare.table.strings import StringTable
from hotspare.windows.filter.code import CodeFilter
from hotspare.windows.filter.declaration import FilterWindow
from hotspare.windows.shared.contract import Applied, Input, Operator
from hotspare.windows.shared.expressions import prelude_for
from hotspare.windows.shared.rowwise import RowWindow
from hotspare.windows.shared.stateless import Admission, Selection, Work


class FilterOperator(Operator):
    """By an expression, or by code."""

    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input]) -> None:
        super().__init__(window, inputs)
        condition, given = cast(FilterWindow, window.window).condition, inputs[0].schema
        self._by: Operator
        if isinstance(condition, Script):
            self._by = CodeFilter(window, inputs, condition)
        else:
            initialization = cast(FilterWindow, window.window).initialization
            prelude = prelude_for(window.id, initialization, [condition])
            compiled = compile_condition(condition, given, str(window.id), prelude, Counting.POSITION)
            self._by = RowWindow(window, inputs, Selection(compiled, given), prelude.state)
        self.leaving, self.clock = self._by.leaving, self._by.clock

    @property
    def in_head(self) -> Work | Admission | None:
        return self._by.in_head

    def open(self) -> Page:
        return self._by.open()

    def divide(self, page: Page, shard: int) -> None:
        self._by.divide(page, shard)

    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        return self._by.apply(page, inputs, timeline, strings)
