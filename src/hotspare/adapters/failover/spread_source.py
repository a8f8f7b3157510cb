"""A source whose pieces go to several partitions of a topic, each piece once.

Every partition has its own position: all rows before it that belong in the partition are written there. The first partition is
written last in each append, even if no row belongs there. So its position is that of the source: all rows before it are on the
topic. A publisher continues there, and skips rows that other partitions already have. It never returns to before a reported
position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from hotspare.adapters.failover.partition_count_check import PartitionCountCheck
from hotspare.adapters.failover.source_position import PublishedSource, SourcePosition
from hotspare.bus.contract import Bus, Partition


@dataclass(frozen=True, slots=True)
class Piece:
    """A message of `rows` rows. `end`: the position in the source that its partition reaches with it."""

    value: bytes
    end: int
    rows: int


@dataclass(slots=True)
class _Part:
    source: PublishedSource
    end: int


class SpreadSource:
    """A source on all `partitions`, at least one; with one it behaves like a `PublishedSource`.

    Call `read_source_position` first. Not thread-safe; all calls raise what `Bus` raises. `append` also raises what `count` raises.
    """

    def __init__(self, bus: Bus, partitions: Sequence[Partition], name: str, count: PartitionCountCheck | None = None) -> None:
        self._bus = bus
        self._count = count
        self._partitions = partitions
        self._name = name
        self._parts: list[_Part] = []

    def read_source_position(self) -> SourcePosition:
        """Returns the position up to which the source is published. Raises UsageError for an invalid name."""
        first, *others = self._partitions
        home = PublishedSource(self._bus, first, self._name)
        position = home.read_source_position()
        parts = [_Part(home, position.published_bytes)]
        for partition in others:
            # a partition without a record of the source starts at the first one's position, which is never behind by more than one
            # piece
            source = PublishedSource(self._bus, partition, self._name, position.published_bytes)
            parts.append(_Part(source, max(position.published_bytes, source.read_source_position().published_bytes)))
        self._parts = parts
        return position

    def is_unpublished(self, number: int, end: int) -> bool:
        """Whether a piece that ends at `end` and belongs in partition `number` is not written yet."""
        return end > self._parts[number].end

    def append(self, pieces: Sequence[Sequence[Piece]], done: SourcePosition, message_format: bytes) -> bool:
        """Writes the pieces of each partition, after which everything before `done` is published. A call after an error continues
        the write.

        False if the topic holds more of the source than this object knows: call `read_source_position` again, and also after
        UnknownResult."""
        write = partial(self._write, pieces, done, message_format)
        return write() if self._count is None else self._count.append_checked(write, pieces)

    def _write(self, pieces: Sequence[Sequence[Piece]], done: SourcePosition, message_format: bytes) -> bool:
        for number in (*range(1, len(self._parts)), 0):
            part, mine = self._parts[number], pieces[number]
            if (not mine and number) or part.end >= done.published_bytes:
                continue
            positions = [*(SourcePosition(piece.end) for piece in mine[:-1]), done]
            if not part.source.append([piece.value for piece in mine], positions, message_format):
                return False
            part.end = done.published_bytes
        return True
