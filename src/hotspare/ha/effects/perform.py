"""Performs one action and records its result: one effect outside each, nothing decided.

A function here may not determine the next action: it changes the state, and `decide` continues from there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from hotspare.base.errors import (
    BusError,
    BusLocked,
    BusUnavailable,
    CoordinationError,
    Fenced,
    StateError,
    TopicOwned,
    UnknownResult,
)
from hotspare.bus.contract import TICK
from hotspare.coordination.contract import Leader
from hotspare.ha.calls.pending_call import EpochRequest
from hotspare.ha.effects import (
    committed,
    inbound_check,
    persisting,
    publishing,
    recording,
    snapshots,
    trimming,
    warming,
)
from hotspare.ha.effects.hung_calls import lift_quarantines
from hotspare.ha.effects.upgrading import current_agreement
from hotspare.ha.events import HaEventKind
from hotspare.ha.group_state import GroupState, stream_views
from hotspare.ha.member_record import member_of, other_members_of, rank_of
from hotspare.ha.outputs import qualities
from hotspare.ha.ports import Ports
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import committed as commit_rules
from hotspare.ha.rules import divergence, hung_calls, intake, leadership, membership, renumbering, two_projects
from hotspare.ha.rules import lease as lease_rules
from hotspare.ha.rules import snapshots as snapshot_rules
from hotspare.ha.rules import upgrading as upgrading_rules
from hotspare.ha.rules.facts import Membership, OtherMember, Vacancy
from hotspare.ha.rules.roles import Reason, Role, Step
from hotspare.ha.rules.upgrading import Agreement

_NOTEWORTHY = (do.Campaign, do.StepDown, do.GiveUp, do.Diverge, do.Leave)


def perform(action: do.HaAction, state: GroupState, ports: Ports) -> None:
    """Performs `action` and records its result in `state`. If coordination, or for now the bus, does not answer, that is recorded,
    and the action is retried later. TopicOwned and StateError become the reason for which the engine refuses to continue. Other
    errors are raised."""
    if isinstance(action, _NOTEWORTHY):
        recording.alarm(state, ports, HaEventKind.ACTED, action.sentence, action.sentence)  # one that fails is repeated at once
    try:
        with _lease_kept(action, state, ports):
            PERFORMERS[type(action)](action, state, ports)
    except CoordinationError as error:
        recording.record_lost_contact(state, ports, error)
        retry_ms = ports.clock_ms() + state.settings.coordination_retry_ms
        state.contacts = replace(state.contacts, coordination_retry_ms=retry_ms)
        recording.invalidate_leader(state)  # the call may have happened
    except (BusUnavailable, BusLocked) as error:
        if isinstance(error, BusLocked):
            since_ms = state.contacts.locked_since_ms
            since_ms = ports.clock_ms() if since_ms is None else since_ms
            state.contacts = replace(state.contacts, lock_holder=error.holder, locked_since_ms=since_ms)
        recording.schedule_bus_retry(state, ports)
        sentence = f"{error.in_one_line}, while the engine {action.sentence}"
        recording.record_trouble(state, ports, HaEventKind.BUS_TROUBLE, error.message, sentence)
    except (TopicOwned, StateError) as error:
        state.role_state = replace(state.role_state, refusal=str(error))


def _lease_kept(action: do.HaAction, state: GroupState, ports: Ports) -> AbstractContextManager[None]:
    """Keeps the lease while a call of the bus is under way that may take longer than the lease."""
    if not lease_rules.may_outlast_lease(action):
        return contextlib.nullcontext()
    if not isinstance(action, lease_rules.COMMITS):
        return _renewing(state, ports, lambda: _may_keep_lease(state, ports, state.role_state.step_ms))
    since_ms = ports.clock_ms() if state.lease.committing_since_ms is None else state.lease.committing_since_ms
    state.lease = replace(state.lease, committing_since_ms=since_ms)
    return _renewing(state, ports, lambda: _may_keep_lease(state, ports, since_ms) and _is_bus_answering(state, ports))


def _may_keep_lease(state: GroupState, ports: Ports, since_ms: int) -> bool:
    return lease_rules.may_renew_meanwhile(ports.clock_ms(), since_ms, state.lease.fruitless_since_ms, state.settings)


def _is_bus_answering(state: GroupState, ports: Ports) -> bool:
    """Whether the bus answers another request of this engine. If it does, an outstanding commit is slow, and would be slow for any
    engine."""
    try:
        ports.bus.end_offset(state.inbound[0].partition)
    except BusError:
        return False
    return True


@contextlib.contextmanager
def _renewing(state: GroupState, ports: Ports, may_go_on: Callable[[], bool]) -> Iterator[None]:
    """Renews the lease from another thread while the block runs, until `may_go_on` returns False or the lease is lost."""
    settings, epoch, renewed_ms = state.settings, state.role_state.epoch, [state.lease.renewed_ms]

    def renew() -> bool:
        if not may_go_on():
            return False
        requested_ms = ports.clock_ms()
        try:
            is_held = ports.coordination.renew(state.group, epoch, state.engine, settings.lease_ms) is not None
        except CoordinationError:
            return True  # it may answer the next time
        if is_held:
            renewed_ms.append(requested_ms)
        return is_held

    try:
        with ports.repeat_in_background(renew, settings.renew_interval_ms):
            yield
    finally:
        state.lease = replace(state.lease, renewed_ms=max(state.lease.renewed_ms, *renewed_ms))


def _record_vacancy(action: do.RecordVacancy, state: GroupState, ports: Ports) -> None:
    now_ms = ports.clock_ms()
    vacancy = None if action.reason is None else Vacancy(action.epoch, action.reason, now_ms)
    state.leadership = replace(state.leadership, vacancy=vacancy)
    if action.reason is not None:
        state.promotion_times.vacancy_ms = now_ms


def _read_leader(_: do.ReadLeader, state: GroupState, ports: Ports) -> None:
    recording.record_leader(state, ports, ports.coordination.leader(state.group))


def _campaign(action: do.Campaign, state: GroupState, ports: Ports) -> None:
    settings, requested_ms = state.settings, ports.clock_ms()
    state.promotion_times.campaign_ms = requested_ms
    member = member_of(state, requested_ms, ports.connectors())
    with ports.unlocked():
        epoch = ports.coordination.campaign(state.group, action.expected_epoch, member, settings.lease_ms)
    if epoch is None:
        recording.invalidate_leader(state)
        return
    state.leadership = leadership.after_winning(state.leadership, state.engine)
    state.role_state = replace(state.role_state, epoch=epoch, is_overruling=leadership.may_overrule(action.reason))
    state.lease = replace(state.lease, renewed_ms=requested_ms, has_progressed=False, fruitless_since_ms=None)
    committed.reset_sent_sequences(state)
    state.promotion_times.won_ms = ports.clock_ms()
    recording.change_role(state, ports, Role.PROMOTING, action.reason, Step.WON)
    recording.record_leader(state, ports, Leader(epoch, state.engine, "", settings.lease_ms))


def _fence(action: do.Fence, state: GroupState, ports: Ports) -> None:
    try:
        with ports.unlocked():
            state.producer = state.producer or ports.bus.producer(state.group, state.topics.output_topics)
            state.producer.fence(action.epoch)
    except Fenced as error:
        _abandon_promotion(state, ports, error)
        return
    except UnknownResult as error:
        recording.record_trouble(state, ports, HaEventKind.RESULT_UNKNOWN, error.message, error.in_one_line)
        recording.schedule_bus_retry(state, ports)
        return
    state.promotion_times.fenced_ms = ports.clock_ms()
    recording.record_bus_unlocked(state)
    recording.record_promotion_step(state, ports, Step.FENCED)


def _abandon_promotion(state: GroupState, ports: Ports, error: Fenced) -> None:
    """Ends a promotion because a newer epoch was found: the engine becomes standby."""
    recording.report(state, ports, HaEventKind.FENCED, error.message)
    recording.invalidate_leader(state)
    recording.close_producer(state)
    recording.change_role(state, ports, Role.STANDBY, Reason.NEWER_EPOCH)


def _end_lock_holder(action: do.EndLockHolder, state: GroupState, ports: Ports) -> None:
    state.contacts = replace(state.contacts, lock_holder=None)  # the next holder in the way is examined then
    if ports.end_process(action.process_id, action.process_start):
        sentence = f"process {action.process_id} was ended: it was stopped and kept the bus locked"
        recording.report(state, ports, HaEventKind.LOCK_HOLDER_ENDED, sentence)


def _read_committed(_: do.ReadCommitted, state: GroupState, ports: Ports) -> None:
    assert state.producer is not None
    request_epoch(state, ports)
    try:
        with ports.unlocked():
            progress = dict(state.producer.progress())
    except Fenced as error:
        _abandon_promotion(state, ports, error)
        return
    for output in state.topics.outbound:
        stream, rebuilt = output.stream, None
        if stream not in progress:
            place = state.topics.output_partition(output.topic)
            progress[stream] = rebuilt = publishing.progress_from_tail(ports.bus, ports.codec, stream, place)
            if rebuilt.sequence:
                sentence = f"progress of stream {stream} was rebuilt from topic {output.topic}"
                recording.report(state, ports, HaEventKind.PROGRESS_REBUILT, sentence, sequence=rebuilt.sequence)
            recording.record_promotion_step(state, ports, state.role_state.step)  # each topic that is searched is a step of its own
        state.streams[stream] = replace(state.streams[stream], unrecorded=rebuilt, may_repeat=True)
    committed.record_progress(state, ports, progress)
    state.promotion_times.read_ms = ports.clock_ms()
    recording.record_promotion_step(state, ports, Step.READ)


def _recheck(_: do.Recheck, state: GroupState, ports: Ports) -> None:
    leader, known = await_epoch(state, ports)
    _record_projects(state, ports, known)
    recording.record_leader(state, ports, leader)
    recording.record_promotion_step(state, ports, Step.CHECKED)


def request_epoch(state: GroupState, ports: Ports) -> None:
    """Requests the newest epoch concurrently with reading what is committed: both need the fence, and neither waits for the other.
    Call it only after the fence; it discards an earlier promotion's request."""
    answers: list[tuple[Leader, Agreement | None]] = []
    call = ports.start_call(partial(_read_epoch_and_projects, state, ports, answers))
    state.epoch_request = EpochRequest(call, answers)


