"""Defines the events and durations that a group reports to its host: closed lists, for logs, metrics and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class HaEventKind(Enum):
    STARTED = "started"
    """The engine has joined; the sentence names the origin of its state, for example a snapshot."""
    SNAPSHOT_UNUSABLE = "snapshot unusable"
    ROLE_CHANGED = "role changed"
    ACTED = "acted"
    """The engine performs an action that is not routine; the sentence names the action and its reason."""
    PROMOTED = "promoted"
    """The first output after a promotion is committed. `numbers` has the milliseconds of each stage, and of all since the vacancy
    was noticed."""
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
    """An engine that joins waits to see whether another process of its name still renews its member record."""
    MEMBER_UNLIKE = "member unlike"
    """Another engine runs other versions or another processor; its outputs are compared all the same."""
    COORDINATION_CHANGED = "coordination changed"
    COORDINATION_LATE = "coordination late"
    """A call to coordination failed; whether the failures continue is not known yet."""
    BUS_TROUBLE = "bus trouble"
    LOCK_HOLDER_ENDED = "lock holder ended"
    """A stopped process that held the bus's lock was ended."""
    QUALITY_CHANGED = "quality changed"
    """Another quality of service of a stream applies from now on, or an invalid one was ignored."""
    PROJECTS_CHANGED = "projects changed"
    """The group's projects changed by a cut-over step."""
    OUTPUTS_LOST = "outputs lost"
    """An engine that became active had released outputs that were not committed, as the stream's quality allows; `numbers` has
    their count."""
    OUTPUT_TOO_LARGE = "output too large"
    """A stream waits because its next output is larger than its topic accepts, or continues after such a wait."""
    OUTPUTS_SPILLED = "outputs spilled"
    HUNG_CALL = "hung call"
    """The engine stops before a call of user code that did not end, or continues after a decision about it."""
    MEMBERS_UNKNOWN = "members unknown"
    """Events of a source window have members that no field has, which are ignored; reported once per window."""
    WARMED = "warmed"
    """An engine that makes its state from recent input has made progress; the sentence names it."""


class HaDuration(Enum):
    """The durations that a group observes for its host: a closed list, for metrics."""

    PART = "part"
    """Computing a part of a batch."""
    COMMIT = "commit"
    """A transaction that succeeded, from its begin until the engine has recorded its result."""


@dataclass(frozen=True, slots=True)
class HaEvent:
    """An event to report. `sentence` is for users; `numbers` holds its values by name, with the unit in the name. `reason`: that of
    a change of role, else ""."""

    kind: HaEventKind
    group: str
    engine: str
    sentence: str
    numbers: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
