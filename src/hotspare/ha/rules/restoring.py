"""Decides whether a snapshot that was persisted elsewhere may become one of a group's own (SPEC H2, H6-H9). Pure.

Every snapshot of a group, in any store, gives the same outputs. So any snapshot of this group and this bus may be restored. The
numbers show whether it is one: the bus still holds the input after it, and has committed the outputs before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hotspare.bus.contract import Partition, Progress
from hotspare.ha.rules.settings import GroupTopics


@dataclass(frozen=True, slots=True)
class StatePosition:
    """The position of a state: the next offset by (topic index, partition), and the newest output of each stream, with its
    digest."""

    next_offsets: Mapping[tuple[int, int], int]
    sequences: Mapping[str, int]
    digests: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HeldOffsets:
    """The offsets of a partition that the bus holds: `begin` up to, but not including, `end`. `origin`: where the group began to
    read; None if it never read the partition."""

    begin: int
    end: int
    origin: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionComparison:
    """The offset of a partition at which a snapshot continues, and the offsets that the bus holds. `messages_left`: the messages
    from there to the end."""

    partition: Partition
    next_offset: int
    held: HeldOffsets

    @property
    def messages_left(self) -> int:
        return max(0, self.held.end - self.next_offset)

    @property
    def messages_missing(self) -> int:
        """The count of messages that the snapshot needs and the bus no longer holds."""
        return max(0, self.held.begin - self.next_offset)

    @property
    def sentence(self) -> str:
        held = self.held
        there = f"the bus holds offsets {held.begin} to {held.end - 1}" if held.end > held.begin else f"empty at offset {held.end}"
        wants = f"the snapshot continues at {self.next_offset}: {self.messages_left} messages to catch up with"
        return f"topic {self.partition.topic}, partition {self.partition.number}: {there}, {wants}"


def compare_partitions(
    topics: GroupTopics, place: StatePosition, held: Mapping[Partition, HeldOffsets]
) -> list[PartitionComparison]:
    """Returns the comparison of each partition that the group reads. A snapshot that never read a partition needs it from the
    group's origin on."""
    found = []
    for index, partition in topics.partitions:
        known = held[partition]
        begin = known.begin if known.origin is None else known.origin
        found.append(PartitionComparison(partition, place.next_offsets.get((index, partition.number), begin), known))
    return found


def refusals(
    topics: GroupTopics, place: StatePosition, partitions: list[PartitionComparison], progress: Mapping[str, Progress]
) -> list[str]:
    """Returns the reasons why the snapshot may not be restored, one sentence each; empty if it may."""
    found = []
    for each in partitions:
        where, held = f"topic {each.partition.topic}, partition {each.partition.number}", each.held
        if each.messages_missing:
            missing = f"offset {each.next_offset} is needed: {each.messages_missing} messages are gone"
            found.append(f"{where} begins at offset {held.begin}, {missing}")
        elif each.next_offset > held.end:
            read = f"the snapshot read up to {each.next_offset - 1}: it is from another bus"
            found.append(f"{where} ends with offset {held.end - 1}, {read}")
        elif held.origin is not None and each.next_offset < held.origin:
            found.append(
                f"{where}: the group began at offset {held.origin}, the snapshot continues before it, at {each.next_offset}"
            )
    for output in topics.outbound:
        sequence, known = place.sequences.get(output.stream, 0), progress.get(output.stream)
        committed = known.sequence if known is not None else 0
        if not output.quality.holds_all:
            continue
        if sequence > committed:
            found.append(f"stream {output.stream}: the snapshot is at output {sequence}, {committed} are committed on this bus")
        elif known is not None and sequence == committed and sequence and place.digests.get(output.stream) != known.digest:
            found.append(f"stream {output.stream}: output {sequence} of the snapshot differs from the one committed on this bus")
    return found
