"""A group continues with a changed project under all faults (SPEC Z6; law Failover)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hotspare.ha.outputs.held import HeldStream, OutputMark
from hotspare.ha.rules import renumbering
from hotspare.ha.rules.facts import StreamFacts
from hotspare.ha.rules.roles import ENDS, Role
from tests.simulation.script import Script
from tests.simulation.upgrades import ENGINES, NEW, Upgraded, run

SEEDS = 40


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_what_did_not_change_is_to_the_bit_and_what_did_has_no_gap(seed: int, tmp_path: Path) -> None:
    assert not run(seed, tmp_path)


def test_one_that_slept_through_the_upgrade_unseen_takes_the_role_no_more(tmp_path: Path) -> None:
    """A spare of the old project wakes alone: it would publish the old project's outputs."""
    group = Upgraded(Script(tmp_path, *ENGINES), random.Random(1))
    world = group.script.world
    try:
        group.start("e0")
        group.script.until(lambda: world.processes["e0"].engine.role is Role.ACTIVE)
        group.start("e1")
        group.script.publish(30)
        group.script.until(lambda: world.processes["e1"].engine.role is Role.STANDBY)
        world.pause("e1", 300)
        group.upgrade(NEW, unseen="e1")
        counts = {stream: len(rows) for stream, rows in world.observer.rows.items()}
        group.script.publish(30)
        group.script.until(lambda: "e1" not in world.processes or world.processes["e1"].engine.role in ENDS)
        assert {stream: len(rows) for stream, rows in world.observer.rows.items()} == counts
        group.script.publish(30)
        group.finish()
    finally:
        world.close()


def found_by_a_seed(folder: Path) -> bool:
    return any(run(seed, folder / str(seed)) for seed in range(1, SEEDS + 1))


def test_it_would_notice_an_engine_that_goes_on_by_the_numbers_of_another_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeldStream, "sequence_at_or_before", lambda self, newest: min(newest.sequence, self.last_sequence))
    assert found_by_a_seed(tmp_path)


def test_it_would_notice_one_that_does_not_wait_for_the_input_of_what_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renumbering, "is_behind", lambda *_: False)
    assert found_by_a_seed(tmp_path)


def test_it_would_notice_one_that_publishes_a_position_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = HeldStream.sequence_at_or_before
    monkeypatch.setattr(HeldStream, "sequence_at_or_before", lambda self, newest: max(self.base.sequence, real(self, newest) - 1))
    assert found_by_a_seed(tmp_path)


def test_it_would_notice_one_that_believes_its_own_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def follow(self: HeldStream, newest: OutputMark, through: int) -> None:
        self.drop_through(through)

    monkeypatch.setattr(HeldStream, "renumber_from", follow)
    monkeypatch.setattr(renumbering, "with_known_shift", lambda known: StreamFacts(committed=known.committed))
    assert found_by_a_seed(tmp_path)
