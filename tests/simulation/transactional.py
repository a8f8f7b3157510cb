"""What a transaction that stays open hides, on a bus that has them: who reads progress reads committed records up to the first open
one of their partition.

A producer begins a transaction with its first record. It stays open where the answer to its end is unknown, or where its process
dies before it ends it, until it ends after all or another producer of the same id fences. Records that other ids committed behind
it to the same partition are hidden so long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hotspare.bus.contract import Progress
from hotspare.bus.memory import BusFaults, Fencing, Landed, MemoryBus
from hotspare.bus.naming import own_partition

_KEPT = 8
"""So many commits of a group are known from before a transaction that is seen to be open afterwards."""


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
        self._places += 2
        self.open[group] = _Transaction(self._places, self.bus.generations.get(group, 0))

    def end(self, group: str) -> None:
        """It is aborted, or was never begun."""
        self.open.pop(group, None)

    def left_open(self, group: str) -> None:
        """Who published for it dies in the middle of a transaction, which it began right after its last one: the earliest moment
        possible, so that it is before what others have committed since."""
        history = self._committed.get(group, [])
        if history and group not in self.open:
            self.open[group] = _Transaction(history[-1][0] + 1, self.bus.generations.get(group, 0))

    def landed(self, group: str) -> None:
        """A commit took place."""
        begun = self.open.pop(group, None)
        place = begun.place if begun is not None else self._places
        history = self._committed.setdefault(group, [])
        if not self.open:
            del history[:-_KEPT]
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
