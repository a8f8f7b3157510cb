"""Plausible mistakes, each planted once: the simulation finds every one of them within 1,000 seeds."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.simulation.parallel import pool, spread
from tests.simulation.planted import PLANTED

SEEDS = 1_000

pytestmark = pytest.mark.timeout(900)  # minutes of work for two idle cores, more on a busy machine


@pytest.fixture(scope="module")
def workers() -> Iterator[ProcessPoolExecutor]:
    with pool() as executor:
        yield executor


@pytest.mark.parametrize("planted", PLANTED)
def test_the_mistake_is_found(workers: ProcessPoolExecutor, planted: str) -> None:
    found = next((share.failed[0] for share in spread(workers, 1, SEEDS, chunk=5, planted=planted) if share.failed), None)
    assert found is not None, f"{planted} was not found in {SEEDS} seeds"
    assert "AttributeError" not in found.failure, "the patch no longer fits the code"
    assert "TypeError" not in found.failure, "the patch no longer fits the code"
