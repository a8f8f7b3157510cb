"""A condition or assignments with variables that the window keeps: row by row, where `windows.shared.stateless` goes by columns
(SPEC A24).

A delete is not computed and changes no variable: it leaves with what was put out for its row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from hotspare.expressions.compiled import STATE_FIELD, CompiledExpression
from hotspare.expressions.single_values import Stepwise
from hotspare.rows.chunk import UInt8s, all_true
from hotspare.rows.elementwise import cut_texts
from hotspare.rows.refusals import Refusals
from hotspare.windows.shared.stateless import Evaluation, Projection, Selection, Work, deletes


@dataclass(frozen=True)
class InOrder(Work):
    """What `work` says, with `variables`, which are read and set."""

    work: Work
    variables: dict[str, Any]

    @property
    def fields(self) -> tuple[str, ...]:
        return self.work.fields

    @property
    def picks(self) -> tuple[int, ...]:
        return self.work.picks

    @cached_property
    def _expressions(self) -> tuple[tuple[int, CompiledExpression], ...]:
        """With the place of the field that each computes, -1 for a condition."""
        if isinstance(self.work, Selection):
            return ((-1, self.work.condition),)
        assert isinstance(self.work, Projection)
        return self.work.computed

    def evaluate(self, columns: Mapping[str, pa.Array], opcode: UInt8s) -> Evaluation:
        rows = np.flatnonzero(~deletes(opcode))
        fields = {name: column for name, column in columns.items() if name != STATE_FIELD}
        stepwise = Stepwise(tuple(each.tree for _, each in self._expressions))
        values, failed = stepwise.run(fields, rows.tolist(), self.variables)
        place = np.full(len(opcode), -1, np.int64)
        place[rows] = np.arange(len(rows))
        passes, picked = all_true(len(opcode)), pa.array(place, mask=place < 0)
        limit = self.work.assignments.text_bytes_max if isinstance(self.work, Projection) else 0
        computed = {i: cut_texts(value.take(picked), limit) for (i, _), value in zip(self._expressions, values, strict=True)}
        passes[[row for row, _, _ in failed]] = False
        if -1 in computed:
            passes &= computed.pop(-1).fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003
        causes = [(str(why.reason), self._expressions[number][1].said(why.message)) for _, number, why in failed]
        at = np.array([row for row, _, _ in failed], np.int64)
        return Evaluation(passes, computed, Refusals.of(at, np.arange(len(at)), causes))
