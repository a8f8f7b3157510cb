"""Decides what an engine does next from what it knows: pure, so that simulation and engine decide alike.

THEORY OF OPERATION

An engine of a group has a role: it joins, is standby, promotes, is active, and then standby again. `roles.ROLE_TRANSITIONS` is the
whole table. What it knows at one moment is a `View`: its role, the leader record, the others' descriptions, what is held and
committed, and the time. `duties` yields all that this engine has to do, each with the time at which it falls due, the most urgent
first. The HA loop performs the first that is due, which has one effect outside, and decides again. Between two effects an engine
may die or sleep, and every rule here holds whatever the others do meanwhile.

Two services move the role, and neither is trusted with more than it can prove:

  Coordination keeps one record: the epoch, its holder, and the end of the holder's lease. It decides which engine *may try*:
    moving the epoch on by compare-and-set is the election. The record may be old when it is read, and any pause of a process
    can outlast a lease.
  The bus decides which engine *may publish*: a fence ends every older epoch, and each commit is checked against it. So two
    engines may believe to be active for a moment; one of them learns from the bus that it is not. A wrong decision here
    costs time, never an output.

So a standby may campaign on evidence that can be wrong. `vacancy` sorts it:

  - The role was released or never held.
  - The holder's process was seen to end, which is certain.
  - The holder's connection closed and cannot be re-established, which is not certain. It counts only once per lease
    (`_waits_for_lease`): otherwise two healthy engines whose connections are cut would take the role from each other for ever.
  - The holder's lease is over.

The standby that is farthest ahead goes first for a moment (`is_outranked`): that successor has the least to catch up.

A promotion has one order: won, fenced, read, checked. Fencing before reading makes what is read final. The epoch is requested again
concurrently with that reading, as both need only the fence, and the answer is awaited after it. The request has to follow the fence
because a bus lets the last engine that fences publish. An engine that won, slept, and fenced late would have the right under an
outdated epoch. A promotion renews its lease while its steps advance (`lease.may_keep_lease_in_step`); one that hangs loses it.

The active engine keeps its lease by what passes through it, a batch or a commit, and never by a thread that still runs. An engine
whose pipeline hangs has to lose the role. Without input, its own ticks keep the lease. A commit that takes longer than the lease
keeps it as a step of a promotion does, while the bus gives this engine other answers. An engine cut off from the bus loses the role
when its lease is over. An engine that is answered but commits nothing loses it after a while
(`lease.may_keep_lease_without_commits`). One transaction at a time is committed while the engine computes on, but not for long
(`publishing.await_due_ms`): behind a slow commit no batch keeps the lease. When a commit's answer is lost, or the bus refuses one,
the engine does not know what is committed. It promotes once more from the fence, under its epoch if that still is the newest.

A standby compares its outputs with what is committed. One that differs reports it. Two that agree with each other against the
active take the role from it. A single one ends, or stays by `on_divergence` and takes the role only if no other engine can. The
spares take snapshots in turn (`snapshots.snapshot_due_ms`); a snapshot waits until the outputs before it are committed.

The rules of failover are in this folder and nowhere else, and are changed together with their model, which is kept outside this
repository (`docs/simulation.md`). This module has those of the role; `lease`, `publishing`, `snapshots` and `divergence` have
those of their subjects.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotspare.base.inbound_role import InboundRole
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import divergence, hung_calls, lease, persisting, publishing, snapshots, two_projects, warming
from hotspare.ha.rules.actions import Duty
from hotspare.ha.rules.facts import OtherMember
from hotspare.ha.rules.roles import ENDS, Reason, Role, Step
from hotspare.ha.rules.view import PeerStatus, View


def decide(view: View) -> tuple[do.HaAction, ...]:
    """Returns all due actions, most urgent first. Callers perform only the first before they decide again, because its result may
    change the rest."""
    return tuple(duty.action for duty in duties(view) if duty.due_ms <= view.now_ms)


def next_due_ms(view: View) -> int | None:
    """Returns the time at which the next duty falls due if nothing else happens before; None without any duty."""
    return min((duty.due_ms for duty in duties(view)), default=None)


def read_interval_ms(view: View) -> int:
    """Returns the minimum time between two reads of the bus while little input arrives.

    A spare may read less often: it reads the pending input while it campaigns and fences.
    """
    settings = view.settings
    leader = view.leadership.leader
    is_spare = view.role_state.role is Role.STANDBY and leader is not None and vacancy(view) is None and view.difference is None
    return max(settings.read_interval_ms, settings.spare_interval_ms) if is_spare else settings.read_interval_ms


def duties(view: View) -> Iterator[Duty]:
    """Yields this engine's duties with their due times, most urgent first."""
    if view.role_state.role in ENDS or view.role_state.role is Role.JOINING:
        return
    yield from snapshots.store_timeout_duties(view)
    if view.role_state.refusal:
        yield Duty(0, do.Leave(Reason.REFUSED, view.role_state.refusal))
    elif _is_stalled(view):
        yield Duty(0, do.Leave(Reason.PIPELINE_STALLED))
    elif void := hung_calls.void_reason(view):
        yield Duty(0, do.Leave(Reason.STATE_VOID, void))
    elif view.role_state.role is Role.STANDBY:
        yield from _standby(view)
    elif view.role_state.role is Role.WARMING:
        yield from _warming(view)
    elif view.role_state.role is Role.PROMOTING:
        yield from _promoting(view)
    else:
        yield from _active(view)


