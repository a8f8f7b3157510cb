"""What an engine should do next, from what it knows: pure, so that simulation and engine decide alike (DESIGN section 5).

THEORY OF OPERATION

An engine of a group has a role: it joins, is standby, promotes, is active, and then standby again; `roles.MOVES` is the
whole table. What it knows at one moment is a `View`: its own role, the leader record and when it was read, the others'
descriptions, what is held and what is committed, and the time. `duties` says all that this engine has to do, each with
the time at which it falls due, the most urgent first. The driver performs the first that is due, which has one effect
outside, and asks anew: between two effects an engine may die or sleep, and every rule here holds whatever the others do
meanwhile.

Two things move the role, and neither is trusted with more than it can prove:

  Coordination keeps one record: the epoch, who holds it, and until when his lease runs. It says who *may try*: moving
    the epoch on by compare-and-set is the election. The record may be old when it is read, and a lease can be over by
    any pause of a process.
  The bus decides who *may publish*: a fence ends every older epoch, and each commit is checked against it. So two
    engines may believe to be active for a moment; one of them learns from the bus that it is not. A wrong decision here
    costs time, never an output.

So a standby may campaign on evidence that can be wrong. `vacancy` sorts it: the role was given up or never held; the
holder's process was seen to end, which is certain; its connection closed and cannot be had again, which is not, and so
counts only once per lease (`_waits_for_lease`), or two healthy engines whose connections are cut would take the role from
each other for ever; its lease is over. Who has come farther goes first for a moment (`_campaign_due_ms`), so that the
successor has the least to catch up.

A promotion has one order: won, fenced, read, checked. Fencing before reading makes what is read final. The epoch is asked
for again beside that reading, as both need the fence alone, and the answer is waited for behind it. That it is asked after fencing
matters because a bus lets whoever fences last publish: an engine that won, slept, and fenced late
would have the right under an epoch that is long past. A promotion renews its lease for as long as it comes on
(`comes_on`); one that hangs loses it.

The active engine keeps its lease by what passes through it, a batch or a commit, and never by a thread that still runs:
an engine whose pipeline hangs has to lose the role. Where no input comes, its own ticks do. A commit that takes longer
than the lease keeps it as a step of a promotion does, as long as the bus gives this engine other answers: who is cut
off from the bus loses the role when its lease is over. So does, after a while, who is answered but commits nothing
(`bears_fruit`). One transaction at a time is committed beside the engine, which computes on meanwhile, but not for long
(`await_due_ms`): behind a commit that takes long no batch keeps the lease. When a commit's answer is lost, or the bus
refuses one, the engine does not know what is committed: it promotes once more from the fence, under its epoch if that
still is the newest.

A standby compares its outputs with what is committed. One that differs says so; two that agree with each other against
the active take the role from it, and one alone ends, or stays by `on_divergence`, taking the role only where nobody else
can. Snapshots are the spares' work, in turn (`_snapshot_turn`), and wait until what they stand on is committed.

The rules of the role stand here and nowhere else, and are changed with `protocol.py`, the model of them. What is due to
the outputs (`publish_due_ms`, `progress_due_ms`), and whether a snapshot's outputs are committed, is reckoned where they
are kept and is part of the view.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hotspare.ha.rules import actions as do
from hotspare.ha.rules.roles import ENDS, Reason, Role, Step
from hotspare.ha.rules.settings import GroupSettings, OnDivergence
from hotspare.ha.rules.view import OtherMember, PeerStatus, View

FRUITLESS_STEPS = 2
"""Whose commits fail for as long as so many steps of a promotion may take, keeps the lease no longer."""
LATE_INTERVALS = 3
"""A newest confirmed snapshot that is older than so many intervals shows that those whose turn it is take none."""
STORE_STUCK_MAX = 2
"""So many calls to the store without an answer, and no further one begins until one of them ends."""


@dataclass(frozen=True, slots=True)
class Duty:
    """An action and when it falls due."""

    due_ms: int
    action: do.Action


def decide(view: View) -> tuple[do.Action, ...]:
    """All actions that are due, most urgent first. The first is to be performed and everything decided anew, as its result may
    change the rest."""
    return tuple(duty.action for duty in duties(view) if duty.due_ms <= view.now_ms)


def next_due_ms(view: View) -> int | None:
    """When something falls due, if nothing else happens before; None if nothing ever does."""
    return min((duty.due_ms for duty in duties(view)), default=None)


def read_interval_ms(view: View) -> int:
    """How long there is at least from one read of the bus to the next, where little comes.

    What a spare has not read when the role becomes free, it reads while it campaigns and fences.
    """
    settings = view.settings
    leader = view.leader
    is_spare = view.role is Role.STANDBY and leader is not None and vacancy(view) is None and view.difference is None
    return max(settings.read_interval_ms, settings.spare_interval_ms) if is_spare else settings.read_interval_ms


def duties(view: View) -> Iterator[Duty]:
    """What this engine has to do, most urgent first, each with its time."""
    if view.role in ENDS or view.role is Role.JOINING:
        return
    yield from _give_up_store(view)
    if view.refusal:
        yield Duty(0, do.Leave(Reason.REFUSED, view.refusal))
    elif _is_stalled(view):
        yield Duty(0, do.Leave(Reason.PIPELINE_STALLED))
    elif view.role is Role.STANDBY:
        yield from _standby(view)
    elif view.role is Role.PROMOTING:
        yield from _promoting(view)
    else:
        yield from _active(view)


def vacancy(view: View) -> Reason | None:
    """Why the role is free for this engine, or None while somebody else rightly holds it. `view.leader` must be known."""
    leader = view.leader
    if leader is None:
        return None
    if view.difference is not None:
        return Reason.SPARES_AGREE if _spares_agree(view) else Reason.NOBODY_ELSE if _nobody_else_can(view) else None
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


def _spares_agree(view: View) -> bool:
    """Whether another spare has the very outputs of this one, against those that the present holder committed."""
    leader, difference = view.leader, view.difference
    if leader is None or difference is None or difference.epoch != leader.epoch or leader.holder in ("", view.engine):
        return False
    return any(o.agrees and o.role == Role.STANDBY.value and o.engine != leader.holder for o in view.others)


def _nobody_else_can(view: View) -> bool:
    """Whether a spare that differs is the last that is left: the role is free beyond doubt, and no spare is there that agrees with
    what is committed. A closed connection is no proof of that."""
    leader = view.leader
    if leader is None or view.settings.on_divergence is not OnDivergence.CONTINUE:
        return False
    is_free = leader.epoch == 0 or leader.holder in ("", view.engine) or leader.lease_left_ms <= 0
    able = (Role.STANDBY.value, Role.PROMOTING.value)
    return is_free and not any(o.role in able and not o.differs for o in view.others)


def _outranks(other: OtherMember, view: View) -> bool:
    return other.role == Role.STANDBY.value and (-other.rank, other.engine) < (-view.rank, view.engine)


def _waits_for_lease(view: View) -> bool:
    """Whether a closed connection is no reason to campaign before the lease is over: the holder has had the role for less than one.

    Connections that close for other reasons than the holder's end would move the epoch again and again.
    """
    vacant, leader = view.vacancy, view.leader
    if vacant is None or leader is None or vacant.reason is not Reason.CONNECTION_CLOSED:
        return False
    return vacant.since_ms < view.leader_since_ms + view.settings.lease_ms and leader.lease_left_ms > 0


def _campaign_due_ms(view: View) -> int | None:
    """A better candidate may go first for a short time, a named successor for the lease time; then anyone. None: not yet."""
    vacant, leader = view.vacancy, view.leader
    assert vacant is not None and leader is not None
    if vacant.reason in (Reason.NAMED_SUCCESSOR, Reason.SPARES_AGREE):
        return vacant.since_ms
    if vacant.reason is Reason.NOBODY_ELSE:
        return vacant.since_ms + max(view.settings.divergence_wait_ms, view.settings.lease_ms)
    if _waits_for_lease(view):
        return None
    if vacant.reason is Reason.GIVEN_UP and (leader.successor or view.gave_up_epoch == leader.epoch):
        return view.free_since_ms + view.settings.lease_ms
    outranked = any(_outranks(other, view) for other in view.others)
    return vacant.since_ms + (view.settings.candidate_wait_ms if outranked else 0)


def _standby(view: View) -> Iterator[Duty]:
    if view.stop_asked:
        yield Duty(0, do.Leave(Reason.STOP_ASKED))
        return
    leader = view.leader
    if leader is not None:
        reason = vacancy(view)
        known = view.vacancy
        if (known.reason if known else None) is not reason or (known is not None and known.epoch != leader.epoch):
            yield Duty(0, do.NoteVacancy(leader.epoch, reason))
        elif reason is not None and (due_ms := _campaign_due_ms(view)) is not None:
            yield Duty(max(due_ms, view.coordination_retry_ms), do.Campaign(leader.epoch, reason))
    yield from _lone_difference(view)
    yield from _watch_leader(view)
    yield from _refresh_member(view)
    yield from _check_inbound(view)
    yield from _read_qualities(view)
    yield Duty(max(view.progress_read_ms + view.settings.progress_poll_ms, view.bus_retry_ms), do.ReadProgress())
    yield from _candidates(view)
    yield from _take_snapshot(view)


def _lone_difference(view: View) -> Iterator[Duty]:
    """A spare that differs waits a while for another one that agrees with it, then `on_divergence` decides. One that has yet to
    come to where they differ may agree: until then two right spares behind a wrong active would end one after the other."""
    difference, leader = view.difference, view.leader
    if difference is None or leader is None or difference.epoch != leader.epoch or _spares_agree(view):
        return
    if view.settings.on_divergence is OnDivergence.STOP:
        yield Duty(max(difference.seen_ms, view.awaited_ms) + view.settings.divergence_wait_ms, do.Diverge())


def _watch_leader(view: View) -> Iterator[Duty]:
    leader, poll_ms = view.leader, view.settings.leader_poll_ms
    if leader is None:
        yield Duty(view.coordination_retry_ms, do.ReadLeader(Reason.UNKNOWN_LEADER))
        return
    # at the very end of the lease it is read again, so that a campaign never follows from an old record
    wait_ms = min(poll_ms, leader.lease_left_ms) if leader.lease_left_ms > 0 else poll_ms
    yield Duty(max(view.leader_read_ms + wait_ms, view.coordination_retry_ms), do.ReadLeader(Reason.TIMER))


def _refresh_member(view: View) -> Iterator[Duty]:
    yield Duty(max(view.member_refreshed_ms + view.settings.member_refresh_ms, view.coordination_retry_ms), do.RefreshMember())


def _read_qualities(view: View) -> Iterator[Duty]:
    yield Duty(max(view.qualities_read_ms + view.settings.quality_poll_ms, view.coordination_retry_ms), do.ReadQualities())


def _check_inbound(view: View) -> Iterator[Duty]:
    yield Duty(max(view.inbound_checked_ms + view.settings.inbound_check_ms, view.bus_retry_ms), do.CheckInbound())


def _trim_bus(view: View) -> Iterator[Duty]:
    if view.settings.bus_retention_ms:
        yield Duty(max(view.trimmed_ms + view.settings.trim_interval_ms, view.bus_retry_ms), do.TrimBus())


def _is_stalled(view: View) -> bool:
    """Whether the runner hangs. Who holds the role then loses it by its lease; this ends the process, for another one to begin."""
    return 0 < view.settings.pipeline_stall_ms <= view.stalled_ms


def _give_up_store(view: View) -> Iterator[Duty]:
    if view.store_begun_ms is not None:
        yield Duty(view.store_begun_ms + view.settings.store_wait_ms, do.GiveUpStore())


def _candidates(view: View) -> Iterator[Duty]:
    if view.is_store_marking or view.store_stuck >= STORE_STUCK_MAX:
        return
    for candidate in view.candidates:
        if view.difference is not None:
            yield Duty(0, do.DiscardSnapshot(candidate.name))
        elif candidate.settled:
            yield Duty(candidate.due_ms, do.ConfirmSnapshot(candidate.name))


def _takes_snapshots(other: OtherMember) -> bool:
    return other.role == Role.STANDBY.value and not other.differs


def _snapshot_turn(view: View) -> int:
    """How many engines go before this one in taking snapshots: first the spare that confirmed the newest one, then the others by
    name, then the active, whose work it would delay."""
    spares = [o.engine for o in view.others if _takes_snapshots(o)]
    if view.role is Role.ACTIVE:
        return len(spares)
    return sum((o != view.newest_snapshot_by, o) < (view.engine != view.newest_snapshot_by, view.engine) for o in spares)


def _snapshot_due_ms(view: View) -> int:
    """Whose turn it is takes one each interval; of the others one after the other, when the newest confirmed one gets too old."""
    interval_ms, turn = view.settings.snapshot_interval_ms, _snapshot_turn(view)
    late_ms = view.newest_snapshot_ms + (LATE_INTERVALS + turn - 1) * interval_ms
    return max(view.snapshot_ms + interval_ms, late_ms if turn else view.snapshot_ms)


def _take_snapshot(view: View) -> Iterator[Duty]:
    settings = view.settings
    if (
        settings.snapshot_interval_ms
        and view.has_new_state
        and not view.is_snapshot_running
        and view.store_stuck < STORE_STUCK_MAX
        and view.difference is None
        and len(view.candidates) < settings.candidate_snapshots_max
    ):
        yield Duty(_snapshot_due_ms(view), do.TakeSnapshot())


def _promoting(view: View) -> Iterator[Duty]:
    """Won, fence, then read progress and the epoch again: in this order only. Not before coordination answers, and never faster."""
    leader = view.leader
    if leader is None:
        yield Duty(view.coordination_retry_ms, do.ReadLeader(Reason.UNKNOWN_LEADER))
        return
    if leader.epoch > view.epoch or leader.holder != view.engine:
        yield Duty(0, do.StepDown(Reason.NEWER_EPOCH))
        return
    if view.stop_asked:
        yield Duty(view.coordination_retry_ms, do.GiveUp("", Reason.STOP_ASKED))
        return
    if comes_on(view.now_ms, view.step_ms, view.settings) and bears_fruit(view.now_ms, view.fruitless_since_ms, view.settings):
        yield Duty(max(view.renewed_ms + view.settings.renew_interval_ms, view.coordination_retry_ms), do.Renew())
    yield from _free_the_bus(view)
    yield from _next_step(view)


def comes_on(now_ms: int, since_ms: int, settings: GroupSettings) -> bool:
    """Whether a step of a promotion, or a commit, that began at `since_ms` keeps the lease. It does also where it takes longer than
    the lease: whoever took over would have the same before it, and neither would ever be done. One that hangs loses it."""
    return now_ms < since_ms + settings.promotion_step_ms


def bears_fruit(now_ms: int, fruitless_since_ms: int | None, settings: GroupSettings) -> bool:
    """Whether an engine that commits nothing and only fences again, as each commit's result is unknown, still keeps the lease.
    After a while another one may try, which perhaps reaches what this one does not; where there is none, this one goes on."""
    return fruitless_since_ms is None or now_ms < fruitless_since_ms + FRUITLESS_STEPS * settings.promotion_step_ms


def _next_step(view: View) -> Iterator[Duty]:
    if view.step is Step.WON:
        yield Duty(view.bus_retry_ms, do.Fence(view.epoch))
    elif view.step is Step.FENCED:
        yield Duty(view.bus_retry_ms, do.ReadCommitted())
    elif view.step is Step.READ:
        yield Duty(view.coordination_retry_ms, do.Recheck())
    elif view.committed_ahead:
        yield Duty(0, do.Leave(Reason.REFUSED, view.committed_ahead))
    elif view.difference is not None and not view.overrules:
        yield Duty(0, do.Diverge())
    elif view.step is Step.CHECKED:
        yield Duty(0, do.BecomeActive())


def _free_the_bus(view: View) -> Iterator[Duty]:
    """Who holds the bus's lock for as long as a lease has to go on with it. Of who was active before, the lease itself says so."""
    if view.lock_holder is None:
        return
    before, due_ms = view.predecessor, view.locked_since_ms + view.settings.lease_ms
    if before is not None and view.lock_holder == (before.process_id, before.process_start):
        due_ms = min(due_ms, view.predecessor_lease_end_ms)
    yield Duty(due_ms, do.EndLockHolder(*view.lock_holder))


