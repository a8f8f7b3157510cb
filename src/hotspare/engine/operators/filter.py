"""Filter window (SPEC A26): keeps events for which the condition is true; null counts as false.

An update passes as what it is to those behind the filter: an update block if old and new values pass, an insert if only the new
ones do, a delete of the old ones if only those did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hotspare.engine.expressions.compiled import compile_condition
from hotspare.engine.head.stateless import Selection
from hotspare.engine.operators.contract import Input
from hotspare.engine.operators.rowwise import RowWindow
from hotspare.model.resolve import ResolvedWindow
from hotspare.model.windows.filter import FilterWindow


class FilterOperator(RowWindow):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input]) -> None:
        given = inputs[0].schema
        condition = compile_condition(cast(FilterWindow, window.window).condition, given, str(window.id))
        super().__init__(window, inputs, Selection(condition, given))