def vacancy(view: View) -> Reason | None:
    """Returns the reason for which this engine may regard the role as free; None while another engine rightly holds it, or the
    leader is unknown."""
    leader = view.leadership.leader
    if leader is None:
        return None
    if view.difference is not None:
        if divergence.has_agreeing_spare(view):
            return Reason.SPARES_AGREE
        return Reason.NOBODY_ELSE if divergence.is_last_candidate(view) else None
    if leader.epoch == 0:
        return Reason.NEVER_HELD
    if leader.holder == "":
        return Reason.NAMED_SUCCESSOR if leader.successor == view.engine else Reason.GIVEN_UP
    if leader.holder == view.engine:
        return Reason.OWN_EPOCH
    if view.peer is PeerStatus.ENDED:
        return Reason.PROCESS_ENDED
    if view.peer is PeerStatus.CLOSED:
        return Reason.CONNECTION_CLOSED
    return Reason.LEASE_OVER if leader.lease_left_ms <= 0 else None


def _waits_for_lease(view: View) -> bool:
    """Whether a vacancy because of a closed connection has to wait for the end of the lease: this is so within one lease time of
    the holder's start.

    Otherwise connections that close although the holder lives would move the epoch again and again.
    """
    vacant, leader = view.leadership.vacancy, view.leadership.leader
    if vacant is None or leader is None or vacant.reason is not Reason.CONNECTION_CLOSED:
        return False
    return vacant.since_ms < view.leadership.leader_since_ms + view.settings.lease_ms and leader.lease_left_ms > 0


def _campaign_due_ms(view: View) -> int | None:
    """Returns the time at which to campaign for the free role; None: not yet.

    While two projects take part, this engine waits `member_stale_ms` longer if the other project leads and one of its engines is
    alive. If none of these has taken the role by then, each hangs or is cut off.
    """
    if _waits_for_lease(view):
        return None
    return _turn_ms(view) + (view.settings.member_stale_ms if two_projects.is_yielding_to_leading(view) else 0)


def _turn_ms(view: View) -> int:
    """Returns the time of this engine's turn. A better candidate goes first for `candidate_wait_ms`; a named successor, or any
    other engine if this one gave the role up, for `lease_ms`. An engine that differs, and is the last candidate, waits for the
    longer of `divergence_wait_ms` and `lease_ms`.

    A shard that was never held waits for `first_start_wait_ms`, so that engines started together get their shares.
    """
    vacant, leader = view.leadership.vacancy, view.leadership.leader
    assert vacant is not None and leader is not None
    if vacant.reason in (Reason.NAMED_SUCCESSOR, Reason.SPARES_AGREE):
        return vacant.since_ms
    if vacant.reason is Reason.NOBODY_ELSE:
        return vacant.since_ms + max(view.settings.divergence_wait_ms, view.settings.lease_ms)
    if vacant.reason is Reason.GIVEN_UP and (leader.successor or view.role_state.gave_up_epoch == leader.epoch):
        return view.leadership.free_since_ms + view.settings.lease_ms
    if vacant.reason is Reason.NEVER_HELD and not view.shard.is_whole:
        return vacant.since_ms + view.settings.first_start_wait_ms * (2 if _is_anothers_turn(view) else 1)
    return vacant.since_ms + (view.settings.candidate_wait_ms if is_outranked(view) else 0)