def _read_epoch_and_projects(state: GroupState, ports: Ports, answers: list[tuple[Leader, Agreement | None]]) -> None:
    known = current_agreement(ports.coordination, state.group, state.projects.group_agreement, state.project_hash)
    answers.append((ports.coordination.leader(state.group), known))


def await_epoch(state: GroupState, ports: Ports) -> tuple[Leader, Agreement | None]:
    """Waits for the answer to `request_epoch`. Returns the leader, and the projects that the group runs (None if none was ever
    decided on).

    An engine may sleep through an upgrade and wake while the role is free: it must not publish outputs of the earlier project.
    Without an outstanding request, for example after an error, sends one. Raises the error of the request.
    """
    if state.epoch_request is None:
        request_epoch(state, ports)
    assert state.epoch_request is not None
    asked, state.epoch_request = state.epoch_request, None
    with ports.unlocked():
        asked.call.wait()
    return asked.answers[0]


def _become_active(_: do.BecomeActive, state: GroupState, ports: Ports) -> None:
    if state.role_state.is_overruling:
        committed.accept_committed(state)
    committed.report_lost_outputs(state, ports)
    state.promotion_times.active_ms = ports.clock_ms()
    state.leadership = replace(state.leadership, predecessor=None)
    state.last_runs = replace(state.last_runs, switchover_read_ms=state.promotion_times.active_ms)
    state.publishing = replace(state.publishing, is_first_commit_due=True)
    recording.change_role(state, ports, Role.ACTIVE, Reason.PROMOTED)


