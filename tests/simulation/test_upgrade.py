"""A group goes on with a changed project, whatever befalls its engines meanwhile (SPEC Z6; law Failover)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotspare.ha.outputs.held import HeldStream, Mark
from hotspare.ha.rules import placing
from hotspare.ha.rules.facts import StreamFacts
from tests.simulation.upgrades import run

SEEDS = 40


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_what_did_not_change_is_to_the_bit_and_what_did_has_no_gap(seed: int, tmp_path: Path) -> None:
    assert not run(seed, tmp_path)


def found_by_a_seed(folder: Path) -> bool:
    return any(run(seed, folder / str(seed)) for seed in range(1, SEEDS + 1))


def test_it_would_notice_an_engine_that_goes_on_by_the_numbers_of_another_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeldStream, "place_of", lambda self, newest: min(newest.sequence, self.last_sequence))
    assert found_by_a_seed(tmp_path)


def test_it_would_notice_one_that_does_not_wait_for_the_input_of_what_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "is_behind", lambda known, next_offsets, reads: False)
    assert found_by_a_seed(tmp_path)


def test_it_would_notice_one_that_publishes_a_position_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = HeldStream.place_of
    monkeypatch.setattr(HeldStream, "place_of", lambda self, newest: max(self.base.sequence, real(self, newest) - 1))
    assert found_by_a_seed(tmp_path)


def test_it_would_notice_one_that_believes_its_own_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def follow(self: HeldStream, newest: Mark, through: int) -> None:
        self.drop_through(through)

    monkeypatch.setattr(HeldStream, "follow", follow)
    monkeypatch.setattr(placing, "placed", lambda known: StreamFacts(committed=known.committed))
    assert found_by_a_seed(tmp_path)
