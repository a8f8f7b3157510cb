"""What windows of people's own code do, whatever its language (SPEC A36): call it for each event, and take what it makes.

The code is called for inserts, for updates with their new values, and for deletes; not for the old values of an update. What it
makes of an insert is an insert unless it says otherwise, of an update an upsert, of a delete a safe delete. With an index the
events are resolved against what the window holds; with index pi_EMPTY they pass as they are.

An event may make thousands. They are put out in parts: code runs no further ahead than one part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import xxhash

from hotspare.engine.code.contract import NO_OPCODE, OPCODE_KEY, Failed, GivenEvents, MadeEvents, ProgramText, UInt64s
from hotspare.engine.code.part import CodeState
from hotspare.engine.code.programs import compile_program
from hotspare.engine.operators.contract import Applied, BadReason, Input, Operator
from hotspare.engine.operators.keyed import bad_events, refusals, relation_of
from hotspare.engine.rows.changelog import INSERTS, PUBLISHED, Opcodes
from hotspare.engine.rows.chunk import Chunk, Int64s, Timeline
from hotspare.engine.rows.refusals import NO_BAD_EVENTS, BadEvents, Refusals
from hotspare.engine.state.lanes import to_arrow_columns, to_lanes
from hotspare.engine.state.pages import Counters, Page
from hotspare.engine.state.relation import Relation
from hotspare.engine.state.strings import StringTable
from hotspare.model.code import FieldChoice
from hotspare.model.code_windows import CodeWindow, copied_fields
from hotspare.model.events import Flag, Opcode
from hotspare.model.project import IndexType, WindowId
from hotspare.model.resolve import ResolvedWindow
from hotspare.model.types import Schema

CODE, CALLS, ROWS = "code", "calls", "rows"
"""Parts of the page: the code's variables, how many events it was given, the window's index."""

_DEFAULT_OPCODE = np.zeros(len(Opcode) + 1, np.uint8)
_DEFAULT_OPCODE[[Opcode.INSERT, Opcode.UPDATE, Opcode.UPSERT, Opcode.UPDATE_BLOCK, Opcode.DELETE, Opcode.SAFE_DELETE]] = (
    Opcode.INSERT,
    Opcode.UPSERT,
    Opcode.UPSERT,
    Opcode.UPSERT,
    Opcode.SAFE_DELETE,
    Opcode.SAFE_DELETE,
)
"""What events do that say nothing, by the opcode of the event that made them."""


@dataclass(slots=True)
class Unfinished:
    """What is left of one step: events that the code has not seen, and events that it made but are not put out. Never part of a
    snapshot, because none is taken within a step."""

    given: Chunk
    made: Chunk

    @property
    def until(self) -> int | None:
        for chunk in (self.made, self.given):
            if len(chunk):
                return int(chunk.rank[0])
        return None


class CodeWindowOperator(Operator):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input]) -> None:
        super().__init__(window, inputs)
        declared = cast(CodeWindow, window.window)
        self._given = given = self.inputs[0].schema
        self._events = declared.script.function
        self._keeps = declared.index is not IndexType.EMPTY
        copied = copied_fields(declared, given, self.schema)
        self._copied = [(self.schema.index[name], place) for name, place in copied.items()]
        self._shown = CodeEvents(self.id, given, declared.script.use)
        self._keys = np.array(self.schema.key_indexes, np.int64)
        texts = (declared.script.code.text, *(module.code.text for module in window.modules))
        self._inserts_only = self.inputs[0].changelog.opcodes is Opcodes.INSERTS and not any(OPCODE_KEY in text for text in texts)
        made = INSERTS if self._inserts_only else PUBLISHED
        self.leaving = made.indexed() if self._keeps else made
        has_keys = {self.schema.names[i] for i in self.schema.key_indexes} <= set(copied)
        self._program = compile_program(
            ProgramText(str(window.id), declared.script, modules=window.modules, empties_count=has_keys)
        )

    def open(self) -> Page:
        page = Page({CODE: CodeState(self._program), CALLS: Counters(1)})
        if self._keeps:
            page.parts[ROWS] = relation_of(self.schema)
        return page

    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        (given,) = inputs
        state = cast("CodeState[Unfinished]", page.parts[CODE])
        unfinished = state.unfinished or Unfinished(without_old_rows(given), Chunk.empty(len(self.schema)))
        rows_max = len(given) + max(1, timeline.extra_rows_max // 2)
        bad = NO_BAD_EVENTS
        while len(unfinished.given) and len(unfinished.made) < rows_max:
            bad += self._run(page, unfinished, rows_max - len(unfinished.made), timeline, strings)
        chunk, unfinished.made = unfinished.made.between(0, rows_max), unfinished.made.since(min(rows_max, len(unfinished.made)))
        state.unfinished = unfinished if unfinished.until is not None else None
        if self._keeps:
            change = cast(Relation, page.parts[ROWS]).change(chunk, timeline)
            bad += refusals(change, chunk, self.schema, strings)
            chunk = change.chunk
        return Applied(chunk, bad.by_rank(), unfinished.until)

    def _run(self, page: Page, unfinished: Unfinished, made_max: int, timeline: Timeline, strings: StringTable) -> BadEvents:
        """Give the code the next events, and add what it makes of them."""
        chunk = unfinished.given
        calls = cast(Counters, page.parts[CALLS]).values
        events = self._shown.of(chunk, int(calls[0]), timeline, strings)
        made = cast(CodeState[Unfinished], page.parts[CODE]).running().make_events(self._events, events, self.schema, made_max)
        calls[0] += made.done
        unfinished.given = chunk.since(made.done)
        bad = failures(self._events, made.failed, chunk, self._given, strings)
        laid_out = self._laid_out(made, chunk, strings)
        laid_out, refused = self._passed(laid_out, strings)
        bad += refused
        unfinished.made = unfinished.made.joined(laid_out) if len(unfinished.made) else laid_out
        return bad

    def _laid_out(self, made: MadeEvents, chunk: Chunk, strings: StringTable) -> Chunk:
        """The events that were made as rows of the window's schema, with what they have from the input."""
        count = len(made.row)
        lanes, valid = to_lanes(made.columns, self.schema, strings)
        for column, place in self._copied:
            missing = ~valid[:, column]
            lanes[missing, column] = chunk.lanes[made.row[missing], place]
            valid[missing, column] = chunk.valid[made.row[missing], place]
        default = _DEFAULT_OPCODE[chunk.opcode[made.row]]
        opcode = np.where(made.opcode == NO_OPCODE, default, made.opcode)
        return Chunk(chunk.rank[made.row], opcode, np.full(count, Flag.NORMAL, np.uint8), lanes, valid, is_whole=True)

    def _passed(self, chunk: Chunk, strings: StringTable) -> tuple[Chunk, BadEvents]:
        """What may leave, or the index be asked for, which says itself what it thinks of rows without a key. Code that names no
        opcodes makes inserts of inserts, whatever it puts together."""
        keyless = ~chunk.valid[:, self._keys].all(axis=1) & (not self._keeps)
        other = (chunk.opcode != Opcode.INSERT) & self._inserts_only
        rows = np.flatnonzero(keyless | other)
        if not len(rows):
            return chunk, NO_BAD_EVENTS
        causes = [(str(why), why.sentence) for why in (BadReason.NULL_KEY, BadReason.NOT_INSERT)]
        refused = Refusals.of(rows, other[rows].astype(np.int64), causes)
        return chunk.taken(np.flatnonzero(~(keyless | other))), bad_events(refused, chunk, self.schema, strings)


