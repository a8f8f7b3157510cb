"""The rules of failover as decisions from a view: pure, in promotion order, due exactly at their times."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.inbound_role import InboundRole
from hotspare.coordination.contract import Leader
from hotspare.ha.calls.store_jobs import Candidate, StoreLoad
from hotspare.ha.rules import actions as do
from hotspare.ha.rules.decide import decide, duties, next_due_ms, read_interval_ms, vacancy
from hotspare.ha.rules.facts import Difference, InboundFacts, NewestSnapshot, OtherMember, StreamFacts, Vacancy, Warming
from hotspare.ha.rules.publishing import due_times
from hotspare.ha.rules.roles import ENDS, VACANT, Reason, Role, Step
from hotspare.ha.rules.snapshots import LATE_INTERVALS, STORE_STUCK_MAX
from hotspare.ha.rules.view import CommitUnderWay, CoreView, PeerStatus, StreamView, View
from hotspare.model.quality import Quality
from hotspare.rows.batch import NextInput
from tests.ha.views import (
    ACTIVE,
    BLANK,
    HELD,
    NEW_STATE,
    NOW_MS,
    SETTINGS,
    SIMPLE,
    STANDBY,
    TRIMMED,
    active,
    changed,
    differing,
    lagging,
    later,
    pending,
    promoting,
    standby,
    vacant,
)

DIFFERS = Difference("s", 3, 4, 7, NOW_MS)
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
evidence = st.one_of(st.none(), st.just(Difference("s", 3, 4, 7, 0)))
others = st.tuples(
    *[st.builds(OtherMember, st.just(e), st.sampled_from(["standby", "active"]), st.integers(0, 9), evidence) for e in "ab"]
)
times = st.integers(NOW_MS - 9_000, NOW_MS + 9_000)
numbers = st.integers(0, 3)
streams = st.builds(
    StreamView,
    facts=st.builds(
        StreamFacts,
        verified=numbers,
        difference=st.one_of(st.none(), st.builds(Difference, st.just("s"), st.just(3), st.just(4), st.integers(0, 9), times)),
        sent=numbers,
        unrecorded_since_ms=st.one_of(st.none(), times),
    ),
    quality=st.sampled_from([Quality(), SIMPLE, TRIMMED]),
    base_sequence=st.just(0),
    last_sequence=numbers,
)
warmings = st.builds(
    Warming, times, st.just(1), st.just({}), numbers, st.booleans(), numbers, numbers, st.sampled_from(["", "another state"])
)
some_facts = st.fixed_dictionaries(
    {
        "role": st.sampled_from(Role),
        "step": st.sampled_from(Step),
        "epoch": st.integers(0, 9),
        "is_stop_requested": st.booleans(),
        "refusal": st.sampled_from(["", "refused"]),
        "is_overruling": st.booleans(),
        "coordination_retry_ms": times,
        "leader": leaders,
        "leader_read_ms": times,
        "free_since_ms": times,
        "vacancy": st.one_of(st.none(), st.builds(Vacancy, st.integers(0, 9), st.sampled_from(VACANT), times)),
        "others": others,
        "switchover": st.sampled_from([None, "", "a", "nobody"]),
        "renewed_ms": times,
        "has_progressed": st.booleans(),
        "bus_retry_ms": times,
        "lock_holder": st.sampled_from([None, (11, 12), (13, 14)]),
        "locked_since_ms": st.integers(NOW_MS - 3000, NOW_MS + 10),
        "predecessor": st.one_of(st.none(), st.just(HELD)),
        "published_ms": times,
        "next_input": st.sampled_from(NextInput),
        "newest": st.builds(NewestSnapshot, st.just(1), st.sampled_from(["", "me", "a", "b"]), times),
        "candidates": st.sampled_from([(), (Candidate("x", 1, {}),), (Candidate("x", 1, {"s": 3}, NOW_MS),)]),
        "stalled_ms": st.sampled_from([0, 0, 0, SETTINGS.pipeline_stall_ms]),
        "now_ms": times,
        "peer": st.sampled_from(PeerStatus),
        "streams": st.fixed_dictionaries({"s": streams}),
        "inbound": st.just((InboundFacts(0, 0, NOW_MS, NOW_MS), InboundFacts(0, 1, NOW_MS, NOW_MS))),
        "core": st.builds(CoreView, st.integers(0, 1), st.booleans(), st.just(((0, 0),))),
        "under_way": st.one_of(st.none(), st.builds(CommitUnderWay, times, st.booleans(), st.just({"s": 2}))),
        "store": st.builds(StoreLoad, oldest_ms=st.one_of(st.none(), times)),
        "own_digests": st.sampled_from([{}, {"a": 4}, {"b": 5}]),
        "warming": warmings,
    }
)
views = some_facts.map(lambda found: changed(BLANK, **found))


@given(view=views)
def test_every_view_has_a_decision_that_repeats_and_has_sentences(view: View) -> None:
    decided = decide(view)
    assert decided == decide(view)
    for action in decided:
        assert action.sentence
    if view.role_state.role in ENDS or view.role_state.role is Role.JOINING:
        assert decided == ()


@given(view=views)
def test_what_falls_due_is_due_then_and_nothing_before(view: View) -> None:
    """A host sleeps until then, so nothing may come earlier or later by itself."""
    due_ms = next_due_ms(view)
    if due_ms is None:
        assert decide(view) == ()
    elif due_ms > view.now_ms:
        assert decide(view) == ()
        assert decide(changed(view, now_ms=due_ms - 1)) == ()
        assert decide(changed(view, now_ms=due_ms)) != ()
    else:
        assert decide(view) != ()


@given(view=views)
def test_only_a_standby_that_does_not_differ_alone_campaigns_and_only_an_active_publishes(view: View) -> None:
    """SPEC E12, Z9, law 7."""
    for action in decide(view):
        if isinstance(action, do.Campaign):
            assert view.role_state.role is Role.STANDBY
            assert view.leadership.leader is not None
            assert action.expected_epoch == view.leadership.leader.epoch
            assert view.difference is None or action.reason is Reason.SPARES_AGREE
        if isinstance(action, do.Publish | do.AwaitCommit | do.Tick | do.Renew):
            assert view.role_state.role is Role.ACTIVE
        if isinstance(action, do.Publish | do.GiveUp) and view.role_state.role is Role.ACTIVE:
            assert due_times(view).await_ms is None, "one transaction at a time, and the role is given up behind the last"
        if isinstance(action, do.BecomeActive):
            assert view.role_state.step is Step.CHECKED
            assert view.leadership.leader is not None
            assert view.leadership.leader.epoch <= view.role_state.epoch
        if isinstance(action, do.BecomeEligible):
            assert view.role_state.role is Role.WARMING


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
    assert decide(changed(unknown, now_ms=NOW_MS + 5)) == (do.ReadLeader(Reason.UNKNOWN_LEADER),)


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
        assert view.leadership.leader is not None
        assert decide(view)[0] == do.RecordVacancy(view.leadership.leader.epoch, reason)


@pytest.mark.parametrize(
    ("view", "is_slow"),
    [
        (standby(), True),
        (standby(peer=PeerStatus.CLOSED), False),
        (standby(leader=replace(HELD, lease_left_ms=0)), False),
        (standby(leader=replace(HELD, holder="")), False),
        (standby(leader=None), False),
        (standby(**differing(Difference("s", 1, 1, 7, NOW_MS))), False),
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
    """The holder has just taken the role over: the cause that closed the previous connection may close this one, too."""
    lease_ms, seen = SETTINGS.lease_ms, vacant(Reason.CONNECTION_CLOSED)
    young = standby(peer=PeerStatus.CLOSED, vacancy=seen, leader_since_ms=NOW_MS - lease_ms + 1)
    assert not any(isinstance(action, do.Campaign) for action in decide(young))
    assert not any(isinstance(action, do.Campaign) for action in decide(later(young, 10 * lease_ms)))
    over = changed(young, leader=replace(HELD, lease_left_ms=0))
    assert do.Campaign(7, Reason.CONNECTION_CLOSED) in decide(over)
    old = changed(young, leader_since_ms=NOW_MS - lease_ms)
    assert do.Campaign(7, Reason.CONNECTION_CLOSED) in decide(old)


def test_an_ended_process_is_certain_however_young_its_epoch_is_e2() -> None:
    view = standby(peer=PeerStatus.ENDED, vacancy=vacant(Reason.PROCESS_ENDED), leader_since_ms=NOW_MS)
    assert do.Campaign(7, Reason.PROCESS_ENDED) in decide(view)


@pytest.mark.parametrize(("rank", "engine", "wait_ms"), [(5, "a", 150), (5, "z", 0), (6, "z", 150), (4, "a", 0)])
def test_a_better_candidate_may_go_first_for_a_short_time(rank: int, engine: str, wait_ms: int) -> None:
    other = OtherMember(engine, Role.STANDBY.value, rank)
    view = standby(peer=PeerStatus.CLOSED, vacancy=vacant(Reason.CONNECTION_CLOSED), rank=5, others=(other,))
    before = changed(view, now_ms=NOW_MS + wait_ms - 1)
    assert not [a for a in decide(before) if isinstance(a, do.Campaign)] or not wait_ms
    assert [a for a in decide(changed(view, now_ms=NOW_MS + wait_ms)) if isinstance(a, do.Campaign)]


def test_who_gave_the_role_up_and_who_is_not_the_successor_wait_a_lease_time() -> None:
    """SPEC Z15: if the successor has not promoted within the lease, anyone may."""
    given_up = standby(leader=replace(HELD, holder="", successor="z"), vacancy=vacant(Reason.GIVEN_UP), free_since_ms=NOW_MS)
    own = changed(given_up, leader=replace(HELD, holder=""), gave_up_epoch=7)
    for view in (given_up, own):
        for now_ms, may in ((NOW_MS + SETTINGS.lease_ms - 1, False), (NOW_MS + SETTINGS.lease_ms, True)):
            decided = decide(changed(view, now_ms=now_ms, leader_read_ms=now_ms))
            assert any(isinstance(a, do.Campaign) for a in decided) is may


def test_an_old_record_of_a_lease_is_read_again_at_its_end_and_not_acted_upon() -> None:
    """A standby never campaigns against a lease that it has not seen to be over."""
    record = replace(HELD, lease_left_ms=40)
    view = standby(leader=record, leader_read_ms=NOW_MS - 40, vacancy=None)
    assert decide(view) == (do.ReadLeader(Reason.TIMER),)


def test_the_lease_is_renewed_only_when_a_batch_passed() -> None:
    """A living thread does not count as a sign of life (SPEC E16)."""
    due = NOW_MS + SETTINGS.renew_interval_ms
    assert do.Renew() in decide(changed(active(), now_ms=due))
    stuck = decide(changed(active(has_progressed=False), now_ms=NOW_MS + SETTINGS.lease_ms))
    assert do.Renew() not in stuck
    assert do.ReadLeader(Reason.LEASE_OVER) in stuck


def test_the_topic_of_another_project_is_never_ticked() -> None:
    """SPEC K10."""
    others = InboundFacts(0, 0, kind=InboundRole.OUTPUTS)
    held_up = active(inbound=(others, InboundFacts(1, 0, kind=InboundRole.TICKS)), core=CoreView(blocking_partitions=((0, 0),)))
    decided = decide(changed(held_up, now_ms=NOW_MS + 10 * SETTINGS.tick_interval_ms))
    assert [a for a in decided if isinstance(a, do.Tick)] == [do.Tick(1, Reason.TIMER)]


def test_an_idle_partition_is_ticked_only_while_it_holds_up_the_merge() -> None:
    inbound = (InboundFacts(0, 0, NOW_MS, NOW_MS), InboundFacts(0, 1, NOW_MS, NOW_MS))
    held_up = active(inbound=inbound, core=CoreView(blocking_partitions=((0, 0),)))
    decided = decide(changed(held_up, now_ms=NOW_MS + SETTINGS.merge_wait_ms))
    assert [a for a in decided if isinstance(a, do.Tick)] == [do.Tick(0, Reason.IDLE_PARTITION)]
    later = decide(changed(active(inbound=inbound), now_ms=NOW_MS + SETTINGS.tick_interval_ms))
    assert len([a for a in later if isinstance(a, do.Tick)]) == 2


def test_the_frozen_holder_is_ended_only_past_its_lease_and_only_if_the_bus_is_locked() -> None:
    before = {"predecessor": HELD, "predecessor_lease_end_ms": NOW_MS}
    holder = (HELD.process_id, HELD.process_start)
    locked = promoting(Step.WON, **before, lock_holder=holder, locked_since_ms=NOW_MS, bus_retry_ms=NOW_MS + 9)
    assert decide(locked) == (do.EndLockHolder(*holder),)
    assert decide(changed(locked, predecessor_lease_end_ms=NOW_MS + 1)) == ()
    assert decide(changed(locked, lock_holder=None)) == ()


@pytest.mark.parametrize("view", [promoting(Step.WON, bus_retry_ms=NOW_MS + 9), active()])
def test_who_keeps_the_bus_locked_is_ended_after_a_lease_whoever_it_is(view: View) -> None:
    """The predecessor is not ended for another process's lock."""
    since_ms = NOW_MS - SETTINGS.lease_ms
    locked = changed(view, predecessor=HELD, predecessor_lease_end_ms=0, lock_holder=(99, 98), locked_since_ms=since_ms)
    assert do.EndLockHolder(99, 98) in decide(locked)
    assert not any(isinstance(each, do.EndLockHolder) for each in decide(changed(locked, locked_since_ms=since_ms + 1)))


