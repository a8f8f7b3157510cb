"""StateDB reader window (SPEC G13): its answers, as they came in by its topic. Who asks is `adapters/state`.

With an index they are resolved against it, so a later answer of one key updates the earlier one; without one they pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from hotspare.engine.head.stateless import Admission
from hotspare.engine.operators.contract import Applied, Input, Operator
from hotspare.engine.operators.keyed import apply_relation, bad_events, relation_of
from hotspare.engine.rows.changelog import PUBLISHED
from hotspare.engine.rows.chunk import Bools, Chunk, Timeline
from hotspare.engine.state.pages import Page
from hotspare.engine.state.relation import Relation
from hotspare.engine.state.strings import StringTable
from hotspare.model.project import AcceptedOpcodes, IndexType
from hotspare.model.resolve import ResolvedWindow

ROWS = "rows"


class StatedbReaderOperator(Operator):
    """Its one input chunk holds the decoded answers."""

    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input]) -> None:
        super().__init__(window, inputs)
        self._keeps = window.window.index is not IndexType.EMPTY
        self._admission = Admission(AcceptedOpcodes.ANY)
        self._keys = np.array(self.schema.key_indexes, np.int64)
        self.leaving = PUBLISHED.indexed() if self._keeps else PUBLISHED

    def open(self) -> Page:
        return Page({ROWS: relation_of(self.schema)} if self._keeps else {})

    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        (chunk,) = inputs
        if self._keeps:
            return apply_relation(cast(Relation, page.parts[ROWS]), chunk, timeline, self.schema, None, strings)
        keyless: Bools = np.logical_not(chunk.valid[:, self._keys].all(axis=1))
        refused = self._admission.refused(chunk.opcode, keyless)
        if not len(refused):
            return Applied(chunk)
        kept = np.ones(len(chunk), np.bool_)
        kept[refused.rows] = False
        return Applied(chunk.taken(np.flatnonzero(kept)), bad_events(refused, chunk, self.schema, strings))
