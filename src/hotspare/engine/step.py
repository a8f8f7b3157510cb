"""The engine's one door: `step(plan, state, batch)`, from decoded rows in order to outputs per stream.

Deterministic: the outputs and the state after a batch depend on the state before and on the rows, not on where the rows were cut.

What one row causes may be millions of rows, so outputs come in parts of bounded size. In each part windows work one after the
other, as far as they may. While one of them has more to put out, those before it wait, so nothing piles up between windows; of
several the last goes on. Heartbeats come to a window when its input has put out all that they cause there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.engine.batch import BAD_STREAM, TRACE_PREFIX, RowKind
from hotspare.engine.chunk import EXTRA_ROWS_MAX, Chunk, Int64s, Timeline, UInt8s
from hotspare.engine.elementwise import chosen, comes_of_rows
from hotspare.engine.kernels.outputs import Positions, due_heartbeats, first_disorder
from hotspare.engine.lanes import to_lanes
from hotspare.engine.outputs import bad_in_pieces, in_pieces, number_and_write, number_and_write_bad
from hotspare.engine.plan import Plan
from hotspare.engine.poison import WindowFailure
from hotspare.engine.refusals import NO_BAD_EVENTS, BadEvents
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


def step(
    plan: Plan, state: State, batch: pa.RecordBatch, extra_rows_max: Callable[[], int] = lambda: EXTRA_ROWS_MAX
) -> Iterator[dict[str, pa.RecordBatch]]:
    """Take decoded rows (`batch.decoded_schema(plan.entry_schemas)`) in merged order; yield the outputs, part by part: of streams
    that have any, and of traced windows under `batch.TRACE_PREFIX`.

    A window puts out at most three rows for each that it is given, and `extra_rows_max()` more, in one part. `state` is changed in
    place, and is whole again when the last part is handed out. PositionOrder, before anything is changed, where a row does not come
    after the one before it in its partition.
    """
    if batch.num_rows == 0:
        return
    door = _open_door(state, batch)
    passed = _check_order(state, door)
    timeline = _timeline(plan, state, door)
    work = _Work(plan, state, batch, door, timeline, extra_rows_max)
    state.is_whole = False
    while True:
        chunks, refused = work.next_part()
        *others, outputs = _write(plan, state, door.positions, chunks, refused)
        yield from others
        if work.is_done:
            break
        yield outputs
    state.passed.update(passed)
    state.time_us = int(door.time_us[-1])
    if len(timeline.heartbeat_rank):
        state.heartbeat_time_us = int(door.time_us[timeline.heartbeat_rank[-1]])
    if state.strings.wants_compaction():
        state.compact_strings()
    state.is_whole = True
    yield outputs


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


class _Work:
    """One batch on its way through the windows."""

    def __init__(
        self, plan: Plan, state: State, batch: pa.RecordBatch, door: Door, timeline: Timeline, extra_rows_max: Callable[[], int]
    ) -> None:
        count = len(plan.nodes)
        self._plan, self._state, self._batch, self._door = plan, state, batch, door
        self._timeline, self._extra_rows_max = timeline, extra_rows_max
        self._topic = {node: topic for topic, node in enumerate(plan.entries)}
        self._has_begun = False
        self._has_more = [False] * count
        """Nodes that are not done with what they were given."""
        self._given = [0] * count
        """The node was given all that comes of lower ranks."""
        self._until = [0] * count
        """The node has put out all that comes of lower ranks."""
        self._refused = [_bad_rows(batch, door)] + [NO_BAD_EVENTS] * count
        """What is not put out yet: of the head, and then of each node."""

    @property
    def is_done(self) -> bool:
        return self._has_begun and not any(self._has_more)

    def next_part(self) -> tuple[list[Chunk | None], BadEvents]:
        """Output chunk of each node (None: nothing), and bad events by rank."""
        chunks: list[Chunk | None] = [None] * len(self._plan.nodes)
        for i in range(max((i for i, more in enumerate(self._has_more) if more), default=0), len(chunks)):
            chunks[i] = self._output(i, chunks)
        self._has_begun = True
        return chunks, self._take_refused()

    def _output(self, i: int, chunks: list[Chunk | None]) -> Chunk | None:
        node, topic, state = self._plan.nodes[i], self._topic.get(i), self._state
        inputs = [chunks[at] for at in node.inputs]
        until = min([self._until[at] for at in node.inputs], default=self._batch.num_rows)
        if topic is not None:
            until = self._batch.num_rows
            inputs = [None if self._has_begun else _events(self._batch, self._door, topic, node.operator.schema, state.strings)]
        if node.in_head:
            self._until[i] = until
            return inputs[0] if topic is not None else None
        if until == self._given[i] and not self._has_more[i] and not any(inputs):
            return None
        schemas = [each.schema for each in node.operator.inputs] or [node.operator.schema]
        given = [Chunk.empty(len(schema)) if chunk is None else chunk for chunk, schema in zip(inputs, schemas, strict=True)]
        beats = self._beats(self._given[i], until)
        try:
            applied = node.operator.apply(state.pages[node.page], given, beats, state.strings)
        except Exception as error:
            if not comes_of_rows(error):
                raise
            raise WindowFailure(str(node.operator.id), error) from error
        self._given[i] = until
        self._has_more[i] = applied.until is not None
        self._until[i] = until if applied.until is None else applied.until
        if len(applied.bad):
            self._refused[i + 1] += applied.bad.of_window(str(node.operator.id))
        return applied.chunk

    def _beats(self, since: int, until: int) -> Timeline:
        """The batch's time, with the heartbeats of ranks from `since` to before `until`."""
        beats = self._timeline.heartbeat_rank
        if len(beats) and (since > 0 or until < self._batch.num_rows):
            beats = beats[slice(*np.searchsorted(beats, (since, until)))]
        return Timeline(self._timeline.time_us, beats, self._extra_rows_max())

    def _take_refused(self) -> BadEvents:
        """Bad events of those ranks of which no window can refuse anything any more: by rank, and then by window."""
        until = min(self._until, default=0)
        taken = NO_BAD_EVENTS
        for at, bad in enumerate(self._refused):
            count = int(np.searchsorted(bad.rank, until))
            taken += bad.slice(0, count)
            self._refused[at] = bad.slice(count, len(bad))
        return taken.by_rank()


