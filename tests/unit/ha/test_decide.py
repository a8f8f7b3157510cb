"""The rules of failover as decisions from a view (DESIGN section 5): pure, in promotion order, due exactly when they say."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.coordination.contract import Leader
from hotspare.ha.rules import actions as do
from hotspare.ha.rules.decide import LATE_INTERVALS, STORE_STUCK_MAX, decide, duties, next_due_ms, read_interval_ms, vacancy
from hotspare.ha.rules.roles import ENDS, VACANT, Reason, Role, Step
from hotspare.ha.rules.settings import GroupSettings, OnDivergence
from hotspare.ha.rules.view import CandidateView, Difference, InboundView, OtherMember, PeerStatus, Vacancy, View

SETTINGS = GroupSettings()
NOW_MS = 1_000_000
RECENT = {
    "leader_read_ms": NOW_MS,
    "member_refreshed_ms": NOW_MS,
    "qualities_read_ms": NOW_MS,
    "inbound_checked_ms": NOW_MS,
    "progress_read_ms": NOW_MS,
    "switchover_read_ms": NOW_MS,
    "renewed_ms": NOW_MS,
    "snapshot_ms": NOW_MS,
    "newest_snapshot_ms": NOW_MS,
}
HELD = Leader(7, "other", "", 800, "127.0.0.1:1", "host", 11, 12)
OWN = replace(HELD, holder="me")


STANDBY = View(now_ms=NOW_MS, settings=SETTINGS, engine="me", role=Role.STANDBY, leader=HELD, **RECENT)
"""A caught-up standby of a healthy active; nothing is due."""
ACTIVE = replace(STANDBY, role=Role.ACTIVE, epoch=7, leader=OWN, has_moved=True)


def standby(**changes: object) -> View:
    return replace(STANDBY, **changes)  # type: ignore[arg-type]


def active(**changes: object) -> View:
    return replace(ACTIVE, **changes)  # type: ignore[arg-type]


def promoting(step: Step, **changes: object) -> View:
    return replace(active(), role=Role.PROMOTING, step=step, **changes)  # type: ignore[arg-type]


def later(view: View, ms: int) -> View:
    """The same, so much later: everything that was read was read again."""
    moved = {name: getattr(view, name) + ms for name in ("now_ms", *RECENT)}
    return replace(view, **moved)  # type: ignore[arg-type]


def vacant(reason: Reason, since_ms: int = NOW_MS, epoch: int = 7) -> Vacancy:
    return Vacancy(epoch, reason, since_ms)


leaders = st.one_of(
    st.none(),
    st.builds(
        Leader,
        epoch=st.integers(0, 9),
        holder=st.sampled_from(["", "me", "other"]),
        successor=st.sampled_from(["", "me", "other"]),
        lease_left_ms=st.integers(-2000, 2000),
    ),
)
others = st.tuples(
    *[st.builds(OtherMember, st.just(e), st.sampled_from(["standby", "active"]), st.integers(0, 9), st.booleans()) for e in "ab"]
)
times = st.integers(NOW_MS - 9_000, NOW_MS + 9_000)
views = st.builds(
    View,
    now_ms=times,
    settings=st.just(SETTINGS),
    engine=st.just("me"),
    role=st.sampled_from(Role),
    step=st.sampled_from(Step),
    epoch=st.integers(0, 9),
    stop_asked=st.booleans(),
    refusal=st.sampled_from(["", "refused"]),
    coordination_retry_ms=times,
    leader=leaders,
    leader_read_ms=times,
    free_since_ms=times,
    peer=st.sampled_from(PeerStatus),
    vacancy=st.one_of(st.none(), st.builds(Vacancy, st.integers(0, 9), st.sampled_from(VACANT), times)),
    others=others,
    switchover=st.sampled_from([None, "", "a", "nobody"]),
    renewed_ms=times,
    has_moved=st.booleans(),
    bus_retry_ms=times,
    lock_holder=st.sampled_from([None, (11, 12), (13, 14)]),
    locked_since_ms=st.integers(NOW_MS - 3000, NOW_MS + 10),
    predecessor=st.one_of(st.none(), st.just(HELD)),
    publish_due_ms=st.one_of(st.none(), times),
    await_due_ms=st.one_of(st.none(), times),
    inbound=st.just((InboundView(0, NOW_MS, NOW_MS, True), InboundView(1, NOW_MS, NOW_MS, False))),
    difference=st.one_of(st.none(), st.builds(Difference, st.just("s"), st.just(3), st.just(4), st.integers(0, 9), times)),
    overrules=st.booleans(),
    candidates=st.sampled_from([(), (CandidateView("x", True),), (CandidateView("x", False),)]),
    has_new_state=st.booleans(),
    store_begun_ms=st.one_of(st.none(), times),
    newest_snapshot_ms=times,
    newest_snapshot_by=st.sampled_from(["", "me", "a", "b"]),
    stalled_ms=st.sampled_from([0, 0, 0, SETTINGS.pipeline_stall_ms]),
)


@given(view=views)
def test_every_view_has_a_decision_that_repeats_and_says_why(view: View) -> None:
    decided = decide(view)
    assert decided == decide(view)
    for action in decided:
        assert action.sentence
        assert isinstance(action.reason, Reason) or isinstance(action, do.NoteVacancy)
    if view.role in ENDS or view.role is Role.JOINING:
        assert decided == ()


@given(view=views)
def test_what_falls_due_is_due_then_and_nothing_before(view: View) -> None:
    """A host sleeps until then, so nothing may come earlier or later by itself."""
    due_ms = next_due_ms(view)
    if due_ms is None:
        assert decide(view) == ()
    elif due_ms > view.now_ms:
        assert decide(view) == ()
        assert decide(replace(view, now_ms=due_ms - 1)) == ()
        assert decide(replace(view, now_ms=due_ms)) != ()
    else:
        assert decide(view) != ()


@given(view=views)
def test_only_a_standby_that_does_not_differ_alone_campaigns_and_only_an_active_publishes(view: View) -> None:
    """SPEC E12, Z9, law 7."""
    for action in decide(view):
        if isinstance(action, do.Campaign):
            assert view.role is Role.STANDBY
            assert view.leader is not None
            assert action.expected_epoch == view.leader.epoch
            assert view.difference is None or action.reason is Reason.SPARES_AGREE
        if isinstance(action, do.Publish | do.AwaitCommit | do.Tick | do.Renew):
            assert view.role is Role.ACTIVE
        if isinstance(action, do.Publish | do.GiveUp) and view.role is Role.ACTIVE:
            assert view.await_due_ms is None, "one transaction at a time, and the role is given up behind the last"
        if isinstance(action, do.BecomeActive):
            assert view.step is Step.CHECKED
            assert view.leader is not None
            assert view.leader.epoch <= view.epoch


@pytest.mark.parametrize(
    ("step", "action"),
    [(Step.WON, do.Fence), (Step.FENCED, do.ReadCommitted), (Step.READ, do.Recheck), (Step.CHECKED, do.BecomeActive)],
)
def test_a_promotion_has_one_order(step: Step, action: type) -> None:
    assert isinstance(decide(promoting(step))[0], action)


@pytest.mark.parametrize("step", [Step.WON, Step.FENCED, Step.READ, Step.CHECKED])
def test_a_promotion_ends_when_the_epoch_is_newer_and_waits_while_it_is_unknown(step: Step) -> None:
    newer = promoting(step, leader=replace(HELD, epoch=8))
    assert decide(newer)[0] == do.StepDown(Reason.NEWER_EPOCH)
    unknown = promoting(step, leader=None, coordination_retry_ms=NOW_MS + 5)
    assert decide(unknown) == ()
    assert decide(replace(unknown, now_ms=NOW_MS + 5)) == (do.ReadLeader(Reason.UNKNOWN_LEADER),)


def test_a_healthy_group_leaves_a_standby_nothing_to_do() -> None:
    assert decide(standby()) == ()
    assert decide(active()) == ()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"leader": replace(HELD, epoch=0, holder="")}, Reason.NEVER_HELD),
        ({"leader": replace(HELD, holder="")}, Reason.GIVEN_UP),
        ({"leader": replace(HELD, holder="", successor="me")}, Reason.NAMED_SUCCESSOR),
        ({"leader": replace(HELD, holder="me")}, Reason.OWN_EPOCH),
        ({"peer": PeerStatus.CLOSED}, Reason.CONNECTION_CLOSED),
        ({"peer": PeerStatus.ENDED}, Reason.PROCESS_ENDED),
        ({"leader": replace(HELD, lease_left_ms=0)}, Reason.LEASE_OVER),
        ({}, None),
    ],
)
def test_when_the_role_is_free(changes: dict[str, object], reason: Reason | None) -> None:
    view = standby(**changes)
    assert vacancy(view) is reason
    if reason is not None:
        assert view.leader is not None
        assert decide(view)[0] == do.NoteVacancy(view.leader.epoch, reason)


@pytest.mark.parametrize(
    ("view", "is_slow"),
    [
        (standby(), True),
        (standby(peer=PeerStatus.CLOSED), False),
        (standby(leader=replace(HELD, lease_left_ms=0)), False),
        (standby(leader=replace(HELD, holder="")), False),
        (standby(leader=None), False),
        (standby(difference=Difference("s", 1, 1, 7, NOW_MS)), False),
        (promoting(Step.WON), False),
        (active(), False),
    ],
)
def test_only_a_spare_beside_an_active_that_is_there_reads_seldom(view: View, is_slow: bool) -> None:
    assert read_interval_ms(view) == (SETTINGS.spare_interval_ms if is_slow else SETTINGS.read_interval_ms)


def test_a_single_caught_up_candidate_campaigns_without_waiting() -> None:
    view = standby(peer=PeerStatus.CLOSED, vacancy=vacant(Reason.CONNECTION_CLOSED))
    assert decide(view)[0] == do.Campaign(7, Reason.CONNECTION_CLOSED)


def test_a_connection_that_closes_within_the_first_lease_waits_for_it_c6() -> None:
    """The holder just took the role over: what closed the connection before it may close this one, too."""
    lease_ms, seen = SETTINGS.lease_ms, vacant(Reason.CONNECTION_CLOSED)
    young = standby(peer=PeerStatus.CLOSED, vacancy=seen, leader_since_ms=NOW_MS - lease_ms + 1)
    assert not any(isinstance(action, do.Campaign) for action in decide(young))
    assert not any(isinstance(action, do.Campaign) for action in decide(later(young, 10 * lease_ms)))
    over = replace(young, leader=replace(HELD, lease_left_ms=0))
    assert do.Campaign(7, Reason.CONNECTION_CLOSED) in decide(over)
    old = replace(young, leader_since_ms=NOW_MS - lease_ms)
    assert do.Campaign(7, Reason.CONNECTION_CLOSED) in decide(old)


def test_an_ended_process_is_certain_however_young_its_epoch_is_e2() -> None:
    view = standby(peer=PeerStatus.ENDED, vacancy=vacant(Reason.PROCESS_ENDED), leader_since_ms=NOW_MS)
    assert do.Campaign(7, Reason.PROCESS_ENDED) in decide(view)


@pytest.mark.parametrize(("rank", "engine", "wait_ms"), [(5, "a", 150), (5, "z", 0), (6, "z", 150), (4, "a", 0)])
def test_a_better_candidate_may_go_first_for_a_short_time(rank: int, engine: str, wait_ms: int) -> None:
    other = OtherMember(engine, Role.STANDBY.value, rank, agrees=False)
    view = standby(peer=PeerStatus.CLOSED, vacancy=vacant(Reason.CONNECTION_CLOSED), rank=5, others=(other,))
    before = replace(view, now_ms=NOW_MS + wait_ms - 1)
    assert not [a for a in decide(before) if isinstance(a, do.Campaign)] or not wait_ms
    assert [a for a in decide(replace(view, now_ms=NOW_MS + wait_ms)) if isinstance(a, do.Campaign)]


def test_who_gave_the_role_up_and_who_is_not_the_successor_wait_a_lease_time() -> None:
    """SPEC Z15: if the successor has not promoted within the lease, anyone may."""
    given_up = standby(leader=replace(HELD, holder="", successor="z"), vacancy=vacant(Reason.GIVEN_UP), free_since_ms=NOW_MS)
    own = replace(given_up, leader=replace(HELD, holder=""), gave_up_epoch=7)
    for view in (given_up, own):
        for now_ms, may in ((NOW_MS + SETTINGS.lease_ms - 1, False), (NOW_MS + SETTINGS.lease_ms, True)):
            decided = decide(replace(view, now_ms=now_ms, leader_read_ms=now_ms))
            assert any(isinstance(a, do.Campaign) for a in decided) is may


def test_an_old_record_of_a_lease_is_read_again_at_its_end_and_not_acted_upon() -> None:
    """A standby never campaigns against a lease that it has not seen to be over."""
    record = replace(HELD, lease_left_ms=40)
    view = standby(leader=record, leader_read_ms=NOW_MS - 40, vacancy=None)
    assert decide(view) == (do.ReadLeader(Reason.TIMER),)


def test_the_lease_is_renewed_only_when_a_batch_passed() -> None:
    """A living thread is no sign of life (SPEC E16)."""
    due = NOW_MS + SETTINGS.renew_interval_ms
    assert do.Renew() in decide(replace(active(), now_ms=due))
    stuck = decide(replace(active(has_moved=False), now_ms=NOW_MS + SETTINGS.lease_ms))
    assert do.Renew() not in stuck
    assert do.ReadLeader(Reason.LEASE_OVER) in stuck


def test_an_idle_partition_is_ticked_only_while_it_holds_up_the_merge() -> None:
    waits, free = InboundView(0, NOW_MS, NOW_MS, True), InboundView(1, NOW_MS, NOW_MS, False)
    decided = decide(replace(active(inbound=(waits, free)), now_ms=NOW_MS + SETTINGS.merge_wait_ms))
    assert [a for a in decided if isinstance(a, do.Tick)] == [do.Tick(0, Reason.IDLE_PARTITION)]
    later = decide(replace(active(inbound=(free, free)), now_ms=NOW_MS + SETTINGS.tick_interval_ms))
    assert len([a for a in later if isinstance(a, do.Tick)]) == 2


def test_the_frozen_holder_is_ended_only_past_its_lease_and_only_if_the_bus_is_locked() -> None:
    before = {"predecessor": HELD, "predecessor_lease_end_ms": NOW_MS}
    holder = (HELD.process_id, HELD.process_start)
    locked = promoting(Step.WON, **before, lock_holder=holder, locked_since_ms=NOW_MS, bus_retry_ms=NOW_MS + 9)
    assert decide(locked) == (do.EndLockHolder(*holder),)
    assert decide(replace(locked, predecessor_lease_end_ms=NOW_MS + 1)) == ()
    assert decide(replace(locked, lock_holder=None)) == ()


@pytest.mark.parametrize("view", [promoting(Step.WON, bus_retry_ms=NOW_MS + 9), active()])
def test_who_keeps_the_bus_locked_is_ended_after_a_lease_whoever_it_is(view: View) -> None:
    """It is not the predecessor that is ended for a lock of somebody else's."""
    since_ms = NOW_MS - SETTINGS.lease_ms
    locked = replace(view, predecessor=HELD, predecessor_lease_end_ms=0, lock_holder=(99, 98), locked_since_ms=since_ms)
    assert do.EndLockHolder(99, 98) in decide(locked)
    assert not any(isinstance(each, do.EndLockHolder) for each in decide(replace(locked, locked_since_ms=since_ms + 1)))


