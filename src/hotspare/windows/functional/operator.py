"""Functional window (SPEC A25): functions of an event, one event for each or as many as its loops make.

A window of one input, without loops, generate and opcode, and of its key, makes one event of each (`rowwise`); any other is
`generating`.

eventCounter() counts the events that came to this window, deletes not, 1, 2, 3 ...; rows that become bad events are counted too,
but for published ones that the index refuses. The count is state, so it goes on after a restore (SPEC Z8). A delete goes out with
the count that was put out for its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hotspare.expressions.programs import compile_program
from hotspare.model.resolved import ResolvedWindow
from hotspare.rows.chunk import Chunk, Timeline
from hotspare.table.pages import Page
from hotspare.table.strings import StringTable
from hotspare.windows.functional.declaration import FunctionalWindow
from hotspare.windows.functional.generating import GeneratingWindow
from hotspare.windows.shared.contract import Applied, Input, Operator
from hotspare.windows.shared.expressions import assignments_of
from hotspare.windows.shared.rowwise import RowWindow
from hotspare.windows.shared.stateless import Admission, Projection, Work


class FunctionalOperator(Operator):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input]) -> None:
        super().__init__(window, inputs)
        declared = cast(FunctionalWindow, window.window)
        programs = [
            compile_program(declared.program, given.schema, window.schema, str(window.id), source.window)
            for given, (source, _) in zip(inputs, window.inputs, strict=True)
        ]
        self._made: GeneratingWindow | RowWindow
        if len(inputs) > 1 or declared.generates(inputs[0].schema):
            self._made = GeneratingWindow(window, inputs, programs)
        else:
            given = inputs[0].schema
            work = Projection(assignments_of(window, given, programs[0]), given, window.schema.names)
            self._made = RowWindow(window, inputs, work)
        self.leaving = self._made.leaving

    @property
    def in_head(self) -> Work | Admission | None:
        return self._made.in_head

    def open(self) -> Page:
        return self._made.open()

    def divide(self, page: Page, shard: int) -> None:
        self._made.divide(page, shard)

    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        return self._made.apply(page, inputs, timeline, strings)
