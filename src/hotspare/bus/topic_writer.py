"""Writes an external topic for a source: the messages and the source's position in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from hotspare.base.errors import Fenced, UsageError
from hotspare.bus.contract import Bus, HeaderGuard, Outgoing, Partition
from hotspare.bus.topic_reader import external_partitions

_GUARD = "hotspare-target"
_NEVER = 1 << 62
"""An offset that no message reaches. As `since_offset` of the guard it excludes all messages, so only the record reveals another
writer of the source."""


class RoutedMessage(NamedTuple):
    """A message and the number of its target partition."""

    partition: int
    message: Outgoing


class TopicWriter(Protocol):
    """Writes to an external topic for one source, which may have several writers, one after another. Used by one thread. All calls
    raise BusUnavailable while the topic cannot be reached, TopicMissing if it does not exist."""

    @property
    def topic(self) -> str: ...

    def partitions(self) -> int: ...

    def open(self) -> bytes | None:
        """Gets the right to write: uncommitted writes of earlier writers of this source never take effect afterwards. Returns the
        position that the last `write` recorded; None without one."""

    def write(self, messages: Sequence[RoutedMessage], position: bytes) -> None:
        """Compare-and-set: appends all messages, in order within each partition, and records the position, or does nothing. Raises
        Fenced if another writer of the source was opened since, UnknownResult if the answer was lost; then the caller must call
        `open` again."""

    def close(self) -> None: ...


class BusTopicWriter:
    """Implements `TopicWriter` for a topic with one partition on any bus. `close` closes the bus."""

    def __init__(self, bus: Bus, topic: str, source: bytes) -> None:
        self._bus = bus
        self._source = source
        self._record: bytes | None = None
        self.topic = topic

    def partitions(self) -> int:
        count = external_partitions(self._bus, self.topic)
        if count != 1:
            raise UsageError(
                f"topic {self.topic} has {count} partitions; this bus writes only to topics with one", hint="use a bus on kafka"
            )
        return count

    def open(self) -> bytes | None:
        self._record = self._bus.record(Partition(self.topic), self._source)
        return self._record

    def write(self, messages: Sequence[RoutedMessage], position: bytes) -> None:
        guard = HeaderGuard(_GUARD, self._source, _NEVER, self._record)
        written = self._bus.append_guarded(Partition(self.topic), [each.message for each in messages], guard, position)
        if written is None:
            raise Fenced(f"topic {self.topic} is written by another instance of this source")
        self._record = position

    def close(self) -> None:
        self._bus.close()
