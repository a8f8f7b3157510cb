"""Law 6, Failover: a run with kills, pauses, partitions and restarts delivers the same events as the run without.

The reference of every run is one uninterrupted pass over the recorded input. The planted faults `ring-of-held`, `drop-held-only`,
`unknown-is-done` and others break the law, and the simulation finds them (tests/simulation).
"""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.simulation.faults import DAMAGES, TRIMS, FaultKind
from tests.simulation.kits import real_kit
from tests.simulation.planted import PLANTED
from tests.simulation.run import run_seed

pytestmark = pytest.mark.law

SEEDS = st.integers(min_value=10_000, max_value=1 << 40)
FAULTS = st.frozensets(st.sampled_from(FaultKind)).filter(lambda faults: not (faults & TRIMS and faults & DAMAGES))
"""Both together may leave no state to start from, which engines refuse by name."""


@given(seed=SEEDS, faults=FAULTS)
def test_faults_of_any_kind_change_nothing_that_is_delivered(seed: int, faults: frozenset[FaultKind]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_seed(seed, Path(folder), only=faults)
    assert not outcome.failure, f"{outcome.failure}, seed {seed}, faults {sorted(f.name for f in faults)}"


@examples(0.2)
@given(seed=SEEDS)
def test_the_engines_own_core_fails_over_alike(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_seed(seed, Path(folder), kit=real_kit())
    assert not outcome.failure, f"{outcome.failure}; repeat with: {outcome.repeat} --core real"


@pytest.mark.parametrize("planted", ["ring-of-held", "drop-held-only", "unknown-is-done", "unknown-is-repeated"])
def test_the_law_would_notice(planted: str, tmp_path: Path) -> None:
    with PLANTED[planted]():
        assert any(run_seed(seed, tmp_path).failure for seed in range(1, 100))
