"""The part of a project that a group runs: shard k of S works on partition k of every topic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard `number` of `count`, from 0. An undivided project has one shard, and its topics have any number of partitions.

    Raises ValueError unless 0 <= `number` < `count`.
    """

    number: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.count:
            raise ValueError(f"there is no shard {self.number} of {self.count}")

    @property
    def is_whole(self) -> bool:
        """Whether this is the one shard of an undivided project."""
        return self.count == 1

    def __str__(self) -> str:
        return f"shard {self.number} of {self.count}"


WHOLE = Shard()


def shards_of(count: int) -> tuple[Shard, ...]:
    """Returns all shards of a project, in order."""
    return tuple(Shard(number, count) for number in range(count))