def test_publishing_comes_before_handing_over_and_renewing() -> None:
    view = active(publish_due_ms=NOW_MS, stop_asked=True, renewed_ms=NOW_MS - SETTINGS.renew_interval_ms)
    assert do.Renew() in decide(view)
    assert isinstance(decide(view)[0], do.Publish)
    assert not [a for a in decide(view) if isinstance(a, do.GiveUp)]
    assert decide(replace(view, publish_due_ms=None))[0] == do.GiveUp("", Reason.STOP_ASKED)


def test_outputs_that_may_wait_are_published_when_they_are_due_and_nothing_is_handed_over_before() -> None:
    waiting = active(publish_due_ms=NOW_MS + 1, switchover="b")
    assert not [a for a in decide(waiting) if isinstance(a, (do.Publish, do.GiveUp))]
    assert do.Publish() in decide(replace(waiting, now_ms=NOW_MS + 1))
    assert do.Publish() in decide(replace(waiting, progress_due_ms=NOW_MS)), "progress that is due takes them along"


def test_a_backlog_of_outputs_does_not_cost_the_lease() -> None:
    """Once half of it is over, keeping it goes first; a coordination that does not answer holds up nothing."""
    half_over = active(publish_due_ms=NOW_MS, renewed_ms=NOW_MS - SETTINGS.lease_ms // 2)
    assert decide(half_over)[:2] == (do.Renew(), do.Publish())
    assert decide(replace(half_over, leader=None))[:2] == (do.ReadLeader(Reason.UNKNOWN_LEADER), do.Publish())
    assert decide(replace(half_over, leader=None, coordination_retry_ms=NOW_MS + 1))[0] == do.Publish()
    assert do.Renew() not in decide(replace(half_over, has_moved=False))


def test_a_switch_over_needs_a_successor_that_is_a_standby() -> None:
    spare = OtherMember("a", Role.STANDBY.value, 1, agrees=False)
    assert not [a for a in decide(active(switchover="")) if isinstance(a, do.GiveUp)]
    assert not [a for a in decide(active(switchover="nobody", others=(spare,))) if isinstance(a, do.GiveUp)]
    for asked in ("", "a"):
        assert do.GiveUp("a", Reason.SWITCHOVER) in decide(active(switchover=asked, others=(spare,)))


def test_one_spare_of_all_takes_the_snapshots_and_the_active_only_without_spares() -> None:
    """SPEC H3, G9, H4, Z5: the active is not bothered while there is a spare."""
    due = {"has_new_state": True, "snapshot_ms": 0}
    lower, higher = (OtherMember(e, Role.STANDBY.value, 1, agrees=False) for e in ("a", "z"))
    assert do.TakeSnapshot() in decide(standby(others=(higher,), **due))
    assert do.TakeSnapshot() not in decide(standby(others=(lower,), **due))
    assert do.TakeSnapshot() in decide(active(**due))
    assert do.TakeSnapshot() not in decide(active(others=(higher,), **due))
    assert do.TakeSnapshot() not in decide(standby(is_snapshot_running=True, **due))
    wrong = replace(lower, differs=True)
    assert do.TakeSnapshot() in decide(standby(others=(wrong,), **due))
    assert do.TakeSnapshot() in decide(active(others=(wrong,), **due))


@given(names=st.lists(st.sampled_from("abcdef"), min_size=1, unique=True), by=st.sampled_from("abcdefg"))
def test_every_engine_takes_snapshots_in_its_turn_when_the_newest_gets_too_old(names: list[str], by: str) -> None:
    """SPEC H3, DESIGN section 4: one takes them, the rest an interval after the other, the active last, and all know it."""
    interval_ms = SETTINGS.snapshot_interval_ms

    def due_ms(name: str, role: Role) -> int:
        spares = tuple(OtherMember(e, Role.STANDBY.value, 1, agrees=False) for e in names if e != name)
        view = replace(STANDBY if role is Role.STANDBY else ACTIVE, engine=name, others=spares, newest_snapshot_by=by)
        leader = replace(HELD, holder=name if role is Role.ACTIVE else "z")
        view = replace(view, leader=leader, has_new_state=True, snapshot_ms=NOW_MS - interval_ms)
        (due,) = [duty.due_ms for duty in duties(view) if isinstance(duty.action, do.TakeSnapshot)]
        return (due - NOW_MS) // interval_ms

    turns = {name: due_ms(name, Role.STANDBY) for name in names} | {"z": due_ms("z", Role.ACTIVE)}
    first = by if by in names else min(names)
    others = [name for name in sorted(names) if name != first]
    assert turns == {first: 0} | {name: LATE_INTERVALS + i for i, name in enumerate([*others, "z"])}


def test_who_holds_the_role_alone_takes_the_snapshots() -> None:
    assert do.TakeSnapshot() in decide(active(has_new_state=True, snapshot_ms=0, newest_snapshot_by="gone"))


def test_a_store_that_does_not_answer_is_given_up_and_not_asked_for_ever() -> None:
    waits = standby(store_begun_ms=NOW_MS, is_snapshot_running=True, has_new_state=True)
    assert (decide(waits), next_due_ms(waits)) != ((), None)
    late = replace(waits, now_ms=NOW_MS + SETTINGS.store_wait_ms)
    assert do.GiveUpStore() in decide(late)
    due = {"has_new_state": True, "snapshot_ms": 0, "candidates": (CandidateView("x", settled=True),)}
    assert {do.TakeSnapshot(), do.ConfirmSnapshot("x")} <= set(decide(standby(store_stuck=1, **due)))
    assert decide(standby(store_stuck=STORE_STUCK_MAX, **due)) == ()
    assert do.ConfirmSnapshot("x") not in decide(standby(is_store_marking=True, **due))


@pytest.mark.parametrize("view", [STANDBY, ACTIVE, replace(ACTIVE, role=Role.PROMOTING, step=Step.WON)])
def test_an_engine_whose_runner_hangs_ends_with_the_reason(view: View) -> None:
    end = do.Leave(Reason.PIPELINE_STALLED)
    assert decide(replace(view, stalled_ms=SETTINGS.pipeline_stall_ms))[0] == end
    assert end not in decide(replace(view, stalled_ms=SETTINGS.pipeline_stall_ms - 1))
    patient = replace(SETTINGS, pipeline_stall_ms=0)
    assert end not in decide(replace(view, settings=patient, stalled_ms=1 << 40))


def test_a_snapshot_is_confirmed_when_settled_and_discarded_when_this_engine_differs() -> None:
    candidate = (CandidateView("x", settled=True),)
    assert decide(standby(candidates=candidate)) == (do.ConfirmSnapshot("x"),)
    assert decide(standby(candidates=(CandidateView("x", settled=False),))) == ()
    waits = standby(candidates=(CandidateView("x", settled=True, due_ms=NOW_MS + 1),))
    assert (decide(waits), next_due_ms(waits)) == ((), NOW_MS + 1)
    difference = Difference("s", 3, 4, 7, NOW_MS)
    assert decide(standby(candidates=candidate, difference=difference)) == (do.DiscardSnapshot("x"),)


def test_a_difference_is_an_end_for_the_active_and_after_a_while_for_a_lone_spare() -> None:
    """SPEC Z9."""
    difference = Difference("s", 3, 4, 7, NOW_MS)
    assert decide(active(difference=difference, publish_due_ms=NOW_MS)) == (do.Diverge(),)
    assert decide(promoting(Step.CHECKED, difference=difference)) == (do.Diverge(),)
    alone = standby(difference=difference)
    late = {"now_ms": NOW_MS + SETTINGS.divergence_wait_ms}
    assert decide(alone) == ()
    assert do.Diverge() in decide(replace(alone, **late))
    awaited = replace(alone, awaited_ms=NOW_MS + 1)
    assert do.Diverge() not in decide(replace(awaited, **late))
    assert do.Diverge() in decide(replace(awaited, now_ms=NOW_MS + 1 + SETTINGS.divergence_wait_ms))
    goes_on = replace(alone, settings=GroupSettings(on_divergence=OnDivergence.CONTINUE), **late)
    assert do.Diverge() not in decide(goes_on)


def test_two_spares_that_agree_campaign_against_the_epoch_that_committed_otherwise() -> None:
    difference = Difference("s", 3, 4, 7, NOW_MS)
    agrees = OtherMember("a", Role.STANDBY.value, 1, agrees=True)
    view = standby(difference=difference, others=(agrees,), vacancy=vacant(Reason.SPARES_AGREE))
    assert decide(view)[0] == do.Campaign(7, Reason.SPARES_AGREE)
    deposed = replace(view, leader=replace(HELD, epoch=8), vacancy=vacant(Reason.SPARES_AGREE, epoch=8))
    assert decide(deposed)[0] == do.NoteVacancy(8, None)


CONTINUES = GroupSettings(on_divergence=OnDivergence.CONTINUE)
DIFFERS = Difference("s", 3, 4, 7, NOW_MS)
OVER = replace(HELD, lease_left_ms=0)


def last_one(**changes: object) -> View:
    """A spare that differs, told to continue, long after the active's lease was over."""
    vacancy = vacant(Reason.NOBODY_ELSE, NOW_MS - CONTINUES.divergence_wait_ms)
    return standby(**{"settings": CONTINUES, "difference": DIFFERS, "leader": OVER, "vacancy": vacancy} | changes)


def test_a_spare_that_differs_takes_over_where_nobody_else_can() -> None:
    """DESIGN section 5: one alone raises an alarm, and on_divergence decides."""
    assert decide(last_one())[0] == do.Campaign(7, Reason.NOBODY_ELSE)
    others = (OtherMember("a", Role.STANDBY.value, 1, agrees=False, differs=True), OtherMember("b", "diverged", 1, agrees=False))
    assert decide(last_one(others=others))[0] == do.Campaign(7, Reason.NOBODY_ELSE)
    assert do.Campaign(7, Reason.NOBODY_ELSE) not in decide(last_one(now_ms=NOW_MS - 1))
    overruling = promoting(Step.CHECKED, settings=CONTINUES, difference=DIFFERS, overrules=True)
    assert decide(overruling)[0] == do.BecomeActive()


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": SETTINGS},
        {"leader": HELD},
        {"leader": HELD, "peer": PeerStatus.CLOSED},
        {"others": (OtherMember("a", Role.STANDBY.value, 1, agrees=False),)},
        {"others": (OtherMember("a", Role.PROMOTING.value, 1, agrees=False),)},
    ],
)
def test_it_does_not_where_somebody_else_can_or_the_active_may_live(changes: dict[str, object]) -> None:
    assert decide(last_one(**changes))[0] == do.NoteVacancy(7, None)


