"""One partition of the bus in memory: messages in order of offset, with the holes that a bus may leave between them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from hotspare.bus.contract import Message, Outgoing


@dataclass(slots=True)
class PartitionLog:
    """`begin` is the oldest offset kept, `end` the next one to be given; `messages` rise in offset between them."""

    begin: int = 0
    end: int = 0
    messages: list[Message] = field(default_factory=list)

    def index(self, offset: int) -> int:
        """Where in `messages` the first one at or after `offset` stands."""
        messages = self.messages
        if not messages or offset <= messages[0].offset:
            return 0
        if messages[-1].offset - messages[0].offset == len(messages) - 1:  # no hole
            return min(offset - messages[0].offset, len(messages))
        return bisect_left(messages, offset, key=lambda message: message.offset)

    def append(self, outgoing: Sequence[Outgoing], now_us: int) -> int:
        """Append with one time; returns the first offset."""
        first = self.end
        for index, message in enumerate(outgoing):
            self.messages.append(Message(first + index, now_us, bytes(message.value), tuple(message.headers)))
        self.end = first + len(outgoing)
        return first

    def skip(self, count: int) -> None:
        """Leave a hole, as control records, compaction and transactions that were aborted do."""
        self.end += count

    def trim(self, before_offset: int) -> None:
        """Forget what stands before this offset."""
        before_offset = min(before_offset, self.end)
        if before_offset > self.begin:
            del self.messages[: self.index(before_offset)]
            self.begin = before_offset

    def expire(self, cutoff_us: int, needed: int | None, messages_max: int) -> int:
        """Forget the oldest messages: of before `cutoff_us`, standing before `needed`; how many."""
        old = 0
        for message in self.messages[:messages_max]:
            if message.append_time_us >= cutoff_us or (needed is not None and message.offset >= needed):
                break
            old += 1
        if old:
            self.trim(self.messages[old - 1].offset + 1)
        return old

    def read(self, offset: int, messages_max: int, bytes_max: int) -> list[Message]:
        """Messages from `offset` on within both limits, at least one where there is one."""
        taken: list[Message] = []
        total = 0
        start = self.index(offset)
        for message in self.messages[start : start + messages_max]:
            total += len(message.value)
            if taken and total > bytes_max:
                break
            taken.append(message)
        return taken
