"""The stage between a window and its stream: updates as one row, without retention deletes (SPEC I14, I15).

A bus connector requests it. It runs before outputs are numbered, so sequences and digests are those of what is published, and a
failover continues it like any stream. Windows downstream get everything.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hotspare.model.delivery import WHOLE, Delivery, delivery_of
from hotspare.model.events import RetentionDeletes, UpdateBlocks
from hotspare.model.resolved import ResolvedWindow
from hotspare.rows.chunk import Chunk, Timeline
from hotspare.stages.loops.delivery import deliver
from hotspare.table.pages import Page
from hotspare.table.strings import StringTable
from hotspare.windows.shared.contract import Applied, Input, Operator


class DeliveryOperator(Operator):
    """The operator of this stage. Its one input is the output of the window; `schema` is the same."""

    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input]) -> None:
        super().__init__(window, inputs)
        self._delivery = delivery_of(window.window)
        self.leaving = self.inputs[0].changelog  # nothing reads it: no window follows

    @property
    def does_nothing(self) -> bool:
        return self._delivery == WHOLE

    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        (chunk,) = inputs
        return Applied(delivered(chunk, self._delivery))


def delivered(chunk: Chunk, delivery: Delivery) -> Chunk:
    """Returns those rows of a window's output that its stream holds."""
    rows, width = chunk.lanes.shape
    rank, opcode, flags = np.empty(rows, np.int64), np.empty(rows, np.uint8), np.empty(rows, np.uint8)
    lanes, valid = np.empty((rows, width), np.int64), np.empty((rows, width), np.bool_)
    collapses = np.int64(delivery.updates is UpdateBlocks.COLLAPSED)
    drops = np.int64(delivery.retention_deletes is RetentionDeletes.DROPPED)
    given = chunk.rank, chunk.opcode, chunk.flags, chunk.lanes, chunk.valid
    count = deliver(*given, collapses, drops, rank, opcode, flags, lanes, valid)
    return Chunk(rank[:count], opcode[:count], flags[:count], lanes[:count], valid[:count])
