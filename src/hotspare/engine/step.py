"""The engine's one door: `step(plan, state, batch)`, from decoded rows in order to outputs per stream.

Deterministic: the outputs and the state after a batch depend on the state before and on the rows, not on where the rows were cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.engine.batch import BAD_STREAM, TRACE_PREFIX, RowKind
from hotspare.engine.chunk import Chunk, Int64s, Timeline, UInt8s
from hotspare.engine.kernels.outputs import Positions, due_heartbeats, first_disorder
from hotspare.engine.lanes import to_lanes
from hotspare.engine.operators.contract import BadEvent
from hotspare.engine.outputs import bad_chunk, number_and_write
from hotspare.engine.plan import BAD_SCHEMA, Plan
from hotspare.engine.state import NO_TIME, PartitionKey, Passed, State, StreamState
from hotspare.engine.strings import StringTable
from hotspare.errors import PositionOrder
from hotspare.model.types import Schema


@dataclass(frozen=True, slots=True)
class Door:
    """A batch's fixed columns as arrays. `time_us` is running system time."""

    positions: Positions
    time_us: Int64s
    kind: npt.NDArray[np.int8]
    opcode: UInt8s
    flags: UInt8s


def fresh_state(plan: Plan) -> State:
    """The state before the first event."""
    pages = {node.page: node.operator.open() for node in plan.nodes if not node.in_head}
    return State(pages, {name: StreamState() for name in plan.stream_schemas})


def step(plan: Plan, state: State, batch: pa.RecordBatch) -> tuple[State, dict[str, pa.RecordBatch]]:
    """Take decoded rows (`batch.decoded_schema(plan.entry_schemas)`) in merged order; return the outputs of streams that have any,
    and of traced windows under `batch.TRACE_PREFIX`.

    `state` is changed in place and handed back: the caller gives it away. PositionOrder, before anything is changed, where a row
    does not come after the one before it in its partition.
    """
    if batch.num_rows == 0:
        return state, {}
    door = _open_door(state, batch)
    passed = _check_order(state, door)
    timeline = _timeline(plan, state, door)
    chunks, bad = _run(plan, state, batch, door, timeline)
    outputs = _write(plan, state, door.positions, chunks, bad)
    state.passed.update(passed)
    state.time_us = int(door.time_us[-1])
    if len(timeline.heartbeat_rank):
        state.heartbeat_time_us = int(door.time_us[timeline.heartbeat_rank[-1]])
    if state.strings.wants_compaction():
        state.compact_strings()
    return state, outputs


def _open_door(state: State, batch: pa.RecordBatch) -> Door:
    column = {name: batch.column(name).to_numpy() for name in ("topic", "partition", "offset", "index", "time_us")}
    positions = Positions(column["topic"], column["partition"], column["offset"], column["index"])
    time_us = np.maximum.accumulate(np.maximum(column["time_us"], state.time_us))
    kind, opcode, flags = (batch.column(name).to_numpy() for name in ("kind", "opcode", "flags"))
    return Door(positions, time_us, kind, opcode, flags)


def _check_order(state: State, door: Door) -> dict[PartitionKey, Passed]:
    """The last row of each partition of the batch; PositionOrder where positions do not rise."""
    where = door.positions
    passed: dict[PartitionKey, Passed] = {}
    same = bool((where.topics == where.topics[0]).all() and (where.partitions == where.partitions[0]).all())
    code = where.topics[:1] if same else where.topics.astype(np.int64) << 32 | where.partitions
    for value in np.unique(code).tolist():
        rows = slice(None) if same else np.flatnonzero(code == value)
        mine = Positions(where.topics[rows], where.partitions[rows], where.offsets[rows], where.indexes[rows])
        key = (int(mine.topics[0]), int(mine.partitions[0]))
        before = state.passed.get(key)
        disorder = first_disorder(mine, before.offset if before else -1, before.index if before else -1)
        if disorder >= 0:
            raise PositionOrder(
                f"offset {mine.offsets[disorder]}, event {mine.indexes[disorder]} of inbound topic {key[0]} does not come next",
                detail=f"partition {key[1]}: what passed before the batch is {before}",
            )
        passed[key] = Passed(int(mine.offsets[-1]), int(mine.indexes[-1]), int(door.time_us[rows][-1]))
    return passed


