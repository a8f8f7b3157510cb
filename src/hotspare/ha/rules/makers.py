"""Which project of a group made what is committed: each change is told with the first commit that follows it.

The progress of a group has, beside that of its streams, a record for each epoch under which another project than before began to
publish: by the name of the epoch, its number in the place of the sequence (`upgrading.Version.number`). It stands in the
transaction that brings the first output, so whoever reads progress knows who made it, however long it slept. A group that was
never upgraded has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from hotspare.bus.contract import Progress
from hotspare.ha.rules.told_number import told_number

_MARK = "~"
Changes: TypeAlias = Sequence[tuple[int, int]]
"""(epoch, number of the project that published under it and those that follow), rising."""


def is_stream(name: str) -> bool:
    """Whether a record of a group's progress is that of a stream."""
    return not name.startswith(_MARK)


def changes_of(progress: Mapping[str, Progress]) -> Changes:
    found = ((told_number(name[1:]), each.sequence) for name, each in progress.items() if not is_stream(name))
    return tuple(sorted((epoch, number) for epoch, number in found if epoch is not None))


def maker(changes: Changes, epoch: int) -> int:
    """The number of the project that published under an epoch."""
    return next((number for began, number in reversed(changes) if began <= epoch), 0)


def newest_epoch(changes: Changes) -> int:
    return changes[-1][0] if changes else 0


def record(changes: Changes, number: int, epoch: int) -> dict[str, Progress]:
    """What an engine of project `number` commits with its first outputs under `epoch`; nothing where it goes on with what its own
    project made."""
    return {} if maker(changes, epoch) == number else {f"{_MARK}{epoch}": Progress(number, None, 0, epoch)}