class CodeEvents:
    """Rows of a chunk as code sees them."""

    def __init__(self, window: WindowId, given: Schema, use: FieldChoice) -> None:
        self._schema = Schema(tuple(given.fields[given.index[name]] for name in use.picked(given)))
        self._columns = np.array([given.index[field.name] for field in self._schema.fields], np.int64)
        self._seed = np.uint64(xxhash.xxh3_64_intdigest(str(window).encode()))

    def of(self, chunk: Chunk, calls: int, timeline: Timeline, strings: StringTable) -> GivenEvents:
        """`calls`: how many events the code was given before."""
        lanes, valid = chunk.lanes[:, self._columns], chunk.valid[:, self._columns]
        columns = to_arrow_columns(lanes, valid, self._schema, strings) if len(self._schema) else []
        seeds = _seeds(self._seed, calls, chunk.rank, timeline)
        return GivenEvents(self._schema, columns, chunk.opcode, timeline.time_us[chunk.rank], seeds)


def failures(function: str, failed: Sequence[Failed], chunk: Chunk, schema: Schema, strings: StringTable) -> BadEvents:
    """Bad events for rows of `chunk`, which is of `schema`, on which the code failed."""
    if not failed:
        return NO_BAD_EVENTS
    rows = np.array([each.row for each in failed], np.int64)
    reasons = pa.array([str(each.reason) for each in failed], pa.string())
    messages = pa.array([f"{function}: {each.message}" for each in failed], pa.string())
    return bad_events(Refusals(rows, reasons, messages), chunk, schema, strings)


def _seeds(window: np.uint64, calls: int, rank: Int64s, timeline: Timeline) -> UInt64s:
    """Of the random numbers of each event: by the window, the event's position, and how many events the window was given before."""
    where = timeline.positions
    seeds: UInt64s = np.full(len(rank), window, np.uint64)
    numbers = [np.arange(calls, calls + len(rank))]
    if where is not None:
        numbers += [column.astype(np.int64)[rank] for column in (where.topics, where.partitions, where.offsets, where.indexes)]
    for each in numbers:
        seeds = _mixed(seeds ^ each.view(np.uint64))
    return seeds


def _mixed(x: UInt64s) -> UInt64s:
    """The finaliser of splitmix64, as `kernels.hashing.mix`, for arrays."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def without_old_rows(chunk: Chunk) -> Chunk:
    """Without the old values of updates."""
    blocks = np.flatnonzero(chunk.opcode == Opcode.UPDATE_BLOCK)
    if not len(blocks):
        return chunk
    kept = np.ones(len(chunk), np.bool_)
    kept[blocks + 1] = False
    return chunk.taken(np.flatnonzero(kept))
