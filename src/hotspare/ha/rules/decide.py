"""What an engine should do next, from what it knows: pure, so that simulation and engine decide alike (DESIGN section 5).

THEORY OF OPERATION

An engine of a group has a role: it joins, is standby, promotes, is active, and then standby again; `roles.MOVES` is the
whole table. What it knows at one moment is a `View`: its own role, the leader record and when it was read, the others'
descriptions, what is held and what is committed, and the time. `duties` says all that this engine has to do, each with
the time at which it falls due, the most urgent first. The cycle performs the first that is due, which has one effect
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
each other for ever; its lease is over. Who has come farther goes first for a moment (`is_outranked`), so that the
successor has the least to catch up.

A promotion has one order: won, fenced, read, checked. Fencing before reading makes what is read final. The epoch is asked
for again beside that reading, as both need the fence alone, and the answer is waited for behind it. That it is asked after fencing
matters because a bus lets whoever fences last publish: an engine that won, slept, and fenced late
would have the right under an epoch that is long past. A promotion renews its lease for as long as it comes on
(`lease.comes_on`); one that hangs loses it.

The active engine keeps its lease by what passes through it, a batch or a commit, and never by a thread that still runs:
an engine whose pipeline hangs has to lose the role. Where no input comes, its own ticks do. A commit that takes longer
than the lease keeps it as a step of a promotion does, as long as the bus gives this engine other answers: who is cut
off from the bus loses the role when its lease is over. So does, after a while, who is answered but commits nothing
(`lease.bears_fruit`). One transaction at a time is committed beside the engine, which computes on meanwhile, but not for long
(`publishing.await_due_ms`): behind a commit that takes long no batch keeps the lease. When a commit's answer is lost, or the bus
refuses one, the engine does not know what is committed: it promotes once more from the fence, under its epoch if that
still is the newest.

A standby compares its outputs with what is committed. One that differs says so; two that agree with each other against
the active take the role from it, and one alone ends, or stays by `on_divergence`, taking the role only where nobody else
can. Snapshots are the spares' work, in turn (`snapshots.snapshot_due_ms`), and wait until what they stand on is committed.

The rules of failover stand in this folder and nowhere else, and are changed with `protocol.py`, the model of them: here those of
the role, in `lease`, `publishing`, `snapshots` and `divergence` those of their subjects.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotspare.base.inbound import Inbound
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import beside, divergence, lease, persisting, publishing, snapshots, warming
from hotspare.ha.rules.actions import Duty
from hotspare.ha.rules.facts import OtherMember
from hotspare.ha.rules.roles import ENDS, Reason, Role, Step
from hotspare.ha.rules.view import PeerStatus, View


def decide(view: View) -> tuple[do.HaAction, ...]:
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
    leader = view.leadership.leader
    is_spare = view.standing.role is Role.STANDBY and leader is not None and vacancy(view) is None and view.difference is None
    return max(settings.read_interval_ms, settings.spare_interval_ms) if is_spare else settings.read_interval_ms


def duties(view: View) -> Iterator[Duty]:
    """What this engine has to do, most urgent first, each with its time."""
    if view.standing.role in ENDS or view.standing.role is Role.JOINING:
        return
    yield from snapshots.give_up_store(view)
    if view.standing.refusal:
        yield Duty(0, do.Leave(Reason.REFUSED, view.standing.refusal))
    elif _is_stalled(view):
        yield Duty(0, do.Leave(Reason.PIPELINE_STALLED))
    elif view.standing.role is Role.STANDBY:
        yield from _standby(view)
    elif view.standing.role is Role.WARMING:
        yield from _warming(view)
    elif view.standing.role is Role.PROMOTING:
        yield from _promoting(view)
    else:
        yield from _active(view)


def vacancy(view: View) -> Reason | None:
    """Why the role is free for this engine, or None while somebody else rightly holds it. The leader must be known."""
    leader = view.leadership.leader
    if leader is None:
        return None
    if view.difference is not None:
        if divergence.spares_agree(view):
            return Reason.SPARES_AGREE
        return Reason.NOBODY_ELSE if divergence.nobody_else_can(view) else None
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
    """Whether a closed connection is no reason to campaign before the lease is over: the holder has had the role for less than one.

    Connections that close for other reasons than the holder's end would move the epoch again and again.
    """
    vacant, leader = view.leadership.vacancy, view.leadership.leader
    if vacant is None or leader is None or vacant.reason is not Reason.CONNECTION_CLOSED:
        return False
    return vacant.since_ms < view.leadership.leader_since_ms + view.settings.lease_ms and leader.lease_left_ms > 0


def _campaign_due_ms(view: View) -> int | None:
    """None: not yet. Of two projects, engines of the one that leads have a time ahead in which one of them would take the role;
    where none does, though they give word, each hangs or is cut off."""
    if _waits_for_lease(view):
        return None
    return _turn_ms(view) + (view.settings.member_stale_ms if beside.lets_others_go_first(view) else 0)


def _turn_ms(view: View) -> int:
    """A better candidate may go first for a short time, a named successor for the lease time; then anyone.

    A shard that nobody ever had waits for engines that start with this one, so that each gets its share."""
    vacant, leader = view.leadership.vacancy, view.leadership.leader
    assert vacant is not None and leader is not None
    if vacant.reason in (Reason.NAMED_SUCCESSOR, Reason.SPARES_AGREE):
        return vacant.since_ms
    if vacant.reason is Reason.NOBODY_ELSE:
        return vacant.since_ms + max(view.settings.divergence_wait_ms, view.settings.lease_ms)
    if vacant.reason is Reason.GIVEN_UP and (leader.successor or view.standing.gave_up_epoch == leader.epoch):
        return view.leadership.free_since_ms + view.settings.lease_ms
    if vacant.reason is Reason.NEVER_HELD and not view.shard.is_whole:
        return vacant.since_ms + view.settings.first_start_wait_ms * (2 if _is_anothers_turn(view) else 1)
    return vacant.since_ms + (view.settings.candidate_wait_ms if is_outranked(view) else 0)


def is_outranked(view: View) -> bool:
    """Whether this engine, a standby, lets another one go first: one that has come farther, so that the least is to be caught up;
    of equals, each in turn. No engine waits longer for a turn than for a better candidate, or gives a role up for it."""
    own = (-view.membership.rank, _place_in_turn(view, view.engine))
    return any((-other.rank, _place_in_turn(view, other.engine)) < own for other in _other_standbys(view))


def _is_anothers_turn(view: View) -> bool:
    """Whether another standby has the first turn, however far each has come."""
    own = _place_in_turn(view, view.engine)
    return any(_place_in_turn(view, other.engine) < own for other in _other_standbys(view))


def best_standby(view: View) -> str:
    """Returns the engine to which this one gives its role; "" if there is none."""
    ranked = sorted((-other.rank, _place_in_turn(view, other.engine), other.engine) for other in _successors(view))
    return ranked[0][2] if ranked else ""


def _successors(view: View) -> list[OtherMember]:
    """Returns the standbys that may have the role next: of the project that leads, or else of this engine's own."""
    standbys = [other for other in view.membership.others if other.role == Role.STANDBY.value]
    leading = [other for other in standbys if other.is_of(view.projects.leading)]
    return leading or _other_standbys(view)