def test_progress_that_lags_is_written_when_due_and_before_the_role_is_handed_over() -> None:
    """SPEC D9, Z15."""
    assert do.Publish() not in decide(active(progress_due_ms=NOW_MS + 1))
    assert next_due_ms(active(progress_due_ms=NOW_MS + 1)) == NOW_MS + 1
    assert decide(active(progress_due_ms=NOW_MS))[0] == do.Publish()
    leaving = active(stop_asked=True, progress_due_ms=NOW_MS)
    assert decide(leaving)[0] == do.Publish()
    assert not any(isinstance(action, do.GiveUp) for action in decide(leaving))


def test_qualities_are_read_at_intervals_by_who_takes_part() -> None:
    """SPEC Z16."""
    for view in (STANDBY, ACTIVE):
        assert do.ReadQualities() not in decide(view)
        assert do.ReadQualities() in decide(replace(view, qualities_read_ms=NOW_MS - SETTINGS.quality_poll_ms))


def test_a_state_that_begins_after_what_is_committed_is_never_promoted() -> None:
    """SPEC E10: what lies between could never come out."""
    assert decide(promoting(Step.CHECKED, committed_ahead="gap")) == (do.Leave(Reason.REFUSED, "gap"),)


@pytest.mark.parametrize("step", [Step.WON, Step.FENCED, Step.READ, Step.CHECKED])
def test_a_promotion_keeps_its_lease_while_it_comes_on_and_loses_it_when_it_hangs(step: Step) -> None:
    """SPEC C3: whoever took over would have the same slow bus before it."""
    due_ms = NOW_MS - SETTINGS.renew_interval_ms
    view = promoting(step, step_ms=NOW_MS - SETTINGS.promotion_step_ms + 1, renewed_ms=due_ms)
    assert decide(view)[0] == do.Renew()
    assert do.Renew() not in decide(replace(view, renewed_ms=due_ms + 1))
    hanging = replace(view, step_ms=NOW_MS - SETTINGS.promotion_step_ms)
    assert do.Renew() not in decide(hanging)
    assert decide(hanging), "it is not given up either: nobody else may want it"
