"""Join window (SPEC A27): the rows of a left and a right input that agree in the fields of the conditions.

    left events ──► resolved ──┐                          ┌─► store of the left side
                               ├── in order, one by one ──┤                              ──► who meets whom ──► fields ──► out
    right events ─► resolved ──┘                          └─► store of the right side

Always regenerated, what comes out folds to the join of both sides' rows after every event: an event comes with all rows of the
other side that it meets, in order of their arrival, and with its flags. Where the joined rows stay, an update is an update block
for each of them. Where rows of a side come out alone, with nulls for the other one, the first that they meet updates them.

Joined once (no-regenerates, or a side that streams), the facts are not kept: a fact is joined with the dimension as it is when the
fact comes or changes, and what was put out for it stays in an index, which a later change or delete asks. With index pi_EMPTY facts
have to be inserts.

A joined row whose expressions fail does not come out; each time that it would, a bad event says so, with the event that caused it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from hotspare.engine.expressions.windows import compile_assignments
from hotspare.engine.head.stateless import Evaluation, Projection
from hotspare.engine.kernels import join as k
from hotspare.engine.operators.contract import Applied, Input, Operator
from hotspare.engine.operators.keyed import bad_events, refusals, relation_of
from hotspare.engine.operators.rowwise import forgetful, passed_rows
from hotspare.engine.rows.changelog import DISTINCT, RELATION, Changelog, Keys, Opcodes
from hotspare.engine.rows.chunk import Bools, Chunk, Int64s, Timeline
from hotspare.engine.rows.ordering import in_order
from hotspare.engine.rows.refusals import NO_BAD_EVENTS, BadEvents, Refusals
from hotspare.engine.state.lanes import coded_columns, to_arrow, to_lane
from hotspare.engine.state.multi_index import MultiIndex
from hotspare.engine.state.pages import Columns, Page
from hotspare.engine.state.relation import Relation, Shape
from hotspare.engine.state.strings import StringTable
from hotspare.errors import Mistake, ProjectError
from hotspare.model.events import Opcode
from hotspare.model.project import Dialect, Expression, IndexType
from hotspare.model.resolve import ResolvedWindow
from hotspare.model.types import Schema
from hotspare.model.windows.join import LEFT, RIGHT, Identity, JoinWindow, identity, key_sources, sides, visible

SIDES = ("left", "right")
GIVEN = ("left given", "right given")
ROWS, PENDING = "rows", "pending"
"""Parts of the page, beside a store for each side: indexes that resolve, what was put out for facts, the work under way."""


@dataclass(slots=True)
class _Work:
    """Resolved chunks, left and right; the order of their events; and how far they are taken."""

    chunks: tuple[Chunk, Chunk]
    side: Int64s
    row: Int64s
    counts: Int64s


class Pending:
    """Work that waits for room. There is none when a snapshot is taken or strings are forgotten."""

    def __init__(self) -> None:
        self.work: _Work | None = None

    def freeze(self) -> Pending:
        return Pending()

    def columns(self) -> Columns:
        return {}

    def load(self, columns: Columns) -> None:
        pass

    def mark(self, used: Bools) -> None:
        pass

    def recode(self, codes: Int64s) -> None:
        pass


class JoinOperator(Operator):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input]) -> None:
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
        self._keeps_rows = self._once and declared.index is not IndexType.EMPTY
        self._resolves = tuple(self._has_to_resolve(side) for side in (LEFT, RIGHT))
        self.leaving = self._what_leaves(window, declared)
        is_stream = self._once and declared.index is IndexType.EMPTY
        if is_stream and self._sides[self._fact].changelog.opcodes is not Opcodes.INSERTS:
            raise forgetful(window, "joins each fact once", "let the facts be inserts only")
        self._rules = _rules(declared, found, self._fact)
        self._work = _projection(window, declared, left, right)
        self._columns = np.array([self._work.given.index.get(o.passed_field, -1) for o in self._work.assignments.outputs], np.int64)
        self._otherwise = np.full(len(self._columns), -1, np.int64)
        if found is Identity.SHARED:
            paired = dict(declared.conditions)
            for i, source in enumerate(key_sources(declared, left, right).values()):
                self._otherwise[i] = self._work.given.index[f"r_{paired[source.removeprefix('l_')]}"]
        self._fields = np.array([self._work.given.index[name] for name in self._work.fields], np.int64)

    def _has_to_resolve(self, side: int) -> bool:
        given = self._sides[side].changelog
        if self._once and side == self._fact:
            return given.opcodes is Opcodes.PUBLISHED
        return given.opcodes is Opcodes.PUBLISHED or given.keys is Keys.ANY

    def _what_leaves(self, window: ResolvedWindow, declared: JoinWindow) -> Changelog:
        if self._once:
            facts = self._sides[self._fact].changelog
            self._keeps_rows = self._keeps_rows and not facts.is_distinct
            return facts.computed_from().indexed() if self._keeps_rows else facts
        given = [each.changelog.indexed() for each in self._sides]
        only_inserts = not any(declared.kind.keeps) and all(each.opcodes is Opcodes.INSERTS for each in given)
        return DISTINCT if only_inserts else RELATION

    def open(self) -> Page:
        page = Page({PENDING: Pending()})
        for side, given in enumerate(self._sides):
            schema = given.schema
            page.parts[SIDES[side]] = MultiIndex(
                Shape(len(schema), schema.key_indexes, coded_columns(schema)), self._conditions[side]
            )
            if self._resolves[side]:
                page.parts[GIVEN[side]] = relation_of(schema)
        if self._keeps_rows:
            page.parts[ROWS] = relation_of(self.schema)
        return page

    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        pending = cast(Pending, page.parts[PENDING])
        told: list[_Told] = []
        if pending.work is None:
            pending.work = self._begun(page, inputs, timeline, strings, told)
        work = pending.work
        stores = [cast(MultiIndex, page.parts[name]) for name in SIDES]
        left, right = (_events(*pair) for pair in zip(work.chunks, self._conditions, strict=True))
        room = sum(len(chunk) for chunk in inputs) + timeline.extra_rows_max
        made = np.empty((room + 2, k.MADE_WIDTH), np.int64)
        work.counts[[k.MADE, k.ROOM]] = 0, room
        k.join(stores[LEFT].store, stores[RIGHT].store, k.Meeting(made, work.counts), self._rules, left, right, work.side, work.row)
        made = made[: int(work.counts[k.MADE])]
        chunk, done = self._laid_out(made, left, right, stores, strings)
        for store in stores:
            store.settle()
        self._tell(done.refused, made, work.chunks, strings, told)
        chunk = self._asked(page, chunk, done, made, work, timeline, strings, told) if self._keeps_rows else _passed(chunk, done)
        at = int(work.counts[k.AT])
        until = int(work.chunks[int(work.side[at])].rank[work.row[at]]) if at < len(work.row) else None
        if until is None:
            pending.work = None
        return Applied(chunk, _in_order(told), until)

    def _begun(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable, told: list[_Told]) -> _Work:
        """The events of both sides, resolved, with room for all of them in the stores."""
        chunks: list[Chunk] = []
        for side, (number, given) in enumerate(zip(self._at, self._sides, strict=True)):
            chunk = inputs[number]
            if self._resolves[side]:
                change = cast(Relation, page.parts[GIVEN[side]]).change(chunk, timeline)
                told.append(_Told(refusals(change, chunk, given.schema, strings), number))
                chunk = change.chunk
            chunks.append(chunk)
            if not self._once or side != self._fact:
                cast(MultiIndex, page.parts[SIDES[side]]).reserve(len(chunk))
        numbers, row = in_order([chunks[self._at.index(number)] for number in (0, 1)])
        side_of = np.array([self._at.index(0), self._at.index(1)], np.int64)
        return _Work((chunks[LEFT], chunks[RIGHT]), side_of[numbers], row, np.zeros(k.COUNTS_WIDTH, np.int64))

    def _laid_out(
        self, made: Int64s, left: k.Events, right: k.Events, stores: Sequence[MultiIndex], strings: StringTable
    ) -> tuple[Chunk, Evaluation]:
        """Joined rows, those that do not pass as well."""
        count, met = len(made), (left, right, stores[LEFT].store, stores[RIGHT].store)
        lanes = np.empty((count, len(self.schema)), np.int64)
        valid = np.empty((count, len(self.schema)), np.bool_)
        k.gather_met(made, *met, self._columns, self._otherwise, lanes, valid)
        opcode = made[:, k.OPCODE].astype(np.uint8)
        columns: dict[str, pa.Array] = {}
        if len(self._fields):
            read = np.empty((count, len(self._fields)), np.int64), np.empty((count, len(self._fields)), np.bool_)
            k.gather_met(made, *met, self._fields, np.full(len(self._fields), -1, np.int64), *read)
            for i, name in enumerate(self._work.fields):
                type_ = self._work.given.fields[int(self._fields[i])].type
                columns[name] = to_arrow(np.ascontiguousarray(read[0][:, i]), np.ascontiguousarray(read[1][:, i]), type_, strings)
        done = self._work.evaluate(columns, opcode)
        for i, values in done.computed.items():
            lanes[:, i], valid[:, i] = to_lane(values, self.schema.fields[i].type, strings)
        return Chunk(made[:, k.RANK].copy(), opcode, made[:, k.FLAGS].astype(np.uint8), lanes, valid), done

    def _asked(
        self,
        page: Page,
        chunk: Chunk,
        done: Evaluation,
        made: Int64s,
        work: _Work,
        timeline: Timeline,
        strings: StringTable,
        told: list[_Told],
    ) -> Chunk:
        """What the index of joined facts says. A change that fails takes its row away; a delete needs no values."""
        opcode = chunk.opcode.copy()
        opcode[~done.passes & (opcode == Opcode.UPSERT)] = Opcode.SAFE_DELETE
        kept = np.flatnonzero(done.passes | (opcode == Opcode.SAFE_DELETE))
        asked = Chunk(chunk.rank, opcode, chunk.flags, chunk.lanes, chunk.valid).taken(kept)
        change = cast(Relation, page.parts[ROWS]).change(asked, timeline)
        if len(change.refused_row):
            facts = work.chunks[self._fact].taken(made[kept, k.EVENT])
            told.append(_Told(refusals(change, facts, self._sides[self._fact].schema, strings), self._at[self._fact]))
        return change.chunk

    def _tell(self, refused: Refusals, made: Int64s, chunks: Sequence[Chunk], strings: StringTable, told: list[_Told]) -> None:
        """Joined rows that fail, with the events that caused them."""
        for side in (LEFT, RIGHT) if len(refused) else ():
            mine = np.flatnonzero(made[refused.rows, k.SIDE] == side)
            at = pa.array(mine)
            events = Refusals(made[refused.rows[mine], k.EVENT], refused.reason.take(at), refused.message.take(at))
            told.append(_Told(bad_events(events, chunks[side], self._sides[side].schema, strings), self._at[side]))


@dataclass(frozen=True, slots=True)
class _Told:
    """Bad events that came by the input of that number."""

    bad: BadEvents
    number: int


def _in_order(told: Sequence[_Told]) -> BadEvents:
    """By rank, and then by input."""
    some = sorted((each for each in told if len(each.bad)), key=lambda each: each.number)
    return sum((each.bad for each in some), NO_BAD_EVENTS).by_rank()


def _passed(chunk: Chunk, done: Evaluation) -> Chunk:
    return passed_rows(chunk, done.passes)


def _events(chunk: Chunk, conditions: Sequence[int]) -> k.Events:
    return k.Events(chunk.rank, chunk.opcode, chunk.flags, chunk.lanes, chunk.valid, np.array(conditions, np.int64))


def _rules(declared: JoinWindow, found: Identity, fact: int) -> Int64s:
    rules = np.zeros((2, k.RULES_WIDTH), np.int64)
    keeps, once = declared.kind.keeps, declared.joins_once
    own_key = {Identity.LEFT: LEFT, Identity.RIGHT: RIGHT}.get(found)
    for side in (LEFT, RIGHT):
        rules[side, [k.KEEPS_OWN, k.KEEPS_OTHER, k.IS_KEY]] = keeps[side], keeps[1 - side], side == own_key
        rules[side, [k.STORES, k.ONCE, k.SILENT]] = not once or side != fact, once and side == fact, once and side != fact
    return rules


def _projection(window: ResolvedWindow, declared: JoinWindow, left: Schema, right: Schema) -> Projection:
    """Each field of the window of those of both sides. ProjectError with all mistakes."""
    given = visible(left, right)
    sources = key_sources(declared, left, right) | {o.name: o.source for o in declared.outputs if o.expression is None}
    computed = {o.name: o.expression for o in declared.outputs if o.expression is not None}
    computed |= {name: Expression(source, Dialect.SPARK_SQL) for name, source in sources.items()}
    work = Projection(compile_assignments(window, given, [(f, computed[f.name]) for f in window.schema.fields]), given)
    if work.reads_event(given):
        message = f"window {window.id} computes from ESP_OPCODE or ESP_FLAGS: a joined row comes of two events"
        raise ProjectError(str(window.id), [Mistake(window.window.place, message, "compute from fields of both sides")])
    return work
