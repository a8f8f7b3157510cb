"""Performs one action and records its result: one effect outside each, nothing decided (DESIGN section 5).

A function here may not determine what to do next: it changes the state, and `decide` continues from there.
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
from hotspare.ha.calls.underway import AskedEpoch
from hotspare.ha.effects import (
    committed,
    inbound_check,
    notes,
    persisting,
    publishing,
    snapshots,
    trimming,
    warming,
)
from hotspare.ha.effects.upgrading import asked_on
from hotspare.ha.events import HaEventKind
from hotspare.ha.group_state import GroupState, stream_views
from hotspare.ha.member_record import member_of, news_of, rank_of
from hotspare.ha.outputs import qualities
from hotspare.ha.ports import Ports
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import beside, divergence, intake, leadership, membership, placing
from hotspare.ha.rules import committed as commit_rules
from hotspare.ha.rules import lease as lease_rules
from hotspare.ha.rules import snapshots as snapshot_rules
from hotspare.ha.rules import upgrading as upgrading_rules
from hotspare.ha.rules.facts import Membership, OtherMember, Vacancy
from hotspare.ha.rules.roles import Reason, Role, Step
from hotspare.ha.rules.upgrading import Agreement

_NOTEWORTHY = (do.Campaign, do.StepDown, do.GiveUp, do.Diverge, do.Leave)


def perform(action: do.HaAction, state: GroupState, ports: Ports) -> None:
    """Performs `action`. Failures of bus or coordination are recorded and retried, not raised."""
    if isinstance(action, _NOTEWORTHY):
        notes.alarm(state, ports, HaEventKind.ACTED, action.sentence, action.sentence)  # one that fails is repeated at once
    try:
        with _lease_kept(action, state, ports):
            PERFORMERS[type(action)](action, state, ports)
    except CoordinationError as error:
        notes.note_lost_contact(state, ports, error)
        retry_ms = ports.clock_ms() + state.settings.coordination_retry_ms
        state.contacts = replace(state.contacts, coordination_retry_ms=retry_ms)
        notes.forget_leader(state)  # the call may have happened
    except (BusUnavailable, BusLocked) as error:
        if isinstance(error, BusLocked):
            since_ms = state.contacts.locked_since_ms
            since_ms = ports.clock_ms() if since_ms is None else since_ms
            state.contacts = replace(state.contacts, lock_holder=error.holder, locked_since_ms=since_ms)
        notes.wait_for_bus(state, ports)
        sentence = f"{error.in_one_line}, while the engine {action.sentence}"
        notes.note_trouble(state, ports, HaEventKind.BUS_TROUBLE, error.message, sentence)
    except (TopicOwned, StateError) as error:
        state.standing = replace(state.standing, refusal=str(error))


def _lease_kept(action: do.HaAction, state: GroupState, ports: Ports) -> AbstractContextManager[None]:
    """Keeps the lease while a call of the bus is under way that may take longer than it (DESIGN section 5)."""
    if not lease_rules.may_outlast(action):
        return contextlib.nullcontext()
    if not isinstance(action, lease_rules.COMMITS):
        return _renewing(state, ports, lambda: _may_keep_lease(state, ports, state.standing.step_ms))
    since_ms = ports.clock_ms() if state.lease.committing_since_ms is None else state.lease.committing_since_ms
    state.lease = replace(state.lease, committing_since_ms=since_ms)
    return _renewing(state, ports, lambda: _may_keep_lease(state, ports, since_ms) and _is_bus_answering(state, ports))


def _may_keep_lease(state: GroupState, ports: Ports, since_ms: int) -> bool:
    return lease_rules.keeps_meanwhile(ports.clock_ms(), since_ms, state.lease.fruitless_since_ms, state.settings)


def _is_bus_answering(state: GroupState, ports: Ports) -> bool:
    """Whether the bus answers this engine: a commit without an answer is then slow, and would be slow for any engine."""
    try:
        ports.bus.end_offset(state.inbound[0].partition)
    except BusError:
        return False
    return True


@contextlib.contextmanager
def _renewing(state: GroupState, ports: Ports, may_go_on: Callable[[], bool]) -> Iterator[None]:
    """Renews the lease from another thread while an action is under way and `may_go_on` holds."""
    settings, epoch, renewed_ms = state.settings, state.standing.epoch, [state.lease.renewed_ms]

    def renew() -> bool:
        if not may_go_on():
            return False
        asked_ms = ports.clock_ms()
        try:
            is_held = ports.coordination.renew(state.group, epoch, state.engine, settings.lease_ms) is not None
        except CoordinationError:
            return True  # it may answer the next time
        if is_held:
            renewed_ms.append(asked_ms)
        return is_held

    try:
        with ports.meanwhile(renew, settings.renew_interval_ms):
            yield
    finally:
        state.lease = replace(state.lease, renewed_ms=max(state.lease.renewed_ms, *renewed_ms))


def _note_vacancy(action: do.NoteVacancy, state: GroupState, ports: Ports) -> None:
    now_ms = ports.clock_ms()
    vacancy = None if action.reason is None else Vacancy(action.epoch, action.reason, now_ms)
    state.leadership = replace(state.leadership, vacancy=vacancy)
    if action.reason is not None:
        state.marks.noticed_ms = now_ms


def _read_leader(_: do.ReadLeader, state: GroupState, ports: Ports) -> None:
    notes.note_leader(state, ports, ports.coordination.leader(state.group))


def _campaign(action: do.Campaign, state: GroupState, ports: Ports) -> None:
    settings, asked_ms = state.settings, ports.clock_ms()
    state.marks.campaign_ms = asked_ms
    member = member_of(state, asked_ms, ports.connectors())
    with ports.unlocked():
        epoch = ports.coordination.campaign(state.group, action.expected_epoch, member, settings.lease_ms)
    if epoch is None:
        notes.forget_leader(state)
        return
    state.leadership = leadership.after_winning(state.leadership, state.engine)
    state.standing = replace(state.standing, epoch=epoch, overrules=leadership.overrules(action.reason))
    state.lease = replace(state.lease, renewed_ms=asked_ms, has_moved=False, fruitless_since_ms=None)
    committed.forget_sent(state)
    state.marks.won_ms = ports.clock_ms()
    notes.move(state, ports, Role.PROMOTING, action.reason, Step.WON)
    notes.note_leader(state, ports, Leader(epoch, state.engine, "", settings.lease_ms))


def _fence(action: do.Fence, state: GroupState, ports: Ports) -> None:
    try:
        with ports.unlocked():
            state.producer = state.producer or ports.bus.producer(state.group, state.topics.output_topics)
            state.producer.fence(action.epoch)
    except Fenced as error:
        _give_way(state, ports, error)
        return
    except UnknownResult as error:
        notes.note_trouble(state, ports, HaEventKind.RESULT_UNKNOWN, error.message, error.in_one_line)
        notes.wait_for_bus(state, ports)
        return
    state.marks.fenced_ms = ports.clock_ms()
    notes.note_unlocked(state)
    notes.come_on(state, ports, Step.FENCED)


def _give_way(state: GroupState, ports: Ports, error: Fenced) -> None:
    """Ends a promotion because a newer epoch was found."""
    notes.report(state, ports, HaEventKind.FENCED, error.message)
    notes.forget_leader(state)
    notes.close_producer(state)
    notes.move(state, ports, Role.STANDBY, Reason.NEWER_EPOCH)


def _end_lock_holder(action: do.EndLockHolder, state: GroupState, ports: Ports) -> None:
    state.contacts = replace(state.contacts, lock_holder=None)  # the next holder in the way is examined then
    if ports.end_process(action.process_id, action.process_start):
        sentence = f"process {action.process_id} was ended: it was stopped and kept the bus locked"
        notes.report(state, ports, HaEventKind.LOCK_HOLDER_ENDED, sentence)


def _read_committed(_: do.ReadCommitted, state: GroupState, ports: Ports) -> None:
    assert state.producer is not None
    ask_epoch(state, ports)
    try:
        with ports.unlocked():
            progress = dict(state.producer.progress())
    except Fenced as error:
        _give_way(state, ports, error)
        return
    for output in state.topics.outbound:
        stream, rebuilt = output.stream, None
        if stream not in progress:
            place = state.topics.output_partition(output.topic)
            progress[stream] = rebuilt = publishing.progress_from_tail(ports.bus, ports.codec, stream, place)
            if rebuilt.sequence:
                sentence = f"progress of stream {stream} was rebuilt from topic {output.topic}"
                notes.report(state, ports, HaEventKind.PROGRESS_REBUILT, sentence, sequence=rebuilt.sequence)
            notes.come_on(state, ports, state.standing.step)  # each topic that is searched is a step of its own
        state.streams[stream] = replace(state.streams[stream], unrecorded=rebuilt, may_repeat=True)
    committed.note_progress(state, ports, progress)
    state.marks.read_ms = ports.clock_ms()
    notes.come_on(state, ports, Step.READ)


def _recheck(_: do.Recheck, state: GroupState, ports: Ports) -> None:
    leader, known = asked_epoch(state, ports)
    _note_projects(state, ports, known)
    notes.note_leader(state, ports, leader)
    notes.come_on(state, ports, Step.CHECKED)


def ask_epoch(state: GroupState, ports: Ports) -> None:
    """Requests the newest epoch concurrently with reading what is committed: both need the fence, and neither waits for the other
    (DESIGN section 5). Call it only after the fence; it discards an earlier promotion's request."""
    answers: list[tuple[Leader, Agreement | None]] = []
    call = ports.begin(partial(_ask, state, ports, answers))
    state.recheck = AskedEpoch(call, answers)


