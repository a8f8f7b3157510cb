"""StateDB writer window (SPEC G13): every event passes unchanged. The writer of records reads the window's stream
(`adapters/state`), so the engine waits for no server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hotspare.base.errors import Mistake, ProjectError
from hotspare.model.resolved import ResolvedWindow
from hotspare.rows.chunk import Chunk, Timeline
from hotspare.table.pages import Page
from hotspare.table.strings import StringTable
from hotspare.windows.shared.contract import Operator, OperatorInput, OperatorResult
from hotspare.windows.statedb_writer.declaration import StatedbWriterWindow


class StatedbWriterOperator(Operator):
    """Passes every event unchanged and keeps no rows, whatever its index. Raises ProjectError if records have indexes and updates
    may lack values.
    """

    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        super().__init__(window, inputs)
        self.output_changelog = self.inputs[0].changelog
        if cast(StatedbWriterWindow, window.window).indexes and self.output_changelog.needs_rows:
            message = f"window {window.id} has indexes, but an update may leave out the values by which they find its record"
            raise ProjectError(str(window.id), [Mistake(window.window.place, message, "put a copy window before it")])

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        (given,) = inputs
        return OperatorResult(given)
