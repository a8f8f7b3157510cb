"""Notices that an inbound topic got more partitions after its publisher was told by how many rows are routed.

An engine adds partitions to a topic that holds no message (`Bus.grow_unused`), and may do so while a publisher waits for its first
row. What that would append by the count it knows would be in partitions where rows do not belong.
"""

from __future__ import annotations

from hotspare.base.errors import UsageError
from hotspare.bus.contract import Bus


class TopicCount:
    """`partitions`: how many the publisher knows. Threads may share it."""

    def __init__(self, bus: Bus, topic: str, partitions: int) -> None:
        self._bus, self._topic, self._partitions = bus, topic, partitions
        self._is_final = False

    def check(self) -> None:
        """Comes before each append. Raises UsageError if the topic has another number of partitions, and what `Bus` raises."""
        if self._is_final:
            return
        found = self._bus.topics().get(self._topic, self._partitions)
        if found != self._partitions:
            raise UsageError(
                f"topic {self._topic} has {found} partitions now, {self._partitions} when this publisher began",
                detail="an engine of a project in shards added them",
                hint="start the same command again: it goes on with the next row, and divides rows by the new number",
            )

    def appended(self) -> None:
        """Comes after each append of messages. Checks once more, for an engine may have added partitions meanwhile; afterwards none
        does, because the topic holds a message."""
        self.check()
        self._is_final = True
