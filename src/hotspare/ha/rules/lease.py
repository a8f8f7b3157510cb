"""The rules that keep an engine's lease, and limit how long a step or a commit that outlasts it keeps it."""

from __future__ import annotations

from collections.abc import Iterator

from hotspare.ha.rules import actions as do
from hotspare.ha.rules.actions import Duty
from hotspare.ha.rules.publishing import DueTimes
from hotspare.ha.rules.roles import Reason
from hotspare.ha.rules.settings import GroupSettings
from hotspare.ha.rules.view import View

LONG_STEPS = (do.Fence, do.ReadCommitted)
COMMITS = (do.Publish, do.AwaitCommit)
FRUITLESS_STEPS = 2
"""The number of promotion steps after whose time an engine whose commits all fail loses its lease."""


def may_keep_lease_in_step(now_ms: int, since_ms: int, settings: GroupSettings) -> bool:
    """Whether a promotion step or a commit that began at `since_ms` still keeps the lease, although it may take longer than the
    lease.

    A successor would face the same work, and neither would ever finish. After `promotion_step_ms` the step counts as hanging.
    """
    return now_ms < since_ms + settings.promotion_step_ms


def may_keep_lease_without_commits(now_ms: int, fruitless_since_ms: int | None, settings: GroupSettings) -> bool:
    """Whether an active engine whose commits have all failed since `fruitless_since_ms`, each followed by a fence, still keeps its
    lease.

    After the time of FRUITLESS_STEPS promotion steps a spare may try, since it may reach servers that this engine does not. Without
    a spare, this engine continues.
    """
    return fruitless_since_ms is None or now_ms < fruitless_since_ms + FRUITLESS_STEPS * settings.promotion_step_ms


def may_outlast_lease(action: do.HaAction) -> bool:
    """Whether an action may take longer than the lease, so that the lease is renewed while it runs."""
    return isinstance(action, LONG_STEPS + COMMITS)


def may_renew_meanwhile(now_ms: int, since_ms: int, fruitless_since_ms: int | None, settings: GroupSettings) -> bool:
    """Whether the lease is renewed while an action that began at `since_ms` runs.

    For a commit, the caller also requires that the bus gives another answer: then the commit is slow, and would be slow for any
    engine.
    """
    return may_keep_lease_in_step(now_ms, since_ms, settings) and may_keep_lease_without_commits(
        now_ms, fruitless_since_ms, settings
    )


def promotion_lease_duties(view: View) -> Iterator[Duty]:
    settings, lease = view.settings, view.lease
    if may_renew_meanwhile(view.now_ms, view.role_state.step_ms, lease.fruitless_since_ms, settings):
        yield Duty(max(lease.renewed_ms + settings.renew_interval_ms, view.contacts.coordination_retry_ms), do.Renew())


def backlog_lease_duties(view: View, owed: DueTimes) -> Iterator[Duty]:
    """Yields `lease_duties`, but at the earliest when half of the lease is over, while outputs are pending. They precede
    publishing, because a successor would have the same backlog."""
    if owed.publish_ms is not None:
        half_over_ms = view.lease.renewed_ms + view.settings.lease_ms // 2
        for duty in lease_duties(view, owed):
            yield Duty(max(duty.due_ms, half_over_ms), duty.action)


def lease_duties(view: View, owed: DueTimes) -> Iterator[Duty]:
    """Yields the next renewal if a part of a batch was computed or outputs were committed since the last one. Otherwise yields the
    next read of the leader, once the lease is over.

    A thread that merely runs does not keep the lease.
    """
    settings, lease, retry_ms = view.settings, view.lease, view.contacts.coordination_retry_ms
    owes = owed.publish_ms is not None or owed.await_ms is not None
    if view.leadership.leader is None:
        yield Duty(retry_ms, do.ReadLeader(Reason.UNKNOWN_LEADER))
    elif lease.has_progressed and not (
        owes and not may_keep_lease_without_commits(view.now_ms, lease.fruitless_since_ms, settings)
    ):
        yield Duty(max(lease.renewed_ms + settings.renew_interval_ms, retry_ms), do.Renew())
    else:
        # without renewal another engine may hold the role by then
        over_ms = max(lease.renewed_ms + settings.lease_ms, view.leadership.leader_read_ms + settings.leader_poll_ms)
        yield Duty(max(over_ms, retry_ms), do.ReadLeader(Reason.LEASE_OVER))
