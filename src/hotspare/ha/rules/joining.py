"""Chooses the state with which an engine joins its group, and checks that the bus still holds the input after it (SPEC E10, E12,
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
    """Returns the confirmed snapshots that a state may be made from, newest first, without those `passed_over` or beyond
    `order_max`."""
    return [
        info
        for info in listed
        if info.status is SnapshotStatus.CONFIRMED
        and info.name not in passed_over
        and (order_max is None or info.order <= order_max)
    ]


def stale_candidates(listed: Sequence[SnapshotInfo], engine: str) -> list[SnapshotInfo]:
    """Returns the candidates that this engine wrote in an earlier life and did not confirm: no engine ever will."""
    return [info for info in listed if info.status is SnapshotStatus.CANDIDATE and info.engine == engine]


@dataclass(frozen=True, slots=True)
class LostPartition:
    """A partition that begins after the offset that is needed next."""

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
    """Returns the first partition that no longer holds all that an engine reads if it starts at `offsets`; None if all do."""
    found = (LostPartition(p, offsets[index, p.number], begins[p]) for index, p in topics.partitions)
    return next((each for each in found if each.begin > each.needed), None)


def enough_retention_s(time_us: int, newest_us: int | None) -> int | None:
    """Returns the retention, in seconds, that would have been enough: from the state's time to the topic's newest message. None:
    unknown."""
    return None if newest_us is None or time_us <= 0 else -(-(newest_us - time_us) // 1_000_000)


class StoreVerdict(Enum):
    SAME = "same"
    REFUSED = "refused"
    BEGUN = "begun"
    """The group has no store, or moves to this one."""


def judge_store(stands: str | None, own: str, other: OtherStore) -> StoreVerdict:
    """Whether an engine with the store `own` may join a group, given the id of the group's store; None if the group has none
    yet."""
    if stands == own:
        return StoreVerdict.SAME
    return StoreVerdict.REFUSED if stands is not None and other is OtherStore.REFUSE else StoreVerdict.BEGUN