def _renumber_outputs(_: do.RenumberOutputs, state: GroupState, ports: Ports) -> None:
    committed.renumber_outputs(
        state, [name for name, view in stream_views(state).items() if view.facts.is_shift_unknown and not view.is_behind]
    )


def _pass_place(_: do.PassPlace, state: GroupState, ports: Ports) -> None:
    place = state.core.stopped_at
    assert place is not None
    recording.report(state, ports, HaEventKind.HUNG_CALL, f"another engine has passed it: computes without a limit {place}")
    state.core.pass_place(place)


def _step_down(action: do.StepDown, state: GroupState, ports: Ports) -> None:
    recording.close_producer(state)
    recording.invalidate_leader(state)
    recording.change_role(state, ports, Role.STANDBY, action.reason)


def _give_up(action: do.GiveUp, state: GroupState, ports: Ports) -> None:
    ports.coordination.release(state.group, state.role_state.epoch, state.engine, action.successor)
    state.role_state = replace(state.role_state, gave_up_epoch=state.role_state.epoch)
    state.leadership = replace(state.leadership, switchover=None)
    recording.close_producer(state)
    recording.invalidate_leader(state)
    recording.change_role(state, ports, Role.STANDBY, action.reason)


def _tick(action: do.Tick, state: GroupState, ports: Ports) -> None:
    inbound = state.inbound[action.index]
    inbound.facts = replace(inbound.facts, ticked_ms=ports.clock_ms())
    try:
        offset = ports.bus.append(inbound.partition, (TICK,))
    except UnknownResult as error:  # one tick more or less changes nothing: it is part of the input where it is
        recording.record_trouble(state, ports, HaEventKind.RESULT_UNKNOWN, error.message, error.in_one_line)
        return
    inbound.facts = replace(inbound.facts, ticked_offset=offset)
    recording.record_bus_unlocked(state)


