"""One source whose pieces go to several partitions of a topic, each piece once (DESIGN section 10).

Every partition has a position of its own: how far it has all of the source that belongs there. What comes next is written to the
first partition last, also where nothing of it belongs there. So its position is that of the source: what stands before it is on the
topic, wherever it belongs, and a publisher goes on there and passes over what other partitions have already. A publisher that was
told that a position is reached never has to go back behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from hotspare.adapters.failover.source_position import PublishedSource, SourcePosition
from hotspare.adapters.failover.topic_count import TopicCount
from hotspare.bus.contract import Bus, Partition


@dataclass(frozen=True, slots=True)
class Piece:
    """A message of so many rows, and how far its partition has the source with it."""

    value: bytes
    end: int
    rows: int


@dataclass(slots=True)
class _Part:
    source: PublishedSource
    end: int


class SpreadSource:
    """A source on all `partitions`, at least one; on one it does what a `PublishedSource` does.

    `look` comes before all else. Not thread-safe; all calls raise what `Bus` raises. `append` raises what `count` raises.
    """

    def __init__(self, bus: Bus, partitions: Sequence[Partition], name: str, count: TopicCount | None = None) -> None:
        self._bus = bus
        self._count = count
        self._partitions = partitions
        self._name = name
        self._parts: list[_Part] = []

    def look(self) -> SourcePosition:
        """Up to where all is published. UsageError for a name that cannot be used."""
        first, *others = self._partitions
        home = PublishedSource(self._bus, first, self._name)
        position = home.look()
        parts = [_Part(home, position.published_bytes)]
        for partition in others:
            # where this partition knows nothing of the source, the first one knows all: it never is behind by more than one piece
            source = PublishedSource(self._bus, partition, self._name, position.published_bytes)
            parts.append(_Part(source, max(position.published_bytes, source.look().published_bytes)))
        self._parts = parts
        return position

    def lacks(self, number: int, end: int) -> bool:
        """Whether what ends there, and belongs to this partition, has yet to be written."""
        return end > self._parts[number].end

    def append(self, pieces: Sequence[Sequence[Piece]], done: SourcePosition, message_format: bytes) -> bool:
        """Write what each partition gets; behind it all before `done` is published. Called again after an error it goes on. False
        where the topic holds more of the source than is known here, UnknownResult where no answer came: look again."""
        write = partial(self._write, pieces, done, message_format)
        return write() if self._count is None else self._count.around(write, pieces)

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
