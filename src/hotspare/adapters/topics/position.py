"""The position in an external topic: the next offset to read of each of its partitions, as one position of a source.

The position is stored like any source's (`failover/source_position.py`): in a header of the copied messages, and in a record. This
module only decides: the caller supplies the facts, reads and writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from hotspare.adapters.failover.source_position import SourcePosition
from hotspare.base.errors import BusError, UsageError

Bounds = tuple[int, int]
"""The bounds of a partition: the oldest offset that the topic holds, and the offset after the last message."""


class StartAt(Enum):
    """The start in a topic that was never read before (SPEC I2: kafkainitialoffset)."""

    OLDEST = "smallest"
    NEWEST = "largest"


class OnLost(Enum):
    """The policy for messages that an external topic no longer holds and that were not read."""

    END = "end"
    """The publisher raises PositionLost."""
    SKIP = "skip"
    """The publisher writes a notice of the lost offsets, of which engines make a bad event, and continues after them."""


class LostOffsets(NamedTuple):
    """A range of offsets of a partition, `begin` to before `end`, that the topic no longer holds."""

    partition: int
    begin: int
    end: int

    def sentence(self, topic: str, ahead: Mapping[int, int]) -> str:
        """Returns the text of the notice, and of its bad event. `ahead`: for each shard that has part of the lost rows, the
        offset before which it has them."""
        told = [f", but shard {shard} has its rows to {min(offset, self.end) - 1}" for shard, offset in sorted(ahead.items())]
        return f"partition {self.partition} of topic {topic}: offsets {self.begin} to {self.end - 1}{''.join(told)}"


_STARTS = {
    **dict.fromkeys(("", "smallest", "earliest", "beginning"), StartAt.OLDEST),
    **dict.fromkeys(("largest", "latest", "end"), StartAt.NEWEST),
}


def parse_start(text: str) -> StartAt | int | None:
    """Parses the start as configurations write it; None for an invalid text."""
    word = text.strip().lower()
    if word.isascii() and word.isdigit():
        return int(word)
    return _STARTS.get(word)


@dataclass(frozen=True, slots=True)
class TopicPosition:
    """The position in topic `topic`: everything before `offsets`, by partition, is read; `events` in all since its beginning.

    `open_updates`: partitions whose last output was the first row of an update, the other row of which follows. Partitions that are
    not named did not exist yet. `topic_id` distinguishes topics of one name, "" if unknown.
    """

    topic: str
    topic_id: str = ""
    offsets: Mapping[int, int] = field(default_factory=dict)
    events: int = 0
    open_updates: frozenset[int] = frozenset()

    def has_read(self, partition: int, offset: int) -> bool:
        """Whether the message at this offset has been read."""
        return offset < self.offsets.get(partition, 0)

    def after_messages(self, read: Iterable[tuple[int, int]], events: int = 0) -> TopicPosition:
        """Returns the position after reading these messages (partition, offset) too, which had `events` events."""
        offsets = dict(self.offsets)
        for partition, offset in read:
            offsets[partition] = max(offsets.get(partition, 0), offset + 1)
        return replace(self, offsets=offsets, events=self.events + events)

    def after_gaps(self, gaps: Iterable[LostOffsets]) -> TopicPosition:
        """Returns the position after the gaps. In their partitions no update is open, because its second row may be lost."""
        found = list(gaps)
        offsets = {**self.offsets, **{gap.partition: gap.end for gap in found}}
        return replace(self, offsets=offsets, open_updates=self.open_updates - {gap.partition for gap in found})

    def union_with(self, other: TopicPosition) -> TopicPosition:
        """Returns the union of two positions of one topic: for each partition the greater offset."""
        numbers = sorted({*self.offsets, *other.offsets})
        offsets = {number: max(self.offsets.get(number, 0), other.offsets.get(number, 0)) for number in numbers}
        return replace(self, offsets=offsets, events=max(self.events, other.events))

    def to_source_position(self) -> SourcePosition:
        """Returns the position with the sum of its offsets, which rises with every message: the greater of two positions is the
        newer."""
        offsets = {str(number): offset for number, offset in sorted(self.offsets.items())}
        rest = {"topic": self.topic, "id": self.topic_id, "offsets": offsets, "events": self.events}
        rest |= {"open": sorted(self.open_updates)} if self.open_updates else {}
        return SourcePosition(sum(self.offsets.values()), json.dumps(rest, separators=(",", ":")))


def decode_topic_position(position: SourcePosition, name: str) -> TopicPosition | None:
    """Decodes a recorded position; None for a source without one. Raises BusError if the source was not a topic."""
    if not position.check and not position.published_bytes:
        return None
    try:
        rest = json.loads(position.check)
        offsets = {int(number): int(offset) for number, offset in rest["offsets"].items()}
        is_open = frozenset(map(int, rest.get("open", ())))
        return TopicPosition(str(rest["topic"]), str(rest["id"]), offsets, int(rest["events"]), is_open)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BusError(
            f"source {name} was not a topic before",
            detail=repr(position.check[:80]),
            hint="give the connector another name, or publish under another --source",
        ) from error


def starting_position(
    found: TopicPosition | None, topic: TopicPosition, bounds: Mapping[int, Bounds], start: StartAt | int
) -> TopicPosition:
    """Returns the position to continue from.

    `found` is the recorded position, None for a new source; `topic` is the topic that exists now, without offsets. `bounds` are
    those of the partitions to be read, at least of the unknown ones.

    A new topic begins at `start` (a number is an offset for every partition, clipped to its bounds). A partition that was added to
    a known topic begins with its first message, whether the topic still holds it or not. Raises UsageError if the source is another
    topic.
    """
    if found is None:
        return replace(topic, offsets={number: _first(each, start) for number, each in sorted(bounds.items())})
    if found.topic != topic.topic or (found.topic_id and topic.topic_id and found.topic_id != topic.topic_id):
        same = "a topic of the same name, which was deleted" if found.topic == topic.topic else f"topic {found.topic}"
        raise UsageError(
            f"topic {topic.topic} cannot be published as this source: until now it was {same}",
            hint="give the connector another name, or publish under another --source",
        )
    added = {number: 0 for number in bounds if number not in found.offsets}
    return replace(found, topic_id=topic.topic_id or found.topic_id, offsets={**found.offsets, **added})


def _first(bounds: Bounds, start: StartAt | int) -> int:
    begin, end = bounds
    if isinstance(start, StartAt):
        return begin if start is StartAt.OLDEST else end
    return min(max(start, begin), end)


def slice_by_bytes(sizes: Sequence[int], bytes_max: int) -> list[slice]:
    """Returns the slices of messages for each append: at most `bytes_max` bytes, or one message. `sizes` are the messages'
    sizes."""
    cuts, begin, total = list[slice](), 0, 0
    for index, size in enumerate(sizes):
        if begin < index and total + size > bytes_max:
            cuts.append(slice(begin, index))
            begin, total = index, 0
        total += size
    return [*cuts, slice(begin, len(sizes))] if begin < len(sizes) else cuts
