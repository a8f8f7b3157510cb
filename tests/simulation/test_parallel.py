"""The pool that seeds are spread over ends with who made it, whatever its processes are at."""

import multiprocessing
import signal

import pytest

from hotspare.testing.cluster import wait_until
from tests.simulation.parallel import pool


@pytest.mark.timeout(120)
def test_runs_that_nobody_waits_for_any_more_are_ended() -> None:
    """An interrupt used to wait for all that were under way, which took up to a minute."""
    others = set(multiprocessing.active_children())
    with pytest.raises(KeyboardInterrupt), pool(1) as workers:
        lasting = workers.submit(signal.pause)
        wait_until(lasting.running, "it runs")
        raise KeyboardInterrupt
    assert set(multiprocessing.active_children()) <= others