def _renew(_: do.Renew, state: GroupState, ports: Ports) -> None:
    requested_ms = ports.clock_ms()
    state.lease = replace(state.lease, has_progressed=False)
    renewed = ports.coordination.renew(state.group, state.role_state.epoch, state.engine, state.settings.lease_ms)
    if renewed is None:
        recording.invalidate_leader(state)
        return
    state.lease = replace(state.lease, renewed_ms=requested_ms)
    recording.record_contact(state, ports)
    if state.role_state.role is Role.ACTIVE:
        _record_switchover(state, ports, renewed.switchover)


def _read_switchover(_: do.ReadSwitchover, state: GroupState, ports: Ports) -> None:
    _record_switchover(state, ports, ports.coordination.requested_successor(state.group))


def _record_switchover(state: GroupState, ports: Ports, asked: str | None) -> None:
    state.leadership = replace(state.leadership, switchover=asked)
    state.last_runs = replace(state.last_runs, switchover_read_ms=ports.clock_ms())


def _refresh_member(_: do.RefreshMember, state: GroupState, ports: Ports) -> None:
    member = member_of(state, ports.clock_ms(), ports.connectors())
    members = ports.coordination.members(state.group)
    twin = membership.namesake(members, member)
    before, state.namesake = state.namesake, twin
    if (
        twin is not None
        and membership.has_to_yield_name(member, twin)
        and (membership.is_renewed_since(twin, before) or ports.is_alive(twin))
    ):
        state.role_state = replace(state.role_state, refusal=membership.name_taken_error(state.group, twin).message)
        return
    ports.coordination.refresh_member(state.group, member)
    stale_ms = state.settings.member_stale_ms
    news = other_members_of(members, state.engine, stale_ms)
    _report_members(state, ports, news, membership.version_differences(membership.recently_seen(members, stale_ms), state.identity))
    now_ms = ports.clock_ms()
    state.projects = two_projects.with_reported_cut_overs(state.projects, news)
    same = two_projects.of_own_project(news, state.projects)
    state.snapshots = snapshot_rules.with_reported_snapshots(
        state.snapshots, same, now_ms, ports.wall_us() // 1_000, state.intake.events_taken
    )
    record_stall(state, same, now_ms)
    is_awaited = divergence.may_spare_agree(state.differences, two_projects.with_shared_streams(news, state.projects))
    awaited_ms = now_ms if is_awaited else state.membership.awaited_ms
    state.membership = Membership(rank_of(member), news, awaited_ms)
    _follow_active(state, ports)
    warming.advance_warming(state, ports)
    state.last_runs = replace(state.last_runs, member_refreshed_ms=now_ms)
    recording.record_contact(state, ports)


