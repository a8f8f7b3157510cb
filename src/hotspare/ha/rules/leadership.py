"""Updates an engine's picture of the role after an answer of coordination."""

from __future__ import annotations

from dataclasses import replace

from hotspare.coordination.contract import Leader
from hotspare.ha.rules.facts import Leadership
from hotspare.ha.rules.roles import Reason


def after_reading(known: Leadership, leader: Leader, now_ms: int) -> Leadership:
    """Returns the facts after `leader` was read. The times since which its epoch is held, or released, are those of the first read
    that showed it."""
    now = replace(known, leader=leader, leader_read_ms=now_ms)
    if known.leader_epoch != leader.epoch:
        now = replace(now, leader_epoch=leader.epoch, leader_since_ms=now_ms)
    if leader.holder == "" and known.free_epoch != leader.epoch:
        now = replace(now, free_epoch=leader.epoch, free_since_ms=now_ms)
    return now


def is_other_holder(known: Leader | None, leader: Leader) -> bool:
    """Whether `leader` has another holder or epoch than `known`, so that its connection has to be watched."""
    return known is None or (known.epoch, known.holder) != (leader.epoch, leader.holder)


def after_winning(known: Leadership, engine: str) -> Leadership:
    """Returns the facts after this engine won an epoch, with its predecessor. The predecessor may hold the bus's lock until the end
    of its lease, as it was when last read."""
    before = known.leader
    left_ms = before.lease_left_ms if before is not None else 0
    return replace(
        known,
        predecessor=before if before is not None and before.holder not in ("", engine) else None,
        predecessor_lease_end_ms=known.leader_read_ms + left_ms,
        vacancy=None,
        switchover=None,
    )


def may_overrule(reason: Reason) -> bool:
    """Whether an engine that campaigns for this reason continues after what is committed although its own outputs differ."""
    return reason in (Reason.SPARES_AGREE, Reason.NOBODY_ELSE)
