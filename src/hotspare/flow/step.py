"""The engine's only entry point: `step(plan, state, batch)` turns ordered decoded rows into outputs per stream.

Deterministic: outputs and final state depend on the state before and on the rows, not on where the rows were cut.

One row may cause millions of rows, so outputs are emitted in parts of bounded size. In each part windows run one after the other.
While a window has more to emit, the windows upstream of it wait, so that rows do not accumulate on an edge; of several such windows
the most downstream one continues. A window with several inputs processes rows in the order (rank, input). Rows of an input wait on
its edge until all rows that precede them have arrived. An upstream window that would only add to waiting rows waits too. If all
windows would wait, the window that has emitted the fewest ranks continues. A window processes a heartbeat after its inputs have
emitted all outputs that the heartbeat causes in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.base.errors import PositionOrder
from hotspare.flow.decided import NO_DECISIONS, CodeCalls, RefusedRanks, decisions_in_step
from hotspare.flow.outputs import (
    Causes,
    bad_in_pieces,
    in_pieces,
    joined_parts,
    number_and_write,
    number_and_write_bad,
    with_causes,
)
from hotspare.flow.plan import Plan
from hotspare.flow.poison import WindowFailure
from hotspare.flow.project_state import PartitionKey, Passed, State, StreamState
from hotspare.flow.window_meter import WindowMeter
from hotspare.model.events import Flag, Opcode
from hotspare.model.project import EVERY_SLOT, Resident, WindowId
from hotspare.model.types import Schema
from hotspare.rows.batch import BAD_STREAM, RowKind
from hotspare.rows.chunk import EXTRA_ROWS_MAX, Chunk, Int64s, Positions, Timeline, UInt8s
from hotspare.rows.elementwise import is_row_error
from hotspare.rows.merged import MergedRows
from hotspare.rows.ordering import partition_numbers
from hotspare.rows.refusals import NO_BAD_EVENTS, BadEvents
from hotspare.scripting.shared import SHARED_PAGE as SHARED_PAGE
from hotspare.table.lanes import to_lanes
from hotspare.table.loops.outputs import ENTERED_WIDTH, EnteredRows, enter_rows, first_disorder
from hotspare.table.memory import NO_BUDGET, PageCache, WindowMemory
from hotspare.table.pages import EvictablePart, Page
from hotspare.windows.shared.contract import OperatorResult
from hotspare.windows.shared.rowwise import passed_rows

_BAD = int(RowKind.BAD)


@dataclass(slots=True)
class BatchColumns:
    """The fixed columns of a batch as arrays. `time_us`: the system time at each row, which never falls; `beats`: the rows that are
    heartbeats; `end`: the row at which the input ends, -1 without one; `bad_count`: the count of bad rows; `ranks`: per topic, the
    rows with its events; `is_one_partition`: whether all rows are of one; `disorder`: if so, the first row that does not follow the
    row before it in the batch, else -1."""

    positions: Positions
    time_us: Int64s
    kind: npt.NDArray[np.int8]
    opcode: UInt8s
    flags: UInt8s
    beats: Int64s
    end: int
    bad_count: int
    ranks: list[Int64s]
    is_one_partition: bool
    disorder: int


class Dataflow:
    """The progress of one batch: the ranks that each window has processed, and the rows that wait on the edges."""

    def __init__(
        self,
        plan: Plan,
        state: State,
        batch: MergedRows,
        door: BatchColumns,
        timeline: Timeline,
        extra_rows_max: Callable[[], int],
        calls: CodeCalls,
        refused: Mapping[int, RefusedRanks],
        meter: WindowMeter | None = None,
    ) -> None:
        """`refused`: what nodes refuse by decision, by node number. `meter` counts what nodes process; None: nothing does."""
        count = len(plan.nodes)
        self._plan, self._state, self._batch, self._door = plan, state, batch, door
        self._calls, self._decided, self._meter = calls, refused, meter
        self._timeline, self._extra_rows_max = timeline, extra_rows_max
        self._rows, self._all_beats = batch.num_rows, timeline
        """The batch's row count, and its timeline with all heartbeats and the row limit of the current part."""
        self._has_begun = False
        self._has_more = [False] * count
        """Per node: whether it has more to emit for the rows that it has received."""
        self._waiting: list[list[Chunk | None]] = [[None] * len(node.inputs) for node in plan.nodes]
        """Rows that wait on each edge into each node."""
        self._given = [0] * count
        """Per node: the rank below which the node has received all rows."""
        self._until = [0] * count
        """Per node: the rank below which the node has emitted all outputs."""
        self._refused: dict[int, BadEvents] = {}
        """Bad events not yet emitted, by the number of the node that refused them; -1 for the head."""
        self._refuse(-1, _bad_rows(batch, door))

    @property
    def is_done(self) -> bool:
        """Whether every window has emitted all outputs of the batch. False while a window that already ran still has rows waiting
        on its edges."""
        return self._has_begun and min(self._until, default=self._rows) == self._rows and not any(self._has_more)

    def next_part(self) -> tuple[list[Chunk | None], BadEvents]:
        """Computes one part. Returns the output chunk of each node (None without outputs), and the bad events that are complete,
        ordered by rank."""
        chunks: list[Chunk | None] = [None] * len(self._plan.nodes)
        whole = self._timeline
        self._all_beats = Timeline(
            whole.time_us, whole.heartbeat_rank, self._extra_rows_max(), whole.positions, whole.end_rank, whole.slot
        )
        first = self._next_node()
        for i in range(first, len(chunks)):
            if i == first or not self._has_more[i]:
                chunks[i] = self._output(i)
        self._has_begun = True
        return chunks, self._take_refused()

    def _next_node(self) -> int:
        """Returns the number of the node that continues in the next part. The nodes after it in the plan run as well."""
        if not self._has_begun:
            return 0
        more = [i for i, has_more in enumerate(self._has_more) if has_more]
        if len(more) < 2:
            return more[0] if more else 0
        piles = [False] * len(self._has_more)
        for i in range(len(piles) - 1, -1, -1):
            to = self._plan.followers[i]
            piles[i] = any(self._waiting[at][number] is not None or self._has_more[at] or piles[at] for at, number in to)
        free = [i for i in more if not piles[i]]
        return free[-1] if free else min(more, key=lambda i: (self._until[i], i))

    def _output(self, i: int) -> Chunk | None:
        node, topic = self._plan.nodes[i], self._plan.topic_of.get(i)
        if topic is None:
            inputs, until = self._take_inputs(i)
        else:
            inputs, until = [None if self._has_begun else self._events(topic, node.operator.schema)], self._rows
        if node.in_head:
            self._until[i] = until
            if topic is None or inputs[0] is None:
                return None
            if self._meter is not None:
                self._meter.record_head(i, len(inputs[0]))
            return self._route_outputs(i, OperatorResult(inputs[0]))
        decided = self._decided.get(i)
        if decided is not None:
            inputs, bad = decided.without_refused(node, inputs, self._state.strings)
            self._refuse(i, bad)
        comes = self._has_more[i] or inputs.count(None) < len(inputs)
        if not comes and (until == self._given[i] or not self._is_due(i, until)):
            self._given[i] = self._until[i] = until
            return None
        beats = self._beats(self._given[i], until)
        if decided is not None:
            beats, bad = decided.without_beats(node, beats)
            self._refuse(i, bad)
        applied = self._applied(i, inputs, beats) if self._meter is None else self._metered(i, inputs, beats, self._meter)
        self._given[i] = until
        self._has_more[i] = applied.until is not None
        self._until[i] = until if applied.until is None else applied.until
        if len(applied.bad):
            self._refuse(i, applied.bad.of_window(node.window))
        return self._route_outputs(i, applied)

    def _is_due(self, i: int, until: int) -> bool:
        """Whether time may make node i act between the ranks that it has received and `until`."""
        clock, ends = self._plan.nodes[i].operator.clock, self._given[i] <= self._timeline.end_rank < until
        return clock.has_ticks or (ends and clock.has_event_time)

    def _applied(self, i: int, inputs: Sequence[Chunk | None], beats: Timeline) -> OperatorResult:
        """Returns the result of node i for its inputs and heartbeats. Raises WindowFailure."""
        node, slot = self._plan.nodes[i], self._calls.slot
        given = [nothing if chunk is None else chunk for chunk, nothing in zip(inputs, node.empty_inputs, strict=True)]
        if i in self._calls.row_by_row:
            beats = replace(beats, is_row_by_row=True)
        slot.node = i
        try:
            return node.operator.process_chunks(self._state.pages[node.page], given, beats, self._state.strings)
        except Exception as error:
            if not is_row_error(error):
                raise
            raise WindowFailure(node.window, i, error) from error
        finally:
            slot.end_window()

    def _metered(self, i: int, inputs: Sequence[Chunk | None], beats: Timeline, meter: WindowMeter) -> OperatorResult:
        """Returns the result of `_applied`, and counts the rows and the time in `meter`."""
        begun_ns = meter.clock_ns()
        applied = self._applied(i, inputs, beats)
        meter.record(i, begun_ns, inputs, applied.chunk)
        return applied

    def _events(self, topic: int, schema: Schema) -> Chunk | None:
        """Returns the decoded events of one topic, or None if the batch has no events of that topic."""
        rank, door = self._door.ranks[topic], self._door
        if not len(rank):
            return None
        fields, at = self._batch.events_of(topic, rank)
        lanes, valid = to_lanes(fields, schema, self._state.strings, at)
        return Chunk(rank, door.opcode[rank], door.flags[rank], lanes, valid)

    def _take_inputs(self, i: int) -> tuple[list[Chunk | None], int]:
        """Removes and returns the waiting rows that node i may process now, by input (None without rows). Also returns the rank
        below which these rows are complete. While the node has more to emit, no rows are removed.
        """
        arcs, waiting = self._plan.nodes[i].inputs, self._waiting[i]
        if not arcs:  # the head has done its work
            return [], self._rows
        if self._has_more[i]:
            return [None] * len(arcs), self._given[i]
        if len(arcs) == 1:
            (chunk,), until = waiting, self._until[arcs[0].node]
            waiting[0] = None
            if chunk is not None and self._plan.nodes[i].operator.pairs_evictions and _may_continue(chunk, until):
                chunk, waiting[0] = chunk.between(0, len(chunk) - 1), chunk.since(len(chunk) - 1)
            return [chunk if chunk is not None and len(chunk) else None], until
        befores = [self._until[arc.node] for arc in arcs]
        until = min(befores)
        last, taken = befores.index(until), list(waiting)
        for number, chunk in enumerate(waiting):
            waiting[number] = None
            if chunk is not None:
                count = int(np.searchsorted(chunk.rank, until, side="right" if number <= last else "left"))
                if count < len(chunk):
                    taken[number] = chunk.between(0, count) if count else None
                    waiting[number] = chunk.since(count)
        return taken, until

    def _route_outputs(self, i: int, applied: OperatorResult) -> Chunk | None:
        """Appends the outputs of node i to the waiting rows of the edges that start there. Returns the outputs, or None without
        outputs."""
        chunk, slots = applied.chunk, applied.slots
        if not len(chunk):
            return None
        for at, number in self._plan.followers[i]:
            mine, waiting = chunk, self._waiting[at]
            if slots is not None and (slot := self._plan.nodes[at].inputs[number].slot) != EVERY_SLOT:
                mine = passed_rows(chunk, (slots == slot) | (slots == EVERY_SLOT))
                if not len(mine):
                    continue
            waits = waiting[number]
            waiting[number] = mine if waits is None else waits.joined(mine)
        return chunk

    def _beats(self, since: int, until: int) -> Timeline:
        """Returns the batch's timeline from rank `since` to before rank `until`."""
        whole = self._all_beats
        if not (len(whole.heartbeat_rank) or whole.has_end) or (since == 0 and until == self._rows):
            return whole
        return whole.between(since, until)

    def _take_refused(self) -> BadEvents:
        """Removes and returns the bad events of all complete ranks (no window can still refuse a row there), ordered by rank, then
        window. Events of one rank and window are ordered by text, because windows may refuse them in different parts."""
        taken = NO_BAD_EVENTS
        if not self._refused:
            return taken
        until = min(self._until, default=0)
        for at in sorted(self._refused):
            bad = self._refused.pop(at)
            count = int(np.searchsorted(bad.rank, until))
            taken += bad.slice(0, count).by_texts()
            self._refuse(at, bad.slice(count, len(bad)))
        return taken.by_rank()

    def _refuse(self, at: int, bad: BadEvents) -> None:
        if len(bad):
            self._refused[at] = (self._refused.get(at, NO_BAD_EVENTS) + bad).by_rank()


