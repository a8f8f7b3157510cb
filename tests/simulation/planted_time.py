"""Bugs that only time shows: no output is lost or wrong, but it is late, or something grows, or the role keeps moving."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from hotspare.bus.contract import Progress
from hotspare.ha.effects import perform
from hotspare.ha.group_state import GroupState
from hotspare.ha.outputs.blocks import MessageSizes
from hotspare.ha.outputs.progress_points import ProgressPoints
from hotspare.ha.ports import Ports
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import decide, divergence, lease, publishing, snapshots
from hotspare.ha.rules.commit_budget import CommitBudget
from hotspare.ha.rules.facts import LONG_AGO_MS
from hotspare.ha.rules.roles import Reason, Role
from hotspare.ha.rules.view import View
from hotspare.rows.partition_clock import Belief, PartitionClock
from tests.simulation.faults import FaultKind
from tests.simulation.planting import planted

FOREVER_MS = 1 << 60


def _duties_without(name: str, is_forgotten: Callable[[do.HaAction], bool]) -> Any:
    """Returns a patch of a group of rules that drops some of its duties."""
    right = getattr(decide, name)

    def rest(view: View) -> Iterator[do.Duty]:
        return (duty for duty in right(view) if not is_forgotten(duty.action))

    return patch.object(decide, name, rest)


@planted()
def no_snapshot_is_taken() -> Any:
    """After retention no engine can join."""
    return _duties_without("duties", lambda action: isinstance(action, do.TakeSnapshot))


@planted()
def no_snapshot_is_confirmed() -> Any:
    """Candidates stay candidates."""
    return _duties_without("duties", lambda action: isinstance(action, do.ConfirmSnapshot))


@planted()
def no_ticks() -> Any:
    """Time does not enter the input."""
    return _duties_without("duties", lambda action: isinstance(action, do.Tick))


@planted(FaultKind.RETENTION)
def idle_partitions_wait_for_the_timer() -> Any:
    """An event waits for the timer's next tick if another partition is idle. A calm group shows it."""
    return _duties_without("duties", lambda action: isinstance(action, do.Tick) and action.reason is Reason.IDLE_PARTITION)


@planted()
def the_lease_is_not_renewed() -> Any:
    """The active believes that it renewed the lease."""

    def renew(_: do.Renew, state: GroupState, ports: Ports) -> None:
        state.lease = replace(state.lease, has_progressed=False, renewed_ms=ports.clock_ms())

    return patch.dict(perform.PERFORMERS, {do.Renew: renew})


@planted(FaultKind.WRONG_ACTIVE)
def agreeing_spares_do_not_depose() -> Any:
    """A wrong active keeps the role, whichever spares agree against it."""
    return patch.object(divergence, "has_agreeing_spare", lambda view: False)


@planted(FaultKind.BUS_LOCKED)
def the_frozen_holder_lives() -> Any:
    """A process that keeps the bus locked past its lease is not ended."""
    return _duties_without("duties", lambda action: isinstance(action, do.EndLockHolder))


@planted(FaultKind.ALWAYS_AT_HAND)
def collected_outputs_have_no_deadline() -> Any:
    """Outputs wait while more input is at hand."""
    right = publishing.publish_due_ms

    def publish_due_ms(view: View) -> int | None:
        due_ms = right(view)
        return due_ms if due_ms in (None, LONG_AGO_MS) else FOREVER_MS

    return patch.object(publishing, "publish_due_ms", publish_due_ms)


@planted(FaultKind.VERDICT_CLOSED)
def takeovers_are_not_damped() -> Any:
    """An engine that takes the holder for dead takes over at once, again and again."""
    return patch.object(decide, "_waits_for_lease", lambda view: False)


@planted(FaultKind.SLOW_FENCE)
def a_promotion_does_not_keep_its_lease() -> Any:
    """A fence that takes longer than the lease is overtaken, forever."""
    return patch.object(lease, "may_keep_lease_in_step", lambda now_ms, since_ms, settings: False)


@planted(FaultKind.STEADY_LAG)
def progress_points_are_overwritten() -> Any:
    """A spare that is behind keeps only the newest point to compare with."""
    right = ProgressPoints.add

    def add(self: ProgressPoints, point: Progress) -> None:
        self.clear()
        right(self, point)

    return patch.object(ProgressPoints, "add", add)


@planted(FaultKind.HUNG_SPARE)
def snapshots_are_the_first_spares() -> Any:
    """The spare with the smallest name is to take them, whether it does or not."""

    def snapshot_due_ms(view: View) -> int:
        first = min([view.engine, *(o.engine for o in view.membership.others if o.role == Role.STANDBY.value)])
        mine = view.role_state.role is Role.STANDBY and first == view.engine
        return view.snapshots.snapshot_ms + view.settings.snapshot_interval_ms if mine else FOREVER_MS

    return patch.object(snapshots, "snapshot_due_ms", snapshot_due_ms)


@planted(FaultKind.TIME_LEAP)
def a_leap_in_time_is_believed() -> Any:
    """Every append time is believed at once."""
    right = PartitionClock.__init__

    def begin(self: PartitionClock, skew_max_us: int | None, belief: Belief) -> None:
        right(self, None, belief)

    return patch.object(PartitionClock, "__init__", begin)


@planted(FaultKind.SMALL_MESSAGES)
def messages_are_not_cut() -> Any:
    """A block that the bus refuses is sent again as it is."""
    return patch.object(MessageSizes, "limit", lambda self, topic: None)


@planted(FaultKind.SLOW_COMMITS)
def commits_do_not_shrink() -> Any:
    """A transaction that timed out is tried again as it was."""
    return patch.object(CommitBudget, "record_failure", lambda self, rows, bytes_: None)


@planted(FaultKind.FOREIGN_LOCK)
def who_was_active_is_ended_for_the_lock() -> Any:
    """The previous active is ended instead of the holder of the lock."""
    right = decide._free_the_bus

    def free_the_bus(view: View) -> Iterator[do.Duty]:
        before = view.leadership.predecessor
        ended = do.EndLockHolder(before.process_id, before.process_start) if before is not None else None
        return (do.Duty(duty.due_ms, ended) for duty in right(view) if ended is not None)

    return patch.object(decide, "_free_the_bus", free_the_bus)
