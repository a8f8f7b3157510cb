"""A window that makes any number of events of each (SPEC A25): loops, generate, opcodes and keys that functions compute.

    published events ─► given: input rows ─► all events of the new and of the old values ─► rows: what was put out

An insert inserts the events that come of it. An update upserts those of the new values and deletes those that came of the old
values and of the new ones no more. A delete deletes those of its row. With an opcode function the event itself says what its
events do; old values and deletes then say nothing. The index of what was put out makes a changelog of a relation of that, and
gives deletes the values that went out.

An event on which anything fails is a bad event as a whole: none of its events comes out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import cast

import numpy as np
import pyarrow as pa

from hotspare.engine.expressions.checking import COUNTER_FIELD, POSITION_FIELD
from hotspare.engine.expressions.compiled import EVENT_FIELDS
from hotspare.engine.expressions.programs import CompiledProgram, ComputedEvents, run_program
from hotspare.engine.head.stateless import OF_EVENT, deletes, event_columns, reported
from hotspare.engine.operators.contract import Applied, Input, Operator
from hotspare.engine.operators.keyed import bad_events, refusals, relation_of, resolved_events
from hotspare.engine.operators.rowwise import (
    COUNTER,
    GIVEN,
    ROWS,
    begin_counting,
    counted,
    field_columns,
    forgetful,
    read_of,
    unresolved,
    whole,
)
from hotspare.engine.rows.bad_reasons import BadReason
from hotspare.engine.rows.changelog import INSERTS, PUBLISHED, RELATION, Changelog, Keys, Opcodes
from hotspare.engine.rows.chunk import Bools, Chunk, Int64s, Timeline, UInt8s
from hotspare.engine.rows.elementwise import cut_texts
from hotspare.engine.rows.refusals import NO_BAD_EVENTS, BadEvents, Refusals
from hotspare.engine.state.lanes import to_lanes
from hotspare.engine.state.pages import Column, Columns, Counters, Page
from hotspare.engine.state.relation import Change, Relation
from hotspare.engine.state.strings import StringTable
from hotspare.errors import Mistake, ProjectError
from hotspare.model.events import Opcode
from hotspare.model.project import IndexType
from hotspare.model.resolve import ResolvedWindow

PENDING = "pending"
"""Part of the page: what is not put out yet."""
ROWS_AT_ONCE = 256
"""So many input rows are taken apart at a time."""
_OPCODES = {
    **dict.fromkeys(("i", "insert"), Opcode.INSERT),
    **dict.fromkeys(("u", "update"), Opcode.UPDATE),
    **dict.fromkeys(("p", "upsert"), Opcode.UPSERT),
    **dict.fromkeys(("d", "delete"), Opcode.DELETE),
    **dict.fromkeys(("s", "sd", "safedelete"), Opcode.SAFE_DELETE),
}
_UNSAID = 0


@dataclass(slots=True)
class _Asked:
    """What the index is asked for, and the row of `given` that each event comes of."""

    chunk: Chunk
    row: Int64s
    given: Chunk


class UnsentEvents:
    """Input rows that are not taken apart yet, and events that the index was not asked for yet: nothing between batches."""

    def __init__(self) -> None:
        self.given: Chunk | None = None
        self.columns_beside: Mapping[str, pa.Array] = {}
        self.asked: _Asked | None = None
        self.bad = NO_BAD_EVENTS

    def freeze(self) -> UnsentEvents:
        assert self.given is None and self.asked is None
        return UnsentEvents()

    def columns(self) -> Columns:
        return {"nothing": Column(np.zeros(0, np.int64))}

    def load(self, columns: Columns) -> None:
        return


class GeneratingWindow(Operator):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input], program: CompiledProgram) -> None:
        super().__init__(window, inputs)
        (self._given,) = self.inputs
        self._program = program
        self._is_keyed = window.window.index is not IndexType.EMPTY
        self._read = read_of(
            self._given.schema, (*program.fields, *(n for n in self.schema.names if n in self._given.schema.index))
        )
        self._of_event = tuple(n for n in program.fields if n in EVENT_FIELDS and n not in self._given.schema.index)
        self._counted = tuple(name for name in program.fields if name in (COUNTER_FIELD, POSITION_FIELD))
        self._keys = self.schema.key_indexes
        self._text_bytes_max = window.window.text_bytes_max
        log = self._given.changelog
        if not self._is_keyed and log.opcodes is Opcodes.PUBLISHED:
            raise unresolved(window)
        self._resolved = log.computed_from() if self._is_keyed else log
        if self._resolved.opcodes is not Opcodes.INSERTS and program.opcode is None:
            self._check_repeatable(window)
        self.leaving = self._leaving()

    def _check_repeatable(self, window: ResolvedWindow) -> None:
        """The events of old values have to be found again."""
        if not self._is_keyed and any(name in OF_EVENT and name not in self._given.schema.index for name in self._program.fields):
            raise forgetful(window, "computes from the event itself", "compute from fields alone")
        of_event = {name for name in OF_EVENT if name not in self._given.schema.index}
        for where, reads in self._what_makes_keys():
            if of_event & reads:
                message = (
                    f"window {window.id} computes {where} from what an event is, not from its fields, and "
                    "rows are updated and deleted: "
                    "what was put out for a row cannot be found again"
                )
                hint = "compute keys from fields alone, make the source insert-only, or give the window an opcode"
                raise ProjectError(str(window.id), [Mistake(window.window.place, message, hint)])

    def _what_makes_keys(self) -> list[tuple[str, set[str]]]:
        """What decides which events there are and their keys, with all that it reads."""
        keys = {self.schema.fields[i].name for i in self._keys}
        found: list[tuple[str, set[str]]] = []
        for steps, what in ((self._program.own, "a key"), *((loop.steps, "a key of a loop") for loop in self._program.loops)):
            found += [(what, _reads(self._program, step.expression.fields)) for step in steps.outputs if step.name in keys]
        found += [("the elements of a loop", _reads(self._program, loop.items.fields)) for loop in self._program.loops]
        if self._program.generate is not None:
            found.append(("generate", _reads(self._program, self._program.generate.fields)))
        return found

    def _leaving(self) -> Changelog:
        if self._is_keyed:
            inserts_only = self._resolved.opcodes is Opcodes.INSERTS and self._program.opcode is None
            return INSERTS.indexed() if inserts_only else RELATION
        if self._program.opcode is not None:
            return PUBLISHED
        return INSERTS if self._resolved.opcodes is Opcodes.INSERTS else Changelog(Opcodes.RESOLVED, Keys.ANY)

    @property
    def in_head(self) -> None:
        return None

    def open(self) -> Page:
        page = Page({PENDING: UnsentEvents()})
        if self._counted:
            page.parts[COUNTER] = Counters(1)
        if self._is_keyed:
            if self._given.changelog.opcodes is Opcodes.PUBLISHED:
                page.parts[GIVEN] = relation_of(self._given.schema, given=self._given.changelog)
            page.parts[ROWS] = relation_of(self.schema, given=PUBLISHED)
        return page

    def divide(self, page: Page, shard: int) -> None:
        begin_counting(self._counted, page, shard)

    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        pending = cast(UnsentEvents, page.parts[PENDING])
        (chunk,) = inputs
        if len(chunk):
            if GIVEN in page.parts:
                chunk, refused = resolved_events(page.parts[GIVEN], chunk, timeline, self._given.schema, strings)
                pending.bad += refused
            chunk = whole(chunk)
            pending.columns_beside = counted(self._counted, page, chunk)
            pending.given = chunk if len(chunk) else None
        room = 3 * len(inputs[0]) + timeline.extra_rows_max
        made: list[Chunk] = []
        while room > 0 and (pending.asked is not None or pending.given is not None):
            if pending.asked is None:
                pending.bad += self._take_apart(pending, strings)
                continue
            asked = pending.asked
            count = max(room // 2, 1)
            part = asked.chunk.between(0, count)
            pending.asked = _Asked(asked.chunk.since(count), asked.row[count:], asked.given) if count < len(asked.chunk) else None
            done, refused = self._put_out(page, part, asked.row[:count], asked.given, timeline, strings)
            made.append(done)
            pending.bad += refused
            room -= len(part) * 2
        until = _until(pending)
        return Applied(_joined(made, len(self.schema)), _bad_before(pending, until), until)

    def _take_apart(self, pending: UnsentEvents, strings: StringTable) -> BadEvents:
        """Some of the input rows; an update block stays together."""
        given = pending.given
        assert given is not None
        count = min(ROWS_AT_ONCE, len(given))
        if count < len(given) and given.opcode[count - 1] == Opcode.UPDATE_BLOCK:
            count += 1
        now, beside = given.between(0, count), {n: c.slice(0, count) for n, c in pending.columns_beside.items()}
        pending.given = given.since(count) if count < len(given) else None
        pending.columns_beside = {n: c.slice(count) for n, c in pending.columns_beside.items()}
        columns = event_columns(self._of_event, self._given.schema, now.opcode, now.flags) | field_columns(self._read, now, strings)
        ran = run_program(self._program, columns | beside, len(now), self.schema)
        refused = reported([failures for failures in ran.failed if len(failures)], now.opcode)
        failed = np.zeros(len(now), np.bool_)
        for failures in ran.failed:
            failed[failures.rows] = True
        opcode, wrong = _opcodes(ran.opcode, len(now))
        wrong &= ~failed & ~deletes(now.opcode)
        asked = self._asked(now, ran.made, opcode, failed | wrong, strings)
        if len(asked.row):
            pending.asked = asked
        said = Refusals.of(np.flatnonzero(wrong), np.zeros(int(wrong.sum()), np.int64), [(str(BadReason.OPCODE), _NO_OPCODE)])
        return bad_events(refused, now, self._given.schema, strings) + bad_events(said, now, self._given.schema, strings)

    def _asked(self, now: Chunk, made: ComputedEvents, opcode: UInt8s, failed: Bools, strings: StringTable) -> _Asked:
        """What the index is asked for: of each row what it says, old values after the new ones."""
        values = [cut_texts(made.values[f.name], self._text_bytes_max) for f in self.schema.fields]
        lanes, valid = to_lanes(values, self.schema, strings)
        is_old = np.zeros(len(now), np.bool_)
        blocks = np.flatnonzero(now.opcode == Opcode.UPDATE_BLOCK)
        is_old[blocks + 1] = True
        if self._program.opcode is not None:
            keeps = ~(failed | is_old | deletes(now.opcode))[made.row]
            said = opcode[made.row]
            asked = np.where(said == _UNSAID, _OF_ROW[now.opcode[made.row]], said)
        else:
            keeps = ~failed[made.row]
            asked = _OF_ROW[now.opcode[made.row]]
            keeps &= ~self._stays(made, lanes, valid, is_old, failed)
        rows = np.flatnonzero(keeps)
        row = made.row[rows]
        chunk = Chunk(
            now.rank[row], asked[rows].astype(np.uint8), now.flags[row], lanes.take(rows, axis=0), valid.take(rows, axis=0)
        )
        return _Asked(chunk, row, now)

    def _stays(self, made: ComputedEvents, lanes: Int64s, valid: Bools, is_old: Bools, failed: Bools) -> Bools:
        """Events of old values whose key the new values have, too."""
        old = is_old[made.row]
        stays = np.zeros(len(old), np.bool_)
        if not self._is_keyed or not old.any():
            return stays
        block = made.row - old
        fresh = ~old & ~failed[made.row]
        told = np.column_stack([block, *(lanes[:, i] for i in self._keys), *(valid[:, i].astype(np.int64) for i in self._keys)])
        _, number = np.unique(told, axis=0, return_inverse=True)
        number = number.ravel()
        new_ones = np.zeros(number.max(initial=0) + 1, np.bool_)
        new_ones[number[fresh]] = True
        found: Bools = old & new_ones[number]
        return found

    def _put_out(
        self, page: Page, part: Chunk, row: Int64s, given: Chunk, timeline: Timeline, strings: StringTable
    ) -> tuple[Chunk, BadEvents]:
        if not self._is_keyed:
            opcode = part.opcode if self._program.opcode is not None else _PASSED[part.opcode]
            return Chunk(part.rank, opcode, part.flags, part.lanes, part.valid, is_whole=True), NO_BAD_EVENTS
        change: Change = cast(Relation, page.parts[ROWS]).change(part, timeline)
        if not len(change.refused_row):
            return change.chunk, NO_BAD_EVENTS
        of = given.taken(row)
        return change.chunk, refusals(
            change, Chunk(part.rank, of.opcode, of.flags, of.lanes, of.valid), self._given.schema, strings
        )


_NO_OPCODE = "the opcode function gives no opcode: insert, update, upsert, delete or safedelete"
_OF_ROW = np.array(
    [
        {Opcode.UPDATE_BLOCK: Opcode.UPSERT, Opcode.DELETE: Opcode.SAFE_DELETE}.get(Opcode(i), Opcode(i)) if i else 0
        for i in range(max(Opcode) + 1)
    ],
    np.uint8,
)
"""By the opcode of a resolved event what its events ask the index for. A delete of what never came out is no mistake."""
_PASSED = np.array(
    [
        {Opcode.UPSERT: Opcode.INSERT, Opcode.SAFE_DELETE: Opcode.DELETE}.get(Opcode(i), Opcode(i)) if i else 0
        for i in range(max(Opcode) + 1)
    ],
    np.uint8,
)
"""What becomes of it where there is no index: who is behind gets what came and what went."""


def _reads(program: CompiledProgram, names: Sequence[str]) -> set[str]:
    """All that these names are made of."""
    steps = {
        step.name: step.expression.fields for each in (program.own, *(loop.steps for loop in program.loops)) for step in each.all
    }
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            if name not in program.given:
                waiting += steps.get(name, ())
    return found


def _opcodes(texts: pa.Array | None, count: int) -> tuple[UInt8s, Bools]:
    """The opcode that each text says, _UNSAID where it is null; and where it says none."""
    said = np.full(count, _UNSAID, np.uint8)
    wrong = np.zeros(count, np.bool_)
    if texts is None:
        return said, wrong
    known = {text: _OPCODES.get(text.strip().lower()) for text in texts.unique().to_pylist() if text is not None}
    for row, text in enumerate(texts.to_pylist()):
        if text is not None:
            opcode = known[text]
            wrong[row] = opcode is None
            said[row] = _UNSAID if opcode is None else opcode
    return said, wrong


def _until(pending: UnsentEvents) -> int | None:
    waiting = [chunk for chunk in (pending.asked.chunk if pending.asked is not None else None, pending.given) if chunk is not None]
    return int(waiting[0].rank[0]) if waiting else None


def _bad_before(pending: UnsentEvents, until: int | None) -> BadEvents:
    """By rank, those of which nothing before can come any more."""
    bad = pending.bad.by_rank()
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
