"""The last stage before a stream that another project reads: a beat at each heartbeat, after all that it caused (SPEC K10).

A beat is an output without an event. It is numbered, held and committed like any other output, so the stream has it exactly once,
at the same place, whichever engine is active. A beat reports that time has advanced, even if nothing is emitted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hotspare.model.project import Beats
from hotspare.model.resolved import ResolvedWindow
from hotspare.rows.batch import BEAT
from hotspare.rows.chunk import Chunk, Timeline
from hotspare.table.pages import Page
from hotspare.table.strings import StringTable
from hotspare.windows.shared.contract import Clock, Operator, OperatorInput, OperatorResult


class BeatsOperator(Operator):
    """Adds a beat at each heartbeat, after all outputs up to it. The one input is the output for the stream, of the same schema."""

    clock = Clock.TICKS

    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        super().__init__(window, inputs)
        self._beats = window.window.beats
        self.output_changelog = self.inputs[0].changelog  # nothing reads it: no window follows

    @property
    def is_passthrough(self) -> bool:
        return self._beats is Beats.EXCLUDED

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        (chunk,), beats = inputs, timeline.heartbeat_rank
        if not len(beats):
            return OperatorResult(chunk)
        at = chunk.rank.searchsorted(beats, side="right")
        return OperatorResult(
            Chunk(
                np.insert(chunk.rank, at, beats),
                np.insert(chunk.opcode, at, np.uint8(BEAT)),
                np.insert(chunk.flags, at, np.uint8(0)),
                np.insert(chunk.lanes, at, 0, axis=0),
                np.insert(chunk.valid, at, np.False_, axis=0),
            )
        )
