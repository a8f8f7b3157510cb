"""Doing one action and taking note of what came of it: one effect outside each, nothing decided (DESIGN section 5).

A function here may not look for what to do next: it changes the state, and `decide` goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from hotspare.bus.contract import TICK, Progress
from hotspare.coordination.contract import Leader
from hotspare.errors import (
    BusLocked,
    BusUnavailable,
    CoordinationError,
    CoordinationLost,
    Fenced,
    HotspareError,
    MessageTooLarge,
    StateError,
    TopicOwned,
    UnknownResult,
)
from hotspare.ha.effects import committed, inbound_check, lease, pipeline_watch, publishing, recheck, snapshots, trimming
from hotspare.ha.events import HaEvent, HaEventKind
from hotspare.ha.group_state import LONG_AGO_MS, GroupState, MemberNews, Oversized, committed_sequence, is_awaited, sent_sequence
from hotspare.ha.member_record import gave_word, member_of, name_taken, namesake, news_of, rank_of, started_later, unlike
from hotspare.ha.outputs import qualities
from hotspare.ha.outputs.transaction import NextCommit, Transaction
from hotspare.ha.ports import Ports
from hotspare.ha.rules import actions as do
from hotspare.ha.rules.roles import Reason, Role, Step, moved
from hotspare.ha.rules.view import Contact, Vacancy

_NOTEWORTHY = (do.Campaign, do.StepDown, do.GiveUp, do.Diverge, do.Leave)


def perform(action: do.Action, state: GroupState, ports: Ports) -> None:
    """Do `action`; what bus or coordination could not do is remembered and retried, and is no error."""
    if isinstance(action, _NOTEWORTHY):
        report(state, ports, HaEventKind.ACTED, action.sentence)
    try:
        with lease.kept(action, state, ports):
            PERFORMERS[type(action)](action, state, ports)
    except CoordinationError as error:
        _note_contact(state, ports, Contact.LOST if isinstance(error, CoordinationLost) else Contact.SUSPENDED)
        state.coordination_retry_ms = ports.clock_ms() + state.settings.coordination_retry_ms
        state.leader = None  # the call may have happened
    except (BusUnavailable, BusLocked) as error:
        now_ms = ports.clock_ms()
        if isinstance(error, BusLocked):
            state.lock_holder = error.holder
            state.locked_since_ms = now_ms if state.locked_since_ms is None else state.locked_since_ms
        state.bus_retry_ms = now_ms + state.settings.retry_ms
        told = f"{error.message} ({error.detail})" if error.detail else error.message
        report(state, ports, HaEventKind.BUS_TROUBLE, f"{told}, while: {action.sentence}")
    except (TopicOwned, StateError) as error:
        state.refusal = str(error)


def report(state: GroupState, ports: Ports, kind: HaEventKind, sentence: str, **numbers: int) -> None:
    ports.report(HaEvent(kind, state.group, state.engine, sentence, numbers))


def move(state: GroupState, ports: Ports, to: Role, reason: Reason, step: Step = Step.NONE) -> None:
    """Change the role by the table of moves."""
    before, now_ms = state.role, ports.clock_ms()
    state.role, state.role_since_ms = moved(before, to, reason), now_ms
    state.step, state.step_ms = step, now_ms
    state.committing_since_ms = None
    state.oversized.clear()
    state.member_refreshed_ms = LONG_AGO_MS  # tell the others soon
    report(state, ports, HaEventKind.ROLE_CHANGED, f"{before.value} becomes {to.value}: {reason.value}", epoch=state.epoch)


def _come_on(state: GroupState, ports: Ports, step: Step) -> None:
    """A step of the promotion is done."""
    state.step, state.step_ms = step, ports.clock_ms()


def _note_contact(state: GroupState, ports: Ports, contact: Contact) -> None:
    if state.contact is not contact:
        state.contact = contact
        report(state, ports, HaEventKind.COORDINATION_CHANGED, f"coordination is {contact.value}")


def _note_leader(state: GroupState, ports: Ports, leader: Leader) -> None:
    known = state.leader
    state.leader, state.leader_read_ms = leader, ports.clock_ms()
    _note_contact(state, ports, Contact.CONNECTED)
    if state.leader_epoch != leader.epoch:
        state.leader_epoch, state.leader_since_ms = leader.epoch, state.leader_read_ms
    if leader.holder == "" and state.free_epoch != leader.epoch:
        state.free_epoch, state.free_since_ms = leader.epoch, state.leader_read_ms
    if known is None or (known.epoch, known.holder) != (leader.epoch, leader.holder):
        ports.peers.watch(leader)


def _close_producer(state: GroupState) -> None:
    """A transaction that is under way ends as it may: who publishes next reads what is committed first."""
    state.transaction = None
    if state.producer is not None:
        state.producer.close()
        state.producer = None


def _note_vacancy(action: do.NoteVacancy, state: GroupState, ports: Ports) -> None:
    now_ms = ports.clock_ms()
    state.vacancy = None if action.reason is None else Vacancy(action.epoch, action.reason, now_ms)
    if action.reason is not None:
        state.marks.noticed_ms = now_ms


def _read_leader(_: do.ReadLeader, state: GroupState, ports: Ports) -> None:
    _note_leader(state, ports, ports.coordination.leader(state.group))


def _campaign(action: do.Campaign, state: GroupState, ports: Ports) -> None:
    settings, asked_ms = state.settings, ports.clock_ms()
    before, read_ms = state.leader, state.leader_read_ms
    member = member_of(state, asked_ms)
    with ports.unlocked():
        epoch = ports.coordination.campaign(state.group, action.expected_epoch, member, settings.lease_ms)
    if epoch is None:
        state.leader = None
        return
    state.predecessor = before if before is not None and before.holder not in ("", state.engine) else None
    state.predecessor_lease_end_ms = read_ms + (before.lease_left_ms if before is not None else 0)
    state.epoch, state.renewed_ms, state.has_moved, state.fruitless_since_ms = epoch, asked_ms, False, None
    committed.forget_sent(state)
    state.marks.won_ms = ports.clock_ms()
    state.overrules = action.reason in (Reason.SPARES_AGREE, Reason.NOBODY_ELSE)
    state.vacancy, state.switchover = None, None
    move(state, ports, Role.PROMOTING, action.reason, Step.WON)
    _note_leader(state, ports, Leader(epoch, state.engine, "", settings.lease_ms))


def _fence(action: do.Fence, state: GroupState, ports: Ports) -> None:
    try:
        with ports.unlocked():
            state.producer = state.producer or ports.bus.producer(state.group, state.topics.output_topics)
            state.producer.fence(action.epoch)
    except Fenced as error:
        _give_way(state, ports, error)
        return
    except UnknownResult as error:
        report(state, ports, HaEventKind.RESULT_UNKNOWN, error.message)
        state.bus_retry_ms = ports.clock_ms() + state.settings.retry_ms
        return
    state.marks.fenced_ms = ports.clock_ms()
    _note_unlocked(state)
    _come_on(state, ports, Step.FENCED)


def _give_way(state: GroupState, ports: Ports, error: Fenced) -> None:
    """A newer epoch was there before this promotion came to its end."""
    report(state, ports, HaEventKind.FENCED, error.message)
    state.leader = None
    _close_producer(state)
    move(state, ports, Role.STANDBY, Reason.NEWER_EPOCH)


def _end_lock_holder(action: do.EndLockHolder, state: GroupState, ports: Ports) -> None:
    state.lock_holder = None  # whoever is in the way the next time is looked at then
    if ports.end_process(action.process_id, action.process_start):
        sentence = f"process {action.process_id} is ended: it was stopped and kept the bus locked"
        report(state, ports, HaEventKind.LOCK_HOLDER_ENDED, sentence)


def _note_unlocked(state: GroupState) -> None:
    state.lock_holder = state.locked_since_ms = None


def _read_committed(_: do.ReadCommitted, state: GroupState, ports: Ports) -> None:
    assert state.producer is not None
    recheck.begin(state, ports)
    try:
        with ports.unlocked():
            progress = dict(state.producer.progress())
    except Fenced as error:
        _give_way(state, ports, error)
        return
    state.unrecorded = {}
    for output in state.topics.outbound:
        if output.stream not in progress:
            place = state.topics.output_partition(output.topic)
            rebuilt = publishing.progress_from_tail(ports.bus, ports.codec, output.stream, place)
            progress[output.stream] = state.unrecorded[output.stream] = rebuilt
            if rebuilt.sequence:
                sentence = f"progress of stream {output.stream} was rebuilt from topic {output.topic}"
                report(state, ports, HaEventKind.PROGRESS_REBUILT, sentence, sequence=rebuilt.sequence)
            state.step_ms = ports.clock_ms()  # each topic that is looked through is a step of its own
    state.may_repeat.update(state.held.streams)
    committed.note_progress(state, ports, progress)
    _come_on(state, ports, Step.READ)


def _recheck(_: do.Recheck, state: GroupState, ports: Ports) -> None:
    _note_leader(state, ports, recheck.answered(state, ports))
    _come_on(state, ports, Step.CHECKED)


def _become_active(_: do.BecomeActive, state: GroupState, ports: Ports) -> None:
    if state.overrules:
        committed.accept_committed(state)
    committed.note_lost(state, ports)
    state.predecessor = None
    state.switchover_read_ms = state.marks.active_ms = ports.clock_ms()
    state.marks.is_first_commit_due = True
    move(state, ports, Role.ACTIVE, Reason.PROMOTED)


def _step_down(action: do.StepDown, state: GroupState, ports: Ports) -> None:
    _close_producer(state)
    state.leader = None
    move(state, ports, Role.STANDBY, action.reason)


def _give_up(action: do.GiveUp, state: GroupState, ports: Ports) -> None:
    ports.coordination.release(state.group, state.epoch, state.engine, action.successor)
    state.gave_up_epoch = state.epoch
    state.switchover = None
    _close_producer(state)
    state.leader = None
    move(state, ports, Role.STANDBY, action.reason)


def _publish(_: do.Publish, state: GroupState, ports: Ports) -> None:
    assert state.producer is not None
    now_ms = ports.clock_ms()
    following = publishing.next_commit(state, ports.codec, now_ms)
    if not (following.commit.messages or following.commit.progress):
        state.committing_since_ms = None
        return
    call = ports.begin(partial(state.producer.publish, state.epoch, following.commit))
    state.transaction = Transaction(following, call, now_ms)


def _await_commit(_: do.AwaitCommit, state: GroupState, ports: Ports) -> None:
    assert state.transaction is not None
    following, call = state.transaction.content, state.transaction.call
    state.transaction = None
    try:
        call.wait()
    except (BusUnavailable, Fenced, UnknownResult, MessageTooLarge) as error:
        _note_unpublished(state, ports, error, following)
        return
    commit = following.commit
    _note_unlocked(state)
    if commit.messages:
        state.has_moved = True  # held outputs come to an end: behind a pipeline that hangs this does too
    state.published_ms, state.committing_since_ms, state.fruitless_since_ms = ports.clock_ms(), None, None
    if following.cut:
        state.budget.note_succeeded()
    state.cut = following.cut
    committed.note_own_commit(state, commit.progress, following.sent, state.published_ms)
    _note_no_longer_oversized(state, ports)
    if state.marks.is_first_commit_due and commit.messages:
        _report_promotion(state, ports)


def _note_unpublished(state: GroupState, ports: Ports, error: HotspareError, following: NextCommit) -> None:
    if isinstance(error, MessageTooLarge):
        _note_too_large(state, ports, error, following)
        return
    state.fruitless_since_ms = ports.clock_ms() if state.fruitless_since_ms is None else state.fruitless_since_ms
    state.budget.note_failed(following.rows, following.bytes)  # a bus also fences out a transaction that took too long
    state.member_refreshed_ms = LONG_AGO_MS  # the spares are to know
    if isinstance(error, Fenced):
        report(state, ports, HaEventKind.FENCED, error.message)
        _fence_again(state, ports, Reason.FENCED)
    elif isinstance(error, UnknownResult):
        report(state, ports, HaEventKind.RESULT_UNKNOWN, error.message)
        _fence_again(state, ports, Reason.UNKNOWN_RESULT)
    else:
        raise error


def _note_too_large(state: GroupState, ports: Ports, error: MessageTooLarge, following: NextCommit) -> None:
    """Messages are cut smaller the next time; where one is a single output, its stream waits for its topic to take more, and the
    others go on. An output is never dropped, and no engine could do better: so this one stays."""
    state.message_sizes.bytes_max = dict(ports.bus.message_bytes_max(state.topics.output_topics))
    state.bus_retry_ms = ports.clock_ms() + state.settings.retry_ms
    refused = state.message_sizes.refused_of(following.blocks)
    if refused.rows > 1:
        return
    known, retry_ms = state.oversized.get(refused.stream), ports.clock_ms() + state.settings.oversized_retry_ms
    now = state.oversized[refused.stream] = Oversized(refused.first, refused.bytes, refused.topic, retry_ms)
    state.message_sizes.forget_refused()
    state.member_refreshed_ms = LONG_AGO_MS
    if known is None or known.sequence != now.sequence:
        hint = "raise what the topic takes (on Kafka its max.message.bytes)"
        sentence = f"stream {refused.stream} waits: {now.sentence}; {hint}. {error.message}"
        report(state, ports, HaEventKind.OUTPUT_TOO_LARGE, sentence, bytes=refused.bytes)


def _note_no_longer_oversized(state: GroupState, ports: Ports) -> None:
    for stream, waiting in list(state.oversized.items()):
        if sent_sequence(state, stream) >= waiting.sequence:
            del state.oversized[stream]
            report(state, ports, HaEventKind.OUTPUT_TOO_LARGE, f"stream {stream} goes on: output {waiting.sequence} was taken")


def _fence_again(state: GroupState, ports: Ports, reason: Reason) -> None:
    """What is committed is not known: if this still is the newest epoch, the promotion is repeated from its fence."""
    state.leader = None
    move(state, ports, Role.PROMOTING, reason, Step.WON)


def _report_promotion(state: GroupState, ports: Ports) -> None:
    marks, now_ms = state.marks, ports.clock_ms()
    marks.is_first_commit_due = False
    report(
        state,
        ports,
        HaEventKind.PROMOTED,
        f"first output under epoch {state.epoch} is committed",
        epoch=state.epoch,
        election_ms=marks.won_ms - marks.noticed_ms,
        fencing_ms=marks.fenced_ms - marks.won_ms,
        reading_ms=marks.active_ms - marks.fenced_ms,
        first_output_ms=now_ms - marks.active_ms,
        total_ms=now_ms - marks.noticed_ms,
    )


def _tick(action: do.Tick, state: GroupState, ports: Ports) -> None:
    inbound = state.inbound[action.index]
    inbound.ticked_ms = ports.clock_ms()
    try:
        inbound.ticked_offset = ports.bus.append(inbound.partition, (TICK,))
    except UnknownResult:
        return  # one tick more or less changes nothing: it is part of the input where it is
    _note_unlocked(state)


def _renew(_: do.Renew, state: GroupState, ports: Ports) -> None:
    asked_ms, state.has_moved = ports.clock_ms(), False
    if ports.coordination.renew(state.group, state.epoch, state.engine, state.settings.lease_ms):
        state.renewed_ms = asked_ms
        _note_contact(state, ports, Contact.CONNECTED)
    else:
        state.leader = None


def _read_switchover(_: do.ReadSwitchover, state: GroupState, ports: Ports) -> None:
    state.switchover = ports.coordination.switchover_asked(state.group)
    state.switchover_read_ms = ports.clock_ms()


def _refresh_member(_: do.RefreshMember, state: GroupState, ports: Ports) -> None:
    member = member_of(state, ports.clock_ms())
    members = ports.coordination.members(state.group)
    twin = namesake(members, member)
    before, state.namesake = state.namesake, twin
    if twin is not None and started_later(member, twin) and (gave_word(twin, before) or ports.is_alive(twin)):
        state.refusal = name_taken(state.group, twin).message
        return
    ports.coordination.join(state.group, member)
    news = news_of(members, state.engine, state.settings.member_stale_ms)
    _report_members(state, ports, news, unlike(members, state.identity))
    now_ms = ports.clock_ms()
    snapshots.note_others(state, news, now_ms)
    pipeline_watch.note_stall(state, news, now_ms)
    state.news = news
    state.awaited_ms = now_ms if is_awaited(state) else state.awaited_ms
    _follow_active(state, ports)
    state.rank, state.member_refreshed_ms = rank_of(member), now_ms
    _note_contact(state, ports, Contact.CONNECTED)


def _follow_active(state: GroupState, ports: Ports) -> None:
    """What a spare takes over from the active engine's description: what it learned of the bus, and since when it is active, which
    one that joined later has not seen."""
    holder, epoch = (state.leader.holder, state.leader.epoch) if state.leader is not None else ("", 0)
    for each in state.news:
        if state.role is not Role.STANDBY or each.engine != holder or each.held is None or each.held[0] != epoch:
            continue
        if state.told_epoch != epoch:
            state.told_epoch = epoch
            state.leader_since_ms = min(state.leader_since_ms, ports.clock_ms() - each.held[1])
        if each.lesson is not None:
            state.budget.follow(each.lesson)


def _check_inbound(_: do.CheckInbound, state: GroupState, ports: Ports) -> None:
    inbound_check.begin(state, ports)


def _trim_bus(_: do.TrimBus, state: GroupState, ports: Ports) -> None:
    trimming.begin(state, ports)


def _read_qualities(_: do.ReadQualities, state: GroupState, ports: Ports) -> None:
    before = state.qualities
    now = qualities.read_on(ports.coordination, state.group, before)
    state.qualities, state.qualities_read_ms = now, ports.clock_ms()
    for sentence in now.unreadable:
        report(state, ports, HaEventKind.QUALITY_CHANGED, sentence)
    for stream, quality in now.by_stream.items():
        if quality != before.of(stream):
            report(state, ports, HaEventKind.QUALITY_CHANGED, f"stream {stream}: {before.of(stream)} becomes {quality}")
    if now.version != before.version:
        state.member_refreshed_ms = LONG_AGO_MS  # whoever asked for it waits to see it


def _report_members(state: GroupState, ports: Ports, news: tuple[MemberNews, ...], differences: tuple[str, ...]) -> None:
    before, now = [n.engine for n in state.news], [n.engine for n in news]
    for engine in now:
        if engine not in before:
            report(state, ports, HaEventKind.MEMBERS_CHANGED, f"{engine} takes part")
    for engine in before:
        if engine not in now:
            report(state, ports, HaEventKind.MEMBERS_CHANGED, f"{engine} gives no word any more")
    for sentence in differences:
        if sentence not in state.unlike:
            report(state, ports, HaEventKind.MEMBER_UNLIKE, sentence)
    state.unlike = differences


def _read_progress(_: do.ReadProgress, state: GroupState, ports: Ports) -> None:
    state.progress_read_ms = ports.clock_ms()
    progress = ports.bus.progress(state.group)
    if any(_is_news(state, stream, news) for stream, news in progress.items()):
        committed.note_progress(state, ports, progress)


def _is_news(state: GroupState, stream: str, news: Progress) -> bool:
    return news.sequence > committed_sequence(state, stream)


def _diverge(action: do.Diverge, state: GroupState, ports: Ports) -> None:
    held_role = state.role in (Role.PROMOTING, Role.ACTIVE)
    state.ended_because = "; ".join(
        f"output {d.sequence} of stream {d.stream} differs from the one committed under epoch {d.epoch}"
        for d in state.differences.values()
    )
    _close_producer(state)
    move(state, ports, Role.DIVERGED, action.reason)
    if held_role:
        ports.coordination.release(state.group, state.epoch, state.engine, "")


def _leave(action: do.Leave, state: GroupState, ports: Ports) -> None:
    held_role = state.role in (Role.PROMOTING, Role.ACTIVE)
    state.ended_because, state.ended_by = action.detail or action.reason.value, action.reason
    _close_producer(state)
    move(state, ports, Role.STOPPED, action.reason)
    if held_role:
        ports.coordination.release(state.group, state.epoch, state.engine, "")
    ports.coordination.leave(state.group, state.engine)


def _take_snapshot(_: do.TakeSnapshot, state: GroupState, ports: Ports) -> None:
    snapshots.take(state, ports)


def _confirm_snapshot(action: do.ConfirmSnapshot, state: GroupState, ports: Ports) -> None:
    snapshots.confirm(state, ports, action.name)


def _discard_snapshot(action: do.DiscardSnapshot, state: GroupState, ports: Ports) -> None:
    snapshots.discard(state, ports, action.name)


def _give_up_store(_: do.GiveUpStore, state: GroupState, ports: Ports) -> None:
    snapshots.give_up(state, ports)


PERFORMERS: dict[type[do.Action], Callable[[Any, GroupState, Ports], None]] = {
    do.NoteVacancy: _note_vacancy,
    do.Campaign: _campaign,
    do.Fence: _fence,
    do.EndLockHolder: _end_lock_holder,
    do.ReadCommitted: _read_committed,
    do.Recheck: _recheck,
    do.BecomeActive: _become_active,
    do.StepDown: _step_down,
    do.GiveUp: _give_up,
    do.Publish: _publish,
    do.AwaitCommit: _await_commit,
    do.Tick: _tick,
    do.Renew: _renew,
    do.ReadLeader: _read_leader,
    do.ReadSwitchover: _read_switchover,
    do.RefreshMember: _refresh_member,
    do.CheckInbound: _check_inbound,
    do.TrimBus: _trim_bus,
    do.ReadQualities: _read_qualities,
    do.ReadProgress: _read_progress,
    do.TakeSnapshot: _take_snapshot,
    do.ConfirmSnapshot: _confirm_snapshot,
    do.DiscardSnapshot: _discard_snapshot,
    do.GiveUpStore: _give_up_store,
    do.Diverge: _diverge,
    do.Leave: _leave,
}
"""One performer per action."""