def _may_continue(chunk: Chunk, until: int) -> bool:
    """Whether the row that evicted the last row of the chunk may still arrive: the chunk ends with the delete of an evicted row,
    and the rank is incomplete. The old row of an update does not count as evicted, though it may have the retention flag.
    """
    if chunk.rank[-1] < until or chunk.opcode[-1] != Opcode.DELETE or not chunk.flags[-1] & Flag.RETENTION:
        return False
    return len(chunk) == 1 or bool(chunk.opcode[-2] != Opcode.UPDATE_BLOCK)


def _bad_rows(batch: MergedRows, door: BatchColumns) -> BadEvents:
    """Returns the bad events of the rows that the head could not decode, or refused."""
    if not door.bad_count:
        return NO_BAD_EVENTS
    rank = np.flatnonzero(door.kind == _BAD)
    return BadEvents(rank, tuple(batch.bad_of(rank).flatten()))


_RANKS = {Resident.MAY_LEAVE: 0, Resident.PREFER: 1}
"""Eviction rank by the window's `resident` setting: rows of windows with a lower rank are evicted first."""
TEXTS, SHARED = "texts", "shared code"
"""Names under which memory that no single window owns is counted: texts, and the state that user code shares."""


def fresh_state(plan: Plan, shard: int = 0, residence: PageCache = NO_BUDGET) -> State:
    """Returns the state of a shard before its first event. `residence`: the page cache that decides which rows are evicted."""
    pages = {node.page: node.operator.open() for node in plan.nodes if not node.in_head}
    for node in plan.nodes:
        if not node.in_head:
            node.operator.initialize_shard(pages[node.page], shard)
            _configure_page(pages[node.page], node.operator.id, plan.resolved.window(node.operator.id).window.resident, residence)
    if plan.shared is not None:
        pages[SHARED_PAGE] = plan.shared.open()
        _set_page_memory(pages[SHARED_PAGE], residence.window_memory(0, SHARED))
    state = State(pages, {name: StreamState() for name in plan.stream_schemas})
    state.strings.set_window_memory(residence.window_memory(0, TEXTS))
    return state


