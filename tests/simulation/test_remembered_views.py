"""An engine that evaluates a rule only if a fact has changed that the rule read does what an engine does that evaluates all."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotspare.ha.effects import ha_loop
from hotspare.ha.group_state import view_of
from tests.examples import count
from tests.simulation import upgrades
from tests.simulation.faults import FaultKind
from tests.simulation.recent import run_recent
from tests.simulation.remembering import compared
from tests.simulation.run import run_seed

SEEDS = count(0.05)
FAVOURED = frozenset(
    {FaultKind.PERSIST, FaultKind.WRONG_ENGINE, FaultKind.WRONG_ACTIVE, FaultKind.SLOW_FENCE, FaultKind.SLOW_COMMITS}
)
"""Faults after which rules read facts that they rarely read."""
OFTEN = {"role_state", "leadership", "lease", "last_runs", "inbound", "streams", "core", "store", "under_way"}
"""Fields that change alone in almost every run. `tests/ha/test_remembered_view.py` has all others."""

pytestmark = pytest.mark.timeout(900)  # minutes of work for two idle cores, more on a busy machine


def test_a_run_with_whole_views_is_the_same_line_by_line(tmp_path: Path) -> None:
    for run in (run_seed, run_recent):
        for seed in range(1, SEEDS + 1):
            remembered: list[str] = []
            whole: list[str] = []
            run(seed, tmp_path, remembered.append)
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(ha_loop, "decided_from", view_of)
                run(seed, tmp_path, whole.append)
            assert remembered == whole
            assert len(whole) > 20


def test_every_decision_is_the_same_and_a_memory_that_misses_a_change_is_noticed(tmp_path: Path) -> None:
    with compared() as comparison:
        for seed in range(1, SEEDS + 1):
            for outcome in (run_seed(seed, tmp_path), run_seed(seed, tmp_path, favoured=FAVOURED), run_recent(seed, tmp_path)):
                assert outcome.failure == "", outcome.repeat
            assert upgrades.run(seed, tmp_path) == ""
    assert comparison.decisions > 1_000
    assert not comparison.unnoticed & OFTEN
