"""The project that a group runs after decisions about it, and how these are written (SPEC A44, Z6)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import ProjectChanged, StateError, UsageError
from hotspare.coordination.memory import MemoryCoordination, MemoryCoordinationClient
from hotspare.flow.semantics import SEMANTICS
from hotspare.ha.effects.joining import ProjectIdentity, agree_on_semantics, agreed_document, agreed_project
from hotspare.ha.effects.upgrading import OwnPlace, agreement, agreement_after, asked_on, has_moved, move_on, place_of, places
from hotspare.ha.rules.upgrading import Agreement, Begin, Move, MoveKind, Version, folded

FIRST = Version("a", SEMANTICS, "text a")
OTHER = Version("b", SEMANTICS, "text b", begin=Begin.SNAPSHOT, realigned=frozenset({"q/w"}))


def identity(name: str) -> ProjectIdentity:
    return ProjectIdentity(name, f"text {name}", lambda stored: [f"{stored} became text {name}"])


def begun() -> MemoryCoordinationClient:
    client = MemoryCoordination().client()
    agree_on_semantics(client, "g")
    agreed_project(client, "g", identity("a"))
    return client


def known(client: MemoryCoordinationClient) -> Agreement:
    found = agreement(client, "g")
    assert found is not None
    return found


def move(client: MemoryCoordinationClient, kind: MoveKind, version: Version) -> Agreement:
    return move_on(client, "g", known(client), Move(kind, version))


def test_the_moves_of_an_upgrade_and_of_the_way_back() -> None:
    after = folded(FIRST, [Move(MoveKind.OFFER, OTHER)])
    assert after.other is not None
    assert (after.leading, after.other.hash, after.other.number) == (FIRST, "b", 1)
    led = after.after(Move(MoveKind.LEAD, after.other))
    assert (led.leading.hash, led.other) == ("b", FIRST)
    back = led.after(Move(MoveKind.LEAD, FIRST))
    assert back.leading == FIRST
    settled = led.after(Move(MoveKind.SETTLE, led.leading))
    assert (settled.leading.hash, settled.other, settled.moves) == ("b", None, 3)
    assert [v.place("g") for v in (FIRST, settled.leading)] == ["g", "g~1"]


@given(st.lists(st.tuples(st.sampled_from(MoveKind), st.sampled_from("abc"), st.integers(0, 5)), max_size=12))
def test_moves_that_make_no_sense_change_nothing(moves: list[tuple[MoveKind, str, int]]) -> None:
    """A project always leads; the two projects always differ; each offered one has a place of its own for its snapshots."""
    found, taken = Agreement(FIRST), {0}
    for kind, name, number in moves:
        before, found = found, found.after(Move(kind, Version(name, SEMANTICS, "", number)))
        assert found.moves == before.moves + 1
        if found.other is not None:
            assert found.other.hash != found.leading.hash
            if before.other is None:
                assert found.other.number not in taken
                taken.add(found.other.number)
        assert {found.leading.number} <= taken


def test_engines_of_the_projects_that_a_group_runs_may_join_and_no_others() -> None:
    client = begun()
    assert not has_moved(client, "g")
    move(client, MoveKind.OFFER, OTHER)
    assert agreed_project(client, "g", identity("a"))[1].hash == "a"
    joined = agreed_project(client, "g", identity("b"))[1]
    assert (joined.begin, joined.realigned, joined.place("g")) == (Begin.SNAPSHOT, {"q/w"}, "g~1")
    move(client, MoveKind.LEAD, joined)
    move(client, MoveKind.SETTLE, joined)
    agree_on_semantics(client, "g")
    with pytest.raises(ProjectChanged, match="runs another project") as refused:
        agreed_project(client, "g", identity("a"))
    assert "text b became text a" in refused.value.detail
    assert "hotspare upgrade" in refused.value.hint
    assert agreed_document(client, "g") == "text b"
    assert (place_of(client, "g"), OwnPlace(client, "b", SEMANTICS)("g")) == ("g~1", "g~1")
    assert places(client, "g") == ["g", "g~1", "g~2", "g~3"]


def test_a_group_of_other_semantics_runs_the_same_project_after_an_upgrade_only() -> None:
    client = MemoryCoordination().client()
    client.set_fact_once("g", "semantics", str(SEMANTICS - 1).encode())
    client.set_fact_once("g", "project", b"a\ntext a")
    with pytest.raises(ProjectChanged, match="begun by an older version of hotspare"):
        agree_on_semantics(client, "g")
    move(client, MoveKind.OFFER, Version("a", SEMANTICS, "text a"))
    agree_on_semantics(client, "g")
    assert agreed_project(client, "g", identity("a"))[1].number == 1


def test_of_two_who_decide_at_once_the_second_is_told() -> None:
    client = begun()
    before = known(client)
    move_on(client, "g", before, Move(MoveKind.OFFER, OTHER))
    with pytest.raises(UsageError, match="another command recorded an upgrade step"):
        move_on(client, "g", before, Move(MoveKind.OFFER, Version("c", SEMANTICS, "text c")))
    again = move_on(client, "g", before, Move(MoveKind.OFFER, OTHER))
    assert again.other is not None
    assert again.other.hash == "b"


@pytest.mark.parametrize("fact", [b"", b"[]", b'{"move": "offer"}', b'{"move": "no such"}', b"\xff"])
def test_a_move_that_cannot_be_read_is_no_move(fact: bytes) -> None:
    """An engine that ignored it would run another project than the group."""
    client = begun()
    client.set_fact_once("g", "upgrade-1", fact)
    with pytest.raises(StateError, match="cannot be read"):
        agreement(client, "g")


def test_a_group_that_never_began_runs_nothing() -> None:
    client = MemoryCoordination().client()
    assert (agreement(client, "g"), place_of(client, "g")) == (None, "g")


def test_an_engine_finds_its_snapshots_without_coordination_once_it_knows_where_they_are() -> None:
    client = begun()
    move(client, MoveKind.OFFER, OTHER)
    own, other, never = (OwnPlace(client, name, SEMANTICS) for name in "abc")
    assert (own("g"), other("g"), own("new")) == ("g", "g~1", "new")
    with pytest.raises(ProjectChanged, match="does not run this project"):
        never("g")
    client.forget("g")
    assert (own("g"), other("g")) == ("g", "g~1")


def test_what_was_decided_since_is_read_without_the_moves_before() -> None:
    client = begun()
    assert asked_on(client, "g", None, "a") is None
    changed = replace(OTHER, differs=frozenset("xy"), begins=frozenset("x"), ends=frozenset("y"), topics_shared=2)
    offered = move(client, MoveKind.OFFER, changed)
    assert asked_on(client, "g", None, "a") == offered
    assert offered.other is not None
    assert [offered.differing({0, 1}), offered.lacking(1), offered.lacking(0)] == [{"x", "y"}, {"x"}, {"y"}]
    assert [offered.is_read_by_both(index) for index in (1, 2)] == [True, False]
    assert offered.differing({0, 7}) == {"x", "y", "q/w"}, "of one that is not among the two all that ever differed"
    led = move(client, MoveKind.LEAD, offered.other)
    assert agreement_after(client, "g", offered) == led == known(client)
    settled = move(client, MoveKind.SETTLE, led.leading)
    assert asked_on(client, "g", led, "b") == settled
    with pytest.raises(ProjectChanged, match="was upgraded"):
        asked_on(client, "g", led, "a")