def _configure_page(page: Page, window: WindowId, resident: Resident, residence: PageCache) -> None:
    page.is_pinned = resident is Resident.ALWAYS
    if not page.is_pinned:
        _set_page_memory(page, residence.window_memory(_RANKS[resident], str(window)))


def _set_page_memory(page: Page, home: WindowMemory) -> None:
    for part in page.parts.values():
        if isinstance(part, EvictablePart):
            part.set_window_memory(home)


def step(
    plan: Plan,
    state: State,
    batch: MergedRows,
    extra_rows_max: Callable[[], int] = lambda: EXTRA_ROWS_MAX,
    calls: CodeCalls = NO_DECISIONS,
    meter: WindowMeter | None = None,
) -> Iterator[dict[str, pa.RecordBatch]]:
    """Processes decoded rows of `plan.entry_schemas`, in merged order, and yields the outputs part by part. Each part maps names of
    streams to outputs; a traced window's name begins with `rows.batch.TRACE_PREFIX`.

    In one part a window emits at most three rows per input row, and `extra_rows_max()` more. `state` is changed in place and is
    complete again (`is_whole`) when the last part is yielded. `calls`: how user code is called, and which calls are refused.
    `meter`: counts what windows process. Raises PositionOrder, before any change, if a row does not follow the row before it in its
    partition.

    If user code shares state between windows (`scripting.shared`), rows are processed one at a time.
    """
    if batch.num_rows == 0:
        return
    if plan.shared is None:
        yield from _stepped(plan, state, batch, extra_rows_max, calls, meter)
    else:
        _check_order(state, _batch_columns(plan, state, batch))
        plan.shared.attach_pages(state.pages)
        yield from _one_by_one(plan, state, batch, calls, meter)


