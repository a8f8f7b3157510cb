"""A topic of others as one source on all partitions of an inbound topic: each message once, in the order in which it came in.

As a `SpreadSource` every partition has a position of its own, and the first one is written last: so what stands before its position
is there, wherever it belongs. But a position is an offset for each partition that is read. Two attempts may have read these in
another order, so of each message it is asked whether its partition has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hotspare.adapters.failover.source_position import PublishedSource, SourcePosition
from hotspare.adapters.failover.spread_source import Piece
from hotspare.adapters.failover.topic_count import TopicCount
from hotspare.adapters.topics.position import TopicPosition, decoded
from hotspare.bus.contract import Bus, Partition


@dataclass(slots=True)
class _Part:
    source: PublishedSource
    position: TopicPosition | None


class TopicSource:
    """`look` comes before all else. Not thread-safe; all calls raise what `Bus` raises. `append` raises what `count` raises."""

    def __init__(self, bus: Bus, partitions: Sequence[Partition], name: str, count: TopicCount | None = None) -> None:
        self._bus = bus
        self._count = count
        self._partitions = partitions
        self._name = name
        self._parts: list[_Part] = []

    def look(self) -> TopicPosition | None:
        """What is brought in; None where nothing ever was."""
        self._parts = [self._part(each) for each in self._partitions]
        return self._parts[0].position

    def _part(self, partition: Partition) -> _Part:
        source = PublishedSource(self._bus, partition, self._name)
        return _Part(source, decoded(source.look(), self._name))

    def lacks(self, number: int, partition: int, offset: int) -> bool:
        """Whether the message that stands there, and belongs to this partition of the inbound topic, has yet to be written."""
        known = self._parts[number].position
        return known is None or not known.holds(partition, offset)

    def ahead(self, partition: int, offset: int) -> dict[int, int]:
        """Returns, for each shard whose rows of messages from `offset` on are partly written, the offset before which they are."""
        known = {number: part.position.offsets.get(partition, 0) for number, part in enumerate(self._parts) if part.position}
        return {number: at for number, at in known.items() if at > offset}

    def append(self, pieces: Sequence[Sequence[Piece]], done: TopicPosition, message_format: bytes) -> bool:
        """Write what each partition gets, then note `done` at the first one. False where the inbound topic holds more of the source
        than is known here, UnknownResult where no answer came: look again."""
        if self._count is not None:
            self._count.check()
        for number in (*range(1, len(self._parts)), 0):
            part, mine = self._parts[number], pieces[number]
            if number and not mine:
                continue
            reached = done if part.position is None else done.joined(part.position)
            last = reached.encoded()
            positions = [*(SourcePosition(last.published_bytes) for _ in mine[:-1]), last]
            if not part.source.append([piece.value for piece in mine], positions, message_format):
                return False
            part.position = reached
        if self._count is not None and any(pieces):
            self._count.appended()
        return True
