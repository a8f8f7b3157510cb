"""The descriptions of engines: hostile ones do no harm, differences are seen (SPEC A44, C10, M5)."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.coordination.contract import Member
from hotspare.ha.member_record import other_members_of, positions_of
from hotspare.ha.rules.facts import Difference
from hotspare.ha.rules.membership import version_differences
from tests.simulation.script import Script
from tests.simulation.world import GROUP, SETTINGS

OWN = Member("me", "", 1, 1, "host", "hash", "hotspare 1", "x86", "standby", {"a": 3}, {}, seen_ms=1000)


@given(text=st.one_of(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)))
def test_evidence_that_makes_no_sense_is_ignored(text: str) -> None:
    (news,) = other_members_of([replace(OWN, engine="other", detail={"differs": text})], "me", 100)
    assert news.evidence is None or isinstance(news.evidence, Difference)


def test_evidence_is_read_back() -> None:
    (news,) = other_members_of([replace(OWN, engine="other", detail={"differs": '["a",3,9,2]'})], "me", 100)
    assert news.evidence == Difference("a", 3, 9, 2, 0)


@pytest.mark.parametrize(("seen_ms", "counts"), [(1000, True), (901, True), (900, False), (0, False)])
def test_a_member_that_gave_no_word_lately_does_not_count(seen_ms: int, counts: bool) -> None:
    """The age is by the service's own clock, relative to the newest word of any member."""
    assert bool(other_members_of([OWN, replace(OWN, engine="other", seen_ms=seen_ms)], "me", 100)) is counts


def test_other_versions_and_processors_are_named() -> None:
    other = replace(OWN, engine="other", versions="hotspare 2", cpu="arm")
    assert version_differences([OWN, other], OWN) == (
        "engine other runs hotspare 2, this engine runs hotspare 1",
        "engine other runs arm, this engine runs x86",
    )
    assert version_differences([OWN, replace(OWN, engine="other")], OWN) == ()


@given(text=st.text(st.sampled_from("0123456789\u0663-x."), max_size=30) | st.just("9" * 5_000))
def test_numbers_that_make_no_sense_are_ignored(text: str) -> None:
    told = {"snapshot_confirmed": text, "epoch": text, "role_age_ms": text, "positions": f'{{"0/0":{text}}}'}
    (news,) = other_members_of([replace(OWN, engine="other", role="active", detail=told)], "me", 100)
    assert news.confirmed_order < 10**18
    assert isinstance(news.order, int)
    assert news.active_epoch_age is None or news.active_epoch_age == (news.confirmed_order, news.confirmed_order)


@pytest.mark.parametrize("partition", ["", "0", "x/0", "0/x", "0/", "/0", "-1/0", "0/0/0", "9" * 5_000 + "/0", "0/" + "9" * 5_000])
def test_positions_of_what_is_no_partition_are_ignored(partition: str) -> None:
    def told(*partitions: str) -> Member:
        return replace(OWN, engine="other", detail={"positions": json.dumps(dict.fromkeys(partitions, 7))})

    assert positions_of(told("0/0", "12/3")) == {"0/0": 7, "12/3": 7}
    assert positions_of(told("0/0", partition)) == {}


def test_of_an_engine_that_is_gone_no_versions_are_told(tmp_path: Path) -> None:
    """The record stays behind when an engine is killed."""
    script = Script(tmp_path, "e0", "e1")
    script.world.coordination.client("other").refresh_member(GROUP, replace(OWN, engine="gone", versions="hotspare 0"))
    script.start("e1")
    script.until_active("e1")
    for _ in range(4 * SETTINGS.member_refresh_ms):
        script.turn()
    script.start("e0")
    script.until(lambda: script.told("e0   (members changed: engine e1 joined)"))
    assert not script.told("e0   (member unlike")
    assert not script.told("e0   (members changed: gone")


def test_who_comes_and_goes_is_reported(tmp_path: Path) -> None:
    """SPEC C10."""
    script = Script(tmp_path, "e0", "e1")
    script.start("e0")
    script.until_active("e0")
    script.start("e1")
    script.until(lambda: script.told("e0   (members changed: engine e1 joined)"))
    script.world.kill("e1")
    turns = script.until(lambda: script.told("e0   (members changed: engine e1 left, or no longer renews its member record)"))
    assert turns >= SETTINGS.member_refresh_ms
