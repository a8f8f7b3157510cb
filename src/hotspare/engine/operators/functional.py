"""Functional window (SPEC A25): a function per output field; fields without one are taken from the input by name.

eventCounter() counts the events that came to this window, deletes not, 1, 2, 3 ...; rows that become bad events are counted too,
but for published ones that the index refuses. The count is state, so it goes on after a restore (SPEC Z8). A delete goes out with
the count that was put out for its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import pyarrow as pa

from hotspare.engine.expressions.checking import COUNTER_FIELD
from hotspare.engine.expressions.tree import ValueType
from hotspare.engine.expressions.windows import compile_assignments
from hotspare.engine.head.stateless import Admission, Projection, Work, deletes
from hotspare.engine.operators.contract import Input
from hotspare.engine.operators.rowwise import RowWindow
from hotspare.engine.rows.chunk import Chunk, Int64s, UInt8s, is_all
from hotspare.engine.state.pages import Counters, Page, Part
from hotspare.model.resolve import ResolvedWindow
from hotspare.model.windows.contract import Counting
from hotspare.model.windows.functional import FunctionalWindow

COUNTER = "counter"
"""Part of the page: how many events came."""


class FunctionalOperator(RowWindow):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input]) -> None:
        given = inputs[0].schema
        functions = dict(cast(FunctionalWindow, window.window).functions)
        computed = [(f, functions.get(f.name)) for f in window.schema.fields]
        super().__init__(window, inputs, Projection(compile_assignments(window, given, computed, Counting.ALLOWED), given))
        self._counts = COUNTER_FIELD in self.work.fields

    @property
    def in_head(self) -> Work | Admission | None:
        return None if self._counts else super().in_head

    def own_parts(self) -> dict[str, Part]:
        return {COUNTER: Counters(1)} if self._counts else {}

    def counted(self, page: Page, chunk: Chunk) -> Mapping[str, pa.Array]:
        if not self._counts:
            return {}
        counter = cast(Counters, page.parts[COUNTER]).values
        numbers, counter[0] = _counted(int(counter[0]), chunk.opcode)
        return {COUNTER_FIELD: numbers}


def _counted(before: int, opcode: UInt8s) -> tuple[pa.Array, int]:
    """eventCounter() of each row, null for deletes, and the count after them."""
    counts = ~deletes(opcode)
    numbers: Int64s = before + np.cumsum(counts, dtype=np.int64)
    after = int(numbers[-1]) if len(numbers) else before
    if is_all(counts):
        return pa.array(numbers), after
    return pa.array(numbers, ValueType.INT64.arrow, mask=~counts), after
