"""Taking a persisted snapshot into a group's own store, from where its engines start (SPEC H2, H6, H7, Z6).

It is checked before, with numbers (`rules.restoring`): nothing of the group changes where it may not be. Whoever of the group's
engines joins next begins there, if no further snapshot is in the group's store: all give the same outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hotspare.base.errors import PositionLost, StateError
from hotspare.bus.contract import Bus, Partition
from hotspare.coordination.contract import Coordination
from hotspare.flow.numbering import numbering_of
from hotspare.ha.core import CoreFactory
from hotspare.ha.effects.joining import stated_origin
from hotspare.ha.rules import restoring as rules
from hotspare.ha.rules.joining import restorable
from hotspare.ha.rules.settings import GroupTopics
from hotspare.stores.choosing import Among, chosen, parse_choice
from hotspare.stores.contract import SnapshotInfo, Store
from hotspare.stores.writing import copied

_KEEP = "topics have to keep their messages for longer than a snapshot may be old; is a newer one there?"
_ELSEWHERE = "is this the bus that its group published to, under this prefix?"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a persisted snapshot is: a store, the group that it was persisted of, and which one is meant (`stores.choosing`)."""

    store: Store
    group: str
    snapshot: str = ""


@dataclass(frozen=True, slots=True)
class Destination:
    """The group that takes it over: what it reads and writes, and its own store."""

    group: str
    topics: GroupTopics
    cores: CoreFactory
    bus: Bus
    coordination: Coordination
    store: Store


@dataclass(frozen=True, slots=True)
class Found:
    """A persisted snapshot beside what the group has. `further`: the group's own snapshot that engines start from instead, as it is
    as far or further."""

    info: SnapshotInfo
    header: bytes
    pages: Mapping[str, bytes]
    partitions: tuple[rules.Compared, ...]
    refusals: tuple[str, ...]
    further: SnapshotInfo | None

    @property
    def left(self) -> int:
        """Messages to catch up with."""
        return sum(each.left for each in self.partitions)


def choose(source: Source, to: Destination) -> tuple[SnapshotInfo, SnapshotInfo | None]:
    """The snapshot that is meant, and the group's own one that is as far or further. UsageError where there is none."""
    info = chosen(source.group, source.store.list(source.group), parse_choice(source.snapshot), Among.CONFIRMED)
    own = restorable(to.store.list(to.group))
    return info, own[0] if own and own[0].order >= info.order else None


def find(source: Source, to: Destination) -> Found:
    """Choose it, read it whole, and compare it with the bus. UsageError where there is none; ProjectChanged and what else `restore`
    raises; StoreError."""
    info, further = choose(source, to)
    stored = source.store.get(source.group, info.name)
    core = to.cores.restore(stored.header, stored.pages)
    numbering = numbering_of(stored.header)
    shifts = {stream: numbering.get(stream, 0) for stream in core.sequences}
    sequences = {stream: number + shift for stream, number in core.sequences.items() if (shift := shifts[stream]) is not None}
    place = rules.StatePlace(core.next_offsets, sequences, core.digests)
    partitions = rules.compared(to.topics, place, _held(to))
    refusals = rules.refusals(to.topics, place, partitions, to.bus.progress(to.group))
    return Found(info, stored.header, stored.pages, tuple(partitions), tuple(refusals), further)


def take_over(found: Found, to: Destination) -> bool:
    """Make it a snapshot that the group's engines start from; False where one that is as far is there already. PositionLost where
    messages behind it are gone, StateError where it is of another bus or group."""
    if found.refusals:
        gone = any(each.gone for each in found.partitions)
        kind, hint = (PositionLost, _KEEP) if gone else (StateError, _ELSEWHERE)
        raise kind(
            f"snapshot {found.info.name} cannot be restored into group {to.group}",
            detail="\n  ".join(found.refusals),
            hint=hint,
        )
    if found.further is not None:
        return False
    info = found.info
    to.store.put(to.group, info.name, info.engine, info.order, found.header, copied(found.pages))
    to.store.confirm(to.group, info.name)
    return True


def _held(to: Destination) -> dict[Partition, rules.Held]:
    """Of every partition that the group reads; one that is not there yet is empty."""
    known, origin = to.bus.topics(), stated_origin(to.coordination, to.group, to.topics)
    found = {}
    for _, partition in to.topics.partitions:
        is_there = partition.number < known.get(partition.topic, 0)
        begin, end = (to.bus.begin_offset(partition), to.bus.end_offset(partition)) if is_there else (0, 0)
        found[partition] = rules.Held(begin, end, origin.get((partition.topic, partition.number)))
    return found
