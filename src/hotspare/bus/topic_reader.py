"""Reads an external topic: all partitions at once, from positions that the caller stores. Makes no assumption about the writers,
the number of partitions and the clock. Returns only committed messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from hotspare.base.errors import BusUnavailable, PositionLost
from hotspare.bus import limits
from hotspare.bus.contract import Bus, Message, Partition

_BYTES_MAX = 8 << 20


class ReceivedMessage(NamedTuple):
    """A message and the number of its partition."""

    partition: int
    message: Message


class TopicReader(Protocol):
    """Reads one external topic. Used by one thread. All calls raise BusUnavailable while the topic cannot be reached, TopicMissing
    if it does not exist."""

    @property
    def topic(self) -> str: ...

    def topic_id(self) -> str:
        """Returns the id of the topic; "" if the bus has no ids. A topic that was deleted and re-created under the same name has
        another id."""

    def partitions(self) -> int: ...

    def bounds(self, number: int) -> tuple[int, int]:
        """Returns the oldest offset of partition `number`, and the offset after its last committed message."""

    def seek(self, offsets: Mapping[int, int]) -> None:
        """Sets the partitions to read from now on, each with its next offset. Raises PositionLost if an offset was deleted,
        BusUnavailable if it does not exist yet."""

    def read(self, messages_max: int, wait_ms: int) -> Sequence[ReceivedMessage]:
        """Returns at most `messages_max` next messages, in order within each partition; waits at most `wait_ms` for a first one.
        Raises PositionLost if a partition no longer holds its next offset."""

    def close(self) -> None: ...


def check_offset_in_bounds(topic: str, number: int, offset: int, bounds: tuple[int, int]) -> None:
    """Raises PositionLost if `offset` is before `bounds`, because it was deleted. Raises BusUnavailable if it is after them: a new
    leader may not know its newest messages yet."""
    begin, end = bounds
    if offset < begin:
        raise PositionLost(
            f"partition {number} of topic {topic} no longer holds offset {offset}",
            detail=f"the oldest offset kept is {begin}, {begin - offset} offsets are gone",
            hint="raise the retention of the topic: it must keep messages until they are read",
        )
    if offset > end:
        raise BusUnavailable(
            f"partition {number} of topic {topic} ends at offset {end}, before the next offset to read, {offset}",
            hint="if this persists, the topic was re-created or lost messages: read it under another source name",
        )


def external_partitions(bus: Bus, topic: str) -> int:
    """Returns the number of partitions of an external topic. Raises TopicMissing, with the command that creates the topic."""
    topics = bus.topics()
    if topic not in topics:
        code = f"from hotspare.bus.open import open_bus; open_bus(URL).create_topic({topic!r})"
        raise limits.external_topic_missing(topic, f'python -c "{code}"')
    return topics[topic]


class BusTopicReader:
    """Implements `TopicReader` for a topic on any bus. `close` closes the bus."""

    def __init__(self, bus: Bus, topic: str) -> None:
        self._bus = bus
        self._offsets: dict[int, int] = {}
        self._next = 0
        """The count of reads. It selects the partition that is read first, so that no partition starves another."""
        self.topic = topic

    def topic_id(self) -> str:
        return ""

    def partitions(self) -> int:
        return external_partitions(self._bus, self.topic)

    def bounds(self, number: int) -> tuple[int, int]:
        place = Partition(self.topic, number)
        return self._bus.begin_offset(place), self._bus.end_offset(place)

    def seek(self, offsets: Mapping[int, int]) -> None:
        for number, offset in offsets.items():
            check_offset_in_bounds(self.topic, number, offset, self.bounds(number))
        self._offsets = dict(offsets)

    def read(self, messages_max: int, wait_ms: int) -> Sequence[ReceivedMessage]:
        numbers = sorted(self._offsets)
        self._next += 1
        for wait in (0, wait_ms // max(1, len(numbers))):
            for turn in range(len(numbers)):
                number = numbers[(self._next + turn) % len(numbers)]
                found = self._read(number, messages_max, wait)
                if found:
                    self._offsets[number] = found[-1].offset + 1
                    return [ReceivedMessage(number, message) for message in found]
        return []

    def _read(self, number: int, messages_max: int, wait_ms: int) -> Sequence[Message]:
        place, offset = Partition(self.topic, number), self._offsets[number]
        try:
            return self._bus.read(place, offset, messages_max=messages_max, bytes_max=_BYTES_MAX, wait_ms=wait_ms)
        except PositionLost:
            check_offset_in_bounds(self.topic, number, offset, self.bounds(number))
            raise

    def close(self) -> None:
        self._bus.close()
