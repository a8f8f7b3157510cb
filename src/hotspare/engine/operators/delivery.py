"""The stage between a window and its stream: updates as one row, deletes that retention made left out (SPEC I14, I15).

It is what a bus connector asks for, and done before outputs are numbered, so sequences and digests are those of what is published,
and a failover goes on in it as in any stream. Windows behind get everything.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hotspare.engine.operators.contract import Applied, Input, Operator
from hotspare.engine.rows.chunk import Chunk, Timeline
from hotspare.engine.state.pages import Page
from hotspare.engine.state.strings import StringTable
from hotspare.model.delivery import WHOLE, delivery_of
from hotspare.model.events import Flag, Opcode, RetentionDeletes, UpdateBlocks
from hotspare.model.resolve import ResolvedWindow


class DeliveryOperator(Operator):
    """Its one input is what leaves the window; `schema` is the same."""

    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input]) -> None:
        super().__init__(window, inputs)
        self._delivery = delivery_of(window.window)
        self.leaving = self.inputs[0].changelog  # nothing reads it: no window follows

    @property
    def does_nothing(self) -> bool:
        return self._delivery == WHOLE

    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        (chunk,) = inputs
        kept, opcode = np.ones(len(chunk), np.bool_), chunk.opcode
        blocks = np.flatnonzero(opcode == Opcode.UPDATE_BLOCK)
        if self._delivery.retention_deletes is RetentionDeletes.DROPPED:
            kept = (opcode != Opcode.DELETE) | ((chunk.flags & np.uint8(Flag.RETENTION)) == 0)
            kept[blocks + 1] = True
        if self._delivery.updates is UpdateBlocks.COLLAPSED:
            opcode = opcode.copy()
            opcode[blocks] = Opcode.UPDATE
            kept[blocks + 1] = False
        return Applied(Chunk(chunk.rank, opcode, chunk.flags, chunk.lanes, chunk.valid).taken(np.flatnonzero(kept)))