def _ask(state: GroupState, ports: Ports, answers: list[tuple[Leader, Agreement | None]]) -> None:
    known = asked_on(ports.coordination, state.group, state.projects.known, state.project_hash)
    answers.append((ports.coordination.leader(state.group), known))


def asked_epoch(state: GroupState, ports: Ports) -> tuple[Leader, Agreement | None]:
    """Returns the answer to `ask_epoch`, and the projects that the group runs, if any was ever decided on.

    An engine may sleep through an upgrade and wake while the role is free: it must not publish outputs of the earlier project. If
    an earlier answer was an error, requests it once more. Raises what the request raised.
    """
    if state.recheck is None:
        ask_epoch(state, ports)
    assert state.recheck is not None
    asked, state.recheck = state.recheck, None
    with ports.unlocked():
        asked.call.wait()
    return asked.answers[0]


def _become_active(_: do.BecomeActive, state: GroupState, ports: Ports) -> None:
    if state.standing.overrules:
        committed.accept_committed(state)
    committed.note_lost(state, ports)
    state.marks.active_ms = ports.clock_ms()
    state.leadership = replace(state.leadership, predecessor=None)
    state.rounds = replace(state.rounds, switchover_read_ms=state.marks.active_ms)
    state.publishing = replace(state.publishing, is_first_commit_due=True)
    notes.move(state, ports, Role.ACTIVE, Reason.PROMOTED)


