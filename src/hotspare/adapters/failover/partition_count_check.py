"""Detects that an inbound topic got more partitions after its publisher computed how rows are routed.

An engine adds partitions to a topic that holds no message (`Bus.grow_unused`), and may do so while a publisher waits for its first
row. The publisher would then append rows to partitions in which they do not belong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hotspare.base.errors import UsageError
from hotspare.bus.contract import Bus


class PartitionCountCheck:
    """Checks that `topic` still has as many partitions as the publisher's routing: `partitions`. Threads may share an object."""

    def __init__(self, bus: Bus, topic: str, partitions: int) -> None:
        self._bus, self._topic, self._partitions = bus, topic, partitions
        self._is_final = False

    def append_checked(
        self,
        append: Callable[[], bool],
        pieces: Sequence[Sequence[object]],
        retried: Callable[[Callable[[], None]], None] = lambda check: check(),
    ) -> bool:
        """Calls `append` and returns its result: whether `pieces`, one sequence per partition, are written.

        Checks the count before, and once more after messages are written, since an engine may have added partitions meanwhile.
        After that no engine does, because the topic holds a message. `retried` calls each check.

        Raises UsageError if the topic has another number of partitions, and what `Bus` and `append` raise.
        """
        if self._is_final:
            return append()
        retried(self._check)
        if not append():
            return False
        if any(pieces):
            retried(self._check)
            self._is_final = True
        return True

    def _check(self) -> None:
        found = self._bus.topics().get(self._topic, self._partitions)
        if found != self._partitions:
            raise UsageError(
                f"topic {self._topic} has {found} partitions now, and had {self._partitions} when this publisher started",
                detail="an engine of a project in shards added partitions",
                hint="start the same command again: it continues with the next row and the new number of partitions",
            )