def record_stall(state: GroupState, others: Sequence[OtherMember], now_ms: int) -> None:
    """Updates `stalled_ms` after the descriptions of other engines were read, before the time of that read is recorded. Each
    computed part resets it to 0."""
    sight = intake.InputEvidence(state.core.next_offsets, [each.facts for each in state.inbound], others)
    watched_ms = now_ms - state.last_runs.member_refreshed_ms
    stalled_ms = intake.stalled_ms(state.intake.stalled_ms, watched_ms, sight, state.settings)
    state.intake = replace(state.intake, stalled_ms=stalled_ms)


def _follow_active(state: GroupState, ports: Ports) -> None:
    """Adopts the transaction sizes that the active engine reports, and the time since which it is active; does nothing in an engine
    that is not a spare."""
    told = membership.holder_report(state.leadership, state.role_state.role, state.membership.others)
    if told is not None:
        state.leadership = membership.with_reported_start(state.leadership, told, ports.clock_ms())
        if told.commit_sizes is not None:
            state.budget.adopt_sizes(told.commit_sizes)


def _check_inbound(_: do.CheckInbound, state: GroupState, ports: Ports) -> None:
    inbound_check.start_inbound_check(state, ports)


def _trim_bus(_: do.TrimBus, state: GroupState, ports: Ports) -> None:
    trimming.start_trimming(state, ports)


def _read_qualities(_: do.ReadQualities, state: GroupState, ports: Ports) -> None:
    before = state.qualities
    now = qualities.with_later_changes(ports.coordination, state.group, before)
    state.qualities, state.last_runs = now, replace(state.last_runs, qualities_read_ms=ports.clock_ms())
    for sentence in now.unreadable:
        recording.report(state, ports, HaEventKind.QUALITY_CHANGED, sentence)
    for stream, quality in now.by_stream.items():
        if quality != before.stream_quality(stream):
            recording.report(
                state, ports, HaEventKind.QUALITY_CHANGED, f"stream {stream}: {before.stream_quality(stream)} becomes {quality}"
            )
    if now.version != before.version:
        recording.refresh_member_soon(state)  # the command that requested it waits to see it


def _report_members(state: GroupState, ports: Ports, news: tuple[OtherMember, ...], differences: tuple[str, ...]) -> None:
    came, went = membership.membership_changes(state.membership.others, news)
    for engine in came:
        recording.report(state, ports, HaEventKind.MEMBERS_CHANGED, f"engine {engine} joined")
    for engine in went:
        recording.report(state, ports, HaEventKind.MEMBERS_CHANGED, f"engine {engine} left, or no longer renews its member record")
    for sentence in differences:
        if sentence not in state.version_differences:
            recording.report(state, ports, HaEventKind.MEMBER_UNLIKE, sentence)
    state.version_differences = differences


def _read_projects(_: do.ReadProjects, state: GroupState, ports: Ports) -> None:
    """Reads new decisions about the projects of the group. Raises ProjectChanged as `current_agreement` does.

    While one project runs alone, `decide` does not request this action. An engine learns of a second project from the descriptions
    of its engines. From then on it reads at intervals, until one project is left. A promotion reads in any case.
    """
    _record_projects(
        state, ports, current_agreement(ports.coordination, state.group, state.projects.group_agreement, state.project_hash)
    )


def _record_projects(state: GroupState, ports: Ports, known: Agreement | None) -> None:
    """Records and reports the projects `known`, unless they are None or not newer than those in the state."""
    before, now_ms = state.projects, ports.clock_ms()
    if known is None or known.cut_overs <= before.cut_overs:
        state.projects = replace(before, reported_cut_overs=before.cut_overs, read_ms=now_ms)
        return
    state.projects = replace(
        before, group_agreement=known, own_only_before=before.own_only_streams, reported_cut_overs=known.cut_overs, read_ms=now_ms
    )
    recording.refresh_member_soon(state)
    recording.report(state, ports, HaEventKind.PROJECTS_CHANGED, upgrading_rules.agreement_sentence(known, before.own))


