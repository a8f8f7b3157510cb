"""The engine's one door: `step(plan, state, batch)`, from decoded rows in order to outputs per stream.

Deterministic: the outputs and the state after a batch depend on the state before and on the rows, not on where the rows were cut.

What one row causes may be millions of rows, so outputs come in parts of bounded size (`flow.dataflow`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from hotspare.base.errors import PositionOrder
from hotspare.flow.dataflow import Dataflow, Door
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
from hotspare.flow.project_state import NO_TIME, PartitionKey, Passed, State, StreamState
from hotspare.model.project import Resident, WindowId
from hotspare.rows.batch import BAD_STREAM, RowKind
from hotspare.rows.chunk import EXTRA_ROWS_MAX, NO_END, Chunk, Positions, Timeline
from hotspare.rows.merged import MergedRows
from hotspare.rows.ordering import partition_numbers
from hotspare.rows.refusals import BadEvents
from hotspare.scripting.shared import PAGE as SHARED_PAGE
from hotspare.table.loops.outputs import due_heartbeats, first_disorder
from hotspare.table.memory import NO_BUDGET, Home, Residence
from hotspare.table.pages import Housed, Page

_TICK, _END = int(RowKind.TICK), int(RowKind.END)
_RANKS = {Resident.MAY_LEAVE: 0, Resident.PREFER: 1}
"""Lower ones leave memory first."""
TEXTS, SHARED = "texts", "shared code"
"""What the memory of texts is called among that of windows, and of what code shares: they are of all windows together."""


def fresh_state(plan: Plan, shard: int = 0, residence: Residence = NO_BUDGET) -> State:
    """The state before the first event, of this shard of the project. `residence` decides which rows leave memory."""
    pages = {node.page: node.operator.open() for node in plan.nodes if not node.in_head}
    for node in plan.nodes:
        if not node.in_head:
            node.operator.divide(pages[node.page], shard)
            _settle(pages[node.page], node.operator.id, plan.resolved.window(node.operator.id).window.resident, residence)
    if plan.shared is not None:
        pages[SHARED_PAGE] = plan.shared.open()
        _house(pages[SHARED_PAGE], residence.home(0, SHARED))
    state = State(pages, {name: StreamState() for name in plan.stream_schemas})
    state.strings.live_in(residence.home(0, TEXTS))
    return state


def _settle(page: Page, window: WindowId, resident: Resident, residence: Residence) -> None:
    page.stays = resident is Resident.ALWAYS
    if not page.stays:
        _house(page, residence.home(_RANKS[resident], str(window)))


def _house(page: Page, home: Home) -> None:
    for part in page.parts.values():
        if isinstance(part, Housed):
            part.live_in(home)


def step(
    plan: Plan, state: State, batch: MergedRows, extra_rows_max: Callable[[], int] = lambda: EXTRA_ROWS_MAX
) -> Iterator[dict[str, pa.RecordBatch]]:
    """Take decoded rows of `plan.entry_schemas` in merged order; yield the outputs, part by part: of streams
    that have any, and of traced windows under `rows.batch.TRACE_PREFIX`.

    A window puts out at most three rows for each that it is given, and `extra_rows_max()` more, in one part. `state` is changed in
    place, and is whole again when the last part is handed out. PositionOrder, before anything is changed, where a row does not come
    after the one before it in its partition.

    Where code of windows shares what it keeps (`scripting.shared`), rows are taken one after the other.
    """
    if batch.num_rows == 0:
        return
    if plan.shared is None:
        yield from _stepped(plan, state, batch, extra_rows_max)
    else:
        _check_order(state, _open_door(state, batch))
        plan.shared.join(state.pages)
        yield from _one_by_one(plan, state, batch)


def _one_by_one(plan: Plan, state: State, batch: MergedRows) -> Iterator[dict[str, pa.RecordBatch]]:
    """One row after the other, in parts that are always the same: what code finds of other code shows both."""
    waiting: list[dict[str, pa.RecordBatch]] = []
    count = 0
    for row in range(batch.num_rows):
        for part in _stepped(plan, state, batch.slice(row, 1), lambda: EXTRA_ROWS_MAX):
            state.is_whole = state.is_whole and row + 1 == batch.num_rows
            waiting.append(part)
            count += sum(made.num_rows for made in part.values())
            if count >= EXTRA_ROWS_MAX and not state.is_whole:
                yield joined_parts(waiting)
                waiting, count = [], 0
    yield joined_parts(waiting)


def _stepped(plan: Plan, state: State, batch: MergedRows, extra_rows_max: Callable[[], int]) -> Iterator[dict[str, pa.RecordBatch]]:
    door = _open_door(state, batch)
    passed = _check_order(state, door)
    timeline = _timeline(plan, state, door)
    work = Dataflow(plan, state, batch, door, timeline, extra_rows_max)
    state.is_whole = False
    while True:
        chunks, refused = work.next_part()
        *others, outputs = _write(plan, state, door, chunks, refused)
        yield from others
        if work.is_done:
            break
        yield outputs
    state.passed.update(passed)
    state.time_us = int(door.time_us[-1])
    if len(timeline.heartbeat_rank):
        state.heartbeat_time_us = int(door.time_us[timeline.heartbeat_rank[-1]])
    state.read_some(batch.num_rows)
    state.collect_strings(batch.num_rows)
    state.is_whole = True
    yield outputs


def _open_door(state: State, batch: MergedRows) -> Door:
    column = batch.fixed
    positions = Positions(column["topic"], column["partition"], column["offset"], column["index"])
    time_us = np.maximum.accumulate(np.maximum(column["time_us"], state.time_us))
    return Door(positions, time_us, column["kind"], column["opcode"], column["flags"])


def _check_order(state: State, door: Door) -> dict[PartitionKey, Passed]:
    """The last row of each partition of the batch; PositionOrder where positions do not rise."""
    where = door.positions
    keys, number = partition_numbers(where.topics, where.partitions)
    if number is None:
        number = np.zeros(len(where.offsets), np.int64)
    befores = [state.passed.get(key) for key in keys]
    newest = np.array([(each.offset, each.index, -1) if each else (-1, -1, -1) for each in befores], np.int64)
    disorder = int(first_disorder(where, number, newest))
    if disorder >= 0:
        at = int(number[disorder])
        raise PositionOrder(
            f"offset {where.offsets[disorder]}, event {where.indexes[disorder]} of inbound topic {keys[at][0]} does not come next",
            detail=f"partition {keys[at][1]}: what passed before the batch is {befores[at]}",
        )
    last = zip(keys, newest.tolist(), strict=True)
    return {key: Passed(offset, index, int(door.time_us[row])) for key, (offset, index, row) in last}


def _timeline(plan: Plan, state: State, door: Door) -> Timeline:
    is_end = door.kind == _END
    ends, ticks = is_end.nonzero()[0], (is_end | (door.kind == _TICK)).nonzero()[0]
    beats = np.empty(len(ticks), np.int64)
    if len(ticks):
        last = state.heartbeat_time_us
        if last == NO_TIME:  # the first tick is a heartbeat
            last = int(door.time_us[ticks[0]]) - plan.heartbeat_interval_us
        beats = beats[: due_heartbeats(ticks, door.time_us, last, plan.heartbeat_interval_us, beats)]
    return Timeline(door.time_us, beats, positions=door.positions, end_rank=int(ends[0]) if len(ends) else NO_END)


def _write(plan: Plan, state: State, door: Door, chunks: list[Chunk | None], bad: BadEvents) -> list[dict[str, pa.RecordBatch]]:
    """The outputs, in as many parts as their text asks for; at least one."""
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
    return [{name: batches[at] for name, batches in made.items() if at < len(batches)} for at in range(parts)]
