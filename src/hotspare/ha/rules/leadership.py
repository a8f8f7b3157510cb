"""Updates an engine's picture of the role after an answer of coordination."""

from __future__ import annotations

from dataclasses import replace

from hotspare.coordination.contract import Leader
from hotspare.ha.rules.facts import Leadership
from hotspare.ha.rules.roles import Reason


def after_reading(known: Leadership, leader: Leader, now_ms: int) -> Leadership:
    """Records a leader that was read. The time since its epoch is held, or released, counts from the first reading."""
    now = replace(known, leader=leader, leader_read_ms=now_ms)
    if known.leader_epoch != leader.epoch:
        now = replace(now, leader_epoch=leader.epoch, leader_since_ms=now_ms)
    if leader.holder == "" and known.free_epoch != leader.epoch:
        now = replace(now, free_epoch=leader.epoch, free_since_ms=now_ms)
    return now


def is_other_holder(known: Leader | None, leader: Leader) -> bool:
    """Whether `leader` is another holder, or the same one under another epoch, so that it is to be watched."""
    return known is None or (known.epoch, known.holder) != (leader.epoch, leader.holder)


def after_winning(known: Leadership, engine: str) -> Leadership:
    """Records a won epoch, and the predecessor: it may still keep the bus locked until the lease ends that it had when last
    read."""
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
    """Whether an engine that campaigns for this reason continues from what is committed although its own outputs differ."""
    return reason in (Reason.SPARES_AGREE, Reason.NOBODY_ELSE)
