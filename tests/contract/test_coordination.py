"""The coordination contract: the epoch moves by compare-and-set, everything else is best effort."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from hotspare.base.errors import UsageError
from hotspare.coordination.contract import NO_LEADER, Coordination, Leader, Renewed
from hotspare.coordination.memory import MemoryCoordination
from hotspare.coordination.sqlite import SqliteCoordination
from hotspare.testing.cluster import wait_until
from tests.contract.material import member

OpenCoordination = Callable[[], Coordination]
LONG_MS = 3_600_000


def holder(leader: Leader) -> tuple[int, str, str]:
    return leader.epoch, leader.holder, leader.successor


def test_an_unknown_group_has_nothing_and_asking_does_not_make_it(coordination: Coordination) -> None:
    assert coordination.leader("g") == NO_LEADER
    assert list(coordination.members("g")) == []
    assert coordination.fact("g", "origin") is None
    assert coordination.requested_successor("g") is None
    assert not coordination.renew("g", 0, "a", LONG_MS)
    assert not coordination.release("g", 0, "", "")
    coordination.remove_member("g", "a")
    coordination.reset_group("g")
    assert list(coordination.groups()) == []


def test_the_epoch_moves_only_from_the_expected_value(open_coordination_door: OpenCoordination) -> None:
    """SPEC C5, C7, C12, Z17: a campaign from an older epoch loses."""
    one, two = open_coordination_door(), open_coordination_door()
    assert one.campaign("g", 1, member("a"), LONG_MS) is None
    assert one.campaign("g", 0, member("a", process_id=7, address="x:1"), LONG_MS) == 1
    assert two.campaign("g", 0, member("b"), LONG_MS) is None
    leader = two.leader("g")
    assert holder(leader) == (1, "a", "")
    assert (leader.process_id, leader.process_start, leader.host, leader.address) == (7, 1_700_000_000_123, "here", "x:1")
    assert 0 < leader.lease_left_ms <= LONG_MS
    assert two.campaign("g", 1, member("b"), LONG_MS) == 2
    assert holder(one.leader("g")) == (2, "b", "")


def test_of_many_threads_exactly_one_wins_each_epoch(open_coordination_door: OpenCoordination) -> None:
    """Law 7 starts here: two engines never hold one epoch."""
    names, rounds = "abcd", 12
    barrier = threading.Barrier(len(names))

    def engine(name: str) -> list[int | None]:
        door = open_coordination_door()
        won: list[int | None] = []
        for epoch in range(rounds):
            barrier.wait(30)
            won.append(door.campaign("g", epoch, member(name), LONG_MS))
        return won

    with ThreadPoolExecutor(len(names)) as pool:
        results = list(pool.map(engine, names))
    for epoch in range(rounds):
        assert sorted(str(won[epoch]) for won in results) == sorted([str(epoch + 1)] + ["None"] * (len(names) - 1))
    assert open_coordination_door().leader("g").epoch == rounds


def test_only_the_holder_of_the_epoch_renews(coordination: Coordination) -> None:
    coordination.campaign("g", 0, member("a"), LONG_MS)
    assert coordination.renew("g", 1, "a", 2 * LONG_MS)
    assert coordination.leader("g").lease_left_ms > LONG_MS
    assert not coordination.renew("g", 1, "b", LONG_MS)
    assert not coordination.renew("g", 2, "a", LONG_MS)
    coordination.campaign("g", 1, member("b"), LONG_MS)
    assert not coordination.renew("g", 1, "a", LONG_MS)
    assert holder(coordination.leader("g")) == (2, "b", "")


def test_a_lease_runs_out_by_itself(coordination: Coordination) -> None:
    coordination.campaign("g", 0, member("a"), 1)
    wait_until(lambda: coordination.leader("g").lease_left_ms <= 0, "the lease is over")
    assert holder(coordination.leader("g")) == (1, "a", "")
    assert coordination.renew("g", 1, "a", LONG_MS)
    assert coordination.leader("g").lease_left_ms > 0


def test_the_role_is_given_up_with_its_epoch_kept(coordination: Coordination) -> None:
    """SPEC C3, Z15: a planned switch-over names its successor."""
    coordination.campaign("g", 0, member("a", address="x:1"), LONG_MS)
    assert not coordination.release("g", 1, "b", "c")
    assert not coordination.release("g", 2, "a", "c")
    assert coordination.release("g", 1, "a", "b")
    assert coordination.leader("g") == Leader(epoch=1, holder="", successor="b", lease_left_ms=0)
    assert not coordination.renew("g", 1, "a", LONG_MS)
    assert not coordination.release("g", 1, "a", "b")
    assert coordination.campaign("g", 1, member("b"), LONG_MS) == 2
    assert holder(coordination.leader("g")) == (2, "b", "")


@pytest.mark.parametrize("cleared_by", ["release", "campaign"])
@pytest.mark.parametrize("successor", ["b", ""])
def test_a_switchover_is_asked_for_until_it_happens(coordination: Coordination, cleared_by: str, successor: str) -> None:
    coordination.campaign("g", 0, member("a"), LONG_MS)
    assert coordination.requested_successor("g") is None
    coordination.request_switchover("g", "other")
    coordination.request_switchover("g", successor)
    assert coordination.requested_successor("g") == successor
    assert coordination.renew("g", 1, "a", LONG_MS) == Renewed(successor)
    assert coordination.requested_successor("g") == successor
    if cleared_by == "release":
        coordination.release("g", 1, "a", successor)
    else:
        coordination.campaign("g", 1, member("b"), LONG_MS)
    assert coordination.requested_successor("g") is None


def test_a_switchover_can_be_withdrawn_and_nothing_else_changes(coordination: Coordination) -> None:
    coordination.withdraw_switchover("never-seen")
    assert list(coordination.groups()) == []
    coordination.campaign("g", 0, member("a"), LONG_MS)
    before = holder(coordination.leader("g"))
    for successor in ("b", ""):
        coordination.request_switchover("g", successor)
        coordination.withdraw_switchover("g")
        assert coordination.requested_successor("g") is None
    coordination.withdraw_switchover("g")
    assert holder(coordination.leader("g")) == before
    assert coordination.leader("g").lease_left_ms > 0
    assert coordination.renew("g", 1, "a", LONG_MS) == Renewed(None)


def test_a_renewal_tells_what_another_one_asked_for(open_coordination_door: OpenCoordination) -> None:
    holder, other = open_coordination_door(), open_coordination_door()
    holder.campaign("g", 0, member("a"), LONG_MS)
    for asked in (None, "b", "", None):
        if asked is None:
            other.withdraw_switchover("g")
        else:
            other.request_switchover("g", asked)
        assert holder.renew("g", 1, "a", LONG_MS) == Renewed(asked)


def test_members_come_in_order_of_joining_with_all_they_said(open_coordination_door: OpenCoordination) -> None:
    one, two = open_coordination_door(), open_coordination_door()
    told = member("b", sequences={"q/ü": 2**60}, detail={"lag": "1\n2", "": "x"}, role="active")
    one.refresh_member("g", told)
    two.refresh_member("g", member("a"))
    two.refresh_member("h", member("z"))
    first = one.members("g")
    assert [m.engine for m in first] == ["b", "a"]
    assert replace(first[0], seen_ms=0) == told
    one.refresh_member("g", member("b", role="standby"))
    second = two.members("g")
    assert [(m.engine, m.role) for m in second] == [("b", "standby"), ("a", "standby")]
    assert second[0].seen_ms >= first[0].seen_ms
    one.remove_member("g", "b")
    one.remove_member("g", "b")
    one.refresh_member("g", member("b"))
    assert [m.engine for m in two.members("g")] == ["a", "b"]


def test_leaving_does_not_give_the_role_up(coordination: Coordination) -> None:
    coordination.refresh_member("g", member("a"))
    coordination.campaign("g", 0, member("a"), LONG_MS)
    coordination.remove_member("g", "a")
    assert holder(coordination.leader("g")) == (1, "a", "")


def test_a_fact_is_set_once(open_coordination_door: OpenCoordination) -> None:
    one, two = open_coordination_door(), open_coordination_door()
    assert one.set_fact_once("g", "origin", b"\0first") == b"\0first"
    assert two.set_fact_once("g", "origin", b"second") == b"\0first"
    assert two.fact("g", "origin") == b"\0first"
    assert two.set_fact_once("g", "empty", b"") == b""
    assert one.set_fact_once("g", "empty", b"late") == b""
    assert one.fact("h", "origin") is None


def test_of_many_threads_one_sets_the_fact(open_coordination_door: OpenCoordination) -> None:
    barrier = threading.Barrier(4)

    def engine(name: str) -> bytes:
        door = open_coordination_door()
        barrier.wait(30)
        return door.set_fact_once("g", "origin", name.encode())

    with ThreadPoolExecutor(4) as pool:
        told = set(pool.map(engine, "abcd"))
    assert len(told) == 1
    assert open_coordination_door().fact("g", "origin") in told


def test_forgetting_keeps_the_epoch_alone(coordination: Coordination) -> None:
    """`hotspare reset`: the epoch never falls, or an old engine could publish again."""
    coordination.refresh_member("g", member("a"))
    coordination.refresh_member("h", member("b"))
    coordination.campaign("g", 0, member("a"), LONG_MS)
    coordination.campaign("g", 1, member("a"), LONG_MS)
    coordination.set_fact_once("g", "origin", b"x")
    coordination.set_fact_once("h", "origin", b"y")
    coordination.request_switchover("g", "b")
    coordination.reset_group("g")
    assert coordination.leader("g") == Leader(epoch=2, holder="", successor="", lease_left_ms=0)
    assert (list(coordination.members("g")), coordination.fact("g", "origin")) == ([], None)
    assert coordination.requested_successor("g") is None
    assert coordination.fact("h", "origin") == b"y"
    assert [m.engine for m in coordination.members("h")] == ["b"]
    assert coordination.campaign("g", 2, member("c"), LONG_MS) == 3
    assert coordination.set_fact_once("g", "origin", b"z") == b"z"


def test_facts_that_are_removed_are_gone_for_everybody(open_coordination_door: OpenCoordination) -> None:
    one, two = open_coordination_door(), open_coordination_door()
    assert list(one.fact_names("g")) == []
    one.remove_facts("g", ["never"])
    assert list(one.groups()) == []
    names = ["a", "b.c", "ü/d"] + [f"n{number}" for number in range(1_500)]
    for name in names[:6]:
        one.set_fact_once("g", name, name.encode())
    one.set_fact_once("h", "a", b"")
    assert sorted(two.fact_names("g")) == sorted(names[:6])
    two.remove_facts("g", [name for name in names if name != "b.c"])
    assert (list(one.fact_names("g")), one.fact("g", "b.c"), one.fact("g", "ü/d")) == (["b.c"], b"b.c", None)
    assert one.set_fact_once("g", "a", b"anew") == b"anew"
    assert list(two.fact_names("h")) == ["a"]


def test_forgetting_takes_all_facts_whatever_goes_first_and_last(coordination: Coordination) -> None:
    for name in ("first", "last", "other"):
        coordination.set_fact_once("g", name, b"")
    coordination.campaign("g", 0, member("a"), LONG_MS)
    coordination.reset_group("g", first=("first", "none"), last=("last",))
    assert (list(coordination.fact_names("g")), coordination.leader("g").epoch) == ([], 1)
    coordination.reset_group("g", first=("first",), last=("last",))


def test_two_groups_never_meet(coordination: Coordination) -> None:
    """SPEC C7: an election belongs to its group."""
    groups = ["g", "g.", "G", "%", "g'; DROP TABLE roles;--", "/ü/.."]
    for number, group in enumerate(groups, 1):
        for epoch in range(number):
            assert coordination.campaign(group, epoch, member(f"e{number}"), LONG_MS) == epoch + 1
    assert [holder(coordination.leader(group)) for group in groups] == [(n, f"e{n}", "") for n in range(1, len(groups) + 1)]
    assert list(coordination.groups()) == sorted(groups)


def test_every_group_ever_seen_is_listed(coordination: Coordination) -> None:
    coordination.refresh_member("joined", member("a"))
    coordination.set_fact_once("told", "origin", b"")
    coordination.request_switchover("asked", "")
    assert list(coordination.groups()) == ["asked", "joined", "told"]


def test_unusable_input_is_refused(coordination: Coordination) -> None:
    for call in (
        lambda: coordination.refresh_member("", member("a")),
        lambda: coordination.refresh_member("g", member("")),
        lambda: coordination.refresh_member("g" * 501, member("a")),
        lambda: coordination.campaign("g", 0, member(""), LONG_MS),
        lambda: coordination.campaign("", 0, member("a"), LONG_MS),
        lambda: coordination.campaign("g", 0, member("a"), 0),
        lambda: coordination.renew("g", 0, "a", 10**12),
        lambda: coordination.set_fact_once("g", "", b""),
        lambda: coordination.set_fact_once("", "x", b""),
        lambda: coordination.set_fact_once("g", "x", b"v" * (32 * 1024 * 1024 + 1)),
        lambda: coordination.request_switchover("", "a"),
    ):
        with pytest.raises(UsageError):
            call()
    assert list(coordination.groups()) == []


@pytest.mark.parametrize("kind", ["memory", "sqlite", "zookeeper"])
def test_a_group_has_a_limit_of_members(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if kind == "memory":
        coordination: Coordination = MemoryCoordination(members_max=2).client()
    elif kind == "sqlite":
        coordination = SqliteCoordination(tmp_path / "coord.db", members_max=2)
    else:
        coordination = request.getfixturevalue("doors").open(members_max=2)
    for engine in "abab":
        coordination.refresh_member("g", member(engine))
    with pytest.raises(UsageError, match="already has 2 members"):
        coordination.refresh_member("g", member("c"))
    coordination.close()


def test_members_in_memory_are_forgotten_after_an_hour_of_silence() -> None:
    """Memory behaves as the file does."""
    now_ms = 0
    coordination = MemoryCoordination(lambda: now_ms).client("a")
    coordination.refresh_member("g", member("a"))
    now_ms = 3_600_001
    coordination.refresh_member("g", member("b"))
    assert [each.engine for each in coordination.members("g")] == ["b"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_engines_that_came_once_are_forgotten_but_for_the_newest_few(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines start under new names, one every four seconds: living ones and the holder are kept, and the group is never full."""
    now_ms = 0
    monkeypatch.setattr("hotspare.coordination.sqlite.clock_ms", lambda: now_ms)
    file = tmp_path / "coord"
    coordination = MemoryCoordination(lambda: now_ms).client("a") if kind == "memory" else SqliteCoordination(file, boot="this")
    with contextlib.closing(coordination):
        coordination.campaign("g", 0, member("frozen"), LONG_MS)
        for engine in ("frozen", "lives"):
            coordination.refresh_member("g", member(engine))
        for number in range(200):
            coordination.refresh_member("g", member(f"e{number}"))
            coordination.refresh_member("g", member("lives"))
            now_ms += 4_000
        found = [each.engine for each in coordination.members("g")]
        assert found == ["frozen", "lives", *(f"e{number}" for number in range(200 - 20 - 15, 200))]
        now_ms += LONG_MS
        coordination.refresh_member("g", member("lives"))
        coordination.refresh_member("g", member("new"))
        assert [each.engine for each in coordination.members("g")] == ["frozen", "lives", "new"]
