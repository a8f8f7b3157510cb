"""The effect of open transactions on readers: progress is read up to the first open transaction of its partition.

A producer begins a transaction with its first record. It remains open if the result of its end is unknown, or if its process dies
before ending it. It ends when its commit arrives after all, or another producer of the same id fences. Until then later records
that other ids committed to the same partition are hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hotspare.bus.contract import Progress
from hotspare.bus.memory import BusFaults, Fencing, LandedCommit, MemoryBus
from hotspare.bus.naming import own_partition

_KEPT = 8
"""Commits kept per group from before a transaction that later turns out to be open."""


@dataclass(frozen=True)
class _Transaction:
    """`place`: that of its first record among all. It is open until another producer of the group fences."""

    place: int
    generation: int


def progress_partition(group: str) -> int:
    """Returns the partition of the progress topic for a group's records: that of its shard."""
    return own_partition(group)


@dataclass
class OpenTransactions:
    """The open transactions of all producers of a bus."""

    bus: MemoryBus
    open: dict[str, _Transaction] = field(default_factory=dict)
    _committed: dict[str, list[tuple[int, dict[str, Progress]]]] = field(default_factory=dict)
    """The progress of each group after each commit, by the place of the record."""
    _places: int = 0

    def begin(self, group: str) -> None:
        self._places += 2
        self.open[group] = _Transaction(self._places, self.bus.generations.get(group, 0))

    def end(self, group: str) -> None:
        """Removes the transaction: it is aborted, or was never begun."""
        self.open.pop(group, None)

    def left_open(self, group: str) -> None:
        """Leaves a transaction open after its producer died. It began right after the previous one: at the earliest possible
        moment, so that it precedes all that others have committed since."""
        history = self._committed.get(group, [])
        if history and group not in self.open:
            self.open[group] = _Transaction(history[-1][0] + 1, self.bus.generations.get(group, 0))

    def landed(self, group: str) -> None:
        """Records a commit that took place."""
        begun = self.open.pop(group, None)
        place = begun.place if begun is not None else self._places
        history = self._committed.setdefault(group, [])
        if not self.open:
            del history[:-_KEPT]
        history.append((place, dict(self.bus.progress.get(group, {}))))

    def visible(self, group: str) -> dict[str, Progress]:
        """Returns the progress that a reader of a group sees."""
        now = self.bus.progress.get(group, {})
        first = self._first_open(progress_partition(group))
        history = self._committed.get(group, [])
        if first is None or not now:
            return now
        return next((progress for place, progress in reversed(history) if place < first), {})

    def _first_open(self, partition: int) -> int | None:
        if self.bus.fencing is Fencing.BY_EPOCH:
            return None
        places = [
            each.place
            for group, each in self.open.items()
            if progress_partition(group) == partition and each.generation == self.bus.generations.get(group, 0)
        ]
        return min(places, default=None)


class TransactionalBus(MemoryBus):
    """A bus in memory that tracks open transactions."""

    def __init__(
        self, clock: Callable[[], int], faults: BusFaults, fencing: Fencing, landed: Callable[[LandedCommit], None]
    ) -> None:
        def note(commit: LandedCommit) -> None:
            self.transactions.landed(commit.group)
            landed(commit)

        super().__init__(clock, faults, fencing, note)
        self.transactions = OpenTransactions(self)
