"""When a cold spare is needed (SPEC C13, Z18): the role is free, and no running engine takes it. Pure.

A hot spare takes a free role within a lease, and its lease is fresh from its campaign on. So a role that stays free under one epoch
for a whole lease has no hot spare to take it. An error costs work only: a cold spare that starts too early is a hot one.
"""

from __future__ import annotations

from dataclasses import dataclass

from hotspare.coordination.contract import Leader


@dataclass(frozen=True, slots=True)
class FreeRole:
    """The time since which, by this process's clock, the role has been seen free under `epoch`."""

    epoch: int
    since_ms: int


def updated_free_role(before: FreeRole | None, leader: Leader, now_ms: int) -> FreeRole | None:
    """Returns the vacancy after another reading of the leader.

    None while an engine holds the role, or if none ever did: a group begins with its hot engines.
    """
    if not leader.epoch or (leader.holder and leader.lease_left_ms > 0):
        return None
    return before if before is not None and before.epoch == leader.epoch else FreeRole(leader.epoch, now_ms)


def is_needed(vacancy: FreeRole | None, now_ms: int, lease_ms: int) -> bool:
    return vacancy is not None and now_ms - vacancy.since_ms >= lease_ms
