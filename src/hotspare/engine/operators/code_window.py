"""What windows of people's own code do, whatever its language (SPEC A36): call it for each event, and take what it makes.

The code is called for inserts, for updates with their new values, and for deletes; not for the old values of an update. What it
makes of an insert is an insert unless it says otherwise, of an update an upsert, of a delete a safe delete. With an index the
events are resolved against what the window holds; with index pi_EMPTY they pass as they are.

An event may make thousands. They are put out in parts: code runs no further ahead than one part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import xxhash

from hotspare.engine.code.contract import (
    NO_OPCODE,
    OPCODE_KEY,
    CodeFailure,
    EventBuilder,
    Failed,
    GivenEvents,
    MadeEvents,
    Moment,
    ProgramText,
    UInt64s,
)
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
    beats: Int64s
    """Ranks of heartbeats at which the code is called, too."""

    @property
    def waits(self) -> bool:
        return len(self.given) > 0 or len(self.beats) > 0

    @property
    def is_beat_next(self) -> bool:
        return len(self.beats) > 0 and (not len(self.given) or self.beats[0] < self.given.rank[0])

    @property
    def until(self) -> int | None:
        if len(self.made):
            return int(self.made.rank[0])
        if not self.waits:
            return None
        return int(self.beats[0] if self.is_beat_next else self.given.rank[0])


class CodeWindowOperator(Operator):
    """Subclasses may let the code see other names of fields, and call it at heartbeats."""

    _heartbeat = ""
    """The function that is called at heartbeats."""

    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input]) -> None:
        super().__init__(window, inputs)
        self._declared = declared = cast(CodeWindow, window.window)
        self._given = given = self.inputs[0].schema
        self._events = declared.script.function
        self._keeps = declared.index is not IndexType.EMPTY
        copied = copied_fields(declared, given, self.schema)
        self._copied = [(self.schema.index[name], place) for name, place in copied.items()]
        self._shown, self._made_of = self._what_is_shown(given), self._what_is_made()
        self._moments = Moments(self.id)
        self._keys = np.array(self.schema.key_indexes, np.int64)
        texts = (declared.script.code.text, *(module.code.text for module in window.modules))
        self._inserts_only = self.inputs[0].changelog.opcodes is Opcodes.INSERTS and not any(OPCODE_KEY in text for text in texts)
        made = INSERTS if self._inserts_only else PUBLISHED
        self.leaving = made.indexed() if self._keeps else made
        self._empties_count = {self.schema.names[i] for i in self.schema.key_indexes} <= set(copied)
        self._program = compile_program(self._text(window))

    def _text(self, window: ResolvedWindow) -> ProgramText:
        return ProgramText(str(window.id), self._declared.script, modules=window.modules, empties_count=self._empties_count)

    def _what_is_shown(self, given: Schema) -> CodeEvents:
        return CodeEvents.chosen(self.id, given, self._declared.script.use)

    def _what_is_made(self) -> Schema:
        """Of the events that the code makes, by the names that it gives them."""
        return self.schema

    def _columns_of(self, made: MadeEvents) -> Sequence[pa.Array]:
        """One for each field of the window."""
        return made.columns

    def open(self) -> Page:
        page = Page({CODE: CodeState(self._program), CALLS: Counters(1)})
        if self._keeps:
            page.parts[ROWS] = relation_of(self.schema)
        return page

    def apply(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> Applied:
        (given,) = inputs
        state = cast("CodeState[Unfinished]", page.parts[CODE])
        beats = timeline.heartbeat_rank if self._heartbeat else timeline.heartbeat_rank[:0]
        unfinished = state.unfinished or Unfinished(without_old_rows(given), Chunk.empty(len(self.schema)), beats)
        rows_max = len(given) + max(1, timeline.extra_rows_max // 2)
        bad = NO_BAD_EVENTS
        while unfinished.waits and len(unfinished.made) < rows_max:
            work = self._beat if unfinished.is_beat_next else self._run
            bad += work(page, unfinished, rows_max - len(unfinished.made), timeline, strings)
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
        if len(unfinished.beats):
            chunk = chunk.between(0, int(np.searchsorted(chunk.rank, unfinished.beats[0], side="right")))
        calls = cast(Counters, page.parts[CALLS]).values
        events = self._shown.of(chunk, int(calls[0]), timeline, strings)
        made = cast(CodeState[Unfinished], page.parts[CODE]).running().make_events(self._events, events, self._made_of, made_max)
        calls[0] += made.done
        unfinished.given = unfinished.given.since(made.done)
        bad = failures(self._events, made.failed, chunk, self._given, strings)
        return bad + self._taken(unfinished, made, chunk, strings)

    def _beat(self, page: Page, unfinished: Unfinished, made_max: int, timeline: Timeline, strings: StringTable) -> BadEvents:
        """Call the code for the next heartbeat, and add what it makes. There is no event, so nothing is copied from one."""
        rank, unfinished.beats = int(unfinished.beats[0]), unfinished.beats[1:]
        (moment,) = self._moments.of(rank, 1, cast(Counters, page.parts[CALLS]).values, timeline)
        builder = EventBuilder(self._made_of)
        try:
            instance = cast(CodeState[Unfinished], page.parts[CODE]).running()
            returned = instance.call(self._heartbeat, ({},), moment)
            builder.add(0, list(returned) if isinstance(returned, tuple) else returned or None)
        except CodeFailure as failure:
            builder.refuse(0, failure)
        width = len(self._given)
        lanes, valid = np.zeros((1, width), np.int64), np.zeros((1, width), np.bool_)
        opcode, flags = np.full(1, Opcode.INSERT, np.uint8), np.full(1, Flag.NORMAL, np.uint8)
        nothing = Chunk(np.array([rank]), opcode, flags, lanes, valid, is_whole=True)
        made = builder.made(1)
        bad = failures(self._heartbeat, made.failed, nothing, self._given, strings)
        return bad + self._taken(unfinished, made, nothing, strings)

    def _taken(self, unfinished: Unfinished, made: MadeEvents, chunk: Chunk, strings: StringTable) -> BadEvents:
        """Add what was made of rows of `chunk`; what of it is refused."""
        laid_out = self._laid_out(made, chunk, strings)
        laid_out, refused = self._passed(laid_out, strings)
        unfinished.made = unfinished.made.joined(laid_out) if len(unfinished.made) else laid_out
        return refused

    def _laid_out(self, made: MadeEvents, chunk: Chunk, strings: StringTable) -> Chunk:
        """The events that were made as rows of the window's schema, with what they have from the input."""
        count = len(made.row)
        lanes, valid = to_lanes(self._columns_of(made), self.schema, strings)
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


