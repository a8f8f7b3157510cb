"""Filter window (SPEC A26): keeps events for which the condition is true; null counts as false.

An update is emitted as downstream windows see it: an update block if old and new values pass, an insert if only the new ones do, a
delete of the old ones if only those did.

The condition is an expression or user code. With an index the code is called for rows that are inserted or updated. The index knows
which rows passed, so that downstream an update is an insert, an update or a delete, and a delete needs no call. With index pi_EMPTY
the code is called for every event but the old values of updates; passing events are unchanged, except that an update becomes an
upsert.
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
from hotspare.scripting.contract import ProgramText
from hotspare.scripting.part import CodeState
from hotspare.scripting.programs import compile_program
from hotspare.table.pages import Counters, Page
from hotspare.table.relation import Relation
from hotspare.table.strings import StringTable
from hotspare.windows.filter.declaration import FilterWindow
from hotspare.windows.shared.code_operator import CALLS, CODE, CodeEvents, failures, without_old_rows
from hotspare.windows.shared.contract import Applied, Input, Operator
from hotspare.windows.shared.expressions import prelude_for
from hotspare.windows.shared.keyed import keeps_index, refusals, relation_of, resolved_events
from hotspare.windows.shared.rowwise import GIVEN, ROWS, RowWindow
from hotspare.windows.shared.stateless import Admission, Selection, Work, deletes

_PASSED = np.arange(len(Opcode) + 1, dtype=np.uint8)
_PASSED[Opcode.UPDATE_BLOCK] = Opcode.UPSERT
"""Opcodes of events that pass without an index, by their opcode."""


class FilterOperator(Operator):
    """Filters by an expression, or by code."""

    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input]) -> None:
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
        self.leaving, self.clock = self._by.leaving, self._by.clock

    @property
    def in_head(self) -> Work | Admission | None:
        return self._by.in_head

    def open(self) -> Page:
        return self._by.open()

    def divide(self, page: Page, shard: int) -> None:
        self._by.divide(page, shard)

    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        return self._by.apply(page, inputs, timeline, strings)


class _CodeFilter(Operator):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input], script: Script) -> None:
        super().__init__(window, inputs)
        given = self.inputs[0].changelog
        self._function = script.function
        self._keeps = keeps_index(window.window, given)
        self._resolves = self._keeps and given.opcodes is Opcodes.PUBLISHED
        made = INSERTS if given.opcodes is Opcodes.INSERTS else PUBLISHED
        self.leaving = made.indexed() if self._keeps else made
        self._shown = CodeEvents.chosen(self.id, self.inputs[0].name, self.schema, script.use)
        self._program = compile_program(ProgramText(str(self.id), script, modules=window.modules))

    def open(self) -> Page:
        state: CodeState[Any] = CodeState(self._program)
        page = Page({CODE: state, CALLS: Counters(1)})
        if self._keeps:
            page.parts[ROWS] = relation_of(self.schema)
        if self._resolves:
            page.parts[GIVEN] = relation_of(self.schema)
        return page

    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        (chunk,) = inputs
        bad = NO_BAD_EVENTS
        if self._resolves:
            chunk, bad = resolved_events(page.parts[GIVEN], chunk, timeline, self.schema, strings)
        chunk = without_old_rows(chunk)
        asked = np.flatnonzero(~deletes(chunk.opcode)) if self._keeps else np.arange(len(chunk))
        passes = np.zeros(len(chunk), np.bool_)
        if len(asked):
            calls = cast(Counters, page.parts[CALLS]).values
            some = chunk if len(asked) == len(chunk) else chunk.taken(asked)
            events = self._shown.of(some, int(calls[0]), timeline, strings)
            calls[0] += len(some)
            passes[asked], failed = cast("CodeState[Any]", page.parts[CODE]).running().select(self._function, events)
            bad += failures(self._function, failed, some, self.schema, strings)
        if not self._keeps:
            made = chunk.taken(np.flatnonzero(passes))
            return Applied(_as(made, _PASSED[made.opcode]), bad.by_rank())
        keeps = np.flatnonzero(passes | (chunk.opcode != Opcode.INSERT))
        wanted = np.where(passes, np.uint8(Opcode.UPSERT), np.uint8(Opcode.SAFE_DELETE))
        change = cast(Relation, page.parts[ROWS]).change(_as(chunk, wanted).taken(keeps), timeline)
        bad += refusals(change, chunk.taken(keeps), self.schema, strings)
        return Applied(change.chunk, bad.by_rank())


def _as(chunk: Chunk, opcode: UInt8s) -> Chunk:
    """Returns the rows with other opcodes."""
    return Chunk(chunk.rank, opcode, chunk.flags, chunk.lanes, chunk.valid, chunk.is_whole)
