"""The stage after a window with a splitter: the slot by which each of its rows is emitted (SPEC A34).

Each row has the slot of its own values, and so has the old row of an update block. So an update that moves a row to another slot is
a delete by the old one and an insert by the new one. The output of a slot folds to the window's rows that have it. That holds only
if the slot depends on the values alone. So a splitter is refused if it uses more than values, or values that may be missing.

A row without a slot (null, or a failed expression, which is a bad event) is sent only along the edges without a slot, which have
every event.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from hotspare.base.errors import Mistake, ProjectError
from hotspare.model.resolved import ResolvedWindow
from hotspare.rows.changelog import Opcodes
from hotspare.rows.chunk import Chunk, Int64s, Timeline
from hotspare.rows.refusals import Refusals
from hotspare.table.lanes import CODED, to_arrow
from hotspare.table.pages import Page
from hotspare.table.strings import StringTable
from hotspare.table.text_pieces import text_pieces
from hotspare.windows.shared.contract import Operator, OperatorInput, OperatorResult
from hotspare.windows.shared.expressions import splitter_of
from hotspare.windows.shared.keyed import bad_events
from hotspare.windows.shared.stateless import Splitting, event_columns

NO_SLOT = -2
"""The slot of rows without a valid slot; no edge has it."""


class SplitterOperator(Operator):
    """Computes the slot of each row. Its one input is the output of the window, all of which it passes unchanged."""

    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        super().__init__(window, inputs)
        self._work = Splitting(splitter_of(window.id, window.window, self.schema))
        (given,) = self.inputs
        _check(window, given, self._work)
        self.output_changelog = given.changelog
        index = self.schema.index
        self._read = tuple((name, index[name], self.schema.fields[index[name]].type) for name in self._work.fields if name in index)
        self._texts = tuple(i for _, i, type_ in self._read if type_ in CODED)

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        (chunk,) = inputs
        if not len(chunk):
            return OperatorResult(chunk)
        slots, refused = np.empty(len(chunk), np.int64), []
        for begin, end in text_pieces(chunk.lanes, self._texts, strings):
            some = chunk.between(begin, end)
            done = self._work.evaluate(self._columns(some, strings), some.opcode)
            slots[begin:end] = _numbers(done.computed[0])
            refused.append((begin, done.refused))
        return OperatorResult(chunk, bad_events(Refusals.joined(refused), chunk, self.schema, strings), slots=slots)

    def _columns(self, chunk: Chunk, strings: StringTable) -> dict[str, pa.Array]:
        columns = event_columns(self._work.fields, self.schema, chunk.opcode, chunk.flags)
        for name, i, type_ in self._read:
            columns[name] = to_arrow(chunk.lanes[:, i], chunk.valid[:, i], type_, strings)
        return columns


def _numbers(values: pa.Array) -> Int64s:
    """Returns the slots of these values. Null and numbers below -1 become NO_SLOT; -1 remains, and means every edge."""
    slots: Int64s = values.fill_null(NO_SLOT).to_numpy()
    return np.maximum(slots, NO_SLOT)


def _check(window: ResolvedWindow, given: OperatorInput, work: Splitting) -> None:
    """Raises ProjectError if a row and its later delete could be emitted by different slots."""
    opcodes = given.changelog.opcodes
    place = window.window.splitter.place if window.window.splitter is not None else window.window.place
    keys = {given.schema.names[i] for i in given.schema.key_indexes}
    if opcodes is Opcodes.PUBLISHED and not keys.issuperset(work.fields):
        message = (
            f"the splitter of window {window.id} uses other fields than keys, and it emits events as they are published: updates "
            "do not have the old values, partial updates and deletes not all new ones"
        )
        hint = "give the window an index such as pi_HASH, or make its source insert-only, or split by the key"
        raise ProjectError(str(window.id), [Mistake(place, message, hint)])
    if opcodes is Opcodes.RESOLVED and work.reads_event(given.schema):
        message = (
            f"the splitter of window {window.id} uses more than the values of a row, and rows are updated or deleted: a row could "
            "be deleted through another slot than it was inserted through"
        )
        raise ProjectError(str(window.id), [Mistake(place, message, "split by fields, or downstream of a remove-state window")])