def _place_outputs(_: do.PlaceOutputs, state: GroupState, ports: Ports) -> None:
    committed.place(state, [name for name, view in stream_views(state).items() if view.facts.is_unplaced and not view.is_behind])


def _step_down(action: do.StepDown, state: GroupState, ports: Ports) -> None:
    notes.close_producer(state)
    notes.forget_leader(state)
    notes.move(state, ports, Role.STANDBY, action.reason)


def _give_up(action: do.GiveUp, state: GroupState, ports: Ports) -> None:
    ports.coordination.release(state.group, state.standing.epoch, state.engine, action.successor)
    state.standing = replace(state.standing, gave_up_epoch=state.standing.epoch)
    state.leadership = replace(state.leadership, switchover=None)
    notes.close_producer(state)
    notes.forget_leader(state)
    notes.move(state, ports, Role.STANDBY, action.reason)


def _tick(action: do.Tick, state: GroupState, ports: Ports) -> None:
    inbound = state.inbound[action.index]
    inbound.facts = replace(inbound.facts, ticked_ms=ports.clock_ms())
    try:
        offset = ports.bus.append(inbound.partition, (TICK,))
    except UnknownResult as error:  # one tick more or less changes nothing: it is part of the input where it is
        notes.note_trouble(state, ports, HaEventKind.RESULT_UNKNOWN, error.message, error.in_one_line)
        return
    inbound.facts = replace(inbound.facts, ticked_offset=offset)
    notes.note_unlocked(state)


def _renew(_: do.Renew, state: GroupState, ports: Ports) -> None:
    asked_ms = ports.clock_ms()
    state.lease = replace(state.lease, has_moved=False)
    renewed = ports.coordination.renew(state.group, state.standing.epoch, state.engine, state.settings.lease_ms)
    if renewed is None:
        notes.forget_leader(state)
        return
    state.lease = replace(state.lease, renewed_ms=asked_ms)
    notes.note_contact(state, ports)
    if state.standing.role is Role.ACTIVE:
        _note_switchover(state, ports, renewed.switchover)