def _bad_rows(batch: pa.RecordBatch, door: Door) -> BadEvents:
    """What the head could not decode or refused."""
    rank = np.flatnonzero(door.kind == RowKind.BAD)
    if len(rank) == 0:
        return NO_BAD_EVENTS
    return BadEvents(rank, tuple(chosen(batch.column("bad"), rank).flatten()))


def _write(
    plan: Plan, state: State, positions: Positions, chunks: list[Chunk | None], bad: BadEvents
) -> list[dict[str, pa.RecordBatch]]:
    """The outputs, in as many parts as their text asks for; at least one."""
    made: list[tuple[str, list[pa.RecordBatch]]] = []

    def leave(name: str, chunk: Chunk | None, schema: Schema, stream: StreamState) -> None:
        pieces = in_pieces(chunk, schema, state.strings) if chunk else []
        made.append((name, [number_and_write(piece, schema, positions, stream, state.strings) for piece in pieces]))

    for name, i in plan.streams:
        leave(name, chunks[i], plan.nodes[i].operator.schema, state.streams[name])
    stream = state.streams[BAD_STREAM]
    made.append(
        (BAD_STREAM, [number_and_write_bad(piece, positions, stream) for piece in (bad_in_pieces(bad) if len(bad) else [])])
    )
    for i in plan.traced:
        operator = plan.nodes[i].operator
        leave(f"{TRACE_PREFIX}{operator.id}", chunks[i], operator.schema, StreamState())
    parts = max(1, *(len(batches) for _, batches in made))
    return [{name: batches[at] for name, batches in made if at < len(batches)} for at in range(parts)]
