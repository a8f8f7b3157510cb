"""Copies a persisted snapshot into a group's own store, from which the group's engines start (SPEC H2, H6, H7, Z6).

The snapshot is first compared with the bus (`rules.restoring`): a refused snapshot changes nothing of the group. The next engine
that joins starts from the copy, unless the group's store has a snapshot at a later position. Both give the same outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hotspare.base.errors import PositionLost, StateError
from hotspare.bus.contract import Bus, Partition
from hotspare.coordination.contract import Coordination
from hotspare.flow.numbering import numbering_of
from hotspare.ha.core import CoreFactory
from hotspare.ha.effects.joining import recorded_origin
from hotspare.ha.rules import restoring as rules
from hotspare.ha.rules.joining import restorable
from hotspare.ha.rules.settings import GroupTopics
from hotspare.stores.contract import SnapshotInfo, Store
from hotspare.stores.snapshot_choice import SnapshotScope, choose_snapshot, parse_choice
from hotspare.stores.writing import copied_pages

_KEEP = "restore a newer snapshot; topics have to keep their messages for longer than the greatest age of a snapshot"
_ELSEWHERE = "check that --bus and --prefix are those of the group that wrote the snapshot"


@dataclass(frozen=True, slots=True)
class PersistedSource:
    """The source of a persisted snapshot: a store, the group that wrote it, and the user's choice among the snapshots
    (`stores.snapshot_choice`)."""

    store: Store
    group: str
    snapshot: str = ""


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """The group that receives a persisted snapshot: its topics, and its own store."""

    group: str
    topics: GroupTopics
    cores: CoreFactory
    bus: Bus
    coordination: Coordination
    store: Store


@dataclass(frozen=True, slots=True)
class RestoreCandidate:
    """A persisted snapshot, read and compared with the bus. `refusals`: why it may not be restored; empty if it may.

    `newer_own`: a snapshot in the group's store at the same or a later position, from which engines start instead; None without
    one.
    """

    info: SnapshotInfo
    header: bytes
    pages: Mapping[str, bytes]
    partitions: tuple[rules.PartitionComparison, ...]
    refusals: tuple[str, ...]
    newer_own: SnapshotInfo | None

    @property
    def messages_left(self) -> int:
        """The count of messages that an engine restored from this snapshot has yet to process."""
        return sum(each.messages_left for each in self.partitions)


def choose_persisted(source: PersistedSource, to: RestoreTarget) -> tuple[SnapshotInfo, SnapshotInfo | None]:
    """Returns the chosen snapshot, and the newest in the group's own store if its order is at least as great, else None. Raises
    UsageError if the choice matches none."""
    info = choose_snapshot(source.group, source.store.list(source.group), parse_choice(source.snapshot), SnapshotScope.CONFIRMED)
    own = restorable(to.store.list(to.group))
    return info, own[0] if own and own[0].order >= info.order else None


def find_persisted(source: PersistedSource, to: RestoreTarget) -> RestoreCandidate:
    """Chooses a persisted snapshot, reads all of it, and compares it with the bus. Changes nothing.

    Raises UsageError if none matches, StoreError, ProjectChanged, and other errors of `CoreFactory.restore`.
    """
    info, further = choose_persisted(source, to)
    stored = source.store.get(source.group, info.name)
    core = to.cores.restore(stored.header, stored.pages)
    numbering = numbering_of(stored.header)
    shifts = {stream: numbering.get(stream, 0) for stream in core.sequences}
    sequences = {stream: number + shift for stream, number in core.sequences.items() if (shift := shifts[stream]) is not None}
    place = rules.StatePosition(core.next_offsets, sequences, core.digests)
    partitions = rules.compare_partitions(to.topics, place, _held(to))
    refusals = rules.refusals(to.topics, place, partitions, to.bus.progress(to.group))
    return RestoreCandidate(info, stored.header, stored.pages, tuple(partitions), tuple(refusals), further)


def adopt_persisted(found: RestoreCandidate, to: RestoreTarget) -> bool:
    """Copies the snapshot into the group's store and confirms it. Returns False, without a copy, if the store has one that is at
    least as new.

    Raises PositionLost if messages after it are missing on the bus, StateError if it belongs to another bus or group.
    """
    if found.refusals:
        gone = any(each.messages_missing for each in found.partitions)
        kind, hint = (PositionLost, _KEEP) if gone else (StateError, _ELSEWHERE)
        raise kind(
            f"snapshot {found.info.name} cannot be restored into group {to.group}",
            detail="\n  ".join(found.refusals),
            hint=hint,
        )
    if found.newer_own is not None:
        return False
    info = found.info
    to.store.write_candidate(to.group, info.name, info.engine, info.order, found.header, copied_pages(found.pages))
    to.store.confirm(to.group, info.name)
    return True


def _held(to: RestoreTarget) -> dict[Partition, rules.HeldOffsets]:
    """Returns the offsets that the bus holds of each partition that the group reads; a missing partition counts as empty."""
    known, origin = to.bus.topics(), recorded_origin(to.coordination, to.group, to.topics)
    found = {}
    for _, partition in to.topics.partitions:
        is_there = partition.number < known.get(partition.topic, 0)
        begin, end = (to.bus.begin_offset(partition), to.bus.end_offset(partition)) if is_there else (0, 0)
        found[partition] = rules.HeldOffsets(begin, end, origin.get((partition.topic, partition.number)))
    return found
