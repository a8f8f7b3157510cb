"""Conditions and assignments of numbers over small batches of rows of a chunk, row by row: Arrow's columns only pay for many rows.

Rows whose result might differ in a bit (see `number_step`), or that fail, are left to the evaluation by columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hotspare.expressions.compiled import CompiledExpression
from hotspare.expressions.single_values import KernelRequired, RowFailed, Step, Values, number_step
from hotspare.model.types import FieldType, Schema
from hotspare.rows.chunk import Bools, Chunk, all_true
from hotspare.windows.shared.stateless import Projection, RowFunction, Selection

SMALL_BATCH_ROWS_MAX = 16
"""The most rows for which evaluation row by row costs less than by columns."""
_NUMBERS = (FieldType.INT32, FieldType.INT64, FieldType.DOUBLE)
_CONDITION = -1


class _Field(NamedTuple):
    name: str
    place: int
    is_double: bool


class SmallBatches:
    """Evaluates `work` row by row over rows of the schema `given`, if `work` reads and computes only numbers of each row."""

    def __init__(self, work: RowFunction, given: Schema) -> None:
        found = _expressions_of(work)
        expressions = found or []
        names = {name for _, each in expressions for name in each.fields}
        fields = [(name, at) for name, at in given.index.items() if name in names and given.fields[at].type in _NUMBERS]
        steps = [(at, step) for at, each in expressions if (step := number_step(each.tree)) is not None]
        self._can = found is not None and len(steps) == len(expressions) and len(fields) == len(names)
        self._fields = [_Field(name, at, given.fields[at].type is FieldType.DOUBLE) for name, at in fields]
        self._steps: list[tuple[int, Step]] = steps

    def try_evaluate(self, given: Chunk, made: Chunk) -> Bools | None:
        """Writes the computed fields of each row of `given` to `made`, and returns which rows pass. Returns None if the caller has
        to evaluate by columns instead; `made` may then have some results, which the caller overwrites.
        """
        if not self._can or len(given) > SMALL_BATCH_ROWS_MAX:
            return None
        passes = all_true(len(given))
        lanes, doubles, valid = given.lanes, given.lanes.view(np.float64), given.valid
        try:
            for row in range(len(given)):
                values: Values = {}
                for name, at, is_double in self._fields:
                    values[name] = (doubles if is_double else lanes).item(row, at) if valid.item(row, at) else None
                for at, step in self._steps:
                    value = step(values)
                    if at == _CONDITION:
                        passes[row] = value is True
                    else:
                        _write(made, row, at, value)
        except (RowFailed, KernelRequired):
            return None
        return passes


def _expressions_of(work: RowFunction) -> list[tuple[int, CompiledExpression]] | None:
    """Returns the expressions, each with the place that it computes; None if `work` needs more than expressions over a row."""
    if isinstance(work, Selection):
        return [(_CONDITION, work.condition)]
    if isinstance(work, Projection) and not work.assignments.prepared:
        return list(work.computed)
    return None


def _write(made: Chunk, row: int, at: int, value: float | None) -> None:
    made.valid[row, at] = value is not None
    if isinstance(value, float):
        if value != value:
            raise KernelRequired
        made.lanes.view(np.float64)[row, at] = value
    else:
        made.lanes[row, at] = value or 0
