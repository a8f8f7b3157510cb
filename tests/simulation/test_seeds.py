"""Seeded runs with crashes, pauses, restarts and lying services: nothing lost, doubled or wrong (laws 2, 6 and 7).

`make sim-campaign` runs any number of each kind.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.examples import count
from tests.simulation.applications import run_applications
from tests.simulation.hangs import DECISIONS
from tests.simulation.kits import real_kit
from tests.simulation.parallel import pool, spread
from tests.simulation.planting import Groups
from tests.simulation.recent import ACCEPTED
from tests.simulation.run import run_seed

SEEDS = count(4)
REAL_SEEDS = count(0.4)
SHARDED_SEEDS = count(1)
CASCADE_SEEDS = count(0.4)
APPLICATION_SEEDS = count(0.4)
RECENT_SEEDS = count(0.4)
HANG_SEEDS = count(0.4)

pytestmark = pytest.mark.timeout(900)  # minutes of work for two idle cores, more on a busy machine


@pytest.fixture(scope="module")
def workers() -> Iterator[ProcessPoolExecutor]:
    with pool() as executor:
        yield executor


def test_no_seed_loses_doubles_or_changes_an_output(workers: ProcessPoolExecutor) -> None:
    failed = [outcome for share in spread(workers, 1, SEEDS, chunk=25) for outcome in share.failed]
    assert not failed, "\n".join(f"{o.failure}; repeat with: {o.repeat}" for o in failed)


def test_no_seed_of_a_project_in_shards_loses_doubles_or_changes_an_output(workers: ProcessPoolExecutor) -> None:
    """Engine processes that host a group for each shard."""
    shares = spread(workers, 1, SHARDED_SEEDS, chunk=10, groups=Groups.SHARDS)
    failed = [outcome for share in shares for outcome in share.failed]
    assert not failed, "\n".join(f"{o.failure}; repeat with: {o.repeat}" for o in failed)


def test_no_seed_of_a_cascade_loses_doubles_or_changes_an_output(workers: ProcessPoolExecutor) -> None:
    """SPEC K10: the downstream outputs equal those for the uninterrupted upstream run."""
    shares = list(spread(workers, 1, CASCADE_SEEDS, chunk=4, groups=Groups.CASCADE))
    failed = [outcome for share in shares for outcome in share.failed]
    assert not failed, "\n".join(f"{o.failure}; repeat with: {o.repeat}" for o in failed)
    assert sum(share.delivered for share in shares) > 10 * CASCADE_SEEDS


def test_no_seed_of_applications_loses_doubles_or_changes_an_output(workers: ProcessPoolExecutor) -> None:
    """Engines start and end with tasks of Spark."""
    shares = list(spread(workers, 1, APPLICATION_SEEDS, chunk=4, groups=Groups.APPLICATIONS))
    failed = [outcome for share in shares for outcome in share.failed]
    assert not failed, "\n".join(f"{o.failure}; repeat with: {o.repeat}" for o in failed)
    assert sum(share.delivered for share in shares) > 20 * APPLICATION_SEEDS


def test_no_seed_with_states_from_recent_input_loses_doubles_or_changes_an_output(workers: ProcessPoolExecutor) -> None:
    """SPEC F11: such engines are accepted, take over, and may be the last that is left."""
    shares = list(spread(workers, 1, RECENT_SEEDS, chunk=4, groups=Groups.RECENT))
    failed = [outcome for share in shares for outcome in share.failed]
    assert not failed, "\n".join(f"{o.failure}; repeat with: {o.repeat}" for o in failed)
    assert sum(share.covered[ACCEPTED] for share in shares) > RECENT_SEEDS // 3


def test_no_seed_with_calls_that_do_not_end_loses_doubles_or_changes_an_output(workers: ProcessPoolExecutor) -> None:
    """The outputs are those of an engine that refuses what the group has decided to refuse."""
    shares = list(spread(workers, 1, HANG_SEEDS, chunk=4, groups=Groups.HANGS))
    failed = [outcome for share in shares for outcome in share.failed]
    assert not failed, "\n".join(f"{o.failure}; repeat with: {o.repeat}" for o in failed)
    assert sum(share.covered[DECISIONS] for share in shares) > HANG_SEEDS // 4


def test_a_seed_of_applications_repeats_exactly(tmp_path: Path) -> None:
    first: list[str] = []
    second: list[str] = []
    assert run_applications(3, tmp_path, first.append) == run_applications(3, tmp_path, second.append)
    assert first == second
    assert len(first) > 50


def test_the_engines_own_core_in_the_same_worlds(tmp_path: Path) -> None:
    """The same with the real core, head and snapshots: retention by ticks, counters, sums, bad events as a stream."""
    kit = real_kit()
    outcomes = [run_seed(seed, tmp_path, kit=kit) for seed in range(1, REAL_SEEDS + 1)]
    failed = [o for o in outcomes if o.failure]
    assert not failed, "\n".join(f"{o.failure}; repeat with: {o.repeat} ARGS='--core real'" for o in failed)
    assert sum(o.delivered for o in outcomes) > REAL_SEEDS


def test_a_seed_repeats_exactly(tmp_path: Path) -> None:
    first: list[str] = []
    second: list[str] = []
    assert run_seed(11, tmp_path, first.append) == run_seed(11, tmp_path, second.append)
    assert first == second
    assert len(first) > 50