def _read_switchover(_: do.ReadSwitchover, state: GroupState, ports: Ports) -> None:
    _note_switchover(state, ports, ports.coordination.switchover_asked(state.group))


def _note_switchover(state: GroupState, ports: Ports, asked: str | None) -> None:
    state.leadership = replace(state.leadership, switchover=asked)
    state.rounds = replace(state.rounds, switchover_read_ms=ports.clock_ms())


def _refresh_member(_: do.RefreshMember, state: GroupState, ports: Ports) -> None:
    member = member_of(state, ports.clock_ms(), ports.connectors())
    members = ports.coordination.members(state.group)
    twin = membership.namesake(members, member)
    before, state.namesake = state.namesake, twin
    if twin is not None and membership.gives_way(member, twin) and (membership.gave_word(twin, before) or ports.is_alive(twin)):
        state.standing = replace(state.standing, refusal=membership.name_taken(state.group, twin).message)
        return
    ports.coordination.join(state.group, member)
    stale_ms = state.settings.member_stale_ms
    news = news_of(members, state.engine, stale_ms)
    _report_members(state, ports, news, membership.unlike(membership.present(members, stale_ms), state.identity))
    now_ms = ports.clock_ms()
    state.projects = beside.after_hearing(state.projects, news)
    same = beside.same_of(news, state.projects)
    state.snapshots = snapshot_rules.after_hearing(
        state.snapshots, same, now_ms, ports.wall_us() // 1_000, state.intake.events_taken
    )
    note_stall(state, same, now_ms)
    is_awaited = divergence.is_awaited(state.differences, beside.comparable(news, state.projects))
    awaited_ms = now_ms if is_awaited else state.membership.awaited_ms
    state.membership = Membership(rank_of(member), news, awaited_ms)
    _follow_active(state, ports)
    warming.go_on(state, ports)
    state.rounds = replace(state.rounds, member_refreshed_ms=now_ms)
    notes.note_contact(state, ports)


def note_stall(state: GroupState, others: Sequence[OtherMember], now_ms: int) -> None:
    """Updates `stalled_ms`. Called when others' descriptions were read, before that time is recorded; a batch sets it to 0."""
    sight = intake.Sight(state.core.next_offsets, [each.facts for each in state.inbound], others)
    watched_ms = now_ms - state.rounds.member_refreshed_ms
    stalled_ms = intake.stalled_ms(state.intake.stalled_ms, watched_ms, sight, state.settings)
    state.intake = replace(state.intake, stalled_ms=stalled_ms)


def _follow_active(state: GroupState, ports: Ports) -> None:
    """Adopts from the active engine's description what it learned of the bus, and since when it is active."""
    told = membership.active_told(state.leadership, state.standing.role, state.membership.others)
    if told is not None:
        state.leadership = membership.since_told(state.leadership, told, ports.clock_ms())
        if told.lesson is not None:
            state.budget.follow(told.lesson)


def _check_inbound(_: do.CheckInbound, state: GroupState, ports: Ports) -> None:
    inbound_check.begin(state, ports)


def _trim_bus(_: do.TrimBus, state: GroupState, ports: Ports) -> None:
    trimming.begin(state, ports)


def _read_qualities(_: do.ReadQualities, state: GroupState, ports: Ports) -> None:
    before = state.qualities
    now = qualities.read_on(ports.coordination, state.group, before)
    state.qualities, state.rounds = now, replace(state.rounds, qualities_read_ms=ports.clock_ms())
    for sentence in now.unreadable:
        notes.report(state, ports, HaEventKind.QUALITY_CHANGED, sentence)
    for stream, quality in now.by_stream.items():
        if quality != before.of(stream):
            notes.report(state, ports, HaEventKind.QUALITY_CHANGED, f"stream {stream}: {before.of(stream)} becomes {quality}")
    if now.version != before.version:
        notes.tell_others_soon(state)  # the command that requested it waits to see it


def _report_members(state: GroupState, ports: Ports, news: tuple[OtherMember, ...], differences: tuple[str, ...]) -> None:
    came, went = membership.came_and_went(state.membership.others, news)
    for engine in came:
        notes.report(state, ports, HaEventKind.MEMBERS_CHANGED, f"engine {engine} joined")
    for engine in went:
        notes.report(state, ports, HaEventKind.MEMBERS_CHANGED, f"engine {engine} left, or no longer renews its member record")
    for sentence in differences:
        if sentence not in state.unlike:
            notes.report(state, ports, HaEventKind.MEMBER_UNLIKE, sentence)
    state.unlike = differences


