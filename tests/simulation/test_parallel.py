"""The pool of processes for seeds ends with its owner, whatever its processes run."""

import multiprocessing
import signal

import pytest

from hotspare.testing.cluster import wait_until
from tests.simulation.parallel import pool


@pytest.mark.timeout(120)
def test_runs_that_nobody_waits_for_any_more_are_ended() -> None:
    """An interrupt used to wait for all runs in progress, for up to a minute."""
    others = set(multiprocessing.active_children())
    with pytest.raises(KeyboardInterrupt), pool(1) as workers:
        lasting = workers.submit(signal.pause)
        wait_until(lasting.running, "it runs")
        raise KeyboardInterrupt
    assert set(multiprocessing.active_children()) <= others
