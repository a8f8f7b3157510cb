"""What a transaction that stays open hides, on a bus that has them: who reads progress reads committed records up to the first open
one of their partition.

A producer begins a transaction with its first record. It stays open where the answer to its end is unknown, until it ends after
all or another producer of the same id fences. Records that other ids committed behind it to the same partition are hidden so long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hotspare.bus.contract import Progress
from hotspare.bus.memory import BusFaults, Fencing, Landed, MemoryBus
from hotspare.bus.naming import own_partition


@dataclass(frozen=True)
class _Transaction:
    """`place`: of its first record among all. It is open as long as nobody else has fenced since."""

    place: int
    generation: int


def progress_partition(group: str) -> int:
    """To which partition of their topic of progress a group's records go: that of its shard."""
    return own_partition(group)


@dataclass
class OpenTransactions:
    """Of all producers of a bus."""

    bus: MemoryBus
    open: dict[str, _Transaction] = field(default_factory=dict)
    _committed: dict[str, list[tuple[int, dict[str, Progress]]]] = field(default_factory=dict)
    """Of each group, what progress was after each commit, by the place of the record."""
    _places: int = 0

    def begin(self, group: str) -> None:
        self._places += 1
        self.open[group] = _Transaction(self._places, self.bus.generations.get(group, 0))

    def end(self, group: str) -> None:
        """It is aborted, or was never begun."""
        self.open.pop(group, None)

    def landed(self, group: str) -> None:
        """A commit took place."""
        begun = self.open.pop(group, None)
        place = begun.place if begun is not None else self._places
        history = self._committed.setdefault(group, [])
        if not self.open:
            history.clear()
        history.append((place, dict(self.bus.progress.get(group, {}))))

    def visible(self, group: str) -> dict[str, Progress]:
        """The progress that a reader of a group sees."""
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
    """A bus in memory that knows which transactions are open."""

    def __init__(self, clock: Callable[[], int], faults: BusFaults, fencing: Fencing, landed: Callable[[Landed], None]) -> None:
        def note(commit: Landed) -> None:
            self.transactions.landed(commit.group)
            landed(commit)

        super().__init__(clock, faults, fencing, note)
        self.transactions = OpenTransactions(self)
