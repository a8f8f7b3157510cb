"""Aggregate window (SPEC A28): one row for each group of rows that agree in the key fields of the window.

    events ─► given: input rows ─► arguments ─► groups, event by event ─► results ─► fields ─► out

Each event makes an output. The first event of a group makes an insert, later ones an update block with the values emitted before.
The event that empties the group makes a delete. An update that moves a row to another group changes its old group first. An output
carries the flags of its event.

With `emit: new` each insert or update that a group receives makes an insert of the group's new row. Events of retention and deletes
make none, nor does the old group of a moved row. If an evicted row directly precedes the row that evicted it, and both are of one
group, they change the group together, so no output counts only one of the two.

The window keeps an index of input rows only if events arrive as published, or if an insert may have an existing key. Sums are
exact, so after rows were removed, a sum is that of the other rows alone, to the bit.

A sum that does not fit its type, or an expression that fails, removes the row of the group until it can be computed again; each
event with such a result is a bad event. A row whose key is null belongs to no group, and is a bad event, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa

from hotspare.expressions.aggregates import Aggregate, compile_aggregation
from hotspare.expressions.compiled import CompiledExpression
from hotspare.expressions.tree import TypedField, ValueType
from hotspare.model.events import Opcode
from hotspare.model.project import Emit, Eviction
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.types import Field, FieldType, Schema
from hotspare.rows.changelog import INSERTS, RELATION, Keys, Opcodes
from hotspare.rows.chunk import Bools, Chunk, Int64s, Timeline, all_true, by_retention
from hotspare.rows.refusals import NO_BAD_EVENTS, NOTHING_REFUSED, BadEvents, Refusals
from hotspare.table.identifiers import identifiers, seed_of
from hotspare.table.lanes import CODED, to_arrow
from hotspare.table.loops.columns import pick_columns
from hotspare.table.pages import Counters, Page
from hotspare.table.strings import StringTable
from hotspare.table.text_pieces import text_pieces
from hotspare.windows.aggregate.declaration import AggregateWindow
from hotspare.windows.aggregate.groups import CHANGES, AggregateGroups
from hotspare.windows.aggregate.loops.aggregate import EVICTED
from hotspare.windows.aggregate.program import InputRowsKept, Planner
from hotspare.windows.shared.contract import SHARD_BITS, BadReason, Operator, OperatorInput, OperatorResult
from hotspare.windows.shared.expressions import Assignments, prelude_for
from hotspare.windows.shared.keyed import bad_events, relation_of, resolved_events
from hotspare.windows.shared.new_rows import inserts_of
from hotspare.windows.shared.rowwise import GIVEN, evaluate_pieces, passed_rows
from hotspare.windows.shared.small_batches import SmallBatches
from hotspare.windows.shared.stateless import Projection, RowFunction, delete_mask, event_columns

_ROW_NUMBER = "hs:row"
"""The name of the field with a running number, which is the key of a row if rows are never removed."""


class _Events(NamedTuple):
    """Events that belong to a group, with the arguments of the calls. `row`: the index of each event in the input chunk."""

    chunk: Chunk
    row: Int64s


class AggregateOperator(Operator):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        super().__init__(window, inputs)
        (given,) = self.inputs
        self._entry = entry = given.schema
        declared = cast(AggregateWindow, window.window)
        expressions = iter(declared.outputs)
        computed = [(f, None if f.is_key else next(expressions)) for f in self.schema.fields]
        groups = [f for f in self.schema.fields if f.is_key]
        aggregation = compile_aggregation(
            str(window.id), entry, computed, groups, prelude_for(window.id, declared.initialization, declared.outputs)
        )
        keeps = InputRowsKept.ALL if given.changelog.opcodes is Opcodes.INSERTS else InputRowsKept.SOME
        identity = (
            [Field(_ROW_NUMBER, FieldType.INT64)] if keeps is InputRowsKept.ALL else [entry.fields[i] for i in entry.key_indexes]
        )
        planner = Planner(len(groups), len(identity), aggregation.calls, keeps)
        self._groups = AggregateGroups(groups, identity, aggregation.calls, planner)
        self._numbers_rows = bool(planner.listed) and keeps is InputRowsKept.ALL
        self._resolves = given.changelog.opcodes is Opcodes.PUBLISHED or (
            given.changelog.opcodes is Opcodes.RESOLVED and given.changelog.keys is Keys.ANY
        )
        self.needs_rows = given.changelog.opcodes is Opcodes.RESOLVED and not self._resolves
        self._given_changelog = given.changelog
        passed = [*groups, *(identity if planner.listed and not self._numbers_rows else ())]
        of_fields = [
            CompiledExpression(f.name, "", TypedField(f.name, ValueType.from_field_type(f.type)), (f.name,), f.name) for f in passed
        ]
        of_fields[len(groups) : len(groups)] = planner.arguments
        self._events = _events_schema(groups, of_fields[len(groups) :])
        self._arguments = ChunkEvaluator(entry, self._events, Projection(Assignments(tuple(of_fields)), entry))
        made = aggregation.aggregate_schema
        self._outputs = ChunkEvaluator(made, self.schema, Projection(Assignments(aggregation.outputs), made))
        self._keys = len(groups)
        self._double_keys = tuple(i for i, f in enumerate(groups) if f.type is FieldType.DOUBLE)
        calls = enumerate(aggregation.calls)
        self._identifiers = [len(groups) + i for i, call in calls if call.aggregate is Aggregate.IDENTIFIER]
        self._unfit = tuple(f"{call.aggregate.value} does not fit {call.type.value}" for call in aggregation.calls)
        self._seed = seed_of(str(self.id))
        self._emits_new = declared.emission.emit is Emit.NEW
        self.output_changelog = INSERTS if self._emits_new else self._outputs.work.derive_changelog(RELATION)
        self.pairs_evictions = given.changelog.evictions is Eviction.BEFORE

    def open(self) -> Page:
        page = Page()
        self._groups.open(page)
        if self._resolves:
            page.parts[GIVEN] = relation_of(self._entry, given=self._given_changelog)
        return page

    def initialize_shard(self, page: Page, shard: int) -> None:
        cast(Counters, page.parts[CHANGES]).values[0] = shard << SHARD_BITS

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        (given,) = inputs
        if not len(given):
            return OperatorResult(Chunk.empty(len(self.schema)))
        bad = NO_BAD_EVENTS
        if self._resolves:
            given, bad = resolved_events(page.parts[GIVEN], given, timeline, self._entry, strings)
        events, refused = self._with_arguments(given, strings)
        bad += refused
        chunk = self._numbered(page, events.chunk) if self._numbers_rows else events.chunk
        if self.pairs_evictions:
            chunk = _paired(chunk, events.row)
        made, source, failed = self._groups.apply_events(page, chunk, timeline, strings)
        chunk, passes, wrong = self._computed(made, strings)
        told = self._refused(failed, passes, wrong, made)
        if len(told):
            bad += bad_events(told, _caused(given, events.row[source], made), self._entry, strings)
        if self._emits_new:
            comes = ~delete_mask(chunk.opcode) & ~delete_mask(events.chunk.opcode)[source]
            return OperatorResult(inserts_of(chunk, passes & comes & ~by_retention(chunk)), bad.by_rank())
        return OperatorResult(passed_rows(chunk, passes), bad.by_rank())

    def emitted_rows(self, page: Page, strings: StringTable) -> Chunk:
        chunk, passes, _ = self._computed(self._groups.current_results(page), strings)
        return passed_rows(chunk, passes)

    def _computed(self, made: Chunk, strings: StringTable) -> tuple[Chunk, Bools, Refusals]:
        """Returns outputs in the window's schema, computed from keys and results of groups; which of them pass; and the refused
        ones. Overwrites the columns of `made` that hold generated keys."""
        for column in self._identifiers:
            made.lanes[:, column] = identifiers(self._seed, made.lanes[:, column], strings)
        return self._outputs.evaluate_chunk(made, strings)

    def _with_arguments(self, given: Chunk, strings: StringTable) -> tuple[_Events, BadEvents]:
        """Returns the rows that belong to a group, with the arguments of their calls, and the bad events: rows that cannot be
        computed, and rows with a null key. A delete with a null key is dropped."""
        chunk, passes, refused = self._arguments.evaluate_chunk(given, strings)
        keyless = ~chunk.valid[:, : self._keys].all(axis=1)
        bad = bad_events(refused, given, self._entry, strings) if len(refused) else NO_BAD_EVENTS
        if keyless.any():
            rows = np.flatnonzero(keyless & passes & ~delete_mask(given.opcode))
            causes = [(BadReason.NULL_KEY, BadReason.NULL_KEY.sentence)]
            bad += bad_events(Refusals.from_causes(rows, np.zeros(len(rows), np.int64), causes), given, self._entry, strings)
            passes = passes & ~keyless
        events = passed_rows(chunk, passes).with_plain_doubles(self._double_keys)
        return _Events(events, np.flatnonzero(passes)), bad

    def _numbered(self, page: Page, events: Chunk) -> Chunk:
        """Returns the inserts with one more column, the number of the change that each of them makes. This number is the key under
        which the event's row is kept in order of arrival.
        """
        count, first = len(events), int(cast(Counters, page.parts[CHANGES]).values[0])
        lanes = np.column_stack((events.lanes, np.arange(first, first + count)))
        valid = np.column_stack((events.valid, all_true(count)))
        return Chunk(events.rank, events.opcode, events.flags, lanes, valid)

    def _refused(self, failed: Int64s, passes: Bools, wrong: Refusals, made: Chunk) -> Refusals:
        """Returns the rows that cannot be computed, once each, and sets `passes` to False for them; deletes are not reported.
        `failed`: per row, the number of a result with an error, or 0; `wrong`: rows whose expressions failed.
        """
        if not failed.any():
            return wrong
        unfit = failed > 0
        passes &= ~unfit
        rows = np.flatnonzero(unfit & ~delete_mask(made.opcode))
        causes = [(BadReason.NUMBER_RANGE, message) for message in self._unfit]
        sums = Refusals.from_causes(rows, failed[rows] - 1, causes)
        others = np.flatnonzero(~unfit[wrong.rows])
        at = others.astype(np.int64)
        return sums.merged_refusals(Refusals(wrong.rows[at], wrong.reason.take(at), wrong.message.take(at)))


def _paired(events: Chunk, row: Int64s) -> Chunk:
    """Returns the events, with the opcode EVICTED for the delete of each row that the next event evicted. `row`: the index of each
    event in the input chunk.
    """
    evicted = (events.opcode == Opcode.DELETE) & by_retention(events)
    evicted[1:] &= events.opcode[:-1] != Opcode.UPDATE_BLOCK
    at = np.flatnonzero(evicted[:-1])
    comes = ~delete_mask(events.opcode[at + 1]) & ~by_retention(events)[at + 1]
    at = at[comes & (row[at + 1] == row[at] + 1) & (events.rank[at + 1] == events.rank[at])]
    if not len(at):
        return events
    opcode = events.opcode.copy()
    opcode[at] = EVICTED
    return Chunk(events.rank, opcode, events.flags, events.lanes, events.valid, events.is_whole)


def _events_schema(groups: Sequence[Field], arguments: Sequence[CompiledExpression]) -> Schema:
    fields = [Field(f"hs:argument-{i}", FieldType(each.tree.type.value)) for i, each in enumerate(arguments)]
    return Schema((*groups, *fields))


def _caused(given: Chunk, rows: Int64s, made: Chunk) -> Chunk:
    """Returns for each output in `made` the event that caused it, with the rank of the output. `rows`: the indexes of these events
    in `given`.
    """
    of = given.copied_rows(rows)
    return Chunk(made.rank, of.opcode, of.flags, of.lanes, of.valid)


class ChunkEvaluator:
    """Evaluates the row function `work` over chunks of the schema `given`, without state. Results are of the schema `made`."""

    def __init__(self, given: Schema, made: Schema, work: RowFunction) -> None:
        self.work = work
        self._given, self._made = given, made
        self._few = SmallBatches(work, given)
        self._picks = np.array(work.picks, np.int64)
        self._passes_all = work.picks == tuple(range(len(given)))
        fields, index = given.fields, given.index
        self._read = tuple((name, index[name], fields[index[name]].type) for name in work.fields if name in index)
        self._texts = tuple(i for _, i, type_ in self._read if type_ in CODED)
        self._of_event = tuple(name for name in work.fields if name not in index)

    def evaluate_chunk(
        self, given: Chunk, strings: StringTable, counted: Mapping[str, pa.Array] | None = None
    ) -> tuple[Chunk, Bools, Refusals]:
        """Returns all rows in the schema `made`, which of them pass, and the refused ones. `counted`: columns by name, other than
        fields, opcode and flags, that expressions read.
        """
        made = given if self._passes_all else self._laid_out(given)
        if (passes := self._few.try_evaluate(given, made)) is not None:
            return made, passes, NOTHING_REFUSED

        def columns(begin: int, end: int) -> dict[str, pa.Array]:
            beside = {name: column.slice(begin, end - begin) for name, column in (counted or {}).items()}
            return self._columns(given.between(begin, end), strings) | beside

        pieces = text_pieces(given.lanes, self._texts, strings)
        passes, refused = evaluate_pieces(self.work, pieces, columns, made, self._made, strings)
        return made, passes, refused

    def _columns(self, chunk: Chunk, strings: StringTable) -> dict[str, pa.Array]:
        columns = event_columns(self._of_event, self._given, chunk.opcode, chunk.flags) if self._of_event else {}
        for name, i, type_ in self._read:
            columns[name] = to_arrow(chunk.lanes[:, i], chunk.valid[:, i], type_, strings)
        return columns

    def _laid_out(self, chunk: Chunk) -> Chunk:
        """Returns rows of the schema `made` with the fields that pass through; computed fields are not set yet."""
        lanes = np.empty((len(chunk), len(self._made)), np.int64)
        valid = np.empty((len(chunk), len(self._made)), np.bool_)
        pick_columns(chunk.lanes, chunk.valid, self._picks, lanes, valid)
        return Chunk(chunk.rank, chunk.opcode, chunk.flags, lanes, valid, chunk.is_whole)