def _timeline(plan: Plan, state: State, door: Door) -> Timeline:
    ticks = np.flatnonzero(door.kind == RowKind.TICK)
    beats = np.empty(len(ticks), np.int64)
    if len(ticks):
        last = state.heartbeat_time_us
        if last == NO_TIME:  # the first tick is a heartbeat
            last = int(door.time_us[ticks[0]]) - plan.heartbeat_interval_us
        beats = beats[: due_heartbeats(ticks, door.time_us, last, plan.heartbeat_interval_us, beats)]
    return Timeline(door.time_us, beats)


def _events(batch: pa.RecordBatch, door: Door, topic: int, schema: Schema, strings: StringTable) -> Chunk:
    """The decoded events of one topic."""
    mine = (door.kind == RowKind.EVENT) & (door.positions.topics == topic)
    rank = np.flatnonzero(mine)
    count = len(rank)
    if count == 0:
        return Chunk.empty(len(schema))
    column = batch.column(f"e{topic}")
    together = int(rank[-1]) - int(rank[0]) + 1 == count
    column = column.slice(int(rank[0]), count) if together else column.filter(pa.array(mine))
    lanes, valid = to_lanes(column.flatten(), schema, strings)
    return Chunk(rank, door.opcode[rank], door.flags[rank], lanes, valid)


def _run(
    plan: Plan, state: State, batch: pa.RecordBatch, door: Door, timeline: Timeline
) -> tuple[list[Chunk | None], list[tuple[BadEvent, str]]]:
    """Output chunk of each node (None: it runs in the head), and all bad events with their windows, by rank."""
    chunks: list[Chunk | None] = []
    bad = _bad_rows(batch, door)
    entering = {node: topic for topic, node in enumerate(plan.entries)}
    for i, node in enumerate(plan.nodes):
        topic = entering.get(i)
        entry = None if topic is None else _events(batch, door, topic, node.operator.schema, state.strings)
        if node.in_head:
            chunks.append(entry)
            continue
        inputs = [entry] if entry is not None else [chunks[at] for at in node.inputs]
        given = [chunk for chunk in inputs if chunk is not None]
        applied = node.operator.apply(state.pages[node.page], given, timeline, state.strings)
        bad += [(event, str(node.operator.id)) for event in applied.bad]
        chunks.append(applied.chunk)
    bad.sort(key=lambda pair: pair[0].rank)
    return chunks, bad


def _bad_rows(batch: pa.RecordBatch, door: Door) -> list[tuple[BadEvent, str]]:
    """What the head refused."""
    rank = np.flatnonzero(door.kind == RowKind.BAD)
    if len(rank) == 0:
        return []
    rows = pc.take(batch.column("bad"), pa.array(rank)).to_pylist()
    return [
        (BadEvent(at, str(row["reason"]), str(row["message"]), str(row["text"])), str(row["window"]))
        for at, row in zip(rank.tolist(), rows, strict=True)
    ]


def _write(
    plan: Plan, state: State, positions: Positions, chunks: list[Chunk | None], bad: list[tuple[BadEvent, str]]
) -> dict[str, pa.RecordBatch]:
    outputs: dict[str, pa.RecordBatch] = {}
    for name, i in plan.streams:
        chunk = chunks[i]
        if chunk is not None and len(chunk):
            schema = plan.nodes[i].operator.schema
            outputs[name] = number_and_write(chunk, schema, positions, state.streams[name], state.strings)
    if bad:
        chunk = bad_chunk(bad, state.strings)
        outputs[BAD_STREAM] = number_and_write(chunk, BAD_SCHEMA, positions, state.streams[BAD_STREAM], state.strings)
    for i in plan.traced:
        chunk, operator = chunks[i], plan.nodes[i].operator
        if chunk is not None and len(chunk):
            seen = number_and_write(chunk, operator.schema, positions, StreamState(), state.strings)
            outputs[f"{TRACE_PREFIX}{operator.id}"] = seen
    return outputs