def is_outranked(view: View) -> bool:
    """Whether another standby of this engine's project goes before this engine: a standby that is farther ahead, or as far with an
    earlier turn.

    The turn decides only between equals: it neither lengthens a wait for a better candidate nor makes an engine give up a role.
    """
    own = (-view.membership.rank, _place_in_turn(view, view.engine))
    return any((-other.rank, _place_in_turn(view, other.engine)) < own for other in _other_standbys(view))


def _is_anothers_turn(view: View) -> bool:
    """Whether another standby of this engine's project has an earlier turn, regardless of how far each is."""
    own = _place_in_turn(view, view.engine)
    return any(_place_in_turn(view, other.engine) < own for other in _other_standbys(view))


def best_standby(view: View) -> str:
    """Returns the engine to name as successor: the standby that is farthest ahead, of equals the one with the earliest turn; ""
    without any."""
    ranked = sorted((-other.rank, _place_in_turn(view, other.engine), other.engine) for other in _successors(view))
    return ranked[0][2] if ranked else ""


def _successors(view: View) -> list[OtherMember]:
    """Returns the standbys that may be successors: those of the leading project, or, without any, the others of this engine's
    project."""
    standbys = [other for other in view.membership.others if other.role == Role.STANDBY.value]
    leading = [other for other in standbys if other.is_of(view.projects.leading)]
    return leading or _other_standbys(view)


def _other_standbys(view: View) -> list[OtherMember]:
    return [other for other in two_projects.own_project_engines(view) if other.role == Role.STANDBY.value]


def _place_in_turn(view: View, engine: str) -> int:
    """Returns the index of `engine` in the turn of the standbys and this engine: by name, rotated by the number of the shard.

    Without the rotation the engine with the first name would get all shards of a project.
    """
    names = sorted({view.engine, engine, *(other.engine for other in _other_standbys(view))})
    return (names.index(engine) - view.shard.number) % len(names)


def _standby(view: View) -> Iterator[Duty]:
    if view.role_state.is_stop_requested:
        yield Duty(0, do.Leave(Reason.STOP_ASKED))
        return
    leader = view.leadership.leader
    if leader is not None:
        reason = vacancy(view)
        known = view.leadership.vacancy
        if (known.reason if known else None) is not reason or (known is not None and known.epoch != leader.epoch):
            yield Duty(0, do.RecordVacancy(leader.epoch, reason))
        elif reason is not None and (due_ms := _campaign_due_ms(view)) is not None:
            yield Duty(max(due_ms, view.contacts.coordination_retry_ms), do.Campaign(leader.epoch, reason))
    yield from divergence.divergence_duties(view)
    yield from _watch_leader(view)
    yield from _refresh_member(view)
    yield from _check_inbound(view)
    yield from _read_qualities(view)
    yield from two_projects.project_read_duties(view)
    yield from _ticks(view)
    yield from _read_progress(view)
    yield from _pass_place(view)
    yield from _lift_quarantines(view)
    yield from snapshots.candidate_duties(view)
    yield from persisting.duties(view)
    yield from snapshots.snapshot_duties(view)


def _warming(view: View) -> Iterator[Duty]:
    """Yields the duties of a warming engine: it compares and reports, but performs nothing that needs a complete state."""
    assert view.warming is not None
    difference = view.difference
    if view.role_state.is_stop_requested:
        yield Duty(0, do.Leave(Reason.STOP_ASKED))
    elif view.projects.cut_overs or view.projects.reported_cut_overs or view.projects.changes:
        yield Duty(0, do.Leave(Reason.REFUSED, "the group was or is being upgraded: start the engine without --join recent"))
    elif view.warming.mismatch:
        yield Duty(0, do.Leave(Reason.REFUSED, view.warming.mismatch))
    elif difference is not None:
        what = f"output {difference.sequence} of stream {difference.stream} differs from the committed one"
        yield Duty(0, do.Leave(Reason.REFUSED, f"the state rebuilt from recent input differs from the group's: {what}"))
    elif warming.is_eligible(view.warming, (stream.facts for stream in view.streams.values())):
        yield Duty(0, do.BecomeEligible())
    yield from _watch_leader(view)
    yield from _refresh_member(view)
    yield from _check_inbound(view)
    yield from _read_qualities(view)
    yield from _read_progress(view)