def test_publishing_comes_before_handing_over_and_renewing() -> None:
    view = active(**pending(NOW_MS), is_stop_requested=True, renewed_ms=NOW_MS - SETTINGS.renew_interval_ms)
    assert do.Renew() in decide(view)
    assert isinstance(decide(view)[0], do.Publish)
    assert not [a for a in decide(view) if isinstance(a, do.GiveUp)]
    assert decide(changed(view, streams={}))[0] == do.GiveUp("", Reason.STOP_ASKED)


def test_outputs_that_may_wait_are_published_when_they_are_due_and_nothing_is_handed_over_before() -> None:
    waiting = active(**pending(NOW_MS + 1), others=(OtherMember("b", Role.STANDBY.value, 1),))
    assert not [a for a in decide(waiting) if isinstance(a, (do.Publish, do.GiveUp))]
    assert do.Publish() in decide(changed(waiting, now_ms=NOW_MS + 1))
    lags = {**waiting.streams, **lagging(NOW_MS)["streams"]}
    assert do.Publish() in decide(changed(waiting, streams=lags)), "progress that is due takes them along"
    leaving = decide(changed(waiting, switchover="b"))
    assert leaving[0] == do.Publish()
    assert not [a for a in leaving if isinstance(a, do.GiveUp)]


def test_a_backlog_of_outputs_does_not_cost_the_lease() -> None:
    """Once half of it is over, its renewal goes first; a coordination without an answer delays nothing."""
    half_over = active(**pending(NOW_MS), renewed_ms=NOW_MS - SETTINGS.lease_ms // 2)
    assert decide(half_over)[:2] == (do.Renew(), do.Publish())
    assert decide(changed(half_over, leader=None))[:2] == (do.ReadLeader(Reason.UNKNOWN_LEADER), do.Publish())
    assert decide(changed(half_over, leader=None, coordination_retry_ms=NOW_MS + 1))[0] == do.Publish()
    assert do.Renew() not in decide(changed(half_over, has_progressed=False))


def test_a_switch_over_needs_a_successor_that_is_a_standby() -> None:
    spare = OtherMember("a", Role.STANDBY.value, 1)
    assert not [a for a in decide(active(switchover="")) if isinstance(a, do.GiveUp)]
    assert not [a for a in decide(active(switchover="nobody", others=(spare,))) if isinstance(a, do.GiveUp)]
    for asked in ("", "a"):
        assert do.GiveUp("a", Reason.SWITCHOVER) in decide(active(switchover=asked, others=(spare,)))


def test_one_spare_of_all_takes_the_snapshots_and_the_active_only_without_spares() -> None:
    """SPEC H3, G9, H4, Z5: the active takes none while there is a spare."""
    due = NEW_STATE
    lower, higher = (OtherMember(e, Role.STANDBY.value, 1) for e in ("a", "z"))
    assert do.TakeSnapshot() in decide(standby(others=(higher,), **due))
    assert do.TakeSnapshot() not in decide(standby(others=(lower,), **due))
    assert do.TakeSnapshot() in decide(active(**due))
    assert do.TakeSnapshot() not in decide(active(others=(higher,), **due))
    assert do.TakeSnapshot() not in decide(standby(store=StoreLoad(is_writing=True), **due))
    wrong = replace(lower, evidence=DIFFERS)
    assert do.TakeSnapshot() in decide(standby(others=(wrong,), **due))
    assert do.TakeSnapshot() in decide(active(others=(wrong,), **due))


@given(names=st.lists(st.sampled_from("abcdef"), min_size=1, unique=True), by=st.sampled_from("abcdefg"))
def test_every_engine_takes_snapshots_in_its_turn_when_the_newest_gets_too_old(names: list[str], by: str) -> None:
    """SPEC H3: one takes them, the others follow one interval after the other, the active last, and all know
    it."""
    interval_ms = SETTINGS.snapshot_interval_ms

    def due_ms(name: str, role: Role) -> int:
        spares = tuple(OtherMember(e, Role.STANDBY.value, 1) for e in names if e != name)
        view = changed(
            STANDBY if role is Role.STANDBY else ACTIVE, engine=name, others=spares, newest=NewestSnapshot(1, by, NOW_MS)
        )
        leader = replace(HELD, holder=name if role is Role.ACTIVE else "z")
        view = changed(view, leader=leader, core=CoreView(order=1), snapshot_ms=NOW_MS - interval_ms)
        (due,) = [duty.due_ms for duty in duties(view) if isinstance(duty.action, do.TakeSnapshot)]
        return (due - NOW_MS) // interval_ms

    turns = {name: due_ms(name, Role.STANDBY) for name in names} | {"z": due_ms("z", Role.ACTIVE)}
    first = by if by in names else min(names)
    others = [name for name in sorted(names) if name != first]
    assert turns == {first: 0} | {name: LATE_INTERVALS + i for i, name in enumerate([*others, "z"])}


def test_who_holds_the_role_alone_takes_the_snapshots() -> None:
    assert do.TakeSnapshot() in decide(active(**NEW_STATE, newest=NewestSnapshot(1, "gone", NOW_MS)))


def test_a_store_that_does_not_answer_is_given_up_and_not_asked_for_ever() -> None:
    waits = standby(store=StoreLoad(is_writing=True, oldest_ms=NOW_MS), core=CoreView(order=1))
    assert (decide(waits), next_due_ms(waits)) != ((), None)
    late = changed(waits, now_ms=NOW_MS + SETTINGS.store_wait_ms)
    assert do.AbandonStoreJobs() in decide(late)
    due = {**NEW_STATE, "candidates": (Candidate("x", 1, {}),)}
    assert {do.TakeSnapshot(), do.ConfirmSnapshot("x")} <= set(decide(standby(store=StoreLoad(stuck=1), **due)))
    assert decide(standby(store=StoreLoad(stuck=STORE_STUCK_MAX), **due)) == ()
    assert do.ConfirmSnapshot("x") not in decide(standby(store=StoreLoad(is_updating=True), **due))


@pytest.mark.parametrize("view", [STANDBY, ACTIVE, changed(ACTIVE, role=Role.PROMOTING, step=Step.WON)])
def test_an_engine_whose_runner_hangs_ends_with_the_reason(view: View) -> None:
    end = do.Leave(Reason.PIPELINE_STALLED)
    assert decide(changed(view, stalled_ms=SETTINGS.pipeline_stall_ms))[0] == end
    assert end not in decide(changed(view, stalled_ms=SETTINGS.pipeline_stall_ms - 1))
    patient = replace(SETTINGS, pipeline_stall_ms=0)
    assert end not in decide(changed(view, settings=patient, stalled_ms=1 << 40))


def test_a_snapshot_is_confirmed_when_settled_and_discarded_when_this_engine_differs() -> None:
    candidate = (Candidate("x", 1, {}),)
    assert decide(standby(candidates=candidate)) == (do.ConfirmSnapshot("x"),)
    assert decide(standby(candidates=(Candidate("x", 1, {"s": 5}),), streams={"s": StreamView()})) == ()
    taken_ms = NOW_MS + 1 - SETTINGS.divergence_wait_ms
    waits = standby(candidates=(Candidate("x", 1, {"s": 5}, taken_ms),), streams={"s": StreamView(quality=SIMPLE)})
    assert (decide(waits), next_due_ms(waits)) == ((), NOW_MS + 1)
    difference = Difference("s", 3, 4, 7, NOW_MS)
    assert decide(standby(candidates=candidate, **differing(difference))) == (do.DiscardSnapshot("x"),)


def test_progress_that_lags_is_written_when_due_and_before_the_role_is_handed_over() -> None:
    """SPEC D9, Z15."""
    assert do.Publish() not in decide(active(**lagging(NOW_MS + 1)))
    assert next_due_ms(active(**lagging(NOW_MS + 1))) == NOW_MS + 1
    assert decide(active(**lagging(NOW_MS)))[0] == do.Publish()
    leaving = active(is_stop_requested=True, **lagging(NOW_MS))
    assert decide(leaving)[0] == do.Publish()
    assert not any(isinstance(action, do.GiveUp) for action in decide(leaving))


def test_qualities_are_read_at_intervals_by_who_takes_part() -> None:
    """SPEC Z16."""
    for view in (STANDBY, ACTIVE):
        assert do.ReadQualities() not in decide(view)
        assert do.ReadQualities() in decide(changed(view, qualities_read_ms=NOW_MS - SETTINGS.quality_poll_ms))


def test_a_state_that_begins_after_what_is_committed_is_never_promoted() -> None:
    """SPEC E10: the outputs in between could never be published."""
    (leaves,) = decide(promoting(Step.CHECKED, streams={"s": StreamView(base_sequence=3, last_sequence=3)}))
    assert isinstance(leaves, do.Leave)
    assert leaves.detail == "state begins after output 3 of stream s, but only 0 are committed"


@pytest.mark.parametrize("step", [Step.WON, Step.FENCED, Step.READ, Step.CHECKED])
def test_a_promotion_keeps_its_lease_while_it_comes_on_and_loses_it_when_it_hangs(step: Step) -> None:
    """SPEC C3: a successor would face the same slow bus."""
    due_ms = NOW_MS - SETTINGS.renew_interval_ms
    view = promoting(step, step_ms=NOW_MS - SETTINGS.promotion_step_ms + 1, renewed_ms=due_ms)
    assert decide(view)[0] == do.Renew()
    assert do.Renew() not in decide(changed(view, renewed_ms=due_ms + 1))
    hanging = changed(view, step_ms=NOW_MS - SETTINGS.promotion_step_ms)
    assert do.Renew() not in decide(hanging)
    assert decide(hanging), "it is not given up either: nobody else may want it"
