"""Filter window (SPEC A26): keeps events for which the condition is true; null counts as false.

An update is emitted as downstream windows see it: an update block if old and new values pass, an insert if only the new ones do, a
delete of the old ones if only those did.

The condition is an expression or user code. With an index the code is called for rows that are inserted or updated. The index knows
which rows passed, so that downstream an update is an insert, an update or a delete, and a delete needs no call. With index pi_EMPTY
the code is called for every event except the old values of updates. Events that pass are unchanged, except that an update becomes
an upsert.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from hotspare.expressions.compiled import compile_condition
from hotspare.model.code import Script
from hotspare.model.events import Opcode
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.window_type import Counting
from hotspare.rows.changelog import INSERTS, PUBLISHED, Opcodes
from hotspare.rows.chunk import Chunk, Timeline, UInt8s
from hotspare.rows.refusals import NO_BAD_EVENTS
from hotspare.scripting.code_state import CodeState
from hotspare.scripting.contract import ProgramText
from hotspare.scripting.languages import compile_user_code
from hotspare.table.pages import Counters, Page
from hotspare.table.relation import Relation
from hotspare.table.strings import StringTable
from hotspare.windows.filter.declaration import FilterWindow
from hotspare.windows.shared.code_operator import CALLS, CODE, CodeEvents, code_failure_events, without_old_rows
from hotspare.windows.shared.contract import Operator, OperatorInput, OperatorResult
from hotspare.windows.shared.expressions import prelude_for
from hotspare.windows.shared.keyed import has_row_index, refusals, relation_of, resolved_events
from hotspare.windows.shared.rowwise import GIVEN, ROWS, RowWindow
from hotspare.windows.shared.stateless import Admission, RowFunction, Selection, delete_mask

_PASSED = np.arange(len(Opcode) + 1, dtype=np.uint8)
_PASSED[Opcode.UPDATE_BLOCK] = Opcode.UPSERT
"""Opcodes of events that pass without an index, by the opcode of the event: an update block, reduced to its new row, is an upsert.
"""


class FilterOperator(Operator):
    """Filters by an expression or by user code; delegates to the operator for that kind of condition."""

    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        super().__init__(window, inputs)
        condition, given = cast(FilterWindow, window.window).condition, inputs[0].schema
        self._by: Operator
        if isinstance(condition, Script):
            self._by = _CodeFilter(window, inputs, condition)
        else:
            initialization = cast(FilterWindow, window.window).initialization
            prelude = prelude_for(window.id, initialization, [condition])
            compiled = compile_condition(condition, given, str(window.id), prelude, Counting.POSITION)
            self._by = RowWindow(window, inputs, Selection(compiled, given), prelude.state)
        self.output_changelog, self.clock = self._by.output_changelog, self._by.clock

    @property
    def head_function(self) -> RowFunction | Admission | None:
        return self._by.head_function

    def open(self) -> Page:
        return self._by.open()

    def initialize_shard(self, page: Page, shard: int) -> None:
        self._by.initialize_shard(page, shard)

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        return self._by.process_chunks(page, inputs, timeline, strings)


class _CodeFilter(Operator):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput], script: Script) -> None:
        super().__init__(window, inputs)
        given = self.inputs[0].changelog
        self._function = script.function
        self._keeps = has_row_index(window.window, given)
        self._resolves = self._keeps and given.opcodes is Opcodes.PUBLISHED
        made = INSERTS if given.opcodes is Opcodes.INSERTS else PUBLISHED
        self.output_changelog = made.indexed() if self._keeps else made
        self._shown = CodeEvents.chosen(self.id, self.inputs[0].name, self.schema, script.use)
        self._program = compile_user_code(ProgramText(str(self.id), script, modules=window.modules))

    def open(self) -> Page:
        state: CodeState[Any] = CodeState(self._program)
        page = Page({CODE: state, CALLS: Counters(1)})
        if self._keeps:
            page.parts[ROWS] = relation_of(self.schema)
        if self._resolves:
            page.parts[GIVEN] = relation_of(self.schema)
        return page

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        (chunk,) = inputs
        bad = NO_BAD_EVENTS
        if self._resolves:
            chunk, bad = resolved_events(page.parts[GIVEN], chunk, timeline, self.schema, strings)
        chunk = without_old_rows(chunk)
        asked = np.flatnonzero(~delete_mask(chunk.opcode)) if self._keeps else np.arange(len(chunk))
        passes = np.zeros(len(chunk), np.bool_)
        if len(asked):
            calls = cast(Counters, page.parts[CALLS]).values
            some = chunk if len(asked) == len(chunk) else chunk.copied_rows(asked)
            events = self._shown.build_given_events(some, int(calls[0]), timeline, strings)
            calls[0] += len(some)
            passes[asked], failed = cast("CodeState[Any]", page.parts[CODE]).live_instance().select(self._function, events)
            bad += code_failure_events(self._function, failed, some, self.schema, strings)
        if not self._keeps:
            made = chunk.copied_rows(np.flatnonzero(passes))
            return OperatorResult(_with_opcodes(made, _PASSED[made.opcode]), bad.by_rank())
        keeps = np.flatnonzero(passes | (chunk.opcode != Opcode.INSERT))
        wanted = np.where(passes, np.uint8(Opcode.UPSERT), np.uint8(Opcode.SAFE_DELETE))
        change = cast(Relation, page.parts[ROWS]).change(_with_opcodes(chunk, wanted).copied_rows(keeps), timeline)
        bad += refusals(change, chunk.copied_rows(keeps), self.schema, strings)
        return OperatorResult(change.chunk, bad.by_rank())


def _with_opcodes(chunk: Chunk, opcode: UInt8s) -> Chunk:
    """Returns the rows of `chunk` with the opcodes `opcode`."""
    return Chunk(chunk.rank, opcode, chunk.flags, chunk.lanes, chunk.valid, chunk.is_whole)