def _active(view: View) -> Iterator[Duty]:
    settings, leader = view.settings, view.leader
    if leader is not None and (leader.epoch > view.epoch or leader.holder != view.engine):
        yield Duty(0, do.StepDown(Reason.NEWER_EPOCH))
        return
    if view.difference is not None:
        yield Duty(0, do.Diverge())
        return
    yield from _free_the_bus(view)
    yield from _keep_lease_in_backlog(view)
    owed_ms = [due_ms for due_ms in (view.publish_due_ms, view.progress_due_ms) if due_ms is not None]
    if view.await_due_ms is not None:
        yield Duty(view.await_due_ms, do.AwaitCommit())
    elif owed_ms:
        yield Duty(max(min(owed_ms), view.bus_retry_ms), do.Publish())
    else:
        yield from _hand_over(view)
    if view.oversized_retry_ms is not None and view.await_due_ms is None:
        yield Duty(max(view.oversized_retry_ms, view.bus_retry_ms), do.Publish())
    yield from _keep_lease(view)
    yield from _ticks(view)
    yield Duty(max(view.switchover_read_ms + settings.leader_poll_ms, view.coordination_retry_ms), do.ReadSwitchover())
    yield from _refresh_member(view)
    yield from _check_inbound(view)
    yield from _trim_bus(view)
    yield from _read_qualities(view)
    yield from _candidates(view)
    yield from _take_snapshot(view)


