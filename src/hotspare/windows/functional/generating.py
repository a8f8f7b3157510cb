"""A window that makes any number of events of each (SPEC A25): loops, generate, opcodes and keys that functions compute.

    published events ─► given: input rows ─► all events of the new and of the old values ─► rows: what was put out

An insert inserts the events that come of it. An update upserts those of the new values and deletes those that came of the old
values and of the new ones no more. A delete deletes those of its row. With an opcode function the event itself says what its
events do; old values and deletes then say nothing. The index of what was put out makes a changelog of a relation of that, and
gives deletes the values that went out.

Several inputs are taken in the order (rank, input). Each has its own fields: what an input does not have is null.

An event on which anything fails is a bad event as a whole: none of its events comes out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import cast

import numpy as np
import pyarrow as pa

from hotspare.expressions.programs import CompiledProgram
from hotspare.model.project import IndexType
from hotspare.model.resolved import ResolvedWindow
from hotspare.rows.changelog import INSERTS, PUBLISHED, RELATION, Changelog, Keys, Opcodes
from hotspare.rows.chunk import Chunk, Int64s, Timeline
from hotspare.rows.refusals import NO_BAD_EVENTS, BadEvents
from hotspare.table.pages import Column, Columns, Page
from hotspare.table.relation import Change, Relation
from hotspare.table.strings import StringTable
from hotspare.windows.functional.taking_apart import PASSED, Taker
from hotspare.windows.shared.contract import Applied, Input, Operator
from hotspare.windows.shared.keyed import refusals, relation_of, resolved_events
from hotspare.windows.shared.rowwise import GIVEN, ROWS, begin_counting, beside_fields, counter_parts, whole

PENDING = "pending"
"""Part of the page: what is not put out yet."""
ROWS_AT_ONCE = 256
"""About so many input rows are taken apart at a time."""


@dataclass(slots=True)
class _Given:
    """Rows of one input that are not taken apart yet, with the columns of what is counted."""

    chunk: Chunk
    beside: Mapping[str, pa.Array]

    def before(self, rank: int) -> tuple[_Given, _Given]:
        """Those of lower ranks, and the rest."""
        count = int(np.searchsorted(self.chunk.rank, rank))
        first = {name: column.slice(0, count) for name, column in self.beside.items()}
        rest = {name: column.slice(count) for name, column in self.beside.items()}
        return _Given(self.chunk.between(0, count), first), _Given(self.chunk.since(count), rest)


@dataclass(slots=True)
class _Asked:
    """What the index is asked for: of each event the input that it comes of, and its row among those of `given`."""

    chunk: Chunk
    side: Int64s
    row: Int64s
    given: list[Chunk]

    def split(self, count: int) -> tuple[_Asked, _Asked | None]:
        """The first so many, and the rest."""
        first = _Asked(self.chunk.between(0, count), self.side[:count], self.row[:count], self.given)
        if count >= len(self.chunk):
            return first, None
        return first, _Asked(self.chunk.since(count), self.side[count:], self.row[count:], self.given)


class UnsentEvents:
    """Input rows that are not taken apart yet, and events that the index was not asked for yet: nothing between batches."""

    def __init__(self) -> None:
        self.given: list[_Given] = []
        self.asked: _Asked | None = None
        self.bad = NO_BAD_EVENTS

    @property
    def until(self) -> int | None:
        """The rank of which outputs are still to come; None: nothing is."""
        if self.asked is not None:
            return int(self.asked.chunk.rank[0])
        return min((int(each.chunk.rank[0]) for each in self.given if len(each.chunk)), default=None)

    def freeze(self) -> UnsentEvents:
        assert self.until is None
        return UnsentEvents()

    def columns(self) -> Columns:
        return {"nothing": Column(np.zeros(0, np.int64))}

    def load(self, columns: Columns) -> None:
        return


class GeneratingWindow(Operator):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input], programs: Sequence[CompiledProgram]) -> None:
        """`programs`: one for each input."""
        super().__init__(window, inputs)
        self._takers = [Taker(window, given, program) for given, program in zip(self.inputs, programs, strict=True)]
        self._is_keyed = window.window.index is not IndexType.EMPTY
        self._says_opcode = programs[0].opcode is not None
        self._beside = tuple(dict.fromkeys(name for taker in self._takers for name in taker.beside))
        self.leaving = self._leaving()

    def _leaving(self) -> Changelog:
        inserts_only = all(taker.resolved.opcodes is Opcodes.INSERTS for taker in self._takers)
        if self._is_keyed:
            return INSERTS.indexed() if inserts_only and not self._says_opcode else RELATION
        if self._says_opcode:
            return PUBLISHED
        return INSERTS if inserts_only else Changelog(Opcodes.RESOLVED, Keys.ANY)

    @property
    def in_head(self) -> None:
        return None

    def open(self) -> Page:
        page = Page({PENDING: UnsentEvents(), **counter_parts(self._beside)})
        if self._is_keyed:
            for number, given in enumerate(self.inputs):
                if given.changelog.opcodes is Opcodes.PUBLISHED:
                    page.parts[_index_of(number)] = relation_of(given.schema, given=given.changelog)
            page.parts[ROWS] = relation_of(self.schema, given=PUBLISHED)
        return page

    def divide(self, page: Page, shard: int) -> None:
        begin_counting(self._beside, page, shard)

    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        pending = cast(UnsentEvents, page.parts[PENDING])
        if any(map(len, inputs)):
            chunks = [self._resolved(page, number, chunk, timeline, strings) for number, chunk in enumerate(inputs)]
            numbers = _beside(self._beside, page, chunks, timeline)
            pending.given = [_Given(chunk, beside) for chunk, beside in zip(chunks, numbers, strict=True)]
        room = 3 * sum(map(len, inputs)) + timeline.extra_rows_max
        made: list[Chunk] = []
        while room > 0 and pending.until is not None:
            if pending.asked is None:
                self._take_apart(pending, strings)
                continue
            part, pending.asked = pending.asked.split(max(room // 2, 1))
            made.append(self._put_out(page, part, timeline, strings, pending))
            room -= len(part.chunk) * 2
        return Applied(_joined(made, len(self.schema)), _bad_before(pending), pending.until)

    def _resolved(self, page: Page, number: int, chunk: Chunk, timeline: Timeline, strings: StringTable) -> Chunk:
        index = page.parts.get(_index_of(number))
        if index is not None and len(chunk):
            chunk, refused = resolved_events(index, chunk, timeline, self.inputs[number].schema, strings)
            cast(UnsentEvents, page.parts[PENDING]).bad += refused
        return whole(chunk)

    def _take_apart(self, pending: UnsentEvents, strings: StringTable) -> None:
        """Some of the input rows; those of one rank stay together."""
        ranks = np.sort(np.concatenate([each.chunk.rank[:ROWS_AT_ONCE] for each in pending.given]))
        until = int(ranks[min(ROWS_AT_ONCE, len(ranks)) - 1]) + 1
        now, pending.given = (list(each) for each in zip(*(given.before(until) for given in pending.given), strict=True))
        taken = [taker.take(each.chunk, each.beside, strings) for taker, each in zip(self._takers, now, strict=True)]
        for each in taken:
            pending.bad += each.bad
        side = np.concatenate([np.full(len(each.row), number) for number, each in enumerate(taken)])
        row = np.concatenate([each.row for each in taken])
        if not len(row):
            return
        chunk = reduce(Chunk.joined, (each.chunk for each in taken))
        order = np.argsort(chunk.rank, kind="stable")
        pending.asked = _Asked(chunk.taken(order), side[order], row[order], [each.chunk for each in now])

    def _put_out(self, page: Page, part: _Asked, timeline: Timeline, strings: StringTable, pending: UnsentEvents) -> Chunk:
        chunk = part.chunk
        if not self._is_keyed:
            opcode = chunk.opcode if self._says_opcode else PASSED[chunk.opcode]
            return Chunk(chunk.rank, opcode, chunk.flags, chunk.lanes, chunk.valid, is_whole=True)
        change: Change = cast(Relation, page.parts[ROWS]).change(chunk, timeline)
        for number in np.unique(part.side[change.refused_row]).tolist():
            mine = np.flatnonzero(part.side[change.refused_row] == number)
            of = part.given[number].taken(part.row[change.refused_row[mine]])
            rows = Chunk(chunk.rank[change.refused_row[mine]], of.opcode, of.flags, of.lanes, of.valid)
            refused = change._replace(refused_row=np.arange(len(mine)), refused_why=change.refused_why[mine])
            pending.bad += refusals(refused, rows, self.inputs[number].schema, strings)
        return change.chunk


def _index_of(number: int) -> str:
    """The part of the page that resolves what comes by an input."""
    return GIVEN if number == 0 else f"{GIVEN}{number}"


def _beside(names: Sequence[str], page: Page, chunks: Sequence[Chunk], timeline: Timeline) -> list[dict[str, pa.Array]]:
    """What stands beside fields, for the rows of each input: counted in the order (rank, input)."""
    if len(chunks) == 1 or not names:
        return [beside_fields(names, page, chunks[0], timeline), *({} for _ in chunks[1:])]
    rank, opcode = (np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in ("rank", "opcode"))
    order = np.argsort(rank, kind="stable")
    nothing = np.empty((len(rank), 0))
    together = Chunk(rank[order], opcode[order], opcode[order], nothing.astype(np.int64), nothing.astype(np.bool_))
    columns = beside_fields(names, page, together, timeline)
    back = np.argsort(order, kind="stable")
    ends = np.cumsum([0, *map(len, chunks)])
    places = [pa.array(back[begin:end]) for begin, end in pairwise(ends)]
    return [{name: column.take(place) for name, column in columns.items()} for place in places]


def _bad_before(pending: UnsentEvents) -> BadEvents:
    """By rank, those of which nothing before can come any more."""
    bad, until = pending.bad.by_rank(), pending.until
    count = len(bad) if until is None else int(np.searchsorted(bad.rank, until))
    pending.bad = bad.slice(count, len(bad)) if count < len(bad) else NO_BAD_EVENTS
    return bad.slice(0, count) if count else NO_BAD_EVENTS


def _joined(chunks: Sequence[Chunk], width: int) -> Chunk:
    if not chunks:
        return Chunk.empty(width)
    if len(chunks) == 1:
        return chunks[0]
    made = reduce(Chunk.joined, chunks)
    return Chunk(made.rank, made.opcode, made.flags, made.lanes, made.valid, is_whole=True)
