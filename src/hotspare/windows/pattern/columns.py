"""Events of all inputs of a pattern window as the columns that its kernel reads, in one order.

Everything that depends on an event alone is evaluated here, for all events of a batch at once: conditions, values of variables,
sides of comparisons, outputs. Only inserts are accepted (SPEC A15), and with event time only events that have a time. An event for
which such an expression fails is a bad event, and is applied to no pattern of the window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hotspare.expressions.compiled import CompiledExpression
from hotspare.expressions.frame import Failures
from hotspare.expressions.tree import ValueType
from hotspare.model.events import Opcode
from hotspare.model.types import FieldType, Schema
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.chunk import NO_BEATS, Bools, Chunk, Int64s, Timeline
from hotspare.rows.elementwise import true_mask
from hotspare.rows.ordering import merged_order
from hotspare.rows.refusals import NO_BAD_EVENTS, BadEvents, Refusals
from hotspare.table.lanes import CODED, to_arrow, to_lane
from hotspare.table.strings import StringTable
from hotspare.table.text_pieces import text_pieces
from hotspare.windows.pattern.loops import pattern_logic as k
from hotspare.windows.pattern.program import ColumnForm, EventColumn, PatternPlan, ResidualCondition
from hotspare.windows.shared.event_time import event_times
from hotspare.windows.shared.keyed import bad_events
from hotspare.windows.shared.stateless import event_columns

_HIGHEST = np.int64(2**63 - 1)
_CAUSES = [(str(each), each.sentence) for each in (BadReason.NOT_INSERT, BadReason.NULL_PATTERN_TIME)]


@dataclass(slots=True)
class OrderedEvents:
    """The accepted events of a batch, in order. `events`: their columns for the kernel. `chunks`: the accepted events of each
    input; `number` and `row`: the chunk and the row of each event.
    """

    events: k.PatternEvents
    chunks: list[Chunk]
    number: Int64s
    row: Int64s


@dataclass(slots=True)
class _Part:
    """The accepted events of one input, `chunk`, with the columns computed from them, as in `loops.pattern_logic.PatternEvents`."""

    chunk: Chunk
    time: Int64s
    masks: Int64s
    fresh: Int64s
    values: Int64s
    valid: Bools


def to_ordered_lanes(doubles: Int64s) -> Int64s:
    """Returns lanes of doubles as whole numbers that order as the doubles do. -0.0 equals 0.0; NaN is the greatest."""
    values = doubles.view(np.float64) + 0.0
    values[np.isnan(values)] = np.nan
    return flip_ordered_lanes(values.view(np.int64))


def flip_ordered_lanes(lanes: Int64s) -> Int64s:
    """Converts lanes of canonical doubles to whole numbers in that order, or such numbers back to lanes."""
    return lanes ^ ((lanes >> 63) & _HIGHEST)


class EventColumns:
    """Evaluates the columns of events that the kernel reads. `times`: place and type of the time field by input; empty for system
    time.
    """

    def __init__(self, plan: PatternPlan, schemas: Sequence[Schema], times: Mapping[int, tuple[int, FieldType]]) -> None:
        self._plan, self._schemas, self._times = plan, schemas, times

    def evaluate_batch(self, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> tuple[OrderedEvents, BadEvents]:
        """Returns the accepted events of a batch, without heartbeats, and bad events for the refused ones, by rank."""
        parts: list[_Part] = []
        bad = NO_BAD_EVENTS
        for number, chunk in enumerate(inputs):
            part, refused = self._part(number, chunk, timeline, strings)
            parts.append(part)
            bad += refused
        numbers, rows = merged_order([part.chunk.rank for part in parts])
        return OrderedEvents(_in_one(parts, numbers, rows), [part.chunk for part in parts], numbers, rows), bad.by_rank()

    def _part(self, number: int, chunk: Chunk, timeline: Timeline, strings: StringTable) -> tuple[_Part, BadEvents]:
        schema, program = self._schemas[number], self._plan.program
        given, told = chunk, NO_BAD_EVENTS
        wrong: Bools = given.opcode != Opcode.INSERT
        if number in self._times:
            wrong = wrong | ~given.valid[:, self._times[number][0]]
        if wrong.any():
            rows = np.flatnonzero(wrong)
            cause = (given.opcode[rows] == Opcode.INSERT).astype(np.int64)
            told += bad_events(Refusals.from_causes(rows, cause, _CAUSES), given, schema, strings)
            chunk = given.copied_rows(np.flatnonzero(~wrong))
        count = len(chunk)
        part = _Part(
            chunk,
            self._time(number, chunk, timeline),
            np.zeros((len(program.patterns), count), np.int64),
            np.zeros((len(program.patterns), count if program.patterns[:, k.ASKS].any() else 0), np.int64),
            np.zeros((count, self._plan.width), np.int64),
            np.zeros((count, self._plan.width), np.bool_),
        )
        if not count:
            return part, told
        failed = self._evaluate(number, part, strings)
        if not failed:
            return part, told
        refused, keeps = _refused(failed, count)
        told += bad_events(refused, chunk, schema, strings)
        return _accepted_rows(part, keeps), told.by_rank()

    def _time(self, number: int, chunk: Chunk, timeline: Timeline) -> Int64s:
        if number not in self._times:
            return timeline.time_us[chunk.rank]
        place, type_ = self._times[number]
        return event_times(chunk, place, type_)

    def _evaluate(self, number: int, part: _Part, strings: StringTable) -> list[tuple[Int64s, Failures]]:
        """Fills the columns of `part`, the events of input `number`. Returns the rows that failed, with their failures."""
        failed: list[tuple[Int64s, Failures]] = []
        conditions: dict[object, Bools] = {}
        own: dict[tuple[int, int], Bools | None] = {}
        for p, found in enumerate(self._plan.conditions):
            for bit, event in enumerate(found.events):
                if event.number != number:
                    continue
                part.masks[p] |= k.TAKEN
                own[p, bit] = None
                if event.event is not None:
                    if event.event.tree not in conditions:
                        conditions[event.event.tree] = self._condition(event.event, number, part.chunk, strings, failed)
                    own[p, bit] = conditions[event.event.tree]
        for taken in self._plan.column_plans:
            if taken.number == number:
                self._fill(taken, part, own.get((taken.pattern, taken.bit)), strings, failed)
        for (p, bit), passes in own.items():
            part.masks[p] |= self._is_candidate(p, bit, passes, part) << bit
        for asked in self._plan.residuals:
            if asked.number == number:
                self._evaluate_new_match(asked, part, strings, failed)
        return failed

    def _condition(
        self, condition: CompiledExpression, number: int, chunk: Chunk, strings: StringTable, failed: list[tuple[Int64s, Failures]]
    ) -> Bools:
        passes = np.empty(len(chunk), np.bool_)
        for begin, end, values, failures in self._values(condition, number, chunk, strings):
            passes[begin:end] = true_mask(values)
            if len(failures):
                failed.append((failures.rows + begin, failures))
        return passes

    def _values(
        self, expression: CompiledExpression, number: int, chunk: Chunk, strings: StringTable, beside: Mapping[str, ValueType] = {}
    ) -> Iterator[tuple[int, int, pa.Array, Failures]]:
        """Evaluates an expression over `chunk` piece by piece: yields begin and end, values, and failures. The last parameter has
        the types of variables by name; their values are null.
        """
        schema = self._schemas[number]
        read = [
            (name, schema.index[name], schema.fields[schema.index[name]].type) for name in expression.fields if name in schema.index
        ]
        others = [name for name in expression.fields if name not in schema.index]
        for begin, end in text_pieces(chunk.lanes, [place for _, place, type_ in read if type_ in CODED], strings):
            of = chunk.between(begin, end)
            columns = event_columns(others, schema, of.opcode, of.flags)
            columns |= {name: pa.nulls(len(of), beside[name].arrow) for name in others if name in beside}
            columns |= {name: to_arrow(of.lanes[:, place], of.valid[:, place], type_, strings) for name, place, type_ in read}
            values, failures = expression.evaluate(columns, len(of))
            yield begin, end, values, failures

    def _fill(
        self, taken: EventColumn, part: _Part, passes: Bools | None, strings: StringTable, failed: list[tuple[Int64s, Failures]]
    ) -> None:
        values, valid, column = part.values, part.valid, taken.column
        if taken.place >= 0:
            lane, here = part.chunk.lanes[:, taken.place], part.chunk.valid[:, taken.place]
            if taken.form is ColumnForm.IS_NULL:
                values[:, column], valid[:, column] = ~here, True
                return
            values[:, column] = (
                np.where(here, to_ordered_lanes(np.ascontiguousarray(lane)), 0) if taken.form is ColumnForm.ORDERED else lane
            )
            valid[:, column] = here
            return
        rows = np.arange(len(part.chunk)) if passes is None else np.flatnonzero(passes)
        if not len(rows):
            return
        chunk = part.chunk if passes is None else part.chunk.copied_rows(rows)
        for begin, end, array, failures in self._values(taken.expression, taken.number, chunk, strings):
            lane, here = to_lane(array, taken.type, strings)
            if taken.form is ColumnForm.ORDERED:
                lane = np.where(here, to_ordered_lanes(np.ascontiguousarray(lane)), 0)
            values[rows[begin:end], column], valid[rows[begin:end], column] = lane, here
            if len(failures):
                failed.append((rows[failures.rows + begin], failures))

    def _is_candidate(self, p: int, bit: int, passes: Bools | None, part: _Part) -> Int64s:
        """Returns 1 for each event that may be event of interest `bit` of pattern `p`, else 0. Such an event passes the part of the
        condition that needs the event alone, and its compared values are not null.
        """
        program = self._plan.program
        number = int(program.patterns[p, k.EVENTS]) + bit
        checks = program.checks[program.events[number, k.CHECKS_BEGIN] : program.events[number, k.CHECKS_END]]
        found = np.ones(len(part.chunk), np.int64) if passes is None else passes.astype(np.int64)
        for column in dict.fromkeys(checks[:, k.COLUMN].tolist()):
            found &= part.valid[:, column]
        return found

    def _evaluate_new_match(
        self, asked: ResidualCondition, part: _Part, strings: StringTable, failed: list[tuple[Int64s, Failures]]
    ) -> None:
        """Evaluates a residual condition for a match that the event begins, in which all variables are null. Writes the result to
        `part.fresh`; adds failures to `failed`.
        """
        rows = np.flatnonzero(part.masks[asked.pattern] >> asked.bit & 1)
        unknown = {name: ValueType.from_field_type(type_) for name, _, type_ in asked.variables}
        for begin, end, values, failures in self._values(
            asked.expression, asked.number, part.chunk.copied_rows(rows), strings, unknown
        ):
            part.fresh[asked.pattern, rows[begin:end]] |= true_mask(values).astype(np.int64) << asked.bit
            if len(failures):
                failed.append((rows[failures.rows + begin], failures))


def _refused(failed: Sequence[tuple[Int64s, Failures]], count: int) -> tuple[Refusals, Int64s]:
    """Returns the first failure of each row that failed, and the rows without a failure."""
    shift = np.cumsum([0, *(len(failures.causes) for _, failures in failed)])
    rows = np.concatenate([rows for rows, _ in failed])
    cause = np.concatenate([failures.cause_index + at for (_, failures), at in zip(failed, shift, strict=False)])
    rows, first = np.unique(rows, return_index=True)
    keeps = np.ones(count, np.bool_)
    keeps[rows] = False
    return Refusals.from_causes(rows, cause[first], [each for _, failures in failed for each in failures.causes]), np.flatnonzero(
        keeps
    )


def _accepted_rows(part: _Part, rows: Int64s) -> _Part:
    masks, fresh = _picked(part.masks, rows), _picked(part.fresh, rows)
    return _Part(part.chunk.copied_rows(rows), part.time[rows], masks, fresh, part.values[rows], part.valid[rows])


def _in_one(parts: Sequence[_Part], numbers: Int64s, rows: Int64s) -> k.PatternEvents:
    """Returns the events of all inputs as one, in the order given by `numbers` (the input) and `rows`."""
    filled = [part for part in parts if len(part.chunk)]
    if len(filled) == 1:
        (part,) = filled
        return k.PatternEvents(part.chunk.rank, part.time, part.masks, part.values, part.valid, part.fresh, NO_BEATS)
    begins = np.cumsum([0, *(len(part.chunk) for part in parts)])
    at = begins[numbers] + rows
    rank = np.concatenate([part.chunk.rank for part in parts])[at]
    time = np.concatenate([part.time for part in parts])[at]
    masks, fresh = (np.concatenate(each, axis=1) for each in zip(*((part.masks, part.fresh) for part in parts), strict=True))
    values, valid = (np.concatenate(each)[at] for each in zip(*((part.values, part.valid) for part in parts), strict=True))
    return k.PatternEvents(rank, time, _picked(masks, at), values, valid, _picked(fresh, at), NO_BEATS)


def _picked(by_pattern: Int64s, rows: Int64s) -> Int64s:
    return np.ascontiguousarray(by_pattern[:, rows]) if by_pattern.shape[1] else by_pattern
