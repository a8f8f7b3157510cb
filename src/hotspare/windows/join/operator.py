"""Join window (SPEC A27): the rows of a left and a right input that agree in the fields of the conditions.

    left events ──► rows of the left ───┐                          ┌─► lists of the left
                                        ├── in order, one by one ──┤                        ──► rows that meet ──► fields ──► out
    right events ─► rows of the right ──┘                          └─► lists of the right

Always regenerated, the outputs fold to the join of both sides' rows after every event. An event is emitted with all rows of the
other side that it meets, in order of their arrival, and with its flags. If the joined rows remain, an update is an update block for
each of them. If rows of a side are emitted alone, with nulls for the other one, the first rows that they meet update them.

Joined once (no-regenerates, or a side that streams), the facts are not kept. A fact is joined with the dimension at the time of its
insert or update. The rows emitted for a fact are kept in an index, for a later change or delete of the fact. With index pi_EMPTY
facts have to be inserts.

Fields of conditions that are equal have equal bits, as keys have: -0.0 becomes 0.0, also in outputs, and all NaN are equal.

A joined row whose expressions fail is not emitted; each failure is reported by a bad event, with the event that caused it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from hotspare.base.errors import Mistake, ProjectError
from hotspare.model.events import Opcode
from hotspare.model.project import Dialect, Expression, IndexType
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.types import FieldType, Schema
from hotspare.rows.changelog import DISTINCT, RELATION, Changelog, Opcodes
from hotspare.rows.chunk import Bools, Chunk, Int64s, Timeline
from hotspare.rows.ordering import merged_order
from hotspare.rows.refusals import NO_BAD_EVENTS, BadEvents, Refusals
from hotspare.table.lanes import CODED, coded_columns, to_arrow
from hotspare.table.loops import relation as relation_kernels
from hotspare.table.loops.multi_index import Lists
from hotspare.table.multi_index import MultiIndex
from hotspare.table.pages import Page, Pending
from hotspare.table.relation import Relation, Resolution, Shape
from hotspare.table.strings import StringTable
from hotspare.table.text_pieces import text_pieces
from hotspare.table.unloaded import LoadMode
from hotspare.windows.join import loops as k
from hotspare.windows.join.declaration import Identity, JoinWindow, identity, key_sources, outputs_of, sides, visible
from hotspare.windows.join.outputs import LEFT, RIGHT
from hotspare.windows.shared.contract import Operator, OperatorInput, OperatorResult
from hotspare.windows.shared.expressions import compile_assignments
from hotspare.windows.shared.keyed import bad_events, has_row_index, refusals, relation_of
from hotspare.windows.shared.rowwise import clear_partial_flags, evaluate_pieces, needs_index_error, passed_rows
from hotspare.windows.shared.stateless import Projection

SIDES = ("left", "right")
ROWS, PENDING = "rows", "pending"
"""Parts of the page, in addition to the rows of each side (SIDES): the rows emitted for facts that are joined once, and the work in
progress. Facts are stored only if their events need resolving, and without lists.
"""


@dataclass(slots=True)
class _PendingBatch:
    """A batch in progress. `events`: the resolved events of the left and of the right side. `side`, `row`: their common order, as
    the side and the row of each event. `counts`: the progress (MADE to CURSOR of `windows.join.loops`).
    """

    events: tuple[k.SideEvents, k.SideEvents]
    side: Int64s
    row: Int64s
    counts: Int64s


class JoinOperator(Operator):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        super().__init__(window, inputs)
        declared = cast(JoinWindow, window.window)
        self._at = sides([each.role for each in self.inputs])
        self._sides = tuple(self.inputs[number] for number in self._at)
        left, right = (each.schema for each in self._sides)
        found = identity(declared, left, right)
        assert found is not None
        self._once = declared.joins_once
        self._fact = RIGHT if found is Identity.RIGHT else LEFT
        self._conditions = tuple(tuple(s.index[pair[i]] for pair in declared.conditions) for i, s in enumerate((left, right)))
        self._doubles = tuple(
            tuple(at for at in self._conditions[i] if schema.fields[at].type is FieldType.DOUBLE)
            for i, schema in enumerate((left, right))
        )
        self._keeps_rows = self._once and has_row_index(declared, self._sides[self._fact].changelog)
        self._resolves_facts = self._once and self._sides[self._fact].changelog.opcodes is Opcodes.PUBLISHED
        self._no_lists = MultiIndex(Shape(1, (0,), (), (0,))).lists
        self.output_changelog = self._output_changelog(window, declared)
        is_stream = self._once and declared.index is IndexType.EMPTY
        if is_stream and self._sides[self._fact].changelog.opcodes is not Opcodes.INSERTS:
            raise needs_index_error(window, "joins each fact once", "let the facts be inserts only")
        self.table_inputs = (self._at[1 - self._fact],) if found in (Identity.LEFT, Identity.RIGHT) else ()
        self.keeps_only_tables = self._once and not self._keeps_rows and not self._resolves_facts
        self._rules = _rules(declared, found, self._fact)
        self._work = _projection(window, declared, left, right)
        self._columns = np.array([self._work.given.index.get(o.passed_field, -1) for o in self._work.assignments.outputs], np.int64)
        self._otherwise = np.full(len(self._columns), -1, np.int64)
        if found is Identity.SHARED:
            paired = dict(declared.conditions)
            for i, source in enumerate(key_sources(declared, left, right).values()):
                self._otherwise[i] = self._work.given.index[f"r_{paired[source.removeprefix('l_')]}"]
        self._fields = np.array([self._work.given.index[name] for name in self._work.fields], np.int64)
        self._types = tuple(self._work.given.fields[at].type for at in self._fields.tolist())
        self._texts = tuple(i for i, type_ in enumerate(self._types) if type_ in CODED)
        only_inserts = self._sides[self._fact].changelog.opcodes is Opcodes.INSERTS
        self._meets_at_once = only_inserts and not self._keeps_rows and bool(self._rules[self._fact, [k.ONCE, k.IS_KEY]].all())
        self._facts_begin = 0 if self._fact == LEFT else len(left)

    def _output_changelog(self, window: ResolvedWindow, declared: JoinWindow) -> Changelog:
        if self._once:
            facts = self._sides[self._fact].changelog
            self._keeps_rows = self._keeps_rows and not facts.is_distinct
            return facts.computed_from().indexed() if self._keeps_rows else facts
        given = [each.changelog.indexed() for each in self._sides]
        only_inserts = not any(declared.kind.emits_unmatched) and all(each.opcodes is Opcodes.INSERTS for each in given)
        return DISTINCT if only_inserts else RELATION

    def open(self) -> Page:
        page = Page({PENDING: Pending[_PendingBatch]()})
        for side, given in enumerate(self._sides):
            schema = given.schema
            if not self._once or side != self._fact:
                shape = Shape(len(schema), schema.key_indexes, coded_columns(schema), self._conditions[side])
                page.parts[SIDES[side]] = MultiIndex(shape, reading=LoadMode.AT_USE)
            elif self._resolves_facts:
                page.parts[SIDES[side]] = relation_of(schema)
        if self._keeps_rows:
            page.parts[ROWS] = relation_of(self.schema)
        return page

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        pending = cast(Pending[_PendingBatch], page.parts[PENDING])
        told: list[_InputBadEvents] = []
        if self._meets_at_once and pending.work is None and not len(inputs[self._at[1 - self._fact]]):
            return self._match_inserts(page, inputs, strings)
        if pending.work is None:
            pending.work = self._start_batch(page, inputs, timeline, strings, told)
        work = pending.work
        made = self._match_next(page, work, sum(len(chunk) for chunk in inputs) + timeline.extra_rows_max)
        chunk, passes, refused = self._laid_out(made, *work.events, strings)
        for side in (LEFT, RIGHT) if len(refused) else ():
            mine = np.flatnonzero(made[refused.rows, k.SIDE] == side)
            self._report_failures(refused, mine, made[:, k.EVENT], int(side), work.events[side], strings, told)
        if self._keeps_rows:
            chunk = self._update_index(page, chunk, passes, made, work, timeline, strings, told)
        else:
            chunk = passed_rows(chunk, passes)
        at = int(work.counts[k.AT])
        until = int(work.events[int(work.side[at])].rank[work.row[at]]) if at < len(work.row) else None
        if until is None:
            pending.work = None
            _settle(page)
        return OperatorResult(chunk, _in_order(told), until)

    def _match_inserts(self, page: Page, inputs: Sequence[Chunk], strings: StringTable) -> OperatorResult:
        """Returns the outputs of facts that are inserts, in a batch without events of the other side. Such a batch needs no order
        of events.
        """
        fact, told = self._fact, list[_InputBadEvents]()
        given = inputs[self._at[fact]].with_plain_doubles(self._doubles[fact])
        facts, others = _given(given, np.array(self._conditions[fact], np.int64)), self._lists_of(page, 1 - fact)
        self._prefetch_side(page, 1 - fact, given, facts.conditions)
        self._load_side(page, 1 - fact, facts)
        event, met = np.empty(len(given), np.int64), np.empty(len(given), np.int64)
        count = int(k.match_inserts(others, facts, self._rules[fact, k.KEEPS_OWN], event, met))
        event, met, which = event[:count], met[:count], given
        if count < len(given):
            which = Chunk(given.rank[event], given.opcode[event], given.flags[event], given.lanes[:0], given.valid[:0])

        def gathered(columns: Int64s) -> tuple[Int64s, Bools]:
            lanes, valid = _room(count, len(columns))
            k.gather_matched_inserts(event, met, facts, others, columns, self._facts_begin, lanes, valid)
            return lanes, valid

        made = clear_partial_flags(Chunk(which.rank, which.opcode, which.flags, *gathered(self._columns), given.is_whole))
        made, passes, refused = self._computed(made, *gathered(self._fields), strings)
        if len(refused):
            self._report_failures(refused, np.arange(len(refused)), event, fact, facts, strings, told)
        return OperatorResult(passed_rows(made, passes), _in_order(told))

    def _start_batch(
        self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable, told: list[_InputBadEvents]
    ) -> _PendingBatch:
        """Resolves the events of both sides and stores their rows; the lists of rows that meet are not changed yet. Adds bad events
        to `told`.
        """
        events: list[k.SideEvents] = []
        for side, (number, given) in enumerate(zip(self._at, self._sides, strict=True)):
            chunk, part = inputs[number].with_plain_doubles(self._doubles[side]), page.parts.get(SIDES[side])
            conditions = np.array(self._conditions[side], np.int64)
            self._prefetch_side(page, 1 - side, chunk, conditions)
            if part is None:
                events.append(_given(chunk, conditions))
                continue
            resolution = cast(MultiIndex | Relation, part).resolve_chunk(chunk, timeline)
            if len(resolution.refused_row):
                told.append(_InputBadEvents(refusals(resolution, chunk, given.schema, strings), number))
            rows = part.rows if isinstance(part, MultiIndex) else cast(Relation, part)
            events.append(_resolved(resolution, rows, conditions))
        for side in (LEFT, RIGHT):
            self._load_side(page, 1 - side, events[side])
        numbers, row = merged_order([events[self._at.index(number)].rank for number in (0, 1)])
        side_of = np.array([self._at.index(0), self._at.index(1)], np.int64)
        return _PendingBatch((events[LEFT], events[RIGHT]), side_of[numbers], row, np.zeros(k.COUNTS_WIDTH, np.int64))

    def _match_next(self, page: Page, work: _PendingBatch, room: int) -> Int64s:
        """Processes the next events. Returns at most `room + 2` outputs, as rows of `join_rows`."""
        indexes = [part for part in (page.parts.get(name) for name in SIDES) if isinstance(part, MultiIndex)]
        made = np.empty((room + 2, k.OUTPUT_WIDTH), np.int64)
        work.counts[[k.MADE, k.ROOM]] = 0, room
        while True:
            left, right = (self._lists_of(page, side) for side in (LEFT, RIGHT))
            if k.run_join(left, right, k.JoinOutputs(made, work.counts), self._rules, *work.events, work.side, work.row) == k.DONE:
                return made[: int(work.counts[k.MADE])]
            for index in indexes:
                index.make_room()

    @staticmethod
    def _prefetch_side(page: Page, side: int, chunk: Chunk, conditions: Int64s) -> None:
        """Requests the pages with rows of `side` that meet rows of `chunk`, ahead of use."""
        if isinstance(part := page.parts.get(SIDES[side]), MultiIndex):
            part.prefetch_matches(chunk.lanes, conditions)

    @staticmethod
    def _load_side(page: Page, side: int, events: k.SideEvents) -> None:
        """Loads the rows of `side` that meet these events of the other side, if a restore left them in the store."""
        part = page.parts.get(SIDES[side])
        if isinstance(part, MultiIndex) and part.has_unloaded_pages:
            row, columns = events.row[:, np.newaxis], events.conditions
            part.load_matches(events.lanes[row, columns][events.valid[row, columns].all(axis=1)])

    def _lists_of(self, page: Page, side: int) -> Lists:
        part = page.parts.get(SIDES[side])
        return part.lists if isinstance(part, MultiIndex) else self._no_lists

    def _laid_out(
        self, made: Int64s, left: k.SideEvents, right: k.SideEvents, strings: StringTable
    ) -> tuple[Chunk, Bools, Refusals]:
        """Returns joined rows, which of them pass, and the refused ones."""
        met, opcode, flags = (left, right), made[:, k.OPCODE].astype(np.uint8), made[:, k.FLAGS].astype(np.uint8)
        chunk = Chunk(made[:, k.RANK].copy(), opcode, flags, *_room(len(made), len(self.schema)))
        k.gather_matched(made, *met, self._columns, self._otherwise, chunk.lanes, chunk.valid)
        read, read_valid = _room(len(made), len(self._fields))
        if len(self._fields):
            k.gather_matched(made, *met, self._fields, np.full(len(self._fields), -1, np.int64), read, read_valid)
        return self._computed(chunk, read, read_valid, strings)

    def _computed(self, chunk: Chunk, read: Int64s, read_valid: Bools, strings: StringTable) -> tuple[Chunk, Bools, Refusals]:
        """Computes the fields of joined rows in `chunk`. Returns the rows, which of them pass, and the refused ones. `read`,
        `read_valid`: lanes and validity of the fields that expressions read.
        """

        def columns(begin: int, end: int) -> dict[str, pa.Array]:
            return {
                name: to_arrow(read[begin:end, i], read_valid[begin:end, i], type_, strings)
                for i, (name, type_) in enumerate(zip(self._work.fields, self._types, strict=True))
            }

        pieces = text_pieces(read, self._texts, strings)
        return chunk, *evaluate_pieces(self._work, pieces, columns, chunk, self.schema, strings)

    def _update_index(
        self,
        page: Page,
        chunk: Chunk,
        passes: Bools,
        made: Int64s,
        work: _PendingBatch,
        timeline: Timeline,
        strings: StringTable,
        told: list[_InputBadEvents],
    ) -> Chunk:
        """Applies joined rows of facts to their index, and returns its outputs. An update whose expressions fail deletes the row in
        the index. Adds bad events to `told`.
        """
        opcode = chunk.opcode.copy()
        opcode[~passes & (opcode == Opcode.UPSERT)] = Opcode.SAFE_DELETE
        kept = np.flatnonzero(passes | (opcode == Opcode.SAFE_DELETE))
        asked = Chunk(chunk.rank, opcode, chunk.flags, chunk.lanes, chunk.valid).copied_rows(kept)
        change = cast(Relation, page.parts[ROWS]).change(asked, timeline)
        if len(change.refused_row):
            facts = _rows_of(work.events[self._fact], made[kept, k.EVENT])
            told.append(_InputBadEvents(refusals(change, facts, self._sides[self._fact].schema, strings), self._at[self._fact]))
        return change.chunk

    def _report_failures(
        self,
        refused: Refusals,
        mine: Int64s,
        event: Int64s,
        side: int,
        events: k.SideEvents,
        strings: StringTable,
        told: list[_InputBadEvents],
    ) -> None:
        """Adds bad events to `told` for joined rows that failed: the entries `mine` of `refused`, with the events of `side` that
        caused them. `event` has the number of the event of each joined row.
        """
        at, caused = pa.array(mine), _rows_of(events, event[refused.rows[mine]])
        why = Refusals(np.arange(len(mine)), refused.reason.take(at), refused.message.take(at))
        told.append(_InputBadEvents(bad_events(why, caused, self._sides[side].schema, strings), self._at[side]))


@dataclass(frozen=True, slots=True)
class _InputBadEvents:
    """Bad events of input `number`, in the project's order of inputs."""

    bad: BadEvents
    number: int


