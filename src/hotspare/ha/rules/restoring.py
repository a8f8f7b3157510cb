"""Whether a snapshot that was persisted elsewhere may become one of a group's own (SPEC H2, H6-H9). Pure.

Every snapshot of a group, wherever it was kept, gives the same outputs. So it may be taken over whenever it is of this group and
of this bus, which is told by numbers: its input is still there, and what it stands on is committed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hotspare.bus.contract import Partition, Progress
from hotspare.ha.rules.settings import GroupTopics


@dataclass(frozen=True, slots=True)
class StatePlace:
    """Where a state stands: by (topic index, partition) what it reads next, and the outputs of each stream before it."""

    next_offsets: Mapping[tuple[int, int], int]
    sequences: Mapping[str, int]
    digests: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Held:
    """What the bus holds of a partition: offsets from `begin` on, before `end`. `origin`: where the group began; None where it is
    new."""

    begin: int
    end: int
    origin: int | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """One partition: what is needed, what is there. `left`: messages that are to be caught up with."""

    partition: Partition
    next_offset: int
    held: Held

    @property
    def left(self) -> int:
        return max(0, self.held.end - self.next_offset)

    @property
    def gone(self) -> int:
        """How many of the messages that are needed are there no more."""
        return max(0, self.held.begin - self.next_offset)

    @property
    def sentence(self) -> str:
        held = self.held
        there = f"offsets {held.begin} to {held.end - 1} are there" if held.end > held.begin else f"empty at offset {held.end}"
        wants = f"the snapshot goes on at {self.next_offset}: {self.left} messages to catch up with"
        return f"topic {self.partition.topic}, partition {self.partition.number}: {there}, {wants}"


def compared(topics: GroupTopics, place: StatePlace, held: Mapping[Partition, Held]) -> list[Compared]:
    """Partition by partition. Of one that the snapshot never read, all is needed since the group began."""
    found = []
    for index, partition in topics.partitions:
        known = held[partition]
        begin = known.begin if known.origin is None else known.origin
        found.append(Compared(partition, place.next_offsets.get((index, partition.number), begin), known))
    return found


def refusals(topics: GroupTopics, place: StatePlace, partitions: list[Compared], progress: Mapping[str, Progress]) -> list[str]:
    """Why the snapshot may not be taken over, each with its numbers; none where it may."""
    found = []
    for each in partitions:
        where, held = f"topic {each.partition.topic}, partition {each.partition.number}", each.held
        if each.gone:
            found.append(f"{where} begins at offset {held.begin}, {each.next_offset} is needed: {each.gone} messages are gone")
        elif each.next_offset > held.end:
            read = f"the snapshot has read up to {each.next_offset - 1}: it is of another bus"
            found.append(f"{where} ends with offset {held.end - 1}, {read}")
        elif held.origin is not None and each.next_offset < held.origin:
            found.append(
                f"{where}: the group began at offset {held.origin}, the snapshot goes on at {each.next_offset}, before that"
            )
    for output in topics.outbound:
        sequence, known = place.sequences.get(output.stream, 0), progress.get(output.stream)
        committed = known.sequence if known is not None else 0
        if not output.quality.holds_all:
            continue
        if sequence > committed:
            found.append(f"stream {output.stream}: the snapshot stands at output {sequence}, {committed} are committed on this bus")
        elif known is not None and sequence == committed and sequence and place.digests.get(output.stream) != known.digest:
            found.append(
                f"stream {output.stream}: output {sequence} of the snapshot is another one than that committed on this bus"
            )
    return found