def _other_standbys(view: View) -> list[OtherMember]:
    return [other for other in beside.same(view) if other.role == Role.STANDBY.value]


def _place_in_turn(view: View, engine: str) -> int:
    """Its place among the standbys, this engine counted as one: by name, but shard k begins with the one at place k, so that the
    shards of one project are not all with the engine of the first name."""
    names = sorted({view.engine, engine, *(other.engine for other in _other_standbys(view))})
    return (names.index(engine) - view.shard.number) % len(names)


def _standby(view: View) -> Iterator[Duty]:
    if view.standing.stop_asked:
        yield Duty(0, do.Leave(Reason.STOP_ASKED))
        return
    leader = view.leadership.leader
    if leader is not None:
        reason = vacancy(view)
        known = view.leadership.vacancy
        if (known.reason if known else None) is not reason or (known is not None and known.epoch != leader.epoch):
            yield Duty(0, do.NoteVacancy(leader.epoch, reason))
        elif reason is not None and (due_ms := _campaign_due_ms(view)) is not None:
            yield Duty(max(due_ms, view.contacts.coordination_retry_ms), do.Campaign(leader.epoch, reason))
    yield from divergence.lone_difference(view)
    yield from _watch_leader(view)
    yield from _refresh_member(view)
    yield from _check_inbound(view)
    yield from _read_qualities(view)
    yield from beside.read(view)
    yield from _ticks(view)
    yield from _read_progress(view)
    yield from snapshots.candidates(view)
    yield from persisting.duties(view)
    yield from snapshots.take(view)