def _read_projects(_: do.ReadProjects, state: GroupState, ports: Ports) -> None:
    """Reads new decisions about the projects of the group. Raises ProjectChanged as `asked_on` does.

    While one project runs alone, `decide` does not request this. An engine learns that a second one takes part from the
    descriptions of its engines; from then on it reads now and then, until there is one again. A promotion reads in any case.
    """
    _note_projects(state, ports, asked_on(ports.coordination, state.group, state.projects.known, state.project_hash))


def _note_projects(state: GroupState, ports: Ports, known: Agreement | None) -> None:
    """Records the projects; news older than what is known is ignored."""
    before, now_ms = state.projects, ports.clock_ms()
    if known is None or known.moves <= before.moves:
        state.projects = replace(before, told=before.moves, read_ms=now_ms)
        return
    state.projects = replace(before, known=known, lacked=before.lacking, told=known.moves, read_ms=now_ms)
    notes.tell_others_soon(state)
    notes.report(state, ports, HaEventKind.PROJECTS_CHANGED, upgrading_rules.sentence(known, before.own))


def _read_progress(_: do.ReadProgress, state: GroupState, ports: Ports) -> None:
    state.rounds = replace(state.rounds, progress_read_ms=ports.clock_ms())
    progress = ports.bus.progress(state.group)
    own = ((state.streams[stream], read) for stream, read in progress.items() if stream in state.streams)
    if any(commit_rules.is_news(known, read) for known, read in own) or placing.are_news(state.projects, progress):
        committed.note_progress(state, ports, progress)
        warming.go_on(state, ports)


def _diverge(_: do.Diverge, state: GroupState, ports: Ports) -> None:
    held_role = state.standing.role in (Role.PROMOTING, Role.ACTIVE)
    state.ended_because = "; ".join(
        f"output {d.sequence} of stream {d.stream} differs from the one committed under epoch {d.epoch}" for d in state.differences
    )
    notes.close_producer(state)
    notes.move(state, ports, Role.DIVERGED, Reason.DIFFERS)
    if held_role:
        ports.coordination.release(state.group, state.standing.epoch, state.engine, "")


def _leave(action: do.Leave, state: GroupState, ports: Ports) -> None:
    held_role = state.standing.role in (Role.PROMOTING, Role.ACTIVE)
    state.ended_because, state.ended_by = action.detail or action.reason.value, action.reason
    notes.close_producer(state)
    notes.move(state, ports, Role.STOPPED, action.reason)
    if held_role:
        ports.coordination.release(state.group, state.standing.epoch, state.engine, "")
    ports.coordination.leave(state.group, state.engine)


def _take_snapshot(_: do.TakeSnapshot, state: GroupState, ports: Ports) -> None:
    snapshots.take(state, ports)


def _confirm_snapshot(action: do.ConfirmSnapshot, state: GroupState, ports: Ports) -> None:
    snapshots.confirm(state, ports, action.name)


def _discard_snapshot(action: do.DiscardSnapshot, state: GroupState, ports: Ports) -> None:
    snapshots.discard(state, ports, action.name)


def _give_up_store(_: do.GiveUpStore, state: GroupState, ports: Ports) -> None:
    snapshots.give_up(state, ports)


PERFORMERS: dict[type[do.HaAction], Callable[[Any, GroupState, Ports], None]] = {
    do.NoteVacancy: _note_vacancy,
    do.Campaign: _campaign,
    do.Fence: _fence,
    do.EndLockHolder: _end_lock_holder,
    do.ReadCommitted: _read_committed,
    do.Recheck: _recheck,
    do.BecomeActive: _become_active,
    do.StepDown: _step_down,
    do.GiveUp: _give_up,
    do.Publish: publishing.publish,
    do.PlaceOutputs: _place_outputs,
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
    do.ReadProjects: _read_projects,
    do.ReadProgress: _read_progress,
    do.TakeSnapshot: _take_snapshot,
    do.ConfirmSnapshot: _confirm_snapshot,
    do.DiscardSnapshot: _discard_snapshot,
    do.GiveUpStore: _give_up_store,
    do.ReadPersist: persisting.read,
    do.ClaimPersist: persisting.claim,
    do.PersistSnapshot: persisting.persist,
    do.ReportPersisted: persisting.report,
    do.Diverge: _diverge,
    do.Leave: _leave,
}
"""The performer of each action."""
