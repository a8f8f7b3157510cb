"""The behaviour common to windows of user code in any language (SPEC A36): each event is passed to the code, which makes events.

The code is called for inserts, for updates with their new values, and for deletes; not for the old values of an update. An event
that it makes without an opcode is an insert for an insert, an upsert for an update, a safe delete for a delete. With an index the
made events are resolved against the rows that the window holds; with index pi_EMPTY they pass unchanged.

Events of several inputs are ordered by (rank, input, row), so the code is called for runs of one input.

The code may make thousands of events of one. They are emitted in parts: the code runs ahead by at most one part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import xxhash

from hotspare.model.code import FieldChoice
from hotspare.model.code_windows import CodeWindow, copied_fields
from hotspare.model.events import Flag, Opcode
from hotspare.model.project import IndexType, WindowId
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.types import Schema
from hotspare.rows.changelog import INSERTS, PUBLISHED, Opcodes
from hotspare.rows.chunk import Chunk, Int64s, Timeline
from hotspare.rows.refusals import NO_BAD_EVENTS, BadEvents, Refusals
from hotspare.scripting.code_state import CodeState
from hotspare.scripting.contract import (
    NO_OPCODE,
    OPCODE_KEY,
    CodeFailure,
    EventBuilder,
    FailedEvent,
    InputEvents,
    OutputEvents,
    ProgramText,
    TimeAndSeed,
    UInt64s,
)
from hotspare.scripting.languages import compile_user_code
from hotspare.table.lanes import to_arrow_columns, to_lanes
from hotspare.table.pages import Counters, Page
from hotspare.table.relation import Relation
from hotspare.table.strings import StringTable
from hotspare.windows.shared.contract import BadReason, Operator, OperatorInput, OperatorResult
from hotspare.windows.shared.keyed import bad_events, refusals, relation_of

CODE, CALLS, ROWS = "code", "calls", "rows"
"""Parts of the page: the code's variables, the count of events passed to the code, the window's index."""

_DEFAULT_OPCODE = np.zeros(len(Opcode) + 1, np.uint8)
_DEFAULT_OPCODE[[Opcode.INSERT, Opcode.UPDATE, Opcode.UPSERT, Opcode.UPDATE_BLOCK, Opcode.DELETE, Opcode.SAFE_DELETE]] = (
    Opcode.INSERT,
    Opcode.UPSERT,
    Opcode.UPSERT,
    Opcode.UPSERT,
    Opcode.SAFE_DELETE,
    Opcode.SAFE_DELETE,
)
"""Opcodes of made events without an opcode, by the opcode of the event from which the code made them."""


@dataclass(slots=True)
class Unfinished:
    """The rest of one step: events that the code has not read yet, by input; made events that are not emitted yet; and heartbeats
    at which the code is still to be called. No snapshot contains it, because none is taken within a step."""

    unread_inputs: list[Chunk]
    unemitted_rows: Chunk
    beats: Int64s
    """Ranks of the heartbeats at which the code is still to be called."""

    @property
    def next_input(self) -> int | None:
        """The number of the input whose event is next, the first such input at equal ranks; None if no events remain."""
        return min(
            (i for i, chunk in enumerate(self.unread_inputs) if len(chunk)),
            key=lambda i: self.unread_inputs[i].rank[0],
            default=None,
        )

    def next_run(self, which: int) -> Chunk:
        """Returns the next events of input `which`, up to the next event of another input or the next heartbeat."""
        chunk, end = self.unread_inputs[which], len(self.unread_inputs[which])
        for i, other in enumerate(self.unread_inputs):
            if i != which and len(other):
                end = min(end, int(np.searchsorted(chunk.rank, other.rank[0], side="left" if i < which else "right")))
        if len(self.beats):
            end = min(end, int(np.searchsorted(chunk.rank, self.beats[0], side="right")))
        return chunk.between(0, end)

    @property
    def has_pending_calls(self) -> bool:
        return len(self.beats) > 0 or any(len(chunk) for chunk in self.unread_inputs)

    @property
    def is_beat_next(self) -> bool:
        which = self.next_input
        return len(self.beats) > 0 and (which is None or bool(self.beats[0] < self.unread_inputs[which].rank[0]))

    @property
    def until(self) -> int | None:
        if len(self.unemitted_rows):
            return int(self.unemitted_rows.rank[0])
        which = self.next_input
        if self.is_beat_next:
            return int(self.beats[0])
        return None if which is None else int(self.unread_inputs[which].rank[0])


@dataclass(frozen=True, slots=True)
class CodeInput:
    """An input of the window. `code_events`: its events as the code sees them. `copied`: pairs of a column of the window's schema
    and a column of the input's schema.
    """

    schema: Schema
    code_events: CodeEvents
    copied: Sequence[tuple[int, int]]


class CodeWindowOperator(Operator):
    """Runs user code over events. Subclasses may change the names of fields that the code sees, and the function called at
    heartbeats.
    """

    _heartbeat = ""
    """The name of the function called at heartbeats; "" for none."""

    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        super().__init__(window, inputs)
        self._declared = declared = cast(CodeWindow, window.window)
        self._events = declared.script.function
        self._keeps = declared.index is not IndexType.EMPTY
        self._given = [self._code_input(each) for each in self.inputs]
        self._result_schema = self._made_event_schema()
        self._moments = CallTimesAndSeeds(self.id)
        self._keys = np.array(self.schema.key_indexes, np.int64)
        texts = (declared.script.code.text, *(module.code.text for module in window.modules))
        only_inserts_come = all(each.changelog.opcodes is Opcodes.INSERTS for each in self.inputs)
        self._inserts_only = only_inserts_come and not any(OPCODE_KEY in text for text in texts)
        made = INSERTS if self._inserts_only else PUBLISHED
        self.output_changelog = made.indexed() if self._keeps else made
        keys = set(self.schema.key_indexes)
        self._empties_count = all(keys <= {column for column, _ in each.copied} for each in self._given)
        self._program = compile_user_code(self._text(window))

    def _text(self, window: ResolvedWindow) -> ProgramText:
        return ProgramText(str(window.id), self._declared.script, modules=window.modules, is_empty_table_event=self._empties_count)

    def _code_input(self, source: OperatorInput) -> CodeInput:
        copied = copied_fields(self._declared, source.schema, self.schema)
        places = [(self.schema.index[name], place) for name, place in copied.items()]
        return CodeInput(source.schema, self._visible_events(source), places)

    def _visible_events(self, source: OperatorInput) -> CodeEvents:
        return CodeEvents.chosen(self.id, source.name, source.schema, self._declared.script.use)

    def _made_event_schema(self) -> Schema:
        """Returns the schema of the events that the code makes, with the field names that the code uses."""
        return self.schema

    def _output_columns(self, made: OutputEvents) -> Sequence[pa.Array]:
        """Returns one column of `made` for each field of the window, in order."""
        return made.columns

    def open(self) -> Page:
        page = Page({CODE: CodeState(self._program), CALLS: Counters(1)})
        if self._keeps:
            page.parts[ROWS] = relation_of(self.schema)
        return page

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        state = cast("CodeState[Unfinished]", page.parts[CODE])
        beats = timeline.heartbeat_rank if self._heartbeat else timeline.heartbeat_rank[:0]
        unfinished = state.unfinished or Unfinished(
            [without_old_rows(each) for each in inputs], Chunk.empty(len(self.schema)), beats
        )
        rows_max = sum(map(len, inputs)) + max(1, timeline.extra_rows_max // 2)
        bad = NO_BAD_EVENTS
        pieces, count = [unfinished.unemitted_rows], len(unfinished.unemitted_rows)
        while unfinished.has_pending_calls and count < rows_max:
            work = self._call_heartbeat if unfinished.is_beat_next else self._run
            made, refused = work(page, unfinished, rows_max - count, timeline, strings)
            pieces.append(made)
            count, bad = count + len(made), bad + refused
        made = Chunk.joined_all(pieces)
        chunk, unfinished.unemitted_rows = made.between(0, rows_max), made.since(min(rows_max, count))
        state.unfinished = unfinished if unfinished.until is not None else None
        if self._keeps:
            change = cast(Relation, page.parts[ROWS]).change(chunk, timeline)
            bad += refusals(change, chunk, self.schema, strings)
            chunk = change.chunk
        return OperatorResult(chunk, bad.by_rank(), unfinished.until)

    def _run(
        self, page: Page, unfinished: Unfinished, made_max: int, timeline: Timeline, strings: StringTable
    ) -> tuple[Chunk, BadEvents]:
        """Passes the next events of one input to the code, until about `made_max` rows are made. Returns the made rows, and the bad
        events.
        """
        which = unfinished.next_input or 0
        given, chunk = self._given[which], unfinished.next_run(which)
        calls = cast(Counters, page.parts[CALLS]).values
        events = given.code_events.build_given_events(chunk, int(calls[0]), timeline, strings)
        made = (
            cast(CodeState[Unfinished], page.parts[CODE])
            .live_instance()
            .make_events(self._events, events, self._result_schema, made_max)
        )
        calls[0] += made.seen_count
        unfinished.unread_inputs[which] = unfinished.unread_inputs[which].since(made.seen_count)
        return self._taken(self._events, made, given, chunk, strings)

    def _call_heartbeat(
        self, page: Page, unfinished: Unfinished, made_max: int, timeline: Timeline, strings: StringTable
    ) -> tuple[Chunk, BadEvents]:
        """Calls the code for the next heartbeat. Returns the made rows, and the bad events. No event causes this call, so no fields
        are copied from one.
        """
        rank, unfinished.beats = int(unfinished.beats[0]), unfinished.beats[1:]
        (moment,) = self._moments.next_calls(rank, 1, cast(Counters, page.parts[CALLS]).values, timeline)
        builder = EventBuilder(self._result_schema)
        instance = cast(CodeState[Unfinished], page.parts[CODE]).live_instance()
        timeline.slot.begin_call(rank)
        try:
            returned = instance.call(self._heartbeat, ({},), moment)
            builder.add(0, list(returned) if isinstance(returned, tuple) else returned or None)
        except CodeFailure as failure:
            builder.add_failure(0, failure)
        timeline.slot.end_window()
        given = self._given[0]
        width = len(given.schema)
        lanes, valid = np.zeros((1, width), np.int64), np.zeros((1, width), np.bool_)
        opcode, flags = np.full(1, Opcode.INSERT, np.uint8), np.full(1, Flag.NORMAL, np.uint8)
        nothing = Chunk(np.array([rank]), opcode, flags, lanes, valid, is_whole=True)
        return self._taken(self._heartbeat, builder.build_events(1), given, nothing, strings)

    def _taken(
        self, function: str, made: OutputEvents, given: CodeInput, chunk: Chunk, strings: StringTable
    ) -> tuple[Chunk, BadEvents]:
        """Returns the rows that `function` made of rows of `chunk`, and bad events: the rows on which it failed, and the made rows
        that are refused.
        """
        bad = code_failure_events(function, made.failed, chunk, given.schema, strings)
        passed, refused = self._passed(self._laid_out(made, given, chunk, strings), strings)
        return passed, bad + refused

    def _laid_out(self, made: OutputEvents, given: CodeInput, chunk: Chunk, strings: StringTable) -> Chunk:
        """Returns made events as rows of the window's schema. A null field that is copied has the value of the input row."""
        count = len(made.row)
        lanes, valid = to_lanes(self._output_columns(made), self.schema, strings)
        for column, place in given.copied:
            missing = ~valid[:, column]
            lanes[missing, column] = chunk.lanes[made.row[missing], place]
            valid[missing, column] = chunk.valid[made.row[missing], place]
        default = _DEFAULT_OPCODE[chunk.opcode[made.row]]
        opcode = np.where(made.opcode == NO_OPCODE, default, made.opcode)
        return Chunk(chunk.rank[made.row], opcode, np.full(count, Flag.NORMAL, np.uint8), lanes, valid, is_whole=True)

    def _passed(self, chunk: Chunk, strings: StringTable) -> tuple[Chunk, BadEvents]:
        """Returns the rows that may be emitted or resolved, and the others as bad events. Without an index, rows with a null key
        are refused here; an index refuses them itself. If the window's output is inserts only, rows with another opcode are
        refused, too."""
        keyless = ~chunk.valid[:, self._keys].all(axis=1) & (not self._keeps)
        other = (chunk.opcode != Opcode.INSERT) & self._inserts_only
        rows = np.flatnonzero(keyless | other)
        if not len(rows):
            return chunk, NO_BAD_EVENTS
        causes = [(str(why), why.sentence) for why in (BadReason.NULL_KEY, BadReason.NOT_INSERT)]
        refused = Refusals.from_causes(rows, other[rows].astype(np.int64), causes)
        return chunk.copied_rows(np.flatnonzero(~(keyless | other))), bad_events(refused, chunk, self.schema, strings)