def _warming(view: View) -> Iterator[Duty]:
    """It computes, compares and tells, and has no part in anything that needs a complete state."""
    assert view.warming is not None
    difference = view.difference
    if view.standing.stop_asked:
        yield Duty(0, do.Leave(Reason.STOP_ASKED))
    elif view.projects.moves or view.projects.told or view.projects.changes:
        yield Duty(0, do.Leave(Reason.REFUSED, "the group's project is upgraded; numbers are adopted where one project runs alone"))
    elif view.warming.mismatch:
        yield Duty(0, do.Leave(Reason.REFUSED, view.warming.mismatch))
    elif difference is not None:
        what = f"output {difference.sequence} of stream {difference.stream} is not the one that is committed"
        yield Duty(0, do.Leave(Reason.REFUSED, f"the state that was made from recent input is not the group's: {what}"))
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
    due_ms = view.rounds.member_refreshed_ms + view.settings.member_refresh_ms
    yield Duty(max(due_ms, view.contacts.coordination_retry_ms), do.RefreshMember())


def _read_switchover(view: View) -> Iterator[Duty]:
    due_ms = view.rounds.switchover_read_ms + view.settings.switchover_poll_ms
    yield Duty(max(due_ms, view.contacts.coordination_retry_ms), do.ReadSwitchover())


def _read_qualities(view: View) -> Iterator[Duty]:
    due_ms = view.rounds.qualities_read_ms + view.settings.quality_poll_ms
    yield Duty(max(due_ms, view.contacts.coordination_retry_ms), do.ReadQualities())


def _read_progress(view: View) -> Iterator[Duty]:
    due_ms = view.rounds.progress_read_ms + view.settings.progress_poll_ms
    yield Duty(max(due_ms, view.contacts.bus_retry_ms), do.ReadProgress())


def _check_inbound(view: View) -> Iterator[Duty]:
    due_ms = view.rounds.inbound_checked_ms + view.settings.inbound_check_ms
    yield Duty(max(due_ms, view.contacts.bus_retry_ms), do.CheckInbound())


def _trim_bus(view: View) -> Iterator[Duty]:
    if view.settings.bus_retention_ms and not view.projects.are_two:  # each notes only what its own project's snapshots need
        due_ms = view.rounds.trimmed_ms + view.settings.trim_interval_ms
        yield Duty(max(due_ms, view.contacts.bus_retry_ms), do.TrimBus())


def _is_stalled(view: View) -> bool:
    """Whether the runner hangs. Who holds the role then loses it by its lease; this ends the process, for another one to begin."""
    return 0 < view.settings.pipeline_stall_ms <= view.intake.stalled_ms


def _promoting(view: View) -> Iterator[Duty]:
    """Won, fence, then read progress and the epoch again: in this order only. Not before coordination answers, and never faster."""
    leader = view.leadership.leader
    if leader is None:
        yield Duty(view.contacts.coordination_retry_ms, do.ReadLeader(Reason.UNKNOWN_LEADER))
        return
    if leader.epoch > view.standing.epoch or leader.holder != view.engine:
        yield Duty(0, do.StepDown(Reason.NEWER_EPOCH))
        return
    if view.standing.stop_asked:
        yield Duty(view.contacts.coordination_retry_ms, do.GiveUp("", Reason.STOP_ASKED))
        return
    yield from lease.keep_while_promoting(view)
    yield from _free_the_bus(view)
    yield from _next_step(view)


