"""How an engine that has started catches up with its topics: how far, how fast, how long it still takes (SPEC H8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PartitionKey = tuple[int, int]
TELL_EVERY_MS = 1_000
_SHORT_MS = 2_000
"""Who takes no longer says only that it is done."""
_QUIET_MS = 2_000
"""After so long without a message the last offset of a partition counts as none: a transaction ends with a mark that takes one, and
no reader is given it."""
_MARKS_MAX = 1


@dataclass(slots=True)
class CatchUp:
    """From `begin` to where the topics ended when it began, `ends`, both by (topic index, partition)."""

    begin: Mapping[PartitionKey, int]
    ends: Mapping[PartitionKey, int]
    begun_ms: int
    is_done: bool = False
    _told_ms: int = field(init=False)
    _left: int = field(init=False)
    _moved_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self._told_ms = self._moved_ms = self.begun_ms
        self._left = self.total
        self.is_done = self.total == 0

    @property
    def total(self) -> int:
        """Messages that were there."""
        return sum(self.left({}))

    def left(self, offsets: Mapping[PartitionKey, int]) -> list[int]:
        """Of each partition."""
        return [max(0, end - max(self.begin.get(key, 0), offsets.get(key, 0))) for key, end in self.ends.items()]

    def note(self, offsets: Mapping[PartitionKey, int], now_ms: int) -> tuple[str, dict[str, int]] | None:
        """What is to be told now: a sentence and its numbers; None for nothing."""
        if self.is_done:
            return None
        each = self.left(offsets)
        left, took_ms = sum(each), max(1, now_ms - self.begun_ms)
        per_s = (self.total - left) * 1_000 // took_ms
        if left != self._left:
            self._left, self._moved_ms = left, now_ms
        if not left or (now_ms - self._moved_ms >= _QUIET_MS and max(each) <= _MARKS_MAX):
            self.is_done = True
            return f"caught up: {self.total} messages in {took_ms / 1_000:.1f} s", {"messages": self.total, "per_s": per_s}
        if now_ms - self._told_ms < TELL_EVERY_MS or took_ms < _SHORT_MS:
            return None
        self._told_ms = now_ms
        left_s = -(-left // per_s) if per_s else -1
        told = f"{left_s} s left" if per_s else "it cannot be told how long"
        percent = 100 * (self.total - left) // self.total
        sentence = f"catches up: {percent} % of {self.total} messages, {per_s} in a second, {told}"
        return sentence, {"messages_left": left, "per_s": per_s, "left_s": left_s}