def _read_progress(_: do.ReadProgress, state: GroupState, ports: Ports) -> None:
    state.last_runs = replace(state.last_runs, progress_read_ms=ports.clock_ms())
    progress = ports.bus.progress(state.group)
    own = ((state.streams[stream], read) for stream, read in progress.items() if stream in state.streams)
    is_newer = any(commit_rules.is_newer_progress(known, read) for known, read in own)
    has_decision = len(hung_calls.parsed_decisions(progress)) > len(state.hung_calls.decisions)
    if is_newer or has_decision or renumbering.has_other_project_news(state.projects, progress):
        committed.record_progress(state, ports, progress)
        warming.advance_warming(state, ports)


def _diverge(_: do.Diverge, state: GroupState, ports: Ports) -> None:
    held_role = state.role_state.role in (Role.PROMOTING, Role.ACTIVE)
    state.ended_because = "; ".join(
        f"output {d.sequence} of stream {d.stream} differs from the one committed under epoch {d.epoch}" for d in state.differences
    )
    recording.close_producer(state)
    recording.change_role(state, ports, Role.DIVERGED, Reason.DIFFERS)
    if held_role:
        ports.coordination.release(state.group, state.role_state.epoch, state.engine, "")


def _leave(action: do.Leave, state: GroupState, ports: Ports) -> None:
    held_role = state.role_state.role in (Role.PROMOTING, Role.ACTIVE)
    state.ended_because, state.ended_by = action.detail or action.reason.value, action.reason
    recording.close_producer(state)
    recording.change_role(state, ports, Role.STOPPED, action.reason)
    if held_role:
        ports.coordination.release(state.group, state.role_state.epoch, state.engine, "")
    ports.coordination.remove_member(state.group, state.engine)


def _take_snapshot(_: do.TakeSnapshot, state: GroupState, ports: Ports) -> None:
    snapshots.start_snapshot(state, ports)


def _confirm_snapshot(action: do.ConfirmSnapshot, state: GroupState, ports: Ports) -> None:
    snapshots.confirm(state, ports, action.name)


def _discard_snapshot(action: do.DiscardSnapshot, state: GroupState, ports: Ports) -> None:
    snapshots.discard(state, ports, action.name)


def _abandon_store_jobs(_: do.AbandonStoreJobs, state: GroupState, ports: Ports) -> None:
    snapshots.abandon_stuck_jobs(state, ports)


PERFORMERS: dict[type[do.HaAction], Callable[[Any, GroupState, Ports], None]] = {
    do.RecordVacancy: _record_vacancy,
    do.Campaign: _campaign,
    do.Fence: _fence,
    do.EndLockHolder: _end_lock_holder,
    do.ReadCommitted: _read_committed,
    do.Recheck: _recheck,
    do.BecomeActive: _become_active,
    do.StepDown: _step_down,
    do.GiveUp: _give_up,
    do.Publish: publishing.publish,
    do.RenumberOutputs: _renumber_outputs,
    do.AwaitCommit: publishing.await_commit,
    do.BecomeEligible: warming.become_eligible,
    do.Tick: _tick,
    do.Renew: _renew,
    do.ReadLeader: _read_leader,
    do.ReadSwitchover: _read_switchover,
    do.RefreshMember: _refresh_member,
    do.CheckInbound: _check_inbound,
    do.TrimBus: _trim_bus,
    do.ReadQualities: _read_qualities,
    do.LiftQuarantines: lift_quarantines,
    do.ReadProjects: _read_projects,
    do.ReadProgress: _read_progress,
    do.TakeSnapshot: _take_snapshot,
    do.ConfirmSnapshot: _confirm_snapshot,
    do.DiscardSnapshot: _discard_snapshot,
    do.AbandonStoreJobs: _abandon_store_jobs,
    do.ReadPersist: persisting.read_persist_request,
    do.ClaimPersist: persisting.claim_persist_request,
    do.PersistSnapshot: persisting.start_persist,
    do.ReportPersisted: persisting.report_persist_outcome,
    do.PassPlace: _pass_place,
    do.Diverge: _diverge,
    do.Leave: _leave,
}
"""The function that performs each class of action."""
