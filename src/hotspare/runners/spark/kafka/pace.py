"""Decides how many messages of which partitions the Kafka query may read next, so that a batch and the rows in the merge stay
bounded.

Spark's Kafka source limits a batch by the number of messages, and divides that number among the partitions in proportion to their
backlogs. Both are fixed when a query starts. So the pace is decided here, from the batches, and a new pace means a new query.

- A micro-batch costs about a tenth of a second even if it has few messages. So its limit is `BATCHES_AT_ONCE` times that of a
  batch.
- A micro-batch of `bytes_max` has as many messages as their mean size allows. The first guess uses messages on the topic.
- The merge releases rows when every partition has a later row; rows of a partition ahead of the one furthest behind wait in memory.
  A partition that is `AHEAD_MAX` full micro-batches ahead is not read until the others have caught up. If the engine holds too
  many such rows, it names the partition for which they wait, and only that partition is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.runners.contract import BatchLimits, Positions

Key = tuple[int, int]

BATCHES_AT_ONCE = 5
AHEAD_MAX = 1
"""The number of full micro-batches of a partition that may wait in the merge for a partition that is behind."""
_FULL = 0.75
"""The share of its limit from which on a batch counts as full. It is below 1 because Spark rounds the partitions' shares down."""
_CHANGE_MIN = 4.0
"""The number of messages is raised only if it is at least this many times too small, because a new query costs about half a
second."""
_OVER_MAX = 2.0
"""The number of messages is reduced only if a batch has more than this multiple of the allowed bytes."""
_SHRINK = 8


@dataclass(frozen=True, slots=True)
class Pace:
    """A reading pace: at most `messages_max` messages per micro-batch, and none from `paused_partitions`."""

    messages_max: int
    paused_partitions: frozenset[Key] = frozenset()

    def positions(self, positions: Positions) -> Positions:
        """Returns `positions` without the paused partitions."""
        return {key: offset for key, offset in positions.items() if key not in self.paused_partitions}


@dataclass(frozen=True, slots=True)
class Share:
    """The part of one partition in a micro-batch: the number of offsets, and the newest append time."""

    messages: int
    newest_us: int


def shares_of(batches: Iterable[pa.RecordBatch], positions: Positions) -> dict[Key, Share]:
    """Returns each partition's share of a micro-batch. `batches`: raw or decoded batches in order, each of one partition.
    `positions`: the next offsets before the micro-batch."""
    shares: dict[Key, Share] = {}
    for batch in batches:
        key = batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()
        messages = batch.column("offset")[-1].as_py() + 1 - positions[key]
        newest = pc.max(batch.column("time_us")).as_py()
        shares[key] = Share(messages, max(newest, shares[key].newest_us) if key in shares else newest)
    return shares


class Pacer:
    """Adjusts the pace of one runner to its micro-batches. `pace`: the current pace. `mean_bytes`: the mean size of a message, from
    a sample."""

    def __init__(self, limits: BatchLimits, mean_bytes: float) -> None:
        self._bytes_max = limits.bytes_max
        self._messages_max = BATCHES_AT_ONCE * limits.messages_max
        self.pace = Pace(self._fitting(mean_bytes))
        self._newest: dict[Key, int] = {}
        self._ahead: dict[Key, int] = {}

    def adjust_to_batch(self, shares: Mapping[Key, Share], size_bytes: int, only: Key | None = None) -> bool:
        """Adjusts the pace to a micro-batch of `size_bytes`; returns whether the pace changed, so that a new query must continue.
        `only`: the only partition to read, if the engine names one."""
        messages = sum(share.messages for share in shares.values())
        fill = messages / self.pace.messages_max
        held = (
            self._partitions_to_pause(shares, fill)
            if only is None
            else frozenset(key for key in (*self._newest, *shares) if key != only)
        )
        pace = replace(
            self.pace, messages_max=self._resized(size_bytes / max(1, messages), size_bytes, fill), paused_partitions=held
        )
        changed = pace != self.pace
        self.pace = pace
        return changed

    def shrink(self) -> None:
        """Reduces the messages of a batch after a query that failed twice at the same positions: its batch may be too large."""
        self.pace = replace(self.pace, messages_max=max(1, self.pace.messages_max // _SHRINK))

    def _fitting(self, mean_bytes: float) -> int:
        return max(1, min(self._messages_max, int(self._bytes_max / max(1.0, mean_bytes))))

    def _resized(self, mean_bytes: float, size_bytes: int, fill: float) -> int:
        now = self.pace.messages_max
        fitting = self._fitting(mean_bytes)
        too_large = size_bytes > _OVER_MAX * self._bytes_max
        too_small = fill >= _FULL and fitting >= _CHANGE_MIN * now
        return min(now, fitting) if too_large else fitting if too_small else now

    def _partitions_to_pause(self, shares: Mapping[Key, Share], fill: float) -> frozenset[Key]:
        """Returns the partitions not to read next: those that are too far ahead. If the batch was not full, no messages wait on the
        topics, so no partition is paused."""
        for key, share in shares.items():
            self._newest[key] = max(share.newest_us, self._newest.get(key, 0))
        if fill < _FULL or len(self._newest) < 2:
            self._ahead.clear()
            return frozenset()
        behind = [newest for key, newest in self._newest.items() if key in shares and key not in self.pace.paused_partitions]
        horizon = min(behind, default=0)
        for key, newest in self._newest.items():
            more = shares[key].messages if key in shares else 0
            self._ahead[key] = self._ahead.get(key, 0) + more if newest > horizon else 0
        most = AHEAD_MAX * self.pace.messages_max
        return frozenset(
            key for key, waiting in self._ahead.items() if waiting > (0 if key in self.pace.paused_partitions else most)
        )
