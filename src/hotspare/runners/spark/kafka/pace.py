"""Decides how much of which partition the Kafka query may read next, so that a batch and the rows in the merge stay bounded.

Spark's Kafka source bounds a batch by the number of messages, and divides that number by how far each partition is behind. Both are
fixed when a query starts. So the pace is decided here, from the batches, and a new pace means a new query.

- A micro-batch costs about a tenth of a second even if it holds little, so if much waits it is `BATCHES_AT_ONCE` batches long.
- A micro-batch of `bytes_max` has as many messages as their mean size allows. The first guess uses messages on the topic.
- The merge goes on when every partition has a later row; rows of a partition ahead of the one furthest behind wait in
  memory. A partition that is `AHEAD_MAX` full micro-batches ahead is not read until the others have caught up. If the engine
  holds too many such rows, it names the partition that they wait for, and no other is read.
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
"""The full micro-batches, bounded by messages and by bytes, that may wait in the merge for a partition that is behind."""
_FULL = 0.75
"""A batch with this share of its limit counts as full, because Spark rounds the shares of the partitions down."""
_CHANGE_MIN = 4.0
"""A new query costs about half a second: the number of messages is changed only if it is this many times too small, ..."""
_OVER_MAX = 2.0
"""... or this many times too large."""
_SHRINK = 8


@dataclass(frozen=True, slots=True)
class Pace:
    """Reads at most `messages_max` messages a batch, none of the partitions `paused_partitions`."""

    messages_max: int
    paused_partitions: frozenset[Key] = frozenset()

    def positions(self, positions: Positions) -> Positions:
        """Returns the positions of the partitions to read."""
        return {key: offset for key, offset in positions.items() if key not in self.paused_partitions}


@dataclass(frozen=True, slots=True)
class Share:
    """The part of one partition in a batch: the number of offsets, and the newest append time."""

    messages: int
    newest_us: int


def shares_of(batches: Iterable[pa.RecordBatch], positions: Positions) -> dict[Key, Share]:
    """Returns each partition's part of the batches, raw or decoded, each of one partition, in order; `positions` are those before
    the batch."""
    shares: dict[Key, Share] = {}
    for batch in batches:
        key = batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()
        messages = batch.column("offset")[-1].as_py() + 1 - positions[key]
        newest = pc.max(batch.column("time_us")).as_py()
        shares[key] = Share(messages, max(newest, shares[key].newest_us) if key in shares else newest)
    return shares


class Pacer:
    """Follows one runner's batches. `pace` is the current pace."""

    def __init__(self, limits: BatchLimits, mean_bytes: float) -> None:
        self._bytes_max = limits.bytes_max
        self._messages_max = BATCHES_AT_ONCE * limits.messages_max
        self.pace = Pace(self._fitting(mean_bytes))
        self._newest: dict[Key, int] = {}
        self._ahead: dict[Key, int] = {}

    def adjust_to_batch(self, shares: Mapping[Key, Share], size_bytes: int, only: Key | None = None) -> bool:
        """Takes a batch into account; returns whether a new query should go on at a new pace. `only`: the one partition to read, if
        the engine names one."""
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
        """Returns the partitions not to read. If a batch was not full, nothing waits on the topics, and no partition is behind."""
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