class CallTimesAndSeeds:
    """Times and random seeds of calls that do not correspond to single events. The seeds differ by `window`."""

    def __init__(self, window: WindowId) -> None:
        self._seed = np.uint64(xxhash.xxh3_64_intdigest(str(window).encode()))

    def next_calls(self, rank: int, count: int, calls: Int64s, timeline: Timeline) -> Iterator[TimeAndSeed]:
        """Returns an iterator over time and seed of `count` calls at `rank`. Increases `calls[0]`, the number of earlier calls, by
        `count`.
        """
        seeds = _seeds(self._seed, int(calls[0]), np.full(count, rank), timeline)
        calls[0] += count
        time_us = int(timeline.time_us[rank])
        return (TimeAndSeed(time_us, seed) for seed in seeds.tolist())


class CodeEvents:
    """Presents the rows of a chunk to user code."""

    def __init__(self, window: WindowId, name: str, schema: Schema, places: Sequence[int]) -> None:
        """Selects the columns that the code sees. `window`: seeds the random numbers; `name`: the window upstream; `schema`: the
        fields that the code sees; `places`: the columns of these fields in a chunk.
        """
        self.schema = schema
        self._name = name
        self._columns = np.array(places, np.int64)
        self._seed = np.uint64(xxhash.xxh3_64_intdigest(str(window).encode()))

    @classmethod
    def chosen(cls, window: WindowId, name: str, given: Schema, use: FieldChoice) -> CodeEvents:
        names = use.chosen_names(given)
        return cls(
            window, name, Schema(tuple(given.fields[given.index[name]] for name in names)), [given.index[name] for name in names]
        )

    def build_given_events(self, chunk: Chunk, calls: int, timeline: Timeline, strings: StringTable) -> InputEvents:
        """Returns the rows of a chunk as events for the code. `calls`: the number of events passed to the code before, which seeds
        depend on.
        """
        lanes, valid = chunk.lanes[:, self._columns], chunk.valid[:, self._columns]
        columns = to_arrow_columns(lanes, valid, self.schema, strings) if len(self.schema) else []
        seeds = _seeds(self._seed, calls, chunk.rank, timeline)
        time_us = timeline.time_us[chunk.rank]
        return InputEvents(self._name, self.schema, columns, chunk.opcode, time_us, seeds, chunk.rank, timeline.slot)


