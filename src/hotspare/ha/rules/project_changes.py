"""Which project of a group made what is committed: each change is recorded with the first commit that follows it.

Next to the progress of its streams, a group has a record for each epoch under which another project than before began to publish.
Its name is the epoch's, and its sequence is the project's number (`upgrading.ProjectVersion.number`). It is part of the transaction
with the first output, so every reader of progress knows which project made it, however long the reader slept. A group that was
never upgraded has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from hotspare.bus.contract import Progress
from hotspare.ha.rules.parsed_number import parsed_number

_CHANGE_PREFIX = "~"
Changes: TypeAlias = Sequence[tuple[int, int]]
"""Pairs (epoch, number of the project that published under it and those that follow), rising."""


def is_stream_record(name: str) -> bool:
    """Whether a record of a group's progress is that of a stream."""
    return not name.startswith(_CHANGE_PREFIX)


def parsed_changes(progress: Mapping[str, Progress]) -> Changes:
    found = ((parsed_number(name[1:]), each.sequence) for name, each in progress.items() if not is_stream_record(name))
    return tuple(sorted((epoch, number) for epoch, number in found if epoch is not None))


def project_at_epoch(changes: Changes, epoch: int) -> int:
    """Returns the number of the project that published under an epoch."""
    return next((number for began, number in reversed(changes) if began <= epoch), 0)


def newest_change_epoch(changes: Changes) -> int:
    return changes[-1][0] if changes else 0


def change_record(changes: Changes, number: int, epoch: int) -> dict[str, Progress]:
    """Returns the record that project `number` commits with its first outputs under `epoch`; empty if it published before, too."""
    return {} if project_at_epoch(changes, epoch) == number else {f"{_CHANGE_PREFIX}{epoch}": Progress(number, None, 0, epoch)}
