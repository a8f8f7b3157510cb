"""Decides with which state an engine joins its group, and whether the bus still holds the input after that state (SPEC E10, E12,
E15, Z1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from hotspare.base.choices import OtherStore
from hotspare.bus.contract import Partition
from hotspare.ha.rules.settings import GroupTopics
from hotspare.stores.contract import SnapshotInfo, SnapshotStatus


def restorable(
    listed: Sequence[SnapshotInfo], passed_over: Collection[str] = (), order_max: int | None = None
) -> list[SnapshotInfo]:
    """Returns the confirmed snapshots in the order of `listed` (newest first), without those named in `passed_over` or of an order
    above `order_max`."""
    return [
        info
        for info in listed
        if info.status is SnapshotStatus.CONFIRMED
        and info.name not in passed_over
        and (order_max is None or info.order <= order_max)
    ]


def stale_candidates(listed: Sequence[SnapshotInfo], engine: str) -> list[SnapshotInfo]:
    """Returns the candidates that an earlier process of this engine wrote and did not confirm; no other engine confirms them."""
    return [info for info in listed if info.status is SnapshotStatus.CANDIDATE and info.engine == engine]


@dataclass(frozen=True, slots=True)
class LostPartition:
    """A partition that no longer holds the message that an engine has to read next, at offset `needed`: it begins at `begin`."""

    partition: Partition
    needed: int
    begin: int

    @property
    def sentence(self) -> str:
        gone = f"offset {self.needed} is needed: {self.begin - self.needed} messages are gone"
        return f"partition {self.partition.number} begins at offset {self.begin}, {gone}"


def first_lost_partition(
    topics: GroupTopics, offsets: Mapping[tuple[int, int], int], begins: Mapping[Partition, int]
) -> LostPartition | None:
    """Returns the first partition that no longer holds all messages from its offset in `offsets` on; None if every partition does.
    `begins`: the first offset that the bus holds."""
    found = (LostPartition(p, offsets[index, p.number], begins[p]) for index, p in topics.partitions)
    return next((each for each in found if each.begin > each.needed), None)


def enough_retention_s(time_us: int, newest_us: int | None) -> int | None:
    """Returns the retention, in seconds, that would have sufficed: from the state's system time to the topic's newest message. None
    if either is unknown."""
    return None if newest_us is None or time_us <= 0 else -(-(newest_us - time_us) // 1_000_000)


class StoreVerdict(Enum):
    SAME = "same"
    REFUSED = "refused"
    BEGUN = "begun"
    """The group has no store yet, or moves to this one: the engine records it."""


def judge_store(stands: str | None, own: str, other: OtherStore) -> StoreVerdict:
    """Returns whether an engine whose store has the id `own` may join a group whose store has the id given first; None as that id:
    the group has no store yet."""
    if stands == own:
        return StoreVerdict.SAME
    return StoreVerdict.REFUSED if stands is not None and other is OtherStore.REFUSE else StoreVerdict.BEGUN
