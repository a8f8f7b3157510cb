"""Decides when a cold spare has to join its group: if the role is free and no running engine takes it (SPEC C13, Z18). Pure.

A hot spare takes a free role within a lease, and begins a new lease when it wins the campaign. So a role that stays free under one
epoch for a whole lease has no hot spare to take it. A wrong decision costs work only: a cold spare that joins too early becomes a
hot one.
"""

from __future__ import annotations

from dataclasses import dataclass

from hotspare.coordination.contract import Leader


@dataclass(frozen=True, slots=True)
class FreeRole:
    """A free role: `since_ms` is when this process first saw the role free under `epoch`, by its own clock."""

    epoch: int
    since_ms: int


def updated_free_role(before: FreeRole | None, leader: Leader, now_ms: int) -> FreeRole | None:
    """Returns the free role after another read of the leader, given the result `before` of the previous read.

    None while an engine holds the role, or if none ever did: a group begins with its hot engines.
    """
    if not leader.epoch or (leader.holder and leader.lease_left_ms > 0):
        return None
    return before if before is not None and before.epoch == leader.epoch else FreeRole(leader.epoch, now_ms)


def is_needed(vacancy: FreeRole | None, now_ms: int, lease_ms: int) -> bool:
    return vacancy is not None and now_ms - vacancy.since_ms >= lease_ms
