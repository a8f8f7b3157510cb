"""The events that a group reports to its host: a closed list, for logs, metrics and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class HaEventKind(Enum):
    STARTED = "started"
    """The engine joined with a complete state; the sentence names the snapshot, if it was restored from one."""
    SNAPSHOT_UNUSABLE = "snapshot unusable"
    ROLE_CHANGED = "role changed"
    ACTED = "acted"
    """An action other than routine ones; the sentence names it and its reason."""
    PROMOTED = "promoted"
    """The first output after a promotion is committed; numbers: the milliseconds of each stage, and in total since the vacancy was
    noticed."""
    FENCED = "fenced"
    RESULT_UNKNOWN = "result unknown"
    DIFFERENCE_SEEN = "difference seen"
    PROGRESS_REBUILT = "progress rebuilt"
    SNAPSHOT_WRITTEN = "snapshot written"
    SNAPSHOT_CONFIRMED = "snapshot confirmed"
    SNAPSHOT_FAILED = "snapshot failed"
    MEMBERS_CHANGED = "members changed"
    """Engines joined or left (SPEC C10)."""
    NAMESAKE_AWAITED = "namesake awaited"
    """Before it joins, an engine waits to see whether another one of its name still gives word."""
    MEMBER_UNLIKE = "member unlike"
    """Another engine runs other versions or another processor; its outputs are compared all the same."""
    COORDINATION_CHANGED = "coordination changed"
    COORDINATION_LATE = "coordination late"
    """A call to coordination failed; it is not known yet whether the failures continue."""
    BUS_TROUBLE = "bus trouble"
    LOCK_HOLDER_ENDED = "lock holder ended"
    """A process that was stopped while it held the bus's lock is ended."""
    QUALITY_CHANGED = "quality changed"
    """Another quality of service of a stream applies from now on, or an invalid one was ignored."""
    PROJECTS_CHANGED = "projects changed"
    """A decision about another project of the group."""
    OUTPUTS_LOST = "outputs lost"
    """A new active no longer held outputs that were not committed, as the stream's quality allows; numbers: their count."""
    OUTPUT_TOO_LARGE = "output too large"
    """A stream waits because its next output is larger than its topic accepts, or continues after that."""
    OUTPUTS_SPILLED = "outputs spilled"
    MEMBERS_UNKNOWN = "members unknown"
    """Events of a source window have members that are ignored; once per window."""
    WARMED = "warmed"
    """Progress of an engine whose state is made from recent input."""


@dataclass(frozen=True, slots=True)
class HaEvent:
    """A reported event. The names of `numbers` contain their units."""

    kind: HaEventKind
    group: str
    engine: str
    sentence: str
    numbers: Mapping[str, int] = field(default_factory=dict)
