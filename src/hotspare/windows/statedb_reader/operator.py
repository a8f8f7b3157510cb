"""StateDB reader window (SPEC G13): passes on the answers of its topic; `adapters/state` sends the queries.

With an index answers are resolved against it, so a later answer of one key updates the earlier one; without one they pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hotspare.model.project import AcceptedOpcodes, IndexType
from hotspare.model.resolved import ResolvedWindow
from hotspare.rows.changelog import PUBLISHED
from hotspare.rows.chunk import Bools, Chunk, Timeline
from hotspare.table.pages import Page
from hotspare.table.strings import StringTable
from hotspare.windows.shared.contract import Operator, OperatorInput, OperatorResult
from hotspare.windows.shared.keyed import IndexedRows, bad_events
from hotspare.windows.shared.stateless import Admission


class StatedbReaderOperator(Operator):
    """Emits the answers; its one input chunk has the decoded answers of its topic. Without an index, answers with a null key are
    refused.
    """

    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        super().__init__(window, inputs)
        self._kept = IndexedRows(window, None, PUBLISHED) if window.window.index is not IndexType.EMPTY else None
        self._admission = Admission(AcceptedOpcodes.ANY)
        self._keys = np.array(self.schema.key_indexes, np.int64)
        self.output_changelog = PUBLISHED if self._kept is None else self._kept.output_changelog

    def open(self) -> Page:
        return Page(self._kept.new_row_parts() if self._kept is not None else {})

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        (chunk,) = inputs
        if self._kept is not None:
            return self._kept.resolve_rows(page, chunk, timeline, strings)
        keyless: Bools = np.logical_not(chunk.valid[:, self._keys].all(axis=1))
        refused = self._admission.refused(chunk.opcode, keyless)
        if not len(refused):
            return OperatorResult(chunk)
        kept = np.ones(len(chunk), np.bool_)
        kept[refused.rows] = False
        return OperatorResult(chunk.copied_rows(np.flatnonzero(kept)), bad_events(refused, chunk, self.schema, strings))
