"""A minimal core that makes thousands of runs cheap: the same contract as the engine's, two inputs, two streams.

Stream `q/a` has one output per event. `q/b` has one per even event, so one event causes outputs in both, and one per event that
expires at a tick, so time matters. Everything depends on order, so any error in what is read shows.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from hotspare.base.call_place import CallPlace, Decision
from hotspare.base.errors import SnapshotDamaged
from hotspare.bus.contract import OutputId
from hotspare.flow.digest_chain import chained
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.batch import RowKind, output_schema
from hotspare.rows.partition_clock import Belief, PartitionClock

STREAMS = ("q/a", "q/b")
OUTPUT = output_schema(Schema((Field("n", FieldType.INT64, KeyRole.KEY), Field("v", FieldType.INT64))))
DECODED = pa.schema(
    [
        ("topic", pa.int32()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("index", pa.int32()),
        ("time_us", pa.int64()),
        ("kind", pa.int8()),
        ("value", pa.int64()),
    ]
)
HEARTBEAT_US = 20_000
EXPIRY_US = 60_000
SHARD_KEYS = 1 << 48
_MASK = (1 << 63) - 1


@dataclass(frozen=True)
class FastFrozen:
    header: bytes
    page: bytes

    def contents(self) -> Iterable[tuple[str, bytes]]:
        return (("window", self.page),)


PART_ROWS_MAX = 8
"""The count of outputs after which a part ends, even between those of one event."""


@dataclass
class FastCore:
    """A minimal core. `compute_parts` and `feed` take rows of DECODED, in order per partition."""

    positions: dict[tuple[int, int], int] = field(default_factory=dict)
    """The next offset of each partition that has processed anything."""
    time_us: int = 0
    heartbeat_us: int = 0
    count: int = 0
    total: int = 0
    sequences: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STREAMS, 0))
    digests: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STREAMS, 0))
    last_ids: dict[str, OutputId | None] = field(default_factory=lambda: dict.fromkeys(STREAMS))
    window: deque[tuple[int, int]] = field(default_factory=deque)
    salt: int = 0
    """Other than 0: a wrong engine."""
    is_between_batches: bool = True
    beliefs: dict[tuple[int, int], Belief] = field(default_factory=dict)
    """The belief after the newest processed row of each partition."""
    _clocks: dict[tuple[int, int], PartitionClock] = field(default_factory=dict)
    _unsettled: dict[tuple[int, int], deque[tuple[int, ...]]] = field(default_factory=dict)
    _waiting: dict[tuple[int, int], deque[tuple[int, ...]]] = field(default_factory=dict)

    @property
    def next_offsets(self) -> Mapping[tuple[int, int], int]:
        return self.positions

    @property
    def waiting_rows(self) -> int:
        return sum(map(len, self._waiting.values())) + sum(map(len, self._unsettled.values()))

    @property
    def memory_by_kind(self) -> Mapping[str, int]:
        return {}

    @property
    def memory_by_window(self) -> Mapping[str, Mapping[str, int]]:
        return {}

    @property
    def waiting_bytes(self) -> int:
        return 8 * self.waiting_rows

    @property
    def awaited_partition(self) -> tuple[int, int]:
        return min(self._clocks, key=lambda key: (self._clocks[key].time_us, key))

    @property
    def blocking_partitions(self) -> set[tuple[int, int]]:
        events = [key for key, rows in self._waiting.items() if any(row[5] == RowKind.EVENT for row in rows)]
        return {key for key, rows in self._waiting.items() if not rows and any(other != key for other in events)}

    def set_partitions(self, partitions: Iterable[tuple[int, int]], skew_max_us: int | None = None) -> None:
        for partition in partitions:
            self._waiting[partition], self._unsettled[partition] = deque(), deque()
            self._clocks[partition] = PartitionClock(skew_max_us, self.beliefs.get(partition, Belief()))

    def feed(self, decoded: pa.RecordBatch) -> Mapping[str, pa.RecordBatch]:
        """Returns all `compute_parts` joined."""
        self._take(decoded)
        rows: dict[str, list[tuple[int, ...]]] = {}
        for stream, row in self._outputs():
            rows.setdefault(stream, []).append(row)
        return {stream: self.batch_of(stream, outputs) for stream, outputs in rows.items()}

    def limit_part_rows(self, extra_rows: int) -> None:
        pass

    def compute_parts(self, decoded: pa.RecordBatch, take: Callable[[int], int]) -> Iterator[Mapping[str, pa.RecordBatch]]:
        self._take(decoded)
        take(max(1, decoded.num_rows))
        self.is_between_batches = False
        rows: dict[str, list[tuple[int, ...]]] = {}
        for stream, row in self._outputs():
            rows.setdefault(stream, []).append(row)
            if sum(map(len, rows.values())) == PART_ROWS_MAX:
                yield {name: self.batch_of(name, outputs) for name, outputs in rows.items()}
                rows = {}
        self.is_between_batches = True
        yield {name: self.batch_of(name, outputs) for name, outputs in rows.items()}

    def batch_of(self, stream: str, outputs: list[tuple[int, ...]]) -> pa.RecordBatch:
        return columns_of(outputs, OUTPUT)

    def _take(self, decoded: pa.RecordBatch) -> None:
        columns = [decoded.column(i).to_pylist() for i in range(7)]
        fresh: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        for row in zip(*columns, strict=True):
            fresh.setdefault(row[:2], []).append(row)
        for key, came in fresh.items():
            self._settle(key, came)

    def _outputs(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        queues = list(self._waiting.values())
        while all(queues):
            earliest = min(queues, key=lambda queue: queue[0])
            yield from self._process(earliest.popleft())

    def _settle(self, key: tuple[int, int], came: list[tuple[int, ...]]) -> None:
        """Moves rows of one partition to those that wait for the others as soon as their times are believed."""
        unsettled, waiting = self._unsettled[key], self._waiting[key]
        times = np.array([row[4] for row in came], np.int64)
        ticks = np.array([row[5] == RowKind.TICK for row in came], np.bool_)
        unsettled.extend(came)
        for time_us, clock_us in zip(*(each.tolist() for each in self._clocks[key].settle_rows(times, ticks)), strict=True):
            topic, partition, offset, index, _, kind, value = unsettled.popleft()
            last = waiting[-1][3:5] if waiting else (-1, -1)
            assert offset >= self.positions.get(key, 0) and last < (offset, index), "positions must rise"
            waiting.append((time_us, topic, partition, offset, index, kind, value, clock_us))

    def _process(self, row: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
        time_us, topic, partition, offset, _, kind, _, clock_us = row
        self.time_us = max(self.time_us, time_us)
        ordinals = dict.fromkeys(STREAMS, 0)
        if kind == RowKind.EVENT:
            yield from self.at_event(row, ordinals)
        elif self.time_us >= self.heartbeat_us + HEARTBEAT_US:
            self.heartbeat_us = self.time_us
            while self.window and self.window[0][0] <= self.time_us - EXPIRY_US:
                yield self._put("q/b", row, ordinals, self.window.popleft()[1], -1)
            yield from self.at_heartbeat(row, ordinals)
        self.beliefs[topic, partition] = Belief(time_us, clock_us)
        self.positions[topic, partition] = offset + 1

    def at_event(self, row: tuple[int, ...], ordinals: dict[str, int]) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yields the outputs of an event."""
        value = row[6]
        self.count += 1
        self.total = self.total * 3 + value + self.salt & 0xFFFFFF
        yield self._put("q/a", row, ordinals, self.count, self.total)
        if value % 2 == 0:
            yield self._put("q/b", row, ordinals, self.count, self.total ^ value)
        self.window.append((self.time_us, self.count))

    def at_heartbeat(self, row: tuple[int, ...], ordinals: dict[str, int]) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yields additional outputs at a heartbeat, after all others."""
        yield from ()

    def _put(self, stream: str, row: tuple[int, ...], ordinals: dict[str, int], n: int, v: int) -> tuple[str, tuple[int, ...]]:
        _, topic, partition, offset, index, _, _, _ = row
        ordinal = ordinals[stream]
        ordinals[stream] += 1
        sequence = self.sequences[stream] = self.sequences[stream] + 1
        hash_ = 0
        for number in (topic, partition, offset, index, ordinal, n, v):
            hash_ = (hash_ ^ (number & _MASK)) * 0x9E3779B97F4A7C15 + 0x7F4A7C15 & _MASK
        digest = self.digests[stream] = chained(self.digests[stream], hash_)
        self.last_ids[stream] = OutputId(topic, partition, offset, index, ordinal)
        return stream, (sequence, topic, partition, offset, index, ordinal, digest, 1, 1, n, v)

    def adopt(self, stream: str, sequence: int, digest: int, last: tuple[int, int, int, int, int] | None) -> None:
        assert self.is_between_batches, "numbers do not change inside a batch"
        self.sequences[stream], self.digests[stream] = sequence, digest
        self.last_ids[stream] = self.last_ids[stream] if last is None else OutputId(*last)

    def set_decisions(self, decisions: Sequence[Decision]) -> None:
        """Has no user code."""

    @property
    def missing_decisions(self) -> Sequence[Decision]:
        return ()

    @property
    def stopped_at(self) -> CallPlace | None:
        return None

    def freeze(self) -> FastFrozen:
        assert self.is_between_batches, "no snapshot is taken inside a batch"
        state = {
            "positions": [[*key, offset] for key, offset in self.positions.items()],
            "beliefs": [[*key, belief.time_us, belief.clock_us] for key, belief in self.beliefs.items()],
            "scalars": [self.time_us, self.heartbeat_us, self.count, self.total, self.salt],
            "streams": [[s, self.sequences[s], self.digests[s], _id_list(self.last_ids[s])] for s in STREAMS],
        }
        return FastFrozen(json.dumps(state).encode(), json.dumps(list(self.window)).encode())


def _id_list(output_id: OutputId | None) -> list[int] | None:
    if output_id is None:
        return None
    return [output_id.topic, output_id.partition, output_id.offset, output_id.index, output_id.ordinal]


def columns_of(rows: Sequence[tuple[int, ...]], schema: pa.Schema) -> pa.RecordBatch:
    """Returns rows of integers as a record batch."""
    columns = zip(zip(*rows, strict=True), _types(schema), strict=True)
    return pa.RecordBatch.from_arrays([pa.array(column, kind) for column, kind in columns], schema=schema)


@cache
def _types(schema: pa.Schema) -> list[pa.DataType]:
    return [each.type for each in schema]


@dataclass(frozen=True)
class FastCores:
    """Creates FastCores; `salt` makes wrong ones. `shard` determines the keys that they generate."""

    salt: int = 0
    shard: int = 0
    kind: type[FastCore] = FastCore

    def fresh(self) -> FastCore:
        return self.kind(salt=self.salt, count=self.shard * SHARD_KEYS)

    def restore(self, header: bytes, pages: Mapping[str, bytes]) -> FastCore:
        try:
            return self._restored(json.loads(header), json.loads(pages["window"]))
        except (KeyError, ValueError) as error:
            raise SnapshotDamaged("a snapshot lacks a part", detail=repr(error)) from error

    def _restored(self, state: dict[str, Any], window: list[list[int]]) -> FastCore:
        core = self.kind(salt=self.salt)
        core.positions = {(t, p): offset for t, p, offset in state["positions"]}
        core.beliefs = {(t, p): Belief(time_us, clock_us) for t, p, time_us, clock_us in state["beliefs"]}
        core.time_us, core.heartbeat_us, core.count, core.total, _ = state["scalars"]
        for stream, sequence, digest, last_id in state["streams"]:
            core.sequences[stream], core.digests[stream] = sequence, digest
            core.last_ids[stream] = OutputId(*last_id) if last_id else None
        core.window = deque(tuple(entry) for entry in window)
        return core
