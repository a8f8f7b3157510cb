"""Compute window (SPEC A24): one output event per input event. Key fields are copied by name, other fields are computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hotspare.model.resolved import ResolvedWindow
from hotspare.model.window_type import Counting
from hotspare.windows.compute.declaration import ComputeWindow
from hotspare.windows.shared.contract import OperatorInput
from hotspare.windows.shared.expressions import compile_assignments
from hotspare.windows.shared.rowwise import RowWindow
from hotspare.windows.shared.stateless import Projection


class ComputeOperator(RowWindow):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        given = inputs[0].schema
        declared = cast(ComputeWindow, window.window)
        expressions = iter(declared.outputs)
        computed = [(f, None if f.is_key else next(expressions)) for f in window.schema.fields]
        assignments = compile_assignments(window, given, computed, Counting.POSITION, declared.initialization)
        super().__init__(window, inputs, Projection(assignments, given), assignments.state)
