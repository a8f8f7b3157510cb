"""The presence of engines, and which of two processes under one name gives way (`ha.rules.membership`)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.coordination.contract import Leader, Member
from hotspare.ha.rules import membership
from hotspare.ha.rules.facts import Leadership, OtherMember
from hotspare.ha.rules.roles import Role

OWN = Member("me", "", 1, 10, "host", "", "", "", "", {}, {}, seen_ms=1_000, process_space="space")
TWIN = replace(OWN, process_id=2)
ELSEWHERE = replace(TWIN, host="far")
OTHER = replace(OWN, engine="other", process_id=3)


@pytest.mark.parametrize(
    ("members", "namesake", "unseen"),
    [
        ([], None, None),
        ([OWN, OTHER], None, None),
        ([OWN, replace(OWN, seen_ms=5)], None, None),
        ([OTHER, TWIN], TWIN, None),
        ([ELSEWHERE], ELSEWHERE, ELSEWHERE),
        ([replace(TWIN, process_space="container")], replace(TWIN, process_space="container"), "same"),
        ([replace(OWN, process_start=9)], replace(OWN, process_start=9), None),
    ],
)
def test_a_namesake_is_another_process_and_unseen_where_it_runs_elsewhere(
    members: list[Member], namesake: Member | None, unseen: Member | str | None
) -> None:
    assert membership.namesake(members, OWN) == namesake
    assert membership.unseen_namesake(members, OWN) == (namesake if unseen == "same" else unseen)


@pytest.mark.parametrize(
    ("record", "is_renewed_since"),
    [
        (TWIN, False),
        (replace(TWIN, seen_ms=1_001), True),
        (replace(TWIN, seen_ms=999), False),
        (replace(ELSEWHERE, seen_ms=1_001), True),
        (replace(ELSEWHERE, seen_ms=999), False),
    ],
)
def test_a_record_that_was_written_since_it_was_read_is_word_of_a_living_process(record: Member, is_renewed_since: bool) -> None:
    """Any process may have written it; a record older than the one read before is an old answer, and proves nothing."""
    assert membership.is_renewed_since(record, TWIN) is is_renewed_since
    assert not membership.is_renewed_since(record, None)


processes = st.builds(
    lambda host, space, number, started: replace(OWN, host=host, process_space=space, process_id=number, process_start=started),
    st.sampled_from("ab"),
    st.sampled_from("xy"),
    st.integers(1, 3),
    st.integers(1, 3),
)


@given(one=processes, other=processes)
def test_of_two_processes_one_gives_way(one: Member, other: Member) -> None:
    ways = {membership.has_to_yield_name(one, other), membership.has_to_yield_name(other, one)}
    assert ways == ({False} if membership.process_of(one) == membership.process_of(other) else {False, True})


def test_engines_come_and_go() -> None:
    before, now = ([OtherMember(name, "standby", 0) for name in names] for names in ("abc", "cdb"))
    assert membership.membership_changes(before, now) == (["d"], ["a"])


LEADER = Leader(7, "a", "", 500)
TOLD = OtherMember("a", "active", 0, active_epoch_age=(7, 300))


@pytest.mark.parametrize(
    ("leader", "role", "other", "is_told"),
    [
        (LEADER, Role.STANDBY, TOLD, True),
        (LEADER, Role.ACTIVE, TOLD, False),
        (None, Role.STANDBY, TOLD, False),
        (replace(LEADER, epoch=8), Role.STANDBY, TOLD, False),
        (replace(LEADER, holder="b"), Role.STANDBY, TOLD, False),
        (LEADER, Role.STANDBY, replace(TOLD, active_epoch_age=None), False),
    ],
)
def test_a_spare_hears_the_holder_of_the_present_epoch(
    leader: Leader | None, role: Role, other: OtherMember, is_told: bool
) -> None:
    assert membership.holder_report(Leadership(leader=leader), role, [other]) == (other if is_told else None)


def test_since_when_it_is_active_is_heard_once() -> None:
    known = Leadership(leader=LEADER, leader_epoch=7, leader_since_ms=950)
    heard = membership.with_reported_start(known, TOLD, 1_000)
    assert (heard.leader_since_ms, heard.reported_epoch) == (700, 7)
    assert membership.with_reported_start(heard, replace(TOLD, active_epoch_age=(7, 900)), 1_000) == heard
    young = membership.with_reported_start(known, replace(TOLD, active_epoch_age=(7, 10)), 1_000)
    assert young.leader_since_ms == 950, "this engine has seen it be active for longer"
