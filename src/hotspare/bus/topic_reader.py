"""A topic of others, read whole: all its partitions at once, from positions that the reader keeps itself.

Nothing is known of who writes it, in how many partitions, by which clock. Only what is committed is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from hotspare.base.errors import BusUnavailable, PositionLost
from hotspare.bus import limits
from hotspare.bus.contract import Bus, Message, Partition

_BYTES_MAX = 8 << 20


class Arrived(NamedTuple):
    """A message and the number of the partition that it stands in."""

    partition: int
    message: Message


class TopicReader(Protocol):
    """Used by one thread. All calls raise BusUnavailable while the topic is out of reach, TopicMissing where there is none."""

    @property
    def topic(self) -> str: ...

    def topic_id(self) -> str:
        """Of this very topic: another one of the same name, made after it was deleted, has another id. "" where none is known."""

    def partitions(self) -> int: ...

    def bounds(self, number: int) -> tuple[int, int]:
        """Of a partition: the oldest offset kept, and the one behind the last message that is committed."""

    def seek(self, offsets: Mapping[int, int]) -> None:
        """From now on, read these partitions, each from its offset on; no other."""

    def read(self, messages_max: int, wait_ms: int) -> Sequence[Arrived]:
        """What comes next, in order within each partition; waits for a first message. PositionLost where a partition no longer
        holds what stands next."""

    def close(self) -> None: ...


def check_within(topic: str, number: int, offset: int, bounds: tuple[int, int]) -> None:
    """PositionLost where `offset` is forgotten. BusUnavailable where it does not exist yet: a broker that has just begun to lead
    may not know its newest messages."""
    begin, end = bounds
    if offset < begin:
        raise PositionLost(
            f"partition {number} of topic {topic} no longer holds offset {offset}",
            detail=f"the oldest offset kept is {begin}, {begin - offset} offsets are gone",
            hint="let the topic keep its messages until they are read",
        )
    if offset > end:
        raise BusUnavailable(
            f"partition {number} of topic {topic} ends at offset {end}, offset {offset} was to be read next",
            hint="if this lasts, the topic was made anew or lost messages: read it under another source name",
        )


def external_partitions(bus: Bus, topic: str) -> int:
    """Returns how many partitions a topic of other applications has. TopicMissing, with the command that creates it."""
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
        """Whose turn is first, so that no partition starves another."""
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
            check_within(self.topic, number, offset, self.bounds(number))
        self._offsets = dict(offsets)

    def read(self, messages_max: int, wait_ms: int) -> Sequence[Arrived]:
        numbers = sorted(self._offsets)
        self._next += 1
        for wait in (0, wait_ms // max(1, len(numbers))):
            for turn in range(len(numbers)):
                number = numbers[(self._next + turn) % len(numbers)]
                found = self._read(number, messages_max, wait)
                if found:
                    self._offsets[number] = found[-1].offset + 1
                    return [Arrived(number, message) for message in found]
        return []

    def _read(self, number: int, messages_max: int, wait_ms: int) -> Sequence[Message]:
        place, offset = Partition(self.topic, number), self._offsets[number]
        try:
            return self._bus.read(place, offset, messages_max=messages_max, bytes_max=_BYTES_MAX, wait_ms=wait_ms)
        except PositionLost:
            check_within(self.topic, number, offset, self.bounds(number))
            raise

    def close(self) -> None:
        self._bus.close()
