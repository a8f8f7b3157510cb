"""A state from recent input: when it counts, what it adopts, and when it is eligible (SPEC F11)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotspare.bus.contract import Outgoing, OutputId, Partition, Progress
from hotspare.bus.memory import MemoryBus
from hotspare.coordination.contract import Leader
from hotspare.flow.digest_chain import chained
from hotspare.ha.effects.joining import RecentStart, recent_start
from hotspare.ha.outputs.held import NO_OUTPUT, HeldStream, OutputMark
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import warming as rules
from hotspare.ha.rules.decide import decide
from hotspare.ha.rules.facts import Difference, Leadership, OtherMember, Projects, StreamFacts, Warming
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import GroupTopics, InboundTopic
from hotspare.ha.rules.view import StreamView, View
from hotspare.ha.rules.warming import OutputPlace
from tests.ha.outputs import outputs
from tests.ha.views import NOW_MS, standby

BEGUN = {(0, 0): 10, (1, 0): 20}
WARM = Warming(1_000, 500, BEGUN, matches_min=2, is_warm=True)
COMMITTED = Progress(7, OutputId(0, 0, 5, 0, 0), 99, 1)


def test_its_outputs_count_from_the_first_batch_end_at_which_nothing_older_matters() -> None:
    known = Warming(1_000, 500, BEGUN)
    assert rules.after_input(known, 999, 0, {(0, 0): 30}) == known
    now = rules.after_input(known, 1_000, 0, {(0, 0): 30})
    assert now.is_warm
    assert now.begin_offsets == {(0, 0): 30, (1, 0): 20}
    assert rules.after_input(now, 2_000, 3, {(0, 0): 40}) == now


def test_a_refused_event_moves_that_by_as_long_as_anything_matters() -> None:
    """A recurring key carries on what was there before it."""
    now = rules.after_input(Warming(1_000, 500, BEGUN), 1_200, 1, {})
    assert not now.is_warm
    assert now.until_us == 1_700
    assert rules.after_input(now, 1_700, 1, {}).is_warm
    assert rules.after_input(Warming(9_000, 500, BEGUN), 1_200, 1, {}).until_us == 9_000


def test_it_waits_for_the_ticks_of_that_time() -> None:
    """Events alone may reach that time in the middle of a gap, which only the next tick shows."""
    known = Warming(1_000, 500, BEGUN, tick_gap_us=100, ticked={(0, 0): 990, (1, 0): 300})
    assert rules.after_input(known, 1_100, 0, {}) == known
    moved = rules.after_ticks(known, (1, 0), [1_200])
    assert (moved.until_us, rules.after_input(moved, 1_300, 0, {}).is_warm) == (1_700, False)
    in_time = replace(known, ticked={(0, 0): 990, (1, 0): 901})
    assert rules.after_input(in_time, 1_100, 0, {}).is_warm


@pytest.mark.parametrize(
    ("at", "place"),
    [
        (None, OutputPlace.BEFORE),
        (OutputId(0, 0, 9, 0, 0), OutputPlace.BEFORE),
        (OutputId(0, 0, 10, 3, 0), OutputPlace.TAKEN),
        (OutputId(0, 0, 14, 0, 0), OutputPlace.TAKEN),
        (OutputId(0, 0, 15, 0, 0), OutputPlace.AHEAD),
        (OutputId(1, 0, 20, 0, 0), OutputPlace.AHEAD),
    ],
)
def test_where_a_committed_output_comes_from(at: OutputId | None, place: OutputPlace) -> None:
    assert rules.output_place(at, BEGUN, {(0, 0): 15}) is place


def _is_silent(leader: Leader, other: OtherMember) -> bool:
    return rules.is_silent(StreamFacts(committed=COMMITTED), "s", WARM, Leadership(leader=leader), (other,))


def test_a_stream_is_silent_only_by_the_word_of_the_active_engine_from_behind_that_place() -> None:
    leader = Leader(4, "a", "", 100)
    active = OtherMember("a", Role.ACTIVE.value, 0, order=31, active_epoch_age=(4, 50), sequences={"s": 7})
    assert _is_silent(leader, active)
    assert not _is_silent(leader, replace(active, order=30))  # it may be in the middle of a message
    assert not _is_silent(leader, replace(active, sequences={"s": 8}))
    assert not rules.is_silent(StreamFacts(), "s", WARM, Leadership(leader=leader), (replace(active, sequences={}),))
    assert not _is_silent(leader, replace(active, active_epoch_age=(3, 50)))
    assert not _is_silent(leader, replace(active, active_epoch_age=None))
    assert not _is_silent(leader, replace(active, engine="b"))
    assert not rules.is_silent(StreamFacts(committed=COMMITTED), "s", WARM, Leadership(), (active,))


def test_it_is_eligible_after_enough_matches_with_all_its_numbers() -> None:
    known, unknown = StreamFacts(), StreamFacts(is_unadopted=True)
    enough = rules.after_match(rules.after_match(WARM))
    assert rules.is_eligible(enough, [known, known])
    assert not rules.is_eligible(enough, [known, unknown])
    assert not rules.is_eligible(rules.after_match(WARM), [known])
    assert not rules.is_eligible(replace(enough, is_warm=False), [known])


def _view(warming: Warming, **stream: object) -> View:
    facts = StreamFacts(**stream)  # type: ignore[arg-type]
    return replace(standby(role=Role.WARMING), warming=warming, streams={"s": StreamView(facts)})


def test_it_never_campaigns_and_takes_no_snapshot() -> None:
    free = _view(replace(WARM, matched=1))
    free = replace(free, leadership=replace(free.leadership, leader=Leader(7, "", "", 0)), now_ms=NOW_MS + 10**6)
    kinds = {type(action) for action in decide(free)}
    assert kinds <= {do.ReadLeader, do.RefreshMember, do.CheckInbound, do.ReadQualities, do.ReadProgress}
    assert do.BecomeEligible() in decide(_view(replace(WARM, matched=2)))


def test_it_ends_with_the_reason_where_its_state_is_not_the_groups() -> None:
    for view in (
        _view(replace(WARM, mismatch="output 3 of stream s is none of its own")),
        _view(replace(WARM, matched=9), difference=Difference("s", 3, 1, 7, NOW_MS)),
    ):
        action = decide(view)[0]
        assert isinstance(action, do.Leave)
        assert "output 3 of stream s" in action.detail


@pytest.mark.parametrize("projects", [Projects(reported_cut_overs=1), Projects(changes=((3, 1),))])
def test_it_ends_where_another_project_comes_in(projects: Projects) -> None:
    action = decide(replace(_view(replace(WARM, matched=9)), projects=projects))[0]
    assert isinstance(action, do.Leave)
    assert "upgraded" in action.detail


def test_how_far_it_is_is_told() -> None:
    streams = {"b": StreamFacts(is_unadopted=True), "a": StreamFacts()}
    assert rules.warming_sentence(Warming(1, 1, {}), streams) == "reads until its state is complete"
    refused = rules.after_input(Warming(1_000, 500, {}), 900, 1, {})
    assert rules.warming_sentence(refused, streams).endswith(
        "the time was extended: an event was refused because of a row that may be older than the input read"
    )
    assert rules.warming_sentence(WARM, streams) == "0 of 2 committed records matched; output numbers are unknown for b"
    assert rules.warming_sentence(replace(WARM, matched=1), {"a": StreamFacts()}) == "1 of 2 committed records matched"


def test_held_outputs_get_the_numbers_and_digests_behind_a_committed_one() -> None:
    hashes = [11, 22, 33, 44]
    own, digest = HeldStream(NO_OUTPUT), 0
    for i, each in enumerate(hashes, start=1):
        digest = chained(digest, each)
        rows = outputs(i, i)
        own.append(rows.set_column(6, rows.schema.field(6), rows.column(6).from_pandas([digest], type=rows.column(6).type)))
    at = own.mark_at(2)
    assert at is not None
    assert at.output_id is not None
    assert own.sequence_of(at.output_id) == 2
    assert own.sequence_of(OutputId(0, 0, 2, 0, 1)) is None
    own.rebase(OutputMark(1_000, at.output_id, 555), 2)
    assert (own.base, own.last_sequence, own.rows) == (OutputMark(1_000, at.output_id, 555), 1_002, 2)
    assert own.digest_at(1_001) == chained(555, 33)
    assert own.digest_at(1_002) == chained(chained(555, 33), 44)


def test_it_reads_from_so_long_ago_or_from_where_the_topic_begins() -> None:
    clock = [1_000_000]
    bus = MemoryBus(clock=lambda: clock[0])
    client, topics = bus.client("e"), GroupTopics((InboundTopic("in"),), ())
    client.create_topic("in")
    place, origin = Partition("in"), {("in", 0): 0}
    assert recent_start(client, topics, origin, 5) == RecentStart({(0, 0): 0}, None)
    for _ in range(20):
        clock[0] += 10
        client.append(place, [Outgoing(b"x")])
    newest_us = clock[0]
    assert recent_start(client, topics, origin, 50) == RecentStart({(0, 0): 14}, newest_us - 50)
    assert recent_start(client, topics, origin, 55) == RecentStart({(0, 0): 14}, newest_us - 50)
    assert recent_start(client, topics, origin, 10_000) == RecentStart({(0, 0): 0}, None)
    client.trim(place, 17)
    assert recent_start(client, topics, origin, 10_000) == RecentStart({(0, 0): 17}, newest_us - 20)