class Moments:
    """Moments of calls that are not one for each event. `window`: of the seeds."""

    def __init__(self, window: WindowId) -> None:
        self._seed = np.uint64(xxhash.xxh3_64_intdigest(str(window).encode()))

    def of(self, rank: int, count: int, calls: Int64s, timeline: Timeline) -> Iterator[Moment]:
        """Of `count` calls at `rank`. `calls[0]` says how many there were before, and counts on."""
        seeds = _seeds(self._seed, int(calls[0]), np.full(count, rank), timeline)
        calls[0] += count
        time_us = int(timeline.time_us[rank])
        return (Moment(time_us, seed) for seed in seeds.tolist())


class CodeEvents:
    """Rows of a chunk as code sees them."""

    def __init__(self, window: WindowId, schema: Schema, places: Sequence[int]) -> None:
        """`schema`: what the code sees; `places` of these fields in a chunk."""
        self.schema = schema
        self._columns = np.array(places, np.int64)
        self._seed = np.uint64(xxhash.xxh3_64_intdigest(str(window).encode()))

    @classmethod
    def chosen(cls, window: WindowId, given: Schema, use: FieldChoice) -> CodeEvents:
        names = use.picked(given)
        return cls(window, Schema(tuple(given.fields[given.index[name]] for name in names)), [given.index[name] for name in names])

    def of(self, chunk: Chunk, calls: int, timeline: Timeline, strings: StringTable) -> GivenEvents:
        """`calls`: how many events the code was given before."""
        lanes, valid = chunk.lanes[:, self._columns], chunk.valid[:, self._columns]
        columns = to_arrow_columns(lanes, valid, self.schema, strings) if len(self.schema) else []
        seeds = _seeds(self._seed, calls, chunk.rank, timeline)
        return GivenEvents(self.schema, columns, chunk.opcode, timeline.time_us[chunk.rank], seeds)


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
