"""What keeps an engine's lease, and for how long a step or a commit does that takes longer than it (DESIGN section 5)."""

from __future__ import annotations

from collections.abc import Iterator

from hotspare.ha.rules import actions as do
from hotspare.ha.rules.actions import Duty
from hotspare.ha.rules.publishing import Owed
from hotspare.ha.rules.roles import Reason
from hotspare.ha.rules.settings import GroupSettings
from hotspare.ha.rules.view import View

LONG_STEPS = (do.Fence, do.ReadCommitted)
COMMITS = (do.Publish, do.AwaitCommit)
FRUITLESS_STEPS = 2
"""Whose commits fail for as long as so many steps of a promotion may take, keeps the lease no longer."""


def comes_on(now_ms: int, since_ms: int, settings: GroupSettings) -> bool:
    """Whether a step of a promotion, or a commit, that began at `since_ms` keeps the lease. It does also where it takes longer than
    the lease: whoever took over would have the same before it, and neither would ever be done. One that hangs loses it."""
    return now_ms < since_ms + settings.promotion_step_ms


def bears_fruit(now_ms: int, fruitless_since_ms: int | None, settings: GroupSettings) -> bool:
    """Whether an engine that commits nothing and only fences again, as each commit's result is unknown, still keeps the lease.
    After a while another one may try, which perhaps reaches what this one does not; where there is none, this one goes on."""
    return fruitless_since_ms is None or now_ms < fruitless_since_ms + FRUITLESS_STEPS * settings.promotion_step_ms


def may_outlast(action: do.HaAction) -> bool:
    """Whether an action may take longer than the lease, which is renewed meanwhile then."""
    return isinstance(action, LONG_STEPS + COMMITS)


def keeps_meanwhile(now_ms: int, since_ms: int, fruitless_since_ms: int | None, settings: GroupSettings) -> bool:
    """Whether the lease is still renewed while such an action is under way. A commit needs an answer of the bus besides: then one
    without an answer is slow, and would be elsewhere."""
    return comes_on(now_ms, since_ms, settings) and bears_fruit(now_ms, fruitless_since_ms, settings)


def keep_while_promoting(view: View) -> Iterator[Duty]:
    settings, lease = view.settings, view.lease
    if keeps_meanwhile(view.now_ms, view.standing.step_ms, lease.fruitless_since_ms, settings):
        yield Duty(max(lease.renewed_ms + settings.renew_interval_ms, view.contacts.coordination_retry_ms), do.Renew())


def keep_in_backlog(view: View, owed: Owed) -> Iterator[Duty]:
    """Outputs go first, but a long backlog of them must not cost the lease: who takes over has the same backlog."""
    if owed.publish_ms is not None:
        half_over_ms = view.lease.renewed_ms + view.settings.lease_ms // 2
        for duty in keep(view, owed):
            yield Duty(max(duty.due_ms, half_over_ms), duty.action)


def keep(view: View, owed: Owed) -> Iterator[Duty]:
    """What passed since the last renewal, a batch or outputs of a backlog, and not a living thread, is what keeps the lease."""
    settings, lease, retry_ms = view.settings, view.lease, view.contacts.coordination_retry_ms
    owes = owed.publish_ms is not None or owed.await_ms is not None
    if view.leadership.leader is None:
        yield Duty(retry_ms, do.ReadLeader(Reason.UNKNOWN_LEADER))
    elif lease.has_moved and not (owes and not bears_fruit(view.now_ms, lease.fruitless_since_ms, settings)):
        yield Duty(max(lease.renewed_ms + settings.renew_interval_ms, retry_ms), do.Renew())
    else:
        # without renewal somebody else may hold the role by then
        over_ms = max(lease.renewed_ms + settings.lease_ms, view.leadership.leader_read_ms + settings.leader_poll_ms)
        yield Duty(max(over_ms, retry_ms), do.ReadLeader(Reason.LEASE_OVER))
