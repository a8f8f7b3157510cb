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
from hotspare.ha.effects.upgrading import (
    OwnSnapshotGroup,
    agreement,
    agreement_after,
    all_snapshot_groups,
    current_agreement,
    has_any_cut_over,
    leading_snapshot_group,
    record_cut_over,
)
from hotspare.ha.rules.upgrading import Agreement, CutOver, CutOverKind, ProjectVersion, StateSource, fold_cut_overs

FIRST = ProjectVersion("a", SEMANTICS, "text a")
OTHER = ProjectVersion("b", SEMANTICS, "text b", state_source=StateSource.SNAPSHOT, renumbered_streams=frozenset({"q/w"}))


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


def move(client: MemoryCoordinationClient, kind: CutOverKind, version: ProjectVersion) -> Agreement:
    return record_cut_over(client, "g", known(client), CutOver(kind, version))


def test_the_moves_of_an_upgrade_and_of_the_way_back() -> None:
    after = fold_cut_overs(FIRST, [CutOver(CutOverKind.OFFER, OTHER)])
    assert after.other is not None
    assert (after.leading, after.other.hash, after.other.number) == (FIRST, "b", 1)
    led = after.after_cut_over(CutOver(CutOverKind.LEAD, after.other))
    assert (led.leading.hash, led.other) == ("b", FIRST)
    back = led.after_cut_over(CutOver(CutOverKind.LEAD, FIRST))
    assert back.leading == FIRST
    settled = led.after_cut_over(CutOver(CutOverKind.SETTLE, led.leading))
    assert (settled.leading.hash, settled.other, settled.cut_overs) == ("b", None, 3)
    assert [v.snapshot_group("g") for v in (FIRST, settled.leading)] == ["g", "g~1"]


@given(st.lists(st.tuples(st.sampled_from(CutOverKind), st.sampled_from("abc"), st.integers(0, 5)), max_size=12))
def test_moves_that_make_no_sense_change_nothing(moves: list[tuple[CutOverKind, str, int]]) -> None:
    """A project always leads; the two projects always differ; each offered one has a place of its own for its snapshots."""
    found, taken = Agreement(FIRST), {0}
    for kind, name, number in moves:
        before, found = found, found.after_cut_over(CutOver(kind, ProjectVersion(name, SEMANTICS, "", number)))
        assert found.cut_overs == before.cut_overs + 1
        if found.other is not None:
            assert found.other.hash != found.leading.hash
            if before.other is None:
                assert found.other.number not in taken
                taken.add(found.other.number)
        assert {found.leading.number} <= taken


def test_engines_of_the_projects_that_a_group_runs_may_join_and_no_others() -> None:
    client = begun()
    assert not has_any_cut_over(client, "g")
    move(client, CutOverKind.OFFER, OTHER)
    assert agreed_project(client, "g", identity("a"))[1].hash == "a"
    joined = agreed_project(client, "g", identity("b"))[1]
    assert (joined.state_source, joined.renumbered_streams, joined.snapshot_group("g")) == (StateSource.SNAPSHOT, {"q/w"}, "g~1")
    move(client, CutOverKind.LEAD, joined)
    move(client, CutOverKind.SETTLE, joined)
    agree_on_semantics(client, "g")
    with pytest.raises(ProjectChanged, match="runs another project") as refused:
        agreed_project(client, "g", identity("a"))
    assert "text b became text a" in refused.value.detail
    assert "hotspare upgrade" in refused.value.hint
    assert agreed_document(client, "g") == "text b"
    assert (leading_snapshot_group(client, "g"), OwnSnapshotGroup(client, "b", SEMANTICS)("g")) == ("g~1", "g~1")
    assert all_snapshot_groups(client, "g") == ["g", "g~1", "g~2", "g~3"]


def test_a_group_of_other_semantics_runs_the_same_project_after_an_upgrade_only() -> None:
    client = MemoryCoordination().client()
    client.set_fact_once("g", "semantics", str(SEMANTICS - 1).encode())
    client.set_fact_once("g", "project", b"a\ntext a")
    with pytest.raises(ProjectChanged, match="begun by an older version of hotspare"):
        agree_on_semantics(client, "g")
    move(client, CutOverKind.OFFER, ProjectVersion("a", SEMANTICS, "text a"))
    agree_on_semantics(client, "g")
    assert agreed_project(client, "g", identity("a"))[1].number == 1


def test_of_two_who_decide_at_once_the_second_is_told() -> None:
    client = begun()
    before = known(client)
    record_cut_over(client, "g", before, CutOver(CutOverKind.OFFER, OTHER))
    with pytest.raises(UsageError, match="another command recorded an upgrade step"):
        record_cut_over(client, "g", before, CutOver(CutOverKind.OFFER, ProjectVersion("c", SEMANTICS, "text c")))
    again = record_cut_over(client, "g", before, CutOver(CutOverKind.OFFER, OTHER))
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
    assert (agreement(client, "g"), leading_snapshot_group(client, "g")) == (None, "g")


def test_an_engine_finds_its_snapshots_without_coordination_once_it_knows_where_they_are() -> None:
    client = begun()
    move(client, CutOverKind.OFFER, OTHER)
    own, other, never = (OwnSnapshotGroup(client, name, SEMANTICS) for name in "abc")
    assert (own("g"), other("g"), own("new")) == ("g", "g~1", "new")
    with pytest.raises(ProjectChanged, match="does not run this project"):
        never("g")
    client.reset_group("g")
    assert (own("g"), other("g")) == ("g", "g~1")


def test_what_was_decided_since_is_read_without_the_moves_before() -> None:
    client = begun()
    assert current_agreement(client, "g", None, "a") is None
    changed = replace(
        OTHER, changed_streams=frozenset("xy"), added_streams=frozenset("x"), removed_streams=frozenset("y"), topics_shared=2
    )
    offered = move(client, CutOverKind.OFFER, changed)
    assert current_agreement(client, "g", None, "a") == offered
    assert offered.other is not None
    assert [offered.changed_streams_of({0, 1}), offered.streams_only_in(1), offered.streams_only_in(0)] == [
        {"x", "y"},
        {"x"},
        {"y"},
    ]
    assert [offered.is_read_by_both(index) for index in (1, 2)] == [True, False]
    assert offered.changed_streams_of({0, 7}) == {"x", "y", "q/w"}, "of one that is not among the two all that ever differed"
    led = move(client, CutOverKind.LEAD, offered.other)
    assert agreement_after(client, "g", offered) == led == known(client)
    settled = move(client, CutOverKind.SETTLE, led.leading)
    assert current_agreement(client, "g", led, "b") == settled
    with pytest.raises(ProjectChanged, match="was upgraded"):
        current_agreement(client, "g", led, "a")