def _one_by_one(
    plan: Plan, state: State, batch: MergedRows, calls: CodeCalls, meter: WindowMeter | None
) -> Iterator[dict[str, pa.RecordBatch]]:
    """Steps one row at a time, with a constant part size: through shared state, user code could see the order of rows and the
    parts."""
    waiting: list[dict[str, pa.RecordBatch]] = []
    count = 0
    for row in range(batch.num_rows):
        for part in _stepped(plan, state, batch.slice(row, 1), lambda: EXTRA_ROWS_MAX, calls, meter):
            state.is_whole = state.is_whole and row + 1 == batch.num_rows
            waiting.append(part)
            count += sum(made.num_rows for made in part.values())
            if count >= EXTRA_ROWS_MAX and not state.is_whole:
                yield joined_parts(waiting)
                waiting, count = [], 0
    yield joined_parts(waiting)


def _stepped(
    plan: Plan,
    state: State,
    batch: MergedRows,
    extra_rows_max: Callable[[], int],
    calls: CodeCalls,
    meter: WindowMeter | None,
) -> Iterator[dict[str, pa.RecordBatch]]:
    door = _batch_columns(plan, state, batch)
    passed = _check_order(state, door)
    decisions, decided = decisions_in_step(plan, state, calls, door.positions)
    timeline = Timeline(door.time_us, door.beats, positions=door.positions, end_rank=door.end, slot=calls.slot)
    if calls.slot.is_watched and plan.code_nodes:
        calls.slot.begin_step(*(column.astype(np.int64).data.cast("B").cast("q") for column in door.positions))
    work = Dataflow(plan, state, batch, door, timeline, extra_rows_max, calls, decided, meter)
    state.is_whole = False
    while True:
        chunks, refused = work.next_part()
        *others, outputs = _write(plan, state, door, chunks, refused)
        yield from others
        if work.is_done:
            break
        yield outputs
    state.passed.update(passed)
    state.decisions += decisions
    state.time_us = int(door.time_us[-1])
    if len(timeline.heartbeat_rank):
        state.heartbeat_time_us = int(door.time_us[timeline.heartbeat_rank[-1]])
    state.load_some_pages(batch.num_rows)
    state.collect_strings(batch.num_rows)
    state.is_whole = True
    yield outputs