def _next_step(view: View) -> Iterator[Duty]:
    if view.standing.step is Step.WON:
        yield Duty(view.contacts.bus_retry_ms, do.Fence(view.standing.epoch))
    elif view.standing.step is Step.FENCED:
        yield Duty(view.contacts.bus_retry_ms, do.ReadCommitted())
    elif view.standing.step is Step.READ:
        yield Duty(view.contacts.coordination_retry_ms, do.Recheck())
    elif ahead := divergence.begins_ahead(view):
        yield Duty(0, do.Leave(Reason.REFUSED, ahead))
    elif view.difference is not None and not view.standing.overrules:
        yield Duty(0, do.Diverge())
    elif view.standing.step is Step.CHECKED:
        yield Duty(0, do.BecomeActive())


def _free_the_bus(view: View) -> Iterator[Duty]:
    """Who holds the bus's lock for as long as a lease has to go on with it. Of who was active before, the lease itself says so."""
    if view.contacts.lock_holder is None:
        return
    since_ms = view.now_ms if view.contacts.locked_since_ms is None else view.contacts.locked_since_ms
    before, due_ms = view.leadership.predecessor, since_ms + view.settings.lease_ms
    if before is not None and view.contacts.lock_holder == (before.process_id, before.process_start):
        due_ms = min(due_ms, view.leadership.predecessor_lease_end_ms)
    yield Duty(due_ms, do.EndLockHolder(*view.contacts.lock_holder))


def _active(view: View) -> Iterator[Duty]:
    leader = view.leadership.leader
    if leader is not None and (leader.epoch > view.standing.epoch or leader.holder != view.engine):
        yield Duty(0, do.StepDown(Reason.NEWER_EPOCH))
        return
    if view.difference is not None:
        yield Duty(0, do.Diverge())
        return
    if any(stream.facts.is_unplaced and not stream.is_behind for stream in view.streams.values()):
        yield Duty(0, do.PlaceOutputs())
    yield from _free_the_bus(view)
    owed = publishing.owed(view)
    yield from lease.keep_in_backlog(view, owed)
    due_ms = [each_ms for each_ms in (owed.publish_ms, owed.progress_ms) if each_ms is not None]
    if owed.await_ms is not None:
        yield Duty(owed.await_ms, do.AwaitCommit())
    elif due_ms:
        yield Duty(max(min(due_ms), view.contacts.bus_retry_ms), do.Publish())
    else:
        yield from _hand_over(view)
    if owed.oversized_ms is not None and owed.await_ms is None:
        yield Duty(max(owed.oversized_ms, view.contacts.bus_retry_ms), do.Publish())
    yield from lease.keep(view, owed)
    yield from _ticks(view)
    yield from _read_switchover(view)
    yield from _refresh_member(view)
    yield from _check_inbound(view)
    yield from _trim_bus(view)
    yield from _read_qualities(view)
    yield from beside.read(view)
    yield from snapshots.candidates(view)
    yield from persisting.duties(view)
    yield from snapshots.take(view)


def _hand_over(view: View) -> Iterator[Duty]:
    """Everything is committed: the role can be given up, if that is asked for and, for a switch-over, if there is a successor."""
    if view.standing.stop_asked:
        yield Duty(view.contacts.coordination_retry_ms, do.GiveUp(best_standby(view), Reason.STOP_ASKED))
    elif view.leadership.switchover is not None:
        asked, standbys = view.leadership.switchover, [o.engine for o in _successors(view)]
        successor = asked if asked in standbys else best_standby(view) if asked == "" else ""
        if successor:
            yield Duty(view.contacts.coordination_retry_ms, do.GiveUp(successor, Reason.SWITCHOVER))


def _ticks(view: View) -> Iterator[Duty]:
    settings, is_active = view.settings, view.standing.role is Role.ACTIVE
    own = ((index, each) for index, each in enumerate(view.inbound) if each.kind is not Inbound.OUTPUTS)
    for index, partition in own if is_active else beside.left_to_spares(view, own):
        yield Duty(max(partition.ticked_ms + settings.tick_interval_ms, view.contacts.bus_retry_ms), do.Tick(index, Reason.TIMER))
        if (partition.topic_index, partition.number) in view.core.holding_up:
            idle_since_ms = max(partition.arrived_ms, partition.ticked_ms)
            due_ms = max(idle_since_ms + settings.merge_wait_ms, view.contacts.bus_retry_ms)
            yield Duty(due_ms, do.Tick(index, Reason.IDLE_PARTITION))
