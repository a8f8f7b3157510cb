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
"""An engine whose commits all fail loses its lease after the time of this many promotion steps."""


def may_keep_lease_in_step(now_ms: int, since_ms: int, settings: GroupSettings) -> bool:
    """Whether a step of a promotion, or a commit, that began at `since_ms` keeps the lease, even if it takes longer than the lease.

    A successor would face the same work, and neither would ever finish. A step that hangs loses the lease after
    `promotion_step_ms`.
    """
    return now_ms < since_ms + settings.promotion_step_ms


def may_keep_lease_without_commits(now_ms: int, fruitless_since_ms: int | None, settings: GroupSettings) -> bool:
    """Whether an active engine whose commits all fail, each followed by a fence, still keeps its lease.

    After the time of FRUITLESS_STEPS promotion steps a spare may try, since it may reach servers that this engine does not. Without
    a spare, this engine continues.
    """
    return fruitless_since_ms is None or now_ms < fruitless_since_ms + FRUITLESS_STEPS * settings.promotion_step_ms


def may_outlast_lease(action: do.HaAction) -> bool:
    """Whether an action may take longer than the lease; if so, the lease is renewed meanwhile."""
    return isinstance(action, LONG_STEPS + COMMITS)


def may_renew_meanwhile(now_ms: int, since_ms: int, fruitless_since_ms: int | None, settings: GroupSettings) -> bool:
    """Whether the lease is still renewed while such an action is under way.

    A commit also needs some answer of the bus: a commit without an answer is then slow, and would be slow for any engine.
    """
    return may_keep_lease_in_step(now_ms, since_ms, settings) and may_keep_lease_without_commits(
        now_ms, fruitless_since_ms, settings
    )


def promotion_lease_duties(view: View) -> Iterator[Duty]:
    settings, lease = view.settings, view.lease
    if may_renew_meanwhile(view.now_ms, view.role_state.step_ms, lease.fruitless_since_ms, settings):
        yield Duty(max(lease.renewed_ms + settings.renew_interval_ms, view.contacts.coordination_retry_ms), do.Renew())


def backlog_lease_duties(view: View, owed: DueTimes) -> Iterator[Duty]:
    """Yields a renewal once half of the lease is over, although outputs are pending: a successor would have the same backlog."""
    if owed.publish_ms is not None:
        half_over_ms = view.lease.renewed_ms + view.settings.lease_ms // 2
        for duty in lease_duties(view, owed):
            yield Duty(max(duty.due_ms, half_over_ms), duty.action)


def lease_duties(view: View, owed: DueTimes) -> Iterator[Duty]:
    """Yields the next renewal if a batch or outputs of a backlog passed since the last one; otherwise the next reading of the
    leader.

    A living thread does not keep the lease.
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