def _batch_columns(plan: Plan, state: State, batch: MergedRows) -> BatchColumns:
    column, count, topics = batch.fixed, batch.num_rows, len(plan.entries)
    positions = batch.positions
    time_us, ranks, ticks, beats = np.empty((4, count), np.int64)
    counts, ends = np.empty(ENTERED_WIDTH, np.int64), np.zeros(topics, np.int64)
    enter_rows(
        positions,
        column["time_us"],
        column["kind"],
        state.time_us,
        state.heartbeat_time_us,
        plan.heartbeat_interval_us,
        EnteredRows(time_us, ranks, ends, ticks, beats, counts),
    )
    _, beat_count, bad_count, end, is_one_partition, disorder = counts.tolist()
    stops = ends.tolist()
    return BatchColumns(
        positions,
        time_us,
        column["kind"],
        column["opcode"],
        column["flags"],
        beats[:beat_count],
        end,
        bad_count,
        [ranks[begin:stop] for begin, stop in zip([0, *stops], stops, strict=False)],
        is_one_partition == 1,
        disorder,
    )


def _check_order(state: State, door: BatchColumns) -> dict[PartitionKey, Passed]:
    """Returns the last row of each partition in the batch. Raises PositionOrder if positions of a partition do not rise."""
    where = door.positions
    if door.is_one_partition:
        key = where.topics.item(0), where.partitions.item(0)
        before, first = state.passed.get(key), (where.offsets.item(0), where.indexes.item(0))
        _check_disorder(state, where, 0 if before and first <= (before.offset, before.index) else door.disorder)
        return {key: Passed(where.offsets.item(-1), where.indexes.item(-1), door.time_us.item(-1))}
    keys, number = partition_numbers(where.topics, where.partitions)
    assert number is not None
    befores = [state.passed.get(key) for key in keys]
    newest = np.array([(each.offset, each.index, -1) if each else (-1, -1, -1) for each in befores], np.int64)
    _check_disorder(state, where, int(first_disorder(where, number, newest)))
    last = zip(keys, newest.tolist(), strict=True)
    return {key: Passed(offset, index, door.time_us.item(row)) for key, (offset, index, row) in last}


def _check_disorder(state: State, where: Positions, row: int) -> None:
    """Raises PositionOrder for the row unless it is -1."""
    if row >= 0:
        topic, partition, offset, index = (int(column[row]) for column in where)
        raise PositionOrder(
            f"offset {offset}, event {index} of inbound topic {topic} is out of order",
            detail=f"partition {partition}: the last row before the batch was {state.passed.get((topic, partition))}",
        )


def _write(
    plan: Plan, state: State, door: BatchColumns, chunks: list[Chunk | None], bad: BadEvents
) -> list[dict[str, pa.RecordBatch]]:
    """Numbers the outputs of all streams and returns them in parts, at least one. More parts are made only if the outputs' text is
    too large for one."""
    causes, strings = Causes(door.positions), state.strings
    made: dict[str, list[pa.RecordBatch]] = {}
    for outlet in (*plan.outlets, *plan.traces):
        if (chunk := chunks[outlet.node]) is not None:
            stream = state.streams.get(outlet.name) or StreamState()  # a trace is numbered from 1 in each batch
            form = outlet.form
            made[outlet.name] = [
                number_and_write(piece, form, causes, stream, strings) for piece in in_pieces(chunk, form, strings)
            ]
            if outlet.has_beats:
                made[outlet.name] = with_causes(made[outlet.name], chunk, door.time_us)
    if len(bad):
        stream = state.streams[BAD_STREAM]
        made[BAD_STREAM] = [number_and_write_bad(piece, causes, stream) for piece in bad_in_pieces(bad)]
    parts = max(map(len, made.values()), default=1)
    if parts == 1:
        return [{name: batch for name, (batch,) in made.items()}]
    return [{name: batches[at] for name, batches in made.items() if at < len(batches)} for at in range(parts)]
