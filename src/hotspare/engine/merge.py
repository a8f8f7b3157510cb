"""Several inbound partitions become one order: by (running append time, topic, partition, offset, index).

A row goes on when no partition can still bring an earlier one. What a partition brings next is not before the newest append time
seen there, so only partitions that stand still hold others back, and ticks move them. The order, and what has gone on after a given
input, do not depend on how the input arrived. Rows that wait are not part of the state: they are read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from hotspare.engine.chunk import Int64s
from hotspare.engine.state import NO_TIME, PartitionKey, Passed
from hotspare.errors import StateError


@dataclass(slots=True)
class _Lane:
    """One partition: its waiting rows in pieces, each with its running append times, and the newest of these."""

    newest_us: int
    pieces: list[tuple[pa.RecordBatch, Int64s]] = field(default_factory=list)


class Merge:
    """Declared partitions only; `passed` says how far each had come in the state."""

    def __init__(self, partitions: Iterable[PartitionKey], passed: Mapping[PartitionKey, Passed]) -> None:
        self._passed = dict(passed)
        self._lanes: dict[PartitionKey, _Lane] = {}
        self.set_partitions(partitions)

    @property
    def waiting(self) -> int:
        """Rows that wait for another partition."""
        return sum(batch.num_rows for lane in self._lanes.values() for batch, _ in lane.pieces)

    def set_partitions(self, partitions: Iterable[PartitionKey]) -> None:
        """Declare which partitions exist. One with waiting rows cannot be taken away."""
        wanted = sorted(frozenset(partitions))
        for key, lane in self._lanes.items():
            if lane.pieces and key not in wanted:
                raise StateError(f"partition {key[1]} of topic {key[0]} has waiting rows and cannot be taken away")
        fresh = {key: self._passed[key].time_us if key in self._passed else NO_TIME for key in wanted}
        self._lanes = {key: self._lanes.get(key, _Lane(fresh[key])) for key in wanted}

    def push(self, batch: pa.RecordBatch) -> None:
        """Take decoded rows, in order of position within each partition. StateError for a partition that was not declared."""
        if batch.num_rows == 0:
            return
        topic, partition = batch.column("topic").to_numpy(), batch.column("partition").to_numpy()
        if (topic == topic[0]).all() and (partition == partition[0]).all():
            self._push(batch, (int(topic[0]), int(partition[0])))
            return
        code = topic.astype(np.int64) << 32 | partition
        for value in np.unique(code).tolist():
            mine = code == value
            self._push(batch.filter(pa.array(mine)), (int(topic[mine][0]), int(partition[mine][0])))

    def pull(self) -> pa.RecordBatch | None:
        """The rows that may go on, in order; None if there are none."""
        ready: list[tuple[pa.RecordBatch, Int64s]] = []
        for key, lane in self._lanes.items():
            ready += self._ready(key, lane)
        if not ready:
            return None
        if len(ready) == 1:
            return ready[0][0]
        rows = pa.concat_batches([batch for batch, _ in ready])
        time_us = np.concatenate([times for _, times in ready])
        # pieces stand in order of partition and, within it, of position: a stable sort by time leaves that as it is
        order = np.argsort(time_us, kind="stable")
        return rows.take(pa.array(order))

    def _push(self, batch: pa.RecordBatch, key: PartitionKey) -> None:
        lane = self._lanes.get(key)
        if lane is None:
            raise StateError(
                f"rows of partition {key[1]} of topic {key[0]} came, which was not declared",
                hint="declare every inbound partition before reading",
            )
        times = np.maximum.accumulate(np.maximum(batch.column("time_us").to_numpy(), lane.newest_us))
        lane.newest_us = int(times[-1])
        lane.pieces.append((batch, times))

    def _ready(self, key: PartitionKey, lane: _Lane) -> list[tuple[pa.RecordBatch, Int64s]]:
        """Take from a partition what no other can still bring something before."""
        ready: list[tuple[pa.RecordBatch, Int64s]] = []
        while lane.pieces:
            batch, times = lane.pieces[0]
            count = min((self._before(key, times, other) for other in self._lanes if other != key), default=len(times))
            if count == 0:
                break
            ready.append((batch.slice(0, count), times[:count]))
            lane.pieces[:1] = [(batch.slice(count), times[count:])] if count < len(times) else []
            if count < len(times):
                break
        return ready

    def _before(self, key: PartitionKey, times: Int64s, other: PartitionKey) -> int:
        """How many rows come before everything that `other` has not brought yet."""
        return int(np.searchsorted(times, self._lanes[other].newest_us, side="right" if key < other else "left"))
