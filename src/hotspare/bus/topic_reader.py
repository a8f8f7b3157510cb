"""An external topic, read whole: all its partitions at once, from positions that the reader keeps itself.

Makes no assumption about the writers, the number of partitions and the clock. Returns only committed messages.
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
    """Used by one thread. All calls raise BusUnavailable while the topic cannot be reached, TopicMissing if it does not exist."""

    @property
    def topic(self) -> str: ...

    def topic_id(self) -> str:
        """Returns the id of this topic: one of the same name, created after this one was deleted, has another. "" if none is
        known."""

    def partitions(self) -> int: ...

    def bounds(self, number: int) -> tuple[int, int]:
        """Returns the oldest offset of a partition, and the one after its last committed message."""

    def seek(self, offsets: Mapping[int, int]) -> None:
        """Reads only these partitions from now on, each from its offset."""

    def read(self, messages_max: int, wait_ms: int) -> Sequence[ReceivedMessage]:
        """Returns the next messages, in order within each partition; waits for a first one. PositionLost if a partition no longer
        holds the next offset."""

    def close(self) -> None: ...


def check_offset_in_bounds(topic: str, number: int, offset: int, bounds: tuple[int, int]) -> None:
    """Raises PositionLost if `offset` was deleted, BusUnavailable if it does not exist yet: a new leader may not know its newest
    messages."""
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
    """Returns the number of partitions of an external topic. TopicMissing, with the command that creates it."""
    topics = bus.topics()
    if topic not in topics:
        code = f"from hotspare.bus.open import open_bus; open_bus(URL).create_topic({topic!r})"
        raise limits.external_topic_missing(topic, f'python -c "{code}"')
    return topics[topic]


class BusTopicReader:
    """A `TopicReader` of a topic on any bus, which it closes."""

    def __init__(self, bus: Bus, topic: str) -> None:
        self._bus = bus
        self._offsets: dict[int, int] = {}
        self._next = 0
        """The turn, which selects the partition that is read first, so that no partition starves another."""
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
