"""Records which project of a group made what is committed: each change is committed with the first outputs after it.

Next to the progress of its streams, a group has a record for each epoch under which another project than before began to publish.
Its name contains the epoch, and its sequence is the number of the project (`upgrading.ProjectVersion`). It is part of the
transaction with the first output, so every reader of progress knows which project made it, even after a long sleep. A group that
was never upgraded has no such record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from hotspare.bus.contract import Progress
from hotspare.ha.rules.parsed_number import parsed_number

_CHANGE_PREFIX = "~"
DECISION_PREFIX = "!"
"""The prefix of the names of records with decisions about hung calls (`hung_calls`)."""
Changes: TypeAlias = Sequence[tuple[int, int]]
"""Pairs (epoch, number of the project that publishes from that epoch on), by rising epoch."""


def is_stream_record(name: str) -> bool:
    """Whether a record among a group's progress is that of a stream, and neither of a project change nor a decision."""
    return not name.startswith((_CHANGE_PREFIX, DECISION_PREFIX))


def parsed_changes(progress: Mapping[str, Progress]) -> Changes:
    found = ((parsed_number(name[1:]), each.sequence) for name, each in progress.items() if name.startswith(_CHANGE_PREFIX))
    return tuple(sorted((epoch, number) for epoch, number in found if epoch is not None))


def project_at_epoch(changes: Changes, epoch: int) -> int:
    """Returns the number of the project that published under `epoch`; 0, the first project, before any change."""
    return next((number for began, number in reversed(changes) if began <= epoch), 0)


def newest_change_epoch(changes: Changes) -> int:
    return changes[-1][0] if changes else 0


def change_record(changes: Changes, number: int, epoch: int) -> dict[str, Progress]:
    """Returns the record that project `number` commits with its first outputs under `epoch`; empty if the newest change already
    names that project."""
    return {} if project_at_epoch(changes, epoch) == number else {f"{_CHANGE_PREFIX}{epoch}": Progress(number, None, 0, epoch)}
