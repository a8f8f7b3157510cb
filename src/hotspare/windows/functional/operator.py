"""Functional window (SPEC A25): functions of an event, for one event each or for as many as its loops make.

A window with one input and its key, without loops, generate and opcode, makes one event of each (`RowWindow`). Any other window
makes any number of events (`_GeneratingWindow`):

    published events ─► given: input rows ─► all events of the new and of the old values ─► rows: output rows

An insert inserts the events that it generates. An update upserts those of the new values and deletes those of the old values that
the new ones do not generate. A delete deletes those of its row. With an opcode function the event itself decides the opcode of its
events; old values and deletes then generate none. The index of output rows turns the events into the changelog of a relation, and
provides the emitted values for deletes. Several inputs are processed in the order (rank, input). Each has its own fields: fields
that an input lacks are null. An event on which anything fails is a bad event as a whole: none of its events is emitted.

eventCounter() counts the events of this window except deletes, 1, 2, 3 ...; rows that become bad events are counted too, except
published ones that the index refuses. The count is state, so it continues after a restore (SPEC Z8). A delete carries the count
that was emitted for its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa

from hotspare.base.errors import Mistake, ProjectError
from hotspare.expressions.compiled import EVENT_FIELDS
from hotspare.expressions.function_programs import CompiledProgram, ComputedEvents, compile_function_program, run_program
from hotspare.model.events import OPCODE_WORDS, Opcode
from hotspare.model.project import IndexType
from hotspare.model.resolved import ResolvedWindow
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.changelog import INSERTS, PUBLISHED, RELATION, Changelog, Keys, Opcodes
from hotspare.rows.chunk import Bools, Chunk, Int64s, Timeline, UInt8s
from hotspare.rows.elementwise import cut_texts
from hotspare.rows.refusals import NO_BAD_EVENTS, BadEvents, Refusals
from hotspare.table.lanes import to_lanes
from hotspare.table.pages import Column, Columns, Page
from hotspare.table.relation import Change, Relation
from hotspare.table.strings import StringTable
from hotspare.windows.functional.declaration import FunctionalWindow
from hotspare.windows.shared.contract import Operator, OperatorInput, OperatorResult
from hotspare.windows.shared.expressions import assignments_of
from hotspare.windows.shared.keyed import bad_events, refusals, relation_of, resolved_events
from hotspare.windows.shared.rowwise import (
    EVENT_VALUES,
    GIVEN,
    ROWS,
    RowWindow,
    begin_counting,
    clear_partial_flags,
    counter_parts,
    event_value_columns,
    field_columns,
    needs_index_error,
    read_of,
    unresolved_input_error,
)
from hotspare.windows.shared.stateless import (
    NON_FIELD_NAMES,
    Admission,
    Projection,
    RowFunction,
    delete_mask,
    event_columns,
    first_failures,
)

_OPCODES = {word: opcode for word, opcode in OPCODE_WORDS.items() if opcode is not Opcode.UPDATE_BLOCK} | {"s": Opcode.SAFE_DELETE}
_UNSET_OPCODE = 0


_NO_OPCODE = "the opcode function gives no opcode: insert, update, upsert, delete or safedelete"
_INDEX_OPCODES = np.array(
    [
        {Opcode.UPDATE_BLOCK: Opcode.UPSERT, Opcode.DELETE: Opcode.SAFE_DELETE}.get(Opcode(i), Opcode(i)) if i else 0
        for i in range(max(Opcode) + 1)
    ],
    np.uint8,
)
"""Opcodes of generated events for the index, by the opcode of the event that generated them. A delete becomes a safe delete, since
its row may never have been emitted.
"""
_PASSED = np.array(
    [
        {Opcode.UPSERT: Opcode.INSERT, Opcode.SAFE_DELETE: Opcode.DELETE}.get(Opcode(i), Opcode(i)) if i else 0
        for i in range(max(Opcode) + 1)
    ],
    np.uint8,
)
"""Opcodes of generated events without an index, by the opcode for the index: downstream windows receive inserts and deletes."""


_PENDING = "pending"
"""The part of the page with events that are not emitted yet."""
_ROWS_AT_ONCE = 256
"""About the number of input rows that are evaluated in one step."""


class FunctionalOperator(Operator):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        super().__init__(window, inputs)
        declared = cast(FunctionalWindow, window.window)
        programs = [
            compile_function_program(declared.program, given.schema, window.schema, str(window.id), source.window)
            for given, (source, _) in zip(inputs, window.inputs, strict=True)
        ]
        self._made: _GeneratingWindow | RowWindow
        if len(inputs) > 1 or declared.is_generating(inputs[0].schema):
            self._made = _GeneratingWindow(window, inputs, programs)
        else:
            given = inputs[0].schema
            work = Projection(assignments_of(window, given, programs[0]), given, window.schema.names)
            self._made = RowWindow(window, inputs, work)
        self.output_changelog = self._made.output_changelog

    @property
    def head_function(self) -> RowFunction | Admission | None:
        return self._made.head_function

    def open(self) -> Page:
        return self._made.open()

    def initialize_shard(self, page: Page, shard: int) -> None:
        self._made.initialize_shard(page, shard)

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        return self._made.process_chunks(page, inputs, timeline, strings)


class _GeneratingWindow(Operator):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput], programs: Sequence[CompiledProgram]) -> None:
        """Builds an event generator for each input. `programs`: the compiled program of each input, in order. Raises ProjectError
        if the window could not find the events of a row again when the row is updated or deleted.
        """
        super().__init__(window, inputs)
        self._takers = [_EventGenerator(window, given, program) for given, program in zip(self.inputs, programs, strict=True)]
        self._is_keyed = window.window.index is not IndexType.EMPTY
        self._says_opcode = programs[0].opcode is not None
        self._event_value_columns = tuple(dict.fromkeys(name for taker in self._takers for name in taker.beside))
        self.output_changelog = self._output_changelog()

    def _output_changelog(self) -> Changelog:
        inserts_only = all(taker.resolved.opcodes is Opcodes.INSERTS for taker in self._takers)
        if self._is_keyed:
            return INSERTS.indexed() if inserts_only and not self._says_opcode else RELATION
        if self._says_opcode:
            return PUBLISHED
        return INSERTS if inserts_only else Changelog(Opcodes.RESOLVED, Keys.ANY)

    @property
    def head_function(self) -> None:
        return None

    def open(self) -> Page:
        page = Page({_PENDING: _UnemittedEvents(), **counter_parts(self._event_value_columns)})
        if self._is_keyed:
            for number, given in enumerate(self.inputs):
                if given.changelog.opcodes is Opcodes.PUBLISHED:
                    page.parts[_index_of(number)] = relation_of(given.schema, given=given.changelog)
            page.parts[ROWS] = relation_of(self.schema, given=PUBLISHED)
        return page

    def initialize_shard(self, page: Page, shard: int) -> None:
        begin_counting(self._event_value_columns, page, shard)

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        pending = cast(_UnemittedEvents, page.parts[_PENDING])
        if any(map(len, inputs)):
            chunks = [self._resolved(page, number, chunk, timeline, strings) for number, chunk in enumerate(inputs)]
            numbers = _event_value_columns(self._event_value_columns, page, chunks, timeline)
            pending.given = [_Given(chunk, beside) for chunk, beside in zip(chunks, numbers, strict=True)]
        room = 3 * sum(map(len, inputs)) + timeline.extra_rows_max
        made: list[Chunk] = []
        while room > 0 and pending.until is not None:
            if pending.asked is None:
                self._generate_some(pending, strings)
                continue
            part, pending.asked = pending.asked.split(max(room // 2, 1))
            made.append(self._emit_part(page, part, timeline, strings, pending))
            room -= len(part.chunk) * 2
        return OperatorResult(_joined(made, len(self.schema)), _pop_bad_events(pending), pending.until)

    def _resolved(self, page: Page, number: int, chunk: Chunk, timeline: Timeline, strings: StringTable) -> Chunk:
        index = page.parts.get(_index_of(number))
        if index is not None and len(chunk):
            chunk, refused = resolved_events(index, chunk, timeline, self.inputs[number].schema, strings)
            cast(_UnemittedEvents, page.parts[_PENDING]).bad += refused
        return clear_partial_flags(chunk)

    def _generate_some(self, pending: _UnemittedEvents, strings: StringTable) -> None:
        """Evaluates the lowest-ranked pending input rows, about `_ROWS_AT_ONCE`, and stores their events as `pending.asked`. Rows
        of one rank are never split.
        """
        ranks = np.sort(np.concatenate([each.chunk.rank[:_ROWS_AT_ONCE] for each in pending.given]))
        until = int(ranks[min(_ROWS_AT_ONCE, len(ranks)) - 1]) + 1
        now, pending.given = (list(each) for each in zip(*(given.split_at_rank(until) for given in pending.given), strict=True))
        taken = [
            taker.generate_events(each.chunk, each.value_columns, strings) for taker, each in zip(self._takers, now, strict=True)
        ]
        for each in taken:
            pending.bad += each.bad
        side = np.concatenate([np.full(len(each.row), number) for number, each in enumerate(taken)])
        row = np.concatenate([each.row for each in taken])
        if not len(row):
            return
        chunk = reduce(Chunk.joined, (each.chunk for each in taken))
        order = np.argsort(chunk.rank, kind="stable")
        pending.asked = _IndexChanges(chunk.copied_rows(order), side[order], row[order], [each.chunk for each in now])

    def _emit_part(
        self, page: Page, part: _IndexChanges, timeline: Timeline, strings: StringTable, pending: _UnemittedEvents
    ) -> Chunk:
        chunk = part.chunk
        if not self._is_keyed:
            opcode = chunk.opcode if self._says_opcode else _PASSED[chunk.opcode]
            return Chunk(chunk.rank, opcode, chunk.flags, chunk.lanes, chunk.valid, is_whole=True)
        change: Change = cast(Relation, page.parts[ROWS]).change(chunk, timeline)
        for number in np.unique(part.side[change.refused_row]).tolist():
            mine = np.flatnonzero(part.side[change.refused_row] == number)
            of = part.given[number].copied_rows(part.row[change.refused_row[mine]])
            rows = Chunk(chunk.rank[change.refused_row[mine]], of.opcode, of.flags, of.lanes, of.valid)
            refused = change._replace(refused_row=np.arange(len(mine)), refused_why=change.refused_why[mine])
            pending.bad += refusals(refused, rows, self.inputs[number].schema, strings)
        return change.chunk


class _UnemittedEvents:
    """Input rows that are not evaluated yet (`given`), events that the index has not resolved yet (`asked`), and bad events. Empty
    between batches, so a snapshot contains none.
    """

    def __init__(self) -> None:
        self.given: list[_Given] = []
        self.asked: _IndexChanges | None = None
        self.bad = NO_BAD_EVENTS

    @property
    def until(self) -> int | None:
        """The lowest rank of outputs that remain to be emitted; None if none remain."""
        if self.asked is not None:
            return int(self.asked.chunk.rank[0])
        return min((int(each.chunk.rank[0]) for each in self.given if len(each.chunk)), default=None)

    def freeze(self) -> _UnemittedEvents:
        assert self.until is None
        return _UnemittedEvents()

    def columns(self) -> Columns:
        return {"nothing": Column(np.zeros(0, np.int64))}

    def load(self, columns: Columns) -> None:
        return


@dataclass(slots=True)
class _Given:
    """Rows of one input that are not evaluated yet, with the columns of event values that they read."""

    chunk: Chunk
    value_columns: Mapping[str, pa.Array]

    def split_at_rank(self, rank: int) -> tuple[_Given, _Given]:
        """Returns the rows with ranks below `rank`, and the rest."""
        count = int(np.searchsorted(self.chunk.rank, rank))
        first = {name: column.slice(0, count) for name, column in self.value_columns.items()}
        rest = {name: column.slice(count) for name, column in self.value_columns.items()}
        return _Given(self.chunk.between(0, count), first), _Given(self.chunk.since(count), rest)


@dataclass(slots=True)
class _IndexChanges:
    """Events for the index. For event i, `side[i]` is the input that caused it, and `row[i]` the row in `given` of that input."""

    chunk: Chunk
    side: Int64s
    row: Int64s
    given: list[Chunk]

    def split(self, count: int) -> tuple[_IndexChanges, _IndexChanges | None]:
        """Returns the first `count` events, and the rest, or None if nothing is left."""
        first = _IndexChanges(self.chunk.between(0, count), self.side[:count], self.row[:count], self.given)
        if count >= len(self.chunk):
            return first, None
        return first, _IndexChanges(self.chunk.since(count), self.side[count:], self.row[count:], self.given)


def _index_of(number: int) -> str:
    """Returns the name of the page part that resolves events of input `number`."""
    return GIVEN if number == 0 else f"{GIVEN}{number}"


def _event_value_columns(
    names: Sequence[str], page: Page, chunks: Sequence[Chunk], timeline: Timeline
) -> list[dict[str, pa.Array]]:
    """Returns for each input the columns of its event values, by name, one value per row. Events are counted in the order (rank,
    input).
    """
    if len(chunks) == 1 or not names:
        return [event_value_columns(names, page, chunks[0], timeline), *({} for _ in chunks[1:])]
    rank, opcode = (np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in ("rank", "opcode"))
    order = np.argsort(rank, kind="stable")
    nothing = np.empty((len(rank), 0))
    together = Chunk(rank[order], opcode[order], opcode[order], nothing.astype(np.int64), nothing.astype(np.bool_))
    columns = event_value_columns(names, page, together, timeline)
    back = np.argsort(order, kind="stable")
    ends = np.cumsum([0, *map(len, chunks)])
    places = [pa.array(back[begin:end]) for begin, end in pairwise(ends)]
    return [{name: column.take(place) for name, column in columns.items()} for place in places]


def _pop_bad_events(pending: _UnemittedEvents) -> BadEvents:
    """Removes and returns the pending bad events, by rank, below the rank of outputs that remain; all if none remain."""
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


class _GeneratedEvents(NamedTuple):
    """Events for the index, ascending by rank; the input row that generated each of them; and bad events."""

    chunk: Chunk
    row: Int64s
    bad: BadEvents


class _EventGenerator:
    """Generates the events of the rows of one input."""

    def __init__(self, window: ResolvedWindow, given: OperatorInput, program: CompiledProgram) -> None:
        self.given = given
        self.program = program
        self.schema = window.schema
        self._is_keyed = window.window.index is not IndexType.EMPTY
        names = given.schema.index
        self._read = read_of(given.schema, (*program.fields, *(n for n in self.schema.names if n in names)))
        self._of_event = tuple(n for n in program.fields if n in EVENT_FIELDS and n not in names)
        self.beside = tuple(name for name in program.fields if name in EVENT_VALUES)
        self._keys = self.schema.key_indexes
        self._text_bytes_max = window.window.text_bytes_max
        log = given.changelog
        if not self._is_keyed and log.opcodes is Opcodes.PUBLISHED:
            raise unresolved_input_error(window)
        self.resolved = log.computed_from() if self._is_keyed else log
        if self.resolved.opcodes is not Opcodes.INSERTS and program.opcode is None:
            self._check_repeatable(window)

    def _check_repeatable(self, window: ResolvedWindow) -> None:
        """Raises ProjectError if the events of old values could not be computed again, so that updates and deletes could not
        retract them.
        """
        if not self._is_keyed and any(
            name in NON_FIELD_NAMES and name not in self.given.schema.index for name in self.program.fields
        ):
            raise needs_index_error(window, "computes from the event itself", "compute from fields alone")
        of_event = {name for name in NON_FIELD_NAMES if name not in self.given.schema.index}
        for where, reads in self._what_makes_keys():
            if of_event & reads:
                message = (
                    f"window {window.id} computes {where} from what an event is, not from its fields, and "
                    "rows are updated and deleted: "
                    "the outputs for a row cannot be found again"
                )
                hint = "compute keys from fields alone, make the source insert-only, or give the window an opcode"
                raise ProjectError(str(window.id), [Mistake(window.window.place, message, hint)])

    def _what_makes_keys(self) -> list[tuple[str, set[str]]]:
        """Returns the parts of the program that decide which events exist, and their keys: a description, and all names that the
        part reads.
        """
        keys = {self.schema.fields[i].name for i in self._keys}
        found: list[tuple[str, set[str]]] = []
        for steps, what in ((self.program.own_steps, "a key"), *((loop.steps, "a key of a loop") for loop in self.program.loops)):
            found += [(what, _names_read(self.program, step.expression.fields)) for step in steps.output_steps if step.name in keys]
        found += [("the elements of a loop", _names_read(self.program, loop.items.fields)) for loop in self.program.loops]
        if self.program.generate is not None:
            found.append(("generate", _names_read(self.program, self.program.generate.fields)))
        return found

    def generate_events(self, now: Chunk, beside: Mapping[str, pa.Array], strings: StringTable) -> _GeneratedEvents:
        """Generates the events of the rows `now`; the two rows of an update block must be together. The mapping has a column of
        each event value that expressions read, by name, such as the count of events.
        """
        columns = event_columns(self._of_event, self.given.schema, now.opcode, now.flags) | field_columns(self._read, now, strings)
        ran = run_program(self.program, columns | dict(beside), len(now), self.schema)
        refused = first_failures([failures for failures in ran.failed if len(failures)], now.opcode)
        failed = np.zeros(len(now), np.bool_)
        for failures in ran.failed:
            failed[failures.rows] = True
        opcode, wrong = _opcodes(ran.opcode, len(now))
        wrong &= ~failed & ~delete_mask(now.opcode)
        said = Refusals.from_causes(
            np.flatnonzero(wrong), np.zeros(int(wrong.sum()), np.int64), [(str(BadReason.OPCODE), _NO_OPCODE)]
        )
        bad = bad_events(refused, now, self.given.schema, strings) + bad_events(said, now, self.given.schema, strings)
        chunk, row = self._index_changes(now, ran.computed_events, opcode, failed | wrong, strings)
        return _GeneratedEvents(chunk, row, bad)

    def _index_changes(
        self, now: Chunk, made: ComputedEvents, opcode: UInt8s, failed: Bools, strings: StringTable
    ) -> tuple[Chunk, Int64s]:
        """Returns the changes for the index, and the input row of each. Rows that failed make none; nor do old values whose key the
        new values have, too.
        """
        values = [cut_texts(made.values[f.name], self._text_bytes_max) for f in self.schema.fields]
        lanes, valid = to_lanes(values, self.schema, strings)
        is_old = np.zeros(len(now), np.bool_)
        blocks = np.flatnonzero(now.opcode == Opcode.UPDATE_BLOCK)
        is_old[blocks + 1] = True
        if self.program.opcode is not None:
            keeps = ~(failed | is_old | delete_mask(now.opcode))[made.row]
            said = opcode[made.row]
            asked = np.where(said == _UNSET_OPCODE, _INDEX_OPCODES[now.opcode[made.row]], said)
        else:
            keeps = ~failed[made.row]
            asked = _INDEX_OPCODES[now.opcode[made.row]]
            keeps &= ~self._has_kept_key(made, lanes, valid, is_old, failed)
        rows = np.flatnonzero(keeps)
        row = made.row[rows]
        chunk = Chunk(
            now.rank[row], asked[rows].astype(np.uint8), now.flags[row], lanes.take(rows, axis=0), valid.take(rows, axis=0)
        )
        return chunk, row

    def _has_kept_key(self, made: ComputedEvents, lanes: Int64s, valid: Bools, is_old: Bools, failed: Bools) -> Bools:
        """Returns which generated events are of old values and have a key that the new values of the same update also have."""
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


def _names_read(program: CompiledProgram, names: Sequence[str]) -> set[str]:
    """Returns all names from which `names` are computed, directly or through steps, including `names` themselves."""
    steps = {
        step.name: step.expression.fields
        for each in (program.own_steps, *(loop.steps for loop in program.loops))
        for step in each.all_steps
    }
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            if name not in program.input_names:
                waiting += steps.get(name, ())
    return found


def _opcodes(texts: pa.Array | None, count: int) -> tuple[UInt8s, Bools]:
    """Returns for each text the opcode that it names, _UNSET_OPCODE if it is null or invalid; and which texts are invalid."""
    said = np.full(count, _UNSET_OPCODE, np.uint8)
    wrong = np.zeros(count, np.bool_)
    if texts is None:
        return said, wrong
    known = {text: _OPCODES.get(text.strip().lower()) for text in texts.unique().to_pylist() if text is not None}
    for row, text in enumerate(texts.to_pylist()):
        if text is not None:
            opcode = known[text]
            wrong[row] = opcode is None
            said[row] = _UNSET_OPCODE if opcode is None else opcode
    return said, wrong
