"""Law 7, One voice: no two engines publish under one epoch, and none publishes under an old one.

Every commit on the bus is observed with its epoch and its engine, on a bus that compares epochs and on one that only knows the last
fence. The planted faults `no-recheck`, `recheck-before-fence` and `newest-epoch-for-all` break the law, and the simulation finds
them (tests/simulation).
"""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.bus.memory import Fencing
from tests.examples import examples
from tests.simulation.faults import FaultKind
from tests.simulation.planted import PLANTED
from tests.simulation.run import run_seed
from tests.simulation.script import Script

pytestmark = pytest.mark.law

SLEEPERS = frozenset(
    {
        FaultKind.PAUSE,
        FaultKind.FALSE_SUSPICION,
        FaultKind.LAG,
        FaultKind.LATE_FENCE,
        FaultKind.UNKNOWN_RESULT,
        FaultKind.SWITCHOVER,
    }
)


@given(seed=st.integers(min_value=10_000, max_value=1 << 40))
def test_engines_that_sleep_at_the_worst_moments_keep_one_voice(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_seed(seed, Path(folder), only=SLEEPERS)
    assert not outcome.failure, f"{outcome.failure}, seed {seed}"


@examples(0.7)
@given(
    sleeps_after=st.integers(min_value=1, max_value=45),
    wakes_after=st.integers(min_value=1, max_value=150),
    fencing=st.sampled_from(Fencing),
)
def test_two_engines_one_of_which_sleeps_anywhere(sleeps_after: int, wakes_after: int, fencing: Fencing) -> None:
    """The observer raises if two engines publish under an epoch, or one under an old epoch."""
    with tempfile.TemporaryDirectory() as folder:
        script = Script(Path(folder), "e0", "e1", fencing=fencing)
        script.publish(2, 3, 4, 6)
        script.start("e0", "e1")
        for _ in range(sleeps_after):
            script.turn()
        script.publish(8, 9, 10)
        script.world.pause("e0", 1 << 40)
        for _ in range(wakes_after):
            script.turn()
        script.process("e0").paused_until_ms = -1
        script.publish(12, 14)
        script.finish()


def test_the_law_would_notice_a_sleeper_that_publishes(tmp_path: Path) -> None:
    with PLANTED["newest-epoch-for-all"]():
        assert any(run_seed(seed, tmp_path, only=SLEEPERS).failure for seed in range(1, 200))