def _watch_leader(view: View) -> Iterator[Duty]:
    leader, poll_ms = view.leadership.leader, view.settings.leader_poll_ms
    if leader is None:
        yield Duty(view.contacts.coordination_retry_ms, do.ReadLeader(Reason.UNKNOWN_LEADER))
        return
    # at the very end of the lease it is read again, so that a campaign never follows from an old record
    wait_ms = min(poll_ms, leader.lease_left_ms) if leader.lease_left_ms > 0 else poll_ms
    yield Duty(max(view.leadership.leader_read_ms + wait_ms, view.contacts.coordination_retry_ms), do.ReadLeader(Reason.TIMER))


def _refresh_member(view: View) -> Iterator[Duty]:
    due_ms = view.last_runs.member_refreshed_ms + view.settings.member_refresh_ms
    yield Duty(max(due_ms, view.contacts.coordination_retry_ms), do.RefreshMember())


def _read_switchover(view: View) -> Iterator[Duty]:
    due_ms = view.last_runs.switchover_read_ms + view.settings.switchover_poll_ms
    yield Duty(max(due_ms, view.contacts.coordination_retry_ms), do.ReadSwitchover())


def _read_qualities(view: View) -> Iterator[Duty]:
    due_ms = view.last_runs.qualities_read_ms + view.settings.quality_poll_ms
    yield Duty(max(due_ms, view.contacts.coordination_retry_ms), do.ReadQualities())


def _read_progress(view: View) -> Iterator[Duty]:
    due_ms = view.last_runs.progress_read_ms + view.settings.progress_poll_ms
    yield Duty(max(due_ms, view.contacts.bus_retry_ms), do.ReadProgress())


def _pass_place(view: View) -> Iterator[Duty]:
    if hung_calls.may_pass(view):
        yield Duty(0, do.PassPlace())


def _lift_quarantines(view: View) -> Iterator[Duty]:
    """An active engine looks for requests while a window is in quarantine; any other drops the places that it chose."""
    if view.role_state.role is not Role.ACTIVE:
        if hung_calls.chosen_lifts(view.hung_calls):
            yield Duty(0, do.LiftQuarantines())
    elif hung_calls.lift_requests(view.hung_calls):
        due_ms = view.last_runs.lifts_read_ms + view.settings.quality_poll_ms
        yield Duty(max(due_ms, view.contacts.coordination_retry_ms), do.LiftQuarantines())


def _check_inbound(view: View) -> Iterator[Duty]:
    due_ms = view.last_runs.inbound_checked_ms + view.settings.inbound_check_ms
    yield Duty(max(due_ms, view.contacts.bus_retry_ms), do.CheckInbound())


def _trim_bus(view: View) -> Iterator[Duty]:
    if view.settings.bus_retention_ms and not view.projects.has_two:  # each notes only what its own project's snapshots need
        due_ms = view.last_runs.trimmed_ms + view.settings.trim_interval_ms
        yield Duty(max(due_ms, view.contacts.bus_retry_ms), do.TrimBus())


def _is_stalled(view: View) -> bool:
    """Whether the runner has not delivered pending input for `pipeline_stall_ms`. Leaving ends the process, so that another one can
    start; an active engine has already lost its lease."""
    return 0 < view.settings.pipeline_stall_ms <= view.intake.stalled_ms


def _promoting(view: View) -> Iterator[Duty]:
    """Yields the next step of a promotion: fence, read progress, read the epoch again, become active. A step waits for the retry
    time of its service."""
    leader = view.leadership.leader
    if leader is None:
        yield Duty(view.contacts.coordination_retry_ms, do.ReadLeader(Reason.UNKNOWN_LEADER))
        return
    if leader.epoch > view.role_state.epoch or leader.holder != view.engine:
        yield Duty(0, do.StepDown(Reason.NEWER_EPOCH))
        return
    if view.role_state.is_stop_requested:
        yield Duty(view.contacts.coordination_retry_ms, do.GiveUp("", Reason.STOP_ASKED))
        return
    yield from lease.promotion_lease_duties(view)
    yield from _free_the_bus(view)
    yield from _next_step(view)


def _next_step(view: View) -> Iterator[Duty]:
    if view.role_state.step is Step.WON:
        yield Duty(view.contacts.bus_retry_ms, do.Fence(view.role_state.epoch))
    elif view.role_state.step is Step.FENCED:
        yield Duty(view.contacts.bus_retry_ms, do.ReadCommitted())
    elif view.role_state.step is Step.READ:
        yield Duty(view.contacts.coordination_retry_ms, do.Recheck())
    elif ahead := divergence.missing_outputs_reason(view):
        yield Duty(0, do.Leave(Reason.REFUSED, ahead))
    elif view.difference is not None and not view.role_state.is_overruling:
        yield Duty(0, do.Diverge())
    elif view.role_state.step is Step.CHECKED:
        yield Duty(0, do.BecomeActive())


