"""Functional window (SPEC A25): a function per output field; fields without one are taken from the input by name.

eventCounter() counts the events that came to this window, deletes not, 1, 2, 3 ...; rows that become bad events are counted too.
The count is state, so it goes on after a restore (Z8). A delete goes out with the values that were put out for its row: where a
function counts, they are kept in an index, because they could not be computed again. Without such a function nothing is kept. With
index pi_EMPTY nothing is kept either, and the count of a delete is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pyarrow as pa

from hotspare.engine.chunk import Chunk, Timeline
from hotspare.engine.expressions.checking import COUNTER_FIELD
from hotspare.engine.expressions.windows import compile_functional
from hotspare.engine.operators.assigning import Assigner, Deletes, counted
from hotspare.engine.operators.contract import Applied, Operator
from hotspare.engine.operators.keyed import refusals, relation_of
from hotspare.engine.pages import Counters, Page
from hotspare.engine.relation import Relation
from hotspare.engine.strings import StringTable
from hotspare.model.events import Opcode
from hotspare.model.project import FunctionalWindow, IndexType
from hotspare.model.resolve import ResolvedWindow
from hotspare.model.types import Schema


class FunctionalOperator(Operator):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[Schema]) -> None:
        super().__init__(window, inputs)
        (given,) = self.inputs
        assignments = compile_functional(window, given)
        self._counts = any(COUNTER_FIELD in output.fields for output in assignments.outputs)
        self._keeps = self._counts and cast(FunctionalWindow, window.window).index is not IndexType.EMPTY
        self._assigner = Assigner(assignments, given, self.schema, Deletes.STORED if self._keeps else Deletes.COMPUTED)

    @property
    def can_drop(self) -> bool:
        return self._assigner.can_drop

    def open(self) -> Page:
        page = Page()
        if self._counts:
            page.parts["counter"] = Counters(1)
        if self._keeps:
            page.parts["rows"] = relation_of(self.schema, inserts=self.inserts)
        return page

    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        (given,) = inputs
        if not len(given):
            return Applied(Chunk.empty(len(self.schema)))
        more: dict[str, pa.Array] = {}
        if self._counts:
            counter = cast(Counters, page.parts["counter"]).values
            more[COUNTER_FIELD], counter[0] = counted(int(counter[0]), given.opcode)
        chunk, bad = self._assigner.run(given, strings, more)
        if not self._keeps:
            return Applied(chunk, bad)
        relation = cast(Relation, page.parts["rows"])
        if self._assigner.can_drop:
            chunk = _with_safe_deletes(chunk)
        change = relation.change(chunk, timeline)
        bad += refusals(change, chunk, self.schema, strings)
        return Applied(change.chunk, sorted(bad, key=lambda event: event.rank))


def _with_safe_deletes(chunk: Chunk) -> Chunk:
    """A delete of a row that failed when it came is no mistake."""
    alone = chunk.opcode == Opcode.DELETE
    alone[1:] &= chunk.opcode[:-1] != Opcode.UPDATE_BLOCK
    if not alone.any():
        return chunk
    opcode = np.where(alone, np.uint8(Opcode.SAFE_DELETE), chunk.opcode)
    return Chunk(chunk.rank, opcode, chunk.flags, chunk.lanes, chunk.valid)