def _in_order(told: Sequence[_InputBadEvents]) -> BadEvents:
    """Returns the bad events ordered by rank, and by input at equal ranks."""
    some = sorted((each for each in told if len(each.bad)), key=lambda each: each.number)
    return sum((each.bad for each in some), NO_BAD_EVENTS).by_rank()


def _room(count: int, width: int) -> tuple[Int64s, Bools]:
    """Allocates lanes and validity, arrays of shape [count, width]."""
    return np.empty((count, width), np.int64), np.empty((count, width), np.bool_)


def _given(chunk: Chunk, conditions: Int64s) -> k.SideEvents:
    """Returns the events of a chunk that needs no resolving; their rows are those of the chunk."""
    return k.SideEvents(chunk.rank, chunk.opcode, chunk.flags, np.arange(len(chunk)), chunk.lanes, chunk.valid, conditions)


def _resolved(resolution: Resolution, rows: Relation, conditions: Int64s) -> k.SideEvents:
    """Returns the resolved events of a chunk; their rows are those stored in `rows`."""
    made = resolution.output_records
    rank, slot = made[:, relation_kernels.RANK].copy(), made[:, relation_kernels.SLOT].copy()
    opcode, flags = (made[:, column].astype(np.uint8) for column in (relation_kernels.OPCODE, relation_kernels.FLAGS))
    return k.SideEvents(rank, opcode, flags, slot, rows.lanes, rows.valid, conditions)


