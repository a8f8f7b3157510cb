"""Engines of two projects in one group: the role moves from one to the other and back, under all faults (law Failover)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hotspare.ha.rules import renumbering, two_projects
from hotspare.ha.rules.facts import Difference
from hotspare.ha.rules.roles import ENDS, Role
from hotspare.ha.rules.upgrading import Agreement, CutOverKind
from tests.simulation.apart import Apart, bare
from tests.simulation.beside import Both, run
from tests.simulation.upgrades import CHANGED, KEPT, NEW, OLD
from tests.simulation.world import GROUP

SEEDS = 12


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_what_did_not_change_is_to_the_bit_and_each_input_is_answered_by_one_project(seed: int, tmp_path: Path) -> None:
    assert not run(seed, tmp_path)


@pytest.fixture
def group(tmp_path: Path) -> Both:
    """A group whose `a0` is active; `a1`, and `b0` of the changed project, are its spares."""
    both = Both.make(tmp_path, 1)
    for name in ("a0", "a1"):
        both.start(name)
    both.script.until_active("a0")
    both.script.publish(*range(30))
    both.offer()
    both.start("b0")
    both.script.until(lambda: both.script.role("b0") is Role.STANDBY)
    knows_of_two(both, "a1", "b0")
    return both


def knows_of_two(both: Both, *names: str) -> None:
    def know(name: str) -> bool:
        state = both.script.process(name).state
        return state is not None and state.projects.has_two

    both.script.until(lambda: all(map(know, names)))


def test_before_it_leads_the_changed_project_has_the_role_only_where_no_other_engine_lives(group: Both) -> None:
    script = group.script
    script.world.kill("a0")
    script.until_active("a1")
    assert script.role("b0") is Role.STANDBY
    script.world.kill("a1")
    script.until_active("b0")
    group.start("a0")
    script.until(lambda: script.role("a0") is Role.STANDBY)
    script.publish(*range(20))
    group.end(OLD)
    script.world.close()


def test_nobody_is_asked_for_a_switch_over_to_it_before_it_leads(group: Both) -> None:
    script, people = group.script, group.script.world.coordination.client("people")
    people.request_switchover(GROUP, "b0")
    for _ in range(400):
        script.turn()
    assert script.role("a0") is Role.ACTIVE
    group.decide(CutOverKind.LEAD, group.known.other or group.known.leading)
    script.until_active("b0")
    group.end(NEW)
    script.world.close()


def test_engines_of_the_project_that_is_left_out_end(group: Both) -> None:
    script = group.script
    group.lead(NEW)
    script.until_active("b0")
    group.settle()
    script.until(lambda: all(n not in script.world.processes or script.role(n) in ENDS for n in ("a0", "a1")))
    assert script.told("being upgraded") or script.told("was upgraded")
    group.end(NEW)
    script.world.close()


def test_an_engine_that_hears_of_no_other_project_asks_nothing(tmp_path: Path) -> None:
    """Checks that a group without an upgrade makes no call for one."""
    both = Both.make(tmp_path, 1)
    both.start("a0")
    both.start("a1")
    both.live(100)
    assert not both.script.told("reads which projects")
    both.script.world.close()


def test_a_spare_that_differs_waits_while_one_of_the_other_project_has_yet_to_come_there(group: Both) -> None:
    state, now_ms = group.script.process("a1").state, group.script.world.now_ms
    assert state is not None
    assert state.membership.awaited_ms < 0, "nothing differs"
    ahead = Difference(KEPT, 10**6, 1, 1, now_ms)
    state.streams[KEPT] = replace(state.streams[KEPT], difference=ahead)
    told_ms = state.last_runs.member_refreshed_ms
    group.script.until(lambda: state.last_runs.member_refreshed_ms > told_ms)
    assert state.membership.awaited_ms > 0
    group.script.world.close()


@pytest.fixture
def apart(tmp_path: Path) -> Apart:
    """A group whose `a0` is active, and `a1` its spare; their project and that of `b0` share no stream."""
    found = Apart.begin(tmp_path)
    found.start("a0")
    found.script.until_active("a0")
    found.start("a1")
    found.until_standby("a1")
    found.events(60)
    return found


def test_of_a_stream_that_it_alone_has_nothing_comes_of_input_that_was_answered_while_it_was_behind(apart: Apart) -> None:
    script = apart.script
    apart.offer()
    apart.start("b0")
    apart.until_standby("b0")
    apart.events(100)
    assert apart.known.other is not None
    apart.decide(CutOverKind.LEAD, apart.known.other)
    apart.events(50)
    apart.events(60, "a0", "a1")
    script.world.coordination.client("people").request_switchover(GROUP, "b0")
    while script.role("a0") is Role.ACTIVE:
        script.turn("a0", "a1")
    before = apart.rows(OLD)
    state = script.process("b0").state
    assert state is not None
    assert any(state.core.next_offsets[row[1:3]] <= row[3] for row in before[-10:]), "it is behind"  # type: ignore[index, operator]
    script.until_active("b0")
    apart.events(60)
    came = [bare(row) for row in apart.rows(NEW)]
    assert came == apart.unanswered(NEW, before)[: len(came)]
    assert len(came) > 10
    script.world.close()


def test_nor_of_what_was_answered_while_it_slept_and_knew_of_no_other_project(apart: Apart) -> None:
    script = apart.script
    script.world.pause("a1", 10**6)
    apart.offer()
    apart.start("b0")
    apart.until_standby("b0")
    apart.lead(NEW)
    script.until_active("b0")
    script.world.kill("a0")
    apart.events(100)
    before, first = apart.rows(NEW), len(apart.rows(OLD))
    script.world.kill("b0")
    script.world.processes["a1"].paused_until_ms = script.world.now_ms
    script.until_active("a1")
    apart.events(60)
    came = [bare(row) for row in apart.rows(OLD)[first:]]
    assert came == apart.unanswered(OLD, before)[: len(came)]
    assert len(came) > 10
    script.world.close()


def test_a_spare_whose_streams_the_active_does_not_have_lets_go_of_what_that_one_answers_and_confirms_snapshots(
    apart: Apart,
) -> None:
    apart.offer()
    apart.start("b0")
    apart.until_standby("b0")
    apart.events(400)
    state = apart.script.process("b0").state
    assert state is not None
    assert len(apart.unanswered(NEW, [])) > 200
    assert state.held.streams[CHANGED].rows < 50
    assert state.snapshots.snapshots_confirmed
    apart.script.world.close()


def found_by_a_seed(folder: Path) -> bool:
    return any(run(seed, folder / str(seed)) for seed in range(1, SEEDS + 1))


def test_it_would_notice_one_that_takes_the_role_though_the_other_project_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_projects, "is_yielding_to_leading", lambda view: False)
    assert found_by_a_seed(tmp_path)


def test_it_would_notice_engines_that_are_compared_in_streams_that_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Agreement, "changed_streams_of", lambda self, makers: frozenset())
    assert found_by_a_seed(tmp_path)


def test_it_would_notice_one_that_goes_on_by_its_numbers_when_another_project_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renumbering, "streams_with_unknown_shift", lambda known: frozenset())
    assert found_by_a_seed(tmp_path)


def test_it_would_notice_topics_that_nobody_ticks_while_the_other_project_publishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_projects, "partitions_for_spare_ticks", lambda view, inbound: ())
    assert found_by_a_seed(tmp_path)
