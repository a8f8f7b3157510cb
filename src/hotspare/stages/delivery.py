"""The stage between a window and its stream: updates as one row, without retention deletes (SPEC I14, I15).

A bus connector requests this stage. It runs before outputs are numbered, so sequences and digests describe the published rows, and
a failover continues the stream like any other. Windows downstream get everything.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hotspare.model.delivery import WHOLE_STREAM, Delivery, delivery_of
from hotspare.model.events import RetentionDeletes, UpdateBlocks
from hotspare.model.resolved import ResolvedWindow
from hotspare.rows.chunk import Chunk, Timeline
from hotspare.stages.loops.delivery import deliver
from hotspare.table.pages import Page
from hotspare.table.strings import StringTable
from hotspare.windows.shared.contract import Operator, OperatorInput, OperatorResult


class DeliveryOperator(Operator):
    """Applies a window's delivery options to its output. Its one input is the output of the window; `schema` is the same."""

    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        super().__init__(window, inputs)
        self._delivery = delivery_of(window.window)
        self.output_changelog = self.inputs[0].changelog  # nothing reads it: no window follows

    @property
    def is_passthrough(self) -> bool:
        return self._delivery == WHOLE_STREAM

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        (chunk,) = inputs
        return OperatorResult(delivered(chunk, self._delivery))


def delivered(chunk: Chunk, delivery: Delivery) -> Chunk:
    """Returns the rows of a window's output that its stream holds under the options `delivery`."""
    rows, width = chunk.lanes.shape
    rank, opcode, flags = np.empty(rows, np.int64), np.empty(rows, np.uint8), np.empty(rows, np.uint8)
    lanes, valid = np.empty((rows, width), np.int64), np.empty((rows, width), np.bool_)
    collapses = np.int64(delivery.updates is UpdateBlocks.COLLAPSED)
    drops = np.int64(delivery.retention_deletes is RetentionDeletes.DROPPED)
    given = chunk.rank, chunk.opcode, chunk.flags, chunk.lanes, chunk.valid
    count = deliver(*given, collapses, drops, rank, opcode, flags, lanes, valid)
    return Chunk(rank[:count], opcode[:count], flags[:count], lanes[:count], valid[:count])