def code_failure_events(
    function: str, failed: Sequence[FailedEvent], chunk: Chunk, schema: Schema, strings: StringTable
) -> BadEvents:
    """Returns bad events for the rows of `chunk`, which has the schema `schema`, on which the code failed."""
    if not failed:
        return NO_BAD_EVENTS
    rows = np.array([each.row for each in failed], np.int64)
    reasons = pa.array([str(each.reason) for each in failed], pa.string())
    messages = pa.array([f"{function}: {each.message}" for each in failed], pa.string())
    return bad_events(Refusals(rows, reasons, messages), chunk, schema, strings)


def _seeds(window: np.uint64, calls: int, rank: Int64s, timeline: Timeline) -> UInt64s:
    """Returns the random seed of each event, from the window, the number of the event among those passed to the code, and its
    position.
    """
    where = timeline.positions
    seeds: UInt64s = np.full(len(rank), window, np.uint64)
    numbers = [np.arange(calls, calls + len(rank))]
    if where is not None:
        numbers += [column.astype(np.int64)[rank] for column in (where.topics, where.partitions, where.offsets, where.indexes)]
    for each in numbers:
        seeds = _mixed(seeds ^ each.view(np.uint64))
    return seeds


def _mixed(x: UInt64s) -> UInt64s:
    """Returns the finaliser of splitmix64 of each number, as `table.loops.hashing.mix` does for one."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def without_old_rows(chunk: Chunk) -> Chunk:
    """Returns the chunk without the second row of each update block, which has the old values."""
    blocks = np.flatnonzero(chunk.opcode == Opcode.UPDATE_BLOCK)
    if not len(blocks):
        return chunk
    kept = np.ones(len(chunk), np.bool_)
    kept[blocks + 1] = False
    return chunk.copied_rows(np.flatnonzero(kept))