def _keep_lease_in_backlog(view: View) -> Iterator[Duty]:
    """Outputs go first, but a long backlog of them must not cost the lease: who takes over has the same backlog."""
    if view.publish_due_ms is not None:
        half_over_ms = view.renewed_ms + view.settings.lease_ms // 2
        for duty in _keep_lease(view):
            yield Duty(max(duty.due_ms, half_over_ms), duty.action)


def _keep_lease(view: View) -> Iterator[Duty]:
    """What passed since the last renewal, a batch or outputs of a backlog, and not a living thread, is what keeps the lease."""
    settings = view.settings
    owes = view.publish_due_ms is not None or view.await_due_ms is not None
    if view.leader is None:
        yield Duty(view.coordination_retry_ms, do.ReadLeader(Reason.UNKNOWN_LEADER))
    elif view.has_moved and not (owes and not bears_fruit(view.now_ms, view.fruitless_since_ms, settings)):
        yield Duty(max(view.renewed_ms + settings.renew_interval_ms, view.coordination_retry_ms), do.Renew())
    else:
        # without renewal somebody else may hold the role by then
        over_ms = max(view.renewed_ms + settings.lease_ms, view.leader_read_ms + settings.leader_poll_ms)
        yield Duty(max(over_ms, view.coordination_retry_ms), do.ReadLeader(Reason.LEASE_OVER))


