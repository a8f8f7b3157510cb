"""Compute window (SPEC A24): one event out per event in, keys by name, the other fields by expressions."""

from __future__ import annotations

from collections.abc import Sequence

from hotspare.engine.expressions.windows import compile_compute
from hotspare.engine.operators.contract import Input
from hotspare.engine.operators.rowwise import RowWindow
from hotspare.engine.stateless import Projection
from hotspare.model.resolve import ResolvedWindow


class ComputeOperator(RowWindow):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input]) -> None:
        given = inputs[0].schema
        super().__init__(window, inputs, Projection(compile_compute(window, given), given))