def _free_the_bus(view: View) -> Iterator[Duty]:
    """Yields the end of the process that holds the bus's lock, once it has had the time of a lease to resume.

    If that process was this engine's predecessor in the role, it is ended as soon as its lease is over.
    """
    if view.contacts.lock_holder is None:
        return
    since_ms = view.now_ms if view.contacts.locked_since_ms is None else view.contacts.locked_since_ms
    before, due_ms = view.leadership.predecessor, since_ms + view.settings.lease_ms
    if before is not None and view.contacts.lock_holder == (before.process_id, before.process_start):
        due_ms = min(due_ms, view.leadership.predecessor_lease_end_ms)
    yield Duty(due_ms, do.EndLockHolder(*view.contacts.lock_holder))


def _active(view: View) -> Iterator[Duty]:
    leader = view.leadership.leader
    if leader is not None and (leader.epoch > view.role_state.epoch or leader.holder != view.engine):
        yield Duty(0, do.StepDown(Reason.NEWER_EPOCH))
        return
    if view.difference is not None:
        yield Duty(0, do.Diverge())
        return
    if any(stream.facts.is_shift_unknown and not stream.is_behind for stream in view.streams.values()):
        yield Duty(0, do.RenumberOutputs())
    yield from _pass_place(view)
    yield from _free_the_bus(view)
    owed = publishing.due_times(view)
    yield from lease.backlog_lease_duties(view, owed)
    due_ms = [each_ms for each_ms in (owed.publish_ms, owed.progress_ms) if each_ms is not None]
    if owed.await_ms is not None:
        yield Duty(owed.await_ms, do.AwaitCommit())
    elif due_ms:
        yield Duty(max(min(due_ms), view.contacts.bus_retry_ms), do.Publish())
    elif stop := hung_calls.stop_reason(view):
        yield Duty(0, do.Leave(Reason.REFUSED, stop))
    else:
        yield from _hand_over(view)
    if owed.oversized_ms is not None and owed.await_ms is None:
        yield Duty(max(owed.oversized_ms, view.contacts.bus_retry_ms), do.Publish())
    yield from lease.lease_duties(view, owed)
    yield from _ticks(view)
    yield from _read_switchover(view)
    yield from _refresh_member(view)
    yield from _check_inbound(view)
    yield from _trim_bus(view)
    yield from _read_qualities(view)
    yield from _lift_quarantines(view)
    yield from two_projects.project_read_duties(view)
    yield from snapshots.candidate_duties(view)
    yield from persisting.duties(view)
    yield from snapshots.snapshot_duties(view)


def _hand_over(view: View) -> Iterator[Duty]:
    """Yields the release of the role, if a stop or a switch-over is requested. For a switch-over a successor must exist.
    Everything must be committed."""
    if view.role_state.is_stop_requested:
        yield Duty(view.contacts.coordination_retry_ms, do.GiveUp(best_standby(view), Reason.STOP_ASKED))
    elif view.leadership.switchover is not None:
        asked, standbys = view.leadership.switchover, [o.engine for o in _successors(view)]
        successor = asked if asked in standbys else best_standby(view) if asked == "" else ""
        if successor:
            yield Duty(view.contacts.coordination_retry_ms, do.GiveUp(successor, Reason.SWITCHOVER))


def _ticks(view: View) -> Iterator[Duty]:
    settings, is_active = view.settings, view.role_state.role is Role.ACTIVE
    own = ((index, each) for index, each in enumerate(view.inbound) if each.kind is not InboundRole.OUTPUTS)
    for index, partition in own if is_active else two_projects.partitions_for_spare_ticks(view, own):
        yield Duty(max(partition.ticked_ms + settings.tick_interval_ms, view.contacts.bus_retry_ms), do.Tick(index, Reason.TIMER))
        if (partition.topic_index, partition.number) in view.core.blocking_partitions:
            idle_since_ms = max(partition.arrived_ms, partition.ticked_ms)
            due_ms = max(idle_since_ms + settings.merge_wait_ms, view.contacts.bus_retry_ms)
            yield Duty(due_ms, do.Tick(index, Reason.IDLE_PARTITION))
