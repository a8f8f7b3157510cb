"""Calculate window with the algorithm Summary (SPEC A39): each row that comes or changes is one observation.

Retention deletes and other deletes pass with the values that were put out for their row, and leave the observations alone. The new
values of an update are a new observation. Published events are resolved against an index of input rows before. Without an index
(pi_EMPTY) a window observes inserts only: it could not say what it put out for a row that is deleted. Nothing is kept either where
every row is an insert of a key of its own.

An output is converted to its field's type by dropping the fraction. What does not fit is null, and a bad event says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from hotspare.model.project import IndexType
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.types import FieldType
from hotspare.rows.changelog import Keys, Opcodes
from hotspare.rows.chunk import Bools, Chunk, Int64s, Timeline
from hotspare.rows.refusals import NO_BAD_EVENTS, BadEvents, Refusals
from hotspare.table.loops.columns import certain_rows, pick_columns
from hotspare.table.pages import Page
from hotspare.table.relation import Relation
from hotspare.table.strings import StringTable
from hotspare.windows.calculate.algorithms import SUMMARY_INPUT, SUMMARY_WINDOW_LENGTH
from hotspare.windows.calculate.declaration import CalculateWindow
from hotspare.windows.calculate.loops import observed_doubles, observed_whole, write_doubles, write_whole
from hotspare.windows.calculate.summary import All, Basis, Newest
from hotspare.windows.shared.contract import Applied, BadReason, Input, Operator
from hotspare.windows.shared.keyed import bad_events, refusals, relation_of, resolved_events
from hotspare.windows.shared.rowwise import GIVEN, ROWS, forgetful, unresolved, whole

_LIMIT: dict[FieldType, tuple[np.float64, np.float64]] = {
    FieldType.INT32: (np.float64(-(2.0**31) - 1.0), np.float64(2.0**31)),
    FieldType.INT64: (np.nextafter(-(2.0**63), -np.inf), np.float64(2.0**63)),
}
"""Between these, both excluded, a double without its fraction fits the type; every double fits those that are not named."""


class CalculateOperator(Operator):
    """Fields that no output is mapped to pass through by name."""

    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input]) -> None:
        super().__init__(window, inputs)
        declared = cast(CalculateWindow, window.window)
        self._entry = entry = self.inputs[0].schema
        given = self.inputs[0].changelog
        if declared.index is IndexType.EMPTY and given.opcodes is Opcodes.PUBLISHED:
            raise unresolved(window)
        if declared.index is IndexType.EMPTY and given.opcodes is Opcodes.RESOLVED:
            raise forgetful(window, "computes statistics", "read inserts only")
        self._resolves = given.opcodes is Opcodes.PUBLISHED
        self._resolved = given.computed_from()
        self._is_keyed = declared.index is not IndexType.EMPTY
        self._keeps = self._is_keyed and not given.is_distinct
        self.leaving = given.indexed() if self._is_keyed else given
        self._observed = entry.index[dict(declared.input_map)[SUMMARY_INPUT]]
        self._observes_double = entry.fields[self._observed].type is FieldType.DOUBLE
        places = [(output, self.schema.index[name]) for output, name in declared.output_map]
        self._outputs = tuple((output, column, _LIMIT.get(self.schema.fields[column].type)) for output, column in places)
        computed = {column for _, column in places}
        picks = [-1 if i in computed else entry.index[f.name] for i, f in enumerate(self.schema.fields)]
        self._picks = np.array(picks, np.int64)
        self._given_keys = np.array([picks[i] for i in self.schema.key_indexes], np.int64)
        length = dict(declared.parameters).get(SUMMARY_WINDOW_LENGTH)
        self._length = int(length) if length is not None else 0

    def open(self) -> Page:
        statistics = [output for output, _, _ in self._outputs]
        page = Page({"observations": Newest(self._length, statistics) if self._length else All()})
        if self._keeps:
            page.parts[ROWS] = relation_of(self.schema, given=self._resolved)
        if self._resolves:
            page.parts[GIVEN] = relation_of(self._entry)
        return page

    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        (given,) = inputs
        bad = NO_BAD_EVENTS
        if self._resolves:
            given, bad = resolved_events(page.parts[GIVEN], given, timeline, self._entry, strings)
        observations = cast("Newest | All", page.parts["observations"])
        chunk = self._laid_out(given)
        if not self._keeps:
            rows = np.arange(len(given))
            bad += self._write(self._observe(observations, given, rows), chunk.lanes, chunk.valid, rows, rows, given, strings)
            return Applied(whole(chunk) if self._is_keyed else chunk, bad)
        relation = cast(Relation, page.parts[ROWS])
        certain = self._certain(given)
        if certain is not None:
            basis = self._observe(observations, given, certain)
            written = self._write(basis, chunk.lanes, chunk.valid, certain, certain, given, strings)
            change = relation.change(chunk, timeline)
            bad += refusals(change, given, self._entry, strings) + written
            return Applied(change.chunk, bad.by_rank())
        resolution = relation.apply(chunk, timeline)
        rows, slots = resolution.arrived()
        bad += refusals(resolution, given, self._entry, strings)
        if len(rows):
            basis = self._observe(observations, given, rows)
            bad += self._write(basis, relation.lanes, relation.valid, slots, rows, given, strings)
        return Applied(relation.settle(resolution), bad.by_rank())

    def _certain(self, given: Chunk) -> Int64s | None:
        """The rows that are sure to come, where that can be known before the index is asked; else None."""
        if self._resolved.keys is Keys.ANY:
            return None
        rows = np.empty(len(given), np.int64)
        count = int(certain_rows(given.opcode, given.valid, self._given_keys, rows))
        return rows[:count] if count >= 0 else None

    def _laid_out(self, given: Chunk) -> Chunk:
        lanes = np.empty((len(given), len(self.schema)), np.int64)
        valid = np.empty((len(given), len(self.schema)), np.bool_)
        pick_columns(given.lanes, given.valid, self._picks, lanes, valid)
        return Chunk(given.rank, given.opcode, given.flags, lanes, valid, given.is_whole)

    def _observe(self, observations: Newest | All, given: Chunk, rows: Int64s) -> Basis:
        values, here = np.empty(len(rows), np.float64), np.empty(len(rows), np.bool_)
        if self._observes_double:
            observed_doubles(given.lanes.view(np.float64), given.valid, rows, self._observed, values, here)
        else:
            observed_whole(given.lanes, given.valid, rows, self._observed, values, here)
        return observations.observe(values, here)

    def _write(
        self, basis: Basis, lanes: Int64s, valid: Bools, at: Int64s, rows: Int64s, given: Chunk, strings: StringTable
    ) -> BadEvents:
        """Write the mapped statistics to `lanes[at]`; report those that do not fit their field."""
        bad = NO_BAD_EVENTS
        for output, column, limit in self._outputs:
            values = basis.statistic(output)
            if limit is None:
                write_doubles(values, at, column, lanes.view(np.float64), valid)
                continue
            unfit = np.empty(len(at), np.int64)
            count = int(write_whole(values, *limit, at, column, lanes, valid, unfit))
            if count:
                message = f"{output} does not fit the field {self.schema.fields[column].name}, which is null instead"
                refused = Refusals.of(rows[unfit[:count]], np.zeros(count, np.int64), [(BadReason.NUMBER_RANGE, message)])
                bad += bad_events(refused, given, self._entry, strings)
        return bad
