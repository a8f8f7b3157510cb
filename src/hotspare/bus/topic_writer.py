"""A topic of others, written by one source at a time: its messages, and how far it is, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from hotspare.base.errors import Fenced, UsageError
from hotspare.bus.contract import Bus, HeaderGuard, Outgoing, Partition
from hotspare.bus.topic_reader import external_partitions

_GUARD = "hotspare-target"
_NEVER = 1 << 62
"""The record alone tells of another writer: what else stands on the topic is others' business."""


class Placed(NamedTuple):
    """A message and the number of the partition that it goes to."""

    partition: int
    message: Outgoing


class TopicWriter(Protocol):
    """Of one source, whose writers may be many, one after another. Used by one thread; all calls raise BusUnavailable while the
    topic is out of reach, TopicMissing where there is none."""

    @property
    def topic(self) -> str: ...

    def partitions(self) -> int: ...

    def open(self) -> bytes | None:
        """Take the right to write: what any writer of this source has not committed by now never will be. How far the source is, as
        the last `write` said; None where there was none."""

    def write(self, messages: Sequence[Placed], position: bytes) -> None:
        """Compare-and-set: append all of it, in order within each partition, and note the position, or nothing. Fenced where
        somebody else opened the source since, UnknownResult where no answer came: open again."""

    def close(self) -> None: ...


class BusTopicWriter:
    """A `TopicWriter` of a topic with one partition on any bus, which it closes."""

    def __init__(self, bus: Bus, topic: str, source: bytes) -> None:
        self._bus = bus
        self._source = source
        self._record: bytes | None = None
        self.topic = topic

    def partitions(self) -> int:
        count = external_partitions(self._bus, self.topic)
        if count != 1:
            raise UsageError(f"topic {self.topic} has {count} partitions, this bus writes to one alone", hint="use a bus on kafka")
        return count

    def open(self) -> bytes | None:
        self._record = self._bus.record(Partition(self.topic), self._source)
        return self._record

    def write(self, messages: Sequence[Placed], position: bytes) -> None:
        guard = HeaderGuard(_GUARD, self._source, _NEVER, self._record)
        written = self._bus.append_guarded(Partition(self.topic), [each.message for each in messages], guard, position)
        if written is None:
            raise Fenced(f"topic {self.topic} is written by another instance of this source")
        self._record = position

    def close(self) -> None:
        self._bus.close()