def _hand_over(view: View) -> Iterator[Duty]:
    """Everything is committed: the role can be given up, if that is asked for and, for a switch-over, if there is a successor."""
    if view.stop_asked:
        yield Duty(view.coordination_retry_ms, do.GiveUp(_best_standby(view), Reason.STOP_ASKED))
    elif view.switchover is not None:
        standbys = [o.engine for o in view.others if o.role == Role.STANDBY.value]
        successor = view.switchover if view.switchover in standbys else _best_standby(view) if view.switchover == "" else ""
        if successor:
            yield Duty(view.coordination_retry_ms, do.GiveUp(successor, Reason.SWITCHOVER))


def _best_standby(view: View) -> str:
    ranked = sorted((-o.rank, o.engine) for o in view.others if o.role == Role.STANDBY.value)
    return ranked[0][1] if ranked else ""


def _ticks(view: View) -> Iterator[Duty]:
    settings = view.settings
    for partition in view.inbound:
        yield Duty(max(partition.ticked_ms + settings.tick_interval_ms, view.bus_retry_ms), do.Tick(partition.index, Reason.TIMER))
        if partition.held_up:
            idle_since_ms = max(partition.arrived_ms, partition.ticked_ms)
            due_ms = max(idle_since_ms + settings.merge_wait_ms, view.bus_retry_ms)
            yield Duty(due_ms, do.Tick(partition.index, Reason.IDLE_PARTITION))
