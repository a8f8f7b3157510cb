"""What a group reports to its host: a closed list, for logs, metrics and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class HaEventKind(Enum):
    STARTED = "started"
    """Joined with a complete state; `restored_from` in the sentence."""
    SNAPSHOT_UNUSABLE = "snapshot unusable"
    ROLE_CHANGED = "role changed"
    ACTED = "acted"
    """An action other than routine ones; the sentence says which and why."""
    PROMOTED = "promoted"
    """First output committed after a promotion; numbers: milliseconds from noticing the vacancy to each stage."""
    FENCED = "fenced"
    RESULT_UNKNOWN = "result unknown"
    DIFFERENCE_SEEN = "difference seen"
    PROGRESS_REBUILT = "progress rebuilt"
    SNAPSHOT_WRITTEN = "snapshot written"
    SNAPSHOT_CONFIRMED = "snapshot confirmed"
    SNAPSHOT_FAILED = "snapshot failed"
    MEMBERS_CHANGED = "members changed"
    """Engines came or went (SPEC C10)."""
    NAMESAKE_AWAITED = "namesake awaited"
    """Before it joins, an engine waits whether another one of its name still gives word."""
    MEMBER_UNLIKE = "member unlike"
    """Another engine runs other versions or another processor; its outputs are compared all the same."""
    COORDINATION_CHANGED = "coordination changed"
    COORDINATION_LATE = "coordination late"
    """A call to coordination failed; nothing yet says that it will go on."""
    BUS_TROUBLE = "bus trouble"
    LOCK_HOLDER_ENDED = "lock holder ended"
    """A process that was stopped with the bus's lock in its hands."""
    QUALITY_CHANGED = "quality changed"
    """Another quality of service of a stream is acted by from now on, or one that makes no sense was passed over."""
    PROJECTS_CHANGED = "projects changed"
    """What was decided about another project of the group."""
    OUTPUTS_LOST = "outputs lost"
    """A new active no longer held outputs that were not committed, as the stream's quality allows; numbers: how many."""
    OUTPUT_TOO_LARGE = "output too large"
    """A stream waits because its next output is larger than its topic takes, or goes on after that."""
    OUTPUTS_SPILLED = "outputs spilled"
    MEMBERS_UNKNOWN = "members unknown"
    """Events of a source window have members that are ignored; once per window."""
    WARMED = "warmed"
    """How an engine comes on whose state is made from recent input."""


@dataclass(frozen=True, slots=True)
class HaEvent:
    """`numbers` have their unit in their names."""

    kind: HaEventKind
    group: str
    engine: str
    sentence: str
    numbers: Mapping[str, int] = field(default_factory=dict)
