"""Pattern window (SPEC A30): matches of events that arrive in an order, together, or not at all.

    events of all inputs ──► columns of each event ──► open matches, event by event ──► fields, key ──► inserts
    heartbeats ────────────────────────────────────────────┘

Each event is applied, pattern by pattern, to the open matches that wait for it, in the order in which they last changed. Then the
event may begin a match. A complete match is emitted, with the newest event of each name, and is closed.

System time advances at heartbeats: expired limits end matches there, in the order of (deadline, last change of the match). An event
between a deadline and the next heartbeat is too late for that match. Event time is the newest time of all events of the window, and
advances with each event. Expired limits end before the event is processed; those that expire at once, as from a late event, end
after it. If all sources have `idle`, event time also advances at heartbeats, once the newest event of the window was appended
`idle` ago; the next event sets event time again. At the end of the input all limits expire, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pyarrow as pa

from hotspare.expressions.frame import Failures
from hotspare.model.events import Flag, Opcode
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.types import FieldType
from hotspare.rows.changelog import DISTINCT
from hotspare.rows.chunk import NO_BEATS, Chunk, Int64s, Timeline
from hotspare.rows.elementwise import true_mask
from hotspare.rows.refusals import NO_BAD_EVENTS, BadEvents, Refusals
from hotspare.table.lanes import to_arrow
from hotspare.table.loops.relation import UNTIL, Policy
from hotspare.table.loops.slots import NEVER, UNSET
from hotspare.table.multi_index import MultiIndex
from hotspare.table.pages import Columns, Counters, Page, Part
from hotspare.table.strings import StringTable
from hotspare.table.unloaded import LoadMode
from hotspare.windows.pattern.code import MATCHES, PatternCalls
from hotspare.windows.pattern.columns import EventColumns, OrderedEvents, flip_ordered_lanes
from hotspare.windows.pattern.declaration import PatternWindow
from hotspare.windows.pattern.loops import pattern_logic as k
from hotspare.windows.pattern.loops.pattern import collect_waiting_matches, run_pattern
from hotspare.windows.pattern.program import ResidualCondition, compile_patterns
from hotspare.windows.shared.contract import SHARD_BITS, Clock, Operator, OperatorInput, OperatorResult
from hotspare.windows.shared.event_time import event_clock, idle_beats
from hotspare.windows.shared.generated_keys import KeyMaker
from hotspare.windows.shared.keyed import bad_events
from hotspare.windows.shared.stateless import event_columns

KEPT, PENDING = "kept", "pending"
"""Parts of the page, in addition to the open matches. `KEPT`: the next key, the newest event time, and the append time of the
newest event. `PENDING`: the work in progress.
"""
_NEWEST_APPEND_TIME = 2
"""Entry of `KEPT`: the append time of the newest event."""
_POLICY = Policy(UNTIL, 0, 1, 1, 1, 1)
_MATCHES_AT_ONCE_MAX = 1 << 16
"""The most open matches for which an expression is evaluated in one step."""


class PatternWork:
    """Work in progress: the events of a batch, bad events not emitted yet, and the kernel's arrays. Outside a batch only the arrays
    have content, which follows from the open matches; so snapshots omit all of it.
    """

    def __init__(self) -> None:
        self.taking: OrderedEvents | None = None
        self.bad = NO_BAD_EVENTS
        self.work: k.MatchWork | None = None

    def freeze(self) -> PatternWork:
        return PatternWork()

    def columns(self) -> Columns:
        return {}

    def load(self, columns: Columns) -> None:
        pass

    def __reduce__(self) -> tuple[type[PatternWork], tuple[()]]:
        return PatternWork, ()


class PatternOperator(Operator):
    output_changelog = DISTINCT
    non_row_parts = frozenset({MATCHES})

    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        super().__init__(window, inputs)
        declared = cast(PatternWindow, window.window)
        names = [source.window for source, _ in window.inputs]
        schemas = [each.schema for each in self.inputs]
        times = declared.time_fields
        self._by_event = 1 if times else 0
        self._idle_us = window.idle_us if times and declared.has_limits else 0
        if declared.has_limits:
            self.clock = event_clock(self._idle_us) if times else Clock.TICKS
        sources = list(zip(names, schemas, strict=True))
        self._plan = compile_patterns(str(window.id), declared.active_patterns, sources, self.schema, self._by_event)
        places = {number: schema.index[times[name]] for number, (name, schema) in enumerate(sources) if name in times}
        fields = {number: (place, schemas[number].fields[place].type) for number, place in places.items()}
        self._calls = PatternCalls(window, declared.active_patterns, self._plan, schemas)
        self._columns = EventColumns(self._plan, schemas, fields)
        self._maker = KeyMaker(self.id, self.schema)

    def open(self) -> Page:
        kept = Counters(3)
        kept.values[k.CLOCK] = kept.values[_NEWEST_APPEND_TIME] = UNSET
        program = self._plan.program
        skips = bool(program.patterns[:, k.SKIPS].any())  # a match completed by time may end matches of any partition
        reading = LoadMode.AT_USE if program.keys.shape[1] and not skips else LoadMode.WHOLE
        matches = MultiIndex(self._plan.shape, _POLICY, reading, (k.PATTERN, k.WAITS_FOR))
        parts: dict[str, Part] = {MATCHES: matches, KEPT: kept, PENDING: PatternWork()}
        return Page(parts | self._calls.new_code_parts())

    def initialize_shard(self, page: Page, shard: int) -> None:
        cast(Counters, page.parts[KEPT]).values[0] = shard << SHARD_BITS

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        matches, pending = cast(MultiIndex, page.parts[MATCHES]), cast(PatternWork, page.parts[PENDING])
        if not self._plan.conditions:
            return OperatorResult(Chunk.empty(len(self.schema)))
        if pending.taking is None:
            taking, pending.bad = self._columns.evaluate_batch(inputs, timeline, strings)
            taking.events = taking.events._replace(beats=self._beats(page, taking.events, timeline))
            pending.taking = taking
            self._load_matches(matches, taking.events)
            pending.work = self._allocate_work(cast(Counters, page.parts[KEPT]).values, pending.work)
        assert pending.work is not None
        room = sum(len(chunk) for chunk in inputs) + timeline.extra_rows_max
        out = k.MatchOutputs(
            np.empty(room, np.int64), np.empty((room, len(self.schema)), np.int64), np.empty((room, len(self.schema)), np.bool_)
        )
        is_done = self._run(page, pending, out, timeline, strings)
        chunk = self._laid_out(out, int(pending.work.counts[k.MADE]), pending.work.window_counters, strings)
        until = None if is_done else int(pending.work.counts[k.RANK])
        told = pending.bad.by_rank()
        count = len(told) if until is None else int(np.searchsorted(told.rank, until))
        pending.bad = told.slice(count, len(told))
        if until is None:
            pending.taking = None
        return OperatorResult(chunk, told.slice(0, count), until)

    def _beats(self, page: Page, events: k.PatternEvents, timeline: Timeline) -> Int64s:
        """Returns int64[., 2], rank and time in microseconds of the points at which limits may expire: heartbeats, and the end of
        the input, at which all do.
        """
        beats = NO_BEATS
        if self._idle_us:
            kept = cast(Counters, page.parts[KEPT]).values
            newest_us = np.maximum.accumulate(np.append(kept[k.CLOCK], events.time))
            beats = idle_beats(kept[_NEWEST_APPEND_TIME:], events.rank, timeline, self._idle_us)
            beats[:, 1] += newest_us[np.searchsorted(events.rank, beats[:, 0], side="right")]
        elif self.clock is Clock.TICKS:
            beats = np.column_stack((timeline.heartbeat_rank, timeline.time_us[timeline.heartbeat_rank]))
        return np.append(beats, [(timeline.end_rank, NEVER - 1)], axis=0) if timeline.has_end else beats

    def _load_matches(self, matches: MultiIndex, events: k.PatternEvents) -> None:
        """Loads the open matches in the partitions of these events, if a restore left them in the store."""
        if not matches.has_unloaded_pages:
            return
        for p, columns in enumerate(self._plan.program.keys):
            rows, there = np.flatnonzero(events.masks[p]), np.flatnonzero(columns >= 0)
            asked = np.zeros((len(rows), 1 + len(columns)), np.int64)
            asked[:, 0] = p
            asked[:, 1 + there] = events.values[rows[:, np.newaxis], columns[there]]
            matches.load_matches(np.unique(asked, axis=0))

    def _allocate_work(self, kept: Int64s, before: k.MatchWork | None) -> k.MatchWork:
        """Returns the kernel's arrays for a batch: `before` with its counts reset, or new arrays if it is None. `kept`: the
        window's counters, part KEPT.
        """
        if before is not None:
            before.counts[:] = 0
            return before._replace(window_counters=kept)
        program = self._plan.program
        patterns, width, nodes = len(program.patterns), self._plan.shape.width, len(program.nodes)
        return k.MatchWork(
            lanes=np.zeros((1, width), np.int64),
            valid=np.zeros((1, width), np.bool_),
            state=np.zeros(nodes, np.int64),
            active=np.zeros(nodes, np.int64),
            cursors=np.zeros(k.CLASSES_MAX, np.int64),
            classes=np.zeros((patterns, k.CLASSES_MAX), np.int64),
            class_counts=np.zeros(patterns, np.int64),
            truth=np.zeros(0, np.int64),
            code_states=np.zeros(0, np.int64),
            counts=np.zeros(k.COUNTS_WIDTH, np.int64),
            window_counters=kept,
        )

    def _run(self, page: Page, pending: PatternWork, out: k.MatchOutputs, timeline: Timeline, strings: StringTable) -> bool:
        """Runs the kernel until `out` is full or all events are processed; provides room, pages and answers that it requests.
        Returns whether all events are processed.
        """
        matches = cast(MultiIndex, page.parts[MATCHES])
        taking, work, program = pending.taking, pending.work, self._plan.program
        assert taking is not None and work is not None
        work.counts[k.MADE], work.counts[k.ROOM] = 0, len(out.rank)
        matches.begin_in_kernel()
        while True:
            _add_restored_classes(matches, work)
            if work.counts[k.ABSENCE] != k.ANSWERED_FOR:
                work.counts[k.ABSENCE] = k.ASK if matches.has_unloaded_pages else k.ALL_THERE
            state = run_pattern(matches.rows.pages.rows, matches.lists, program, taking.events, out, work)
            if state == k.NEEDS_ROOM:
                matches.make_more_room()
            elif state == k.NEEDS_TRUTH:
                pending.work = work = self._evaluate_matches(page, taking, work, pending, timeline, strings)
            elif state == k.NEEDS_PAGE:
                matches.load_page_to_clear()
                work.counts[k.ABSENCE] = k.ANSWERED_FOR
            elif state == k.NEEDS_DUE:
                matches.link_next()
            elif state == k.NEEDS_OUTPUT:
                pending.bad += self._calls.make_output(page, out, work, timeline, strings)
            else:
                break
        matches.settle()
        return bool(state == k.DONE)

    def _laid_out(self, out: k.MatchOutputs, count: int, kept: Int64s, strings: StringTable) -> Chunk:
        lanes, valid = out.lanes[:count].copy(), out.valid[:count].copy()
        self._maker.write(kept, lanes, valid, strings)
        opcode, flags = np.full(count, Opcode.INSERT, np.uint8), np.full(count, Flag.NORMAL, np.uint8)
        return Chunk(out.rank[:count].copy(), opcode, flags, lanes, valid, is_whole=True)

    def _evaluate_matches(
        self, page: Page, taking: OrderedEvents, work: k.MatchWork, pending: PatternWork, timeline: Timeline, strings: StringTable
    ) -> k.MatchWork:
        """Computes for which open matches the events of interest with residuals, or with code, are true for the current event.
        Writes the result to `truth` of the work, and returns the work, enlarged if needed.
        """
        matches = cast(MultiIndex, page.parts[MATCHES])
        rows = matches.rows.pages.rows
        if len(work.truth) < matches.rows.pages.slots_used:
            room = len(work.truth) + 2 * matches.rows.pages.slots_used
            work = work._replace(truth=np.zeros(room, np.int64), code_states=np.zeros(room, np.int64))
        slots = np.empty(0, np.int64)
        while (count := int(collect_waiting_matches(rows, matches.lists, self._plan.program, taking.events, work, slots))) > len(
            slots
        ):
            slots = np.empty(count, np.int64)
        slots = slots[np.argsort(rows.order[slots], kind="stable")]  # the reported failure may not depend on load order
        work.truth[slots] = 0
        event, p = int(work.counts[k.EVENT]), int(work.counts[k.AT])
        work.counts[k.ANSWERED] = 1
        if p in self._calls:
            pending.bad += self._calls.evaluate_matches(page, slots, taking, work, timeline, strings)
            return work
        number, row = int(taking.number[event]), int(taking.row[event])
        mask, failed = int(taking.events.masks[p, event]), None
        for asked in self._plan.residuals:
            if asked.pattern == p and mask >> asked.bit & 1:
                for begin in range(0, count, _MATCHES_AT_ONCE_MAX):
                    some = slots[begin : begin + _MATCHES_AT_ONCE_MAX]
                    values, failures = self._evaluate_residual(
                        asked, matches, some, taking.chunks[number].between(row, row + 1), strings
                    )
                    work.truth[some] |= true_mask(values).astype(np.int64) << asked.bit
                    failed = failed or (failures if len(failures) else None)
        if failed is not None:
            pending.bad += self._failed(failed, taking.chunks[number], number, row, strings)
        return work

    def _evaluate_residual(
        self, asked: ResidualCondition, matches: MultiIndex, slots: Int64s, event: Chunk, strings: StringTable
    ) -> tuple[pa.Array, Failures]:
        """Evaluates a residual condition over one event and the variables of each match in `slots`. Returns values and failures, by
        match.
        """
        rows, schema, count = matches.rows.pages.rows, self.inputs[asked.number].schema, len(slots)
        columns = event_columns(asked.expression.fields, schema, event.opcode, event.flags)
        for name in asked.expression.fields:
            if name in schema.index:
                place = schema.index[name]
                columns[name] = to_arrow(event.lanes[:, place], event.valid[:, place], schema.fields[place].type, strings)
        columns = {name: pa.repeat(column[0], count) for name, column in columns.items()}
        for name, place, type_ in asked.variables:
            lanes = flip_ordered_lanes(rows.lanes[slots, place]) if type_ is FieldType.DOUBLE else rows.lanes[slots, place]
            columns[name] = to_arrow(lanes, rows.valid[slots, place], type_, strings)
        return asked.expression.evaluate(columns, count)

    def _failed(self, failed: Failures, chunk: Chunk, number: int, row: int, strings: StringTable) -> BadEvents:
        """Returns a bad event for the first of these failures, at row `row` of `chunk`, events of input `number`."""
        reason, message = failed.causes[int(failed.cause_index[0])]
        refused = Refusals.from_causes(np.array([row]), np.zeros(1, np.int64), [(str(reason), message)])
        return bad_events(refused, chunk, self.inputs[number].schema, strings)


def _add_restored_classes(matches: MultiIndex, work: k.MatchWork) -> None:
    """Adds the sets of awaited events of matches that were restored or loaded since the last call to the classes in `work`."""
    for p, waits in matches.pop_noted_values().tolist():
        known = int(work.class_counts[p])
        if waits not in work.classes[p, :known]:
            work.classes[p, known] = waits
            work.class_counts[p] += 1