def _rows_of(events: k.SideEvents, numbers: Int64s) -> Chunk:
    """Returns the events with these numbers as a chunk, with the values of their rows."""
    at = events.row[numbers]
    return Chunk(events.rank[numbers], events.opcode[numbers], events.flags[numbers], events.lanes[at], events.valid[at])


def _settle(page: Page) -> None:
    """Ends a batch: releases old versions of rows of both sides."""
    for part in (page.parts.get(name) for name in SIDES):
        if isinstance(part, MultiIndex):
            part.settle()
        elif isinstance(part, Relation):
            part.release_outputs()


def _rules(declared: JoinWindow, found: Identity, fact: int) -> Int64s:
    rules = np.zeros((2, k.RULES_WIDTH), np.int64)
    keeps, once = declared.kind.emits_unmatched, declared.joins_once
    own_key = {Identity.LEFT: LEFT, Identity.RIGHT: RIGHT}.get(found)
    for side in (LEFT, RIGHT):
        rules[side, [k.KEEPS_OWN, k.KEEPS_OTHER, k.IS_KEY]] = keeps[side], keeps[1 - side], side == own_key
        rules[side, [k.STORES, k.ONCE, k.SILENT]] = not once or side != fact, once and side == fact, once and side != fact
    return rules


def _projection(window: ResolvedWindow, declared: JoinWindow, left: Schema, right: Schema) -> Projection:
    """Returns the assignments of the window's fields, computed from fields of both sides. Raises ProjectError with all mistakes."""
    given = visible(left, right)
    outputs = outputs_of(declared, left, right)
    sources = key_sources(declared, left, right) | {o.name: o.source for o in outputs if o.expression is None}
    computed = {o.name: o.expression for o in outputs if o.expression is not None}
    computed |= {name: Expression(source, Dialect.SPARK_SQL) for name, source in sources.items()}
    fields = [(field, computed[field.name]) for field in window.schema.fields]
    work = Projection(compile_assignments(window, given, fields, initialization=declared.initialization), given)
    if work.reads_event(given):
        message = f"window {window.id} computes from ESP_OPCODE or ESP_FLAGS: a joined row is made of two events"
        raise ProjectError(str(window.id), [Mistake(window.window.place, message, "compute from fields of both sides")])
    return work
