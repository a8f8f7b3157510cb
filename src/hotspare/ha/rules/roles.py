"""The roles of an engine in its group, and the one table of transitions between them (SPEC C1-C4, 2.1, 2.2)."""

from __future__ import annotations

from enum import Enum

from hotspare.base.errors import StateError


class Role(Enum):
    JOINING = "joining"
    """The engine is joining, and its state is incomplete."""
    WARMING = "warming"
    """The engine makes its state from recent input, and nothing proves the state yet: it computes, but is not eligible."""
    STANDBY = "standby"
    PROMOTING = "promoting"
    ACTIVE = "active"
    DIVERGED = "diverged"
    """Final: the engine's outputs differ from the group's."""
    STOPPED = "stopped"
    """Final: the engine was requested to stop, hangs, or was refused something that it needs."""


PARTICIPATING = (Role.STANDBY.value, Role.PROMOTING.value, Role.ACTIVE.value)
"""The roles, as texts of a member record, of an engine with a complete state that takes part: it can write snapshots, and be
active."""


class Step(Enum):
    """The steps of a promotion; their order is part of the protocol and may not be changed without its model."""

    NONE = "none"
    WON = "won"
    """The engine has won the epoch in coordination; the bus does not know the epoch yet."""
    FENCED = "fenced"
    """The bus accepts no commit of an older epoch any more."""
    READ = "read"
    """The engine has read all that older epochs committed."""
    CHECKED = "checked"
    """The engine has read the coordination epoch again, after fencing."""


class Reason(Enum):
    """The reasons of actions; a closed list, used in transitions, actions, events and status alike."""

    STATE_COMPLETE = "state complete"
    RECENT_INPUT = "rebuilds its state from recent input"
    MATCHED = "its outputs match the committed ones"
    STOP_ASKED = "stop requested"
    # why the role is free
    NEVER_HELD = "never held"
    OWN_EPOCH = "own epoch of an earlier run"
    LEASE_OVER = "lease over"
    PROCESS_ENDED = "process ended"
    CONNECTION_CLOSED = "connection closed"
    NAMED_SUCCESSOR = "named as successor"
    GIVEN_UP = "given up"
    SPARES_AGREE = "two spares agree against the active engine"
    NOBODY_ELSE = "no other engine can, although its own outputs differ"
    # how a promotion continues
    PROMOTED = "promoted"
    NEWER_EPOCH = "newer epoch"
    FENCED = "fenced"
    UNKNOWN_RESULT = "unknown commit result"
    # ends and hand-overs
    SWITCHOVER = "switch-over requested"
    DIFFERS = "outputs differ from those committed"
    REFUSED = "refused"
    PIPELINE_STALLED = "input is pending and the runner does not deliver it"
    STATE_VOID = "its state lacks a decision of the group about a hung call"
    # routine
    TIMER = "timer"
    UNKNOWN_LEADER = "leader not known"
    IDLE_PARTITION = "idle partition holds up the merge"


VACANT = (
    Reason.NEVER_HELD,
    Reason.OWN_EPOCH,
    Reason.LEASE_OVER,
    Reason.PROCESS_ENDED,
    Reason.CONNECTION_CLOSED,
    Reason.NAMED_SUCCESSOR,
    Reason.GIVEN_UP,
    Reason.SPARES_AGREE,
    Reason.NOBODY_ELSE,
)
"""The reasons to campaign: why the role is free."""

ROLE_TRANSITIONS: frozenset[tuple[Role, Role, Reason]] = frozenset(
    [
        (Role.JOINING, Role.STANDBY, Reason.STATE_COMPLETE),
        (Role.JOINING, Role.WARMING, Reason.RECENT_INPUT),
        (Role.JOINING, Role.STOPPED, Reason.STOP_ASKED),
        (Role.JOINING, Role.STOPPED, Reason.REFUSED),
        (Role.WARMING, Role.STANDBY, Reason.MATCHED),
        (Role.WARMING, Role.STOPPED, Reason.STOP_ASKED),
        (Role.WARMING, Role.STOPPED, Reason.REFUSED),
        (Role.WARMING, Role.STOPPED, Reason.PIPELINE_STALLED),
        (Role.WARMING, Role.STOPPED, Reason.STATE_VOID),
        *((Role.STANDBY, Role.PROMOTING, reason) for reason in VACANT),
        (Role.STANDBY, Role.DIVERGED, Reason.DIFFERS),
        (Role.STANDBY, Role.STOPPED, Reason.STOP_ASKED),
        (Role.STANDBY, Role.STOPPED, Reason.REFUSED),
        (Role.STANDBY, Role.STOPPED, Reason.PIPELINE_STALLED),
        (Role.STANDBY, Role.STOPPED, Reason.STATE_VOID),
        (Role.PROMOTING, Role.ACTIVE, Reason.PROMOTED),
        (Role.PROMOTING, Role.STANDBY, Reason.NEWER_EPOCH),
        (Role.PROMOTING, Role.STANDBY, Reason.STOP_ASKED),
        (Role.PROMOTING, Role.DIVERGED, Reason.DIFFERS),
        (Role.PROMOTING, Role.STOPPED, Reason.REFUSED),
        (Role.PROMOTING, Role.STOPPED, Reason.PIPELINE_STALLED),
        (Role.PROMOTING, Role.STOPPED, Reason.STATE_VOID),
        (Role.ACTIVE, Role.PROMOTING, Reason.FENCED),
        (Role.ACTIVE, Role.PROMOTING, Reason.UNKNOWN_RESULT),
        (Role.ACTIVE, Role.STANDBY, Reason.NEWER_EPOCH),
        (Role.ACTIVE, Role.STANDBY, Reason.SWITCHOVER),
        (Role.ACTIVE, Role.STANDBY, Reason.STOP_ASKED),
        (Role.ACTIVE, Role.DIVERGED, Reason.DIFFERS),
        (Role.ACTIVE, Role.STOPPED, Reason.REFUSED),
        (Role.ACTIVE, Role.STOPPED, Reason.PIPELINE_STALLED),
        (Role.ACTIVE, Role.STOPPED, Reason.STATE_VOID),
    ]
)
"""Every permitted (role, next role, reason). DIVERGED and STOPPED are final: a restarted engine begins as JOINING, eligible like
any other (SPEC Z1)."""

ENDS = frozenset({Role.DIVERGED, Role.STOPPED})


def checked_transition(role: Role, to: Role, reason: Reason) -> Role:
    """Returns `to` if ROLE_TRANSITIONS permits the transition. Raises StateError otherwise, which only a bug in this package can
    cause."""
    if (role, to, reason) not in ROLE_TRANSITIONS:
        raise StateError(f"invalid move of an engine from {role.value} to {to.value}: {reason.value}")
    return to
