"""Decides when an application takes back its share of the active roles, and which ones. Pure: no clock, no coordination.

A free role goes to an engine that is running then, so an application that was down returns without roles. Once it has been complete
for a while (all its shards have an engine with all its state), it requests one shard at a time. Each role moves by a switch-over,
which loses and duplicates no output and takes some milliseconds. It takes a role only from an application that has at least two
more than itself, so two applications never take from each other in turn. An application that repeatedly fails is never complete for
long enough, and moves no role."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

SWITCHOVER_TIMEOUT_MS = 15_000
"""The longest time for a switch-over; then the request is withdrawn, and the wait begins again."""
ROLES_POLL_MS = 1_000
"""The interval between two reads of the active roles while the application requests roles."""
BALANCED_POLL_MS = 10_000
"""The interval between two reads of the active roles while shares are even."""


@dataclass(frozen=True, slots=True)
class ShardRole:
    """The roles in a shard's group. `active`: the application whose engine is active; "" if none is. `spares`: by application, an
    engine that can become active."""

    active: str = ""
    spares: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoleSharingState:
    """The state of one application's role sharing. `complete_since_ms` is None while the application is not complete;
    `requested_shard` is the shard that it requested at `requested_ms`; the roles are read next at `next_poll_ms`."""

    complete_since_ms: int | None = None
    requested_shard: int | None = None
    requested_ms: int = 0
    next_poll_ms: int = 0


@dataclass(frozen=True, slots=True)
class RequestRole:
    """Requests the role of a shard for this engine."""

    shard: int
    engine: str


@dataclass(frozen=True, slots=True)
class WithdrawRequest:
    """Withdraws the request for the role of a shard."""

    shard: int


class Hosting(Enum):
    """Which shards have an engine with all its state in this application."""

    ALL = "all shards"
    SOME = "not all shards, or some are just moving"


def with_hosting(sharing: RoleSharingState, hosting: Hosting, now_ms: int) -> RoleSharingState:
    """Returns the state after the application reported what it hosts now."""
    if hosting is Hosting.SOME:
        return replace(sharing, complete_since_ms=None)
    return sharing if sharing.complete_since_ms is not None else replace(sharing, complete_since_ms=now_ms)


def is_poll_due(sharing: RoleSharingState, now_ms: int, after_ms: int) -> bool:
    """Whether the roles have to be polled now; `after_ms` is how long the application has to be complete, 0 for never. An
    application that became incomplete polls only until its request is over, and requests no further role."""
    if not after_ms or now_ms < sharing.next_poll_ms:
        return False
    is_due = sharing.complete_since_ms is not None and now_ms - sharing.complete_since_ms >= after_ms
    return is_due or sharing.requested_shard is not None


def after_roles_read(
    sharing: RoleSharingState, own: str, roles: Mapping[int, ShardRole], now_ms: int
) -> tuple[RoleSharingState, RequestRole | WithdrawRequest | None]:
    """Returns the state and the action to take, given the current roles. `own` is the application's name."""
    asked = sharing.requested_shard
    if asked is not None and roles[asked].active == own:
        return replace(sharing, requested_shard=None, next_poll_ms=now_ms), None
    if asked is not None and now_ms - sharing.requested_ms >= SWITCHOVER_TIMEOUT_MS:
        return replace(sharing, requested_shard=None, complete_since_ms=None), WithdrawRequest(asked)
    if asked is not None:
        return replace(sharing, next_poll_ms=now_ms + ROLES_POLL_MS), None
    ask = next_role_request(own, roles)
    if ask is None:
        return replace(sharing, next_poll_ms=now_ms + BALANCED_POLL_MS), None
    return replace(sharing, requested_shard=ask.shard, requested_ms=now_ms, next_poll_ms=now_ms + ROLES_POLL_MS), ask


def next_role_request(own: str, roles: Mapping[int, ShardRole]) -> RequestRole | None:
    """Returns the request for the next role of this application; None if no application has two roles more than it has. Of several
    shards, those preferred by number for this application are first, so that applications that start together do not request the
    same one."""
    count = Counter(role.active for role in roles.values() if role.active)
    applications = sorted({*count, *(spare for role in roles.values() for spare in role.spares)})
    able = [
        (-count[role.active], applications[shard % len(applications)] != own, shard)
        for shard, role in roles.items()
        if own in role.spares and role.active and role.active != own and count[role.active] - count[own] > 1
    ]
    if not able:
        return None
    shard = min(able)[2]
    return RequestRole(shard, roles[shard].spares[own])
