"""A task ends with the executor and the driver above it, as soon as either begins to end and not before (docs/scale.md)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from queue import SimpleQueue

import pytest

from hotspare.base.processes import parent_of
from hotspare.ha.process_watcher import ProcessWatcher
from hotspare.host.partitioned.ancestors import AncestorProcess, watching_ancestors

WAIT_S = 60
EXECUTOR = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1], sys.argv[2]], stdin=sys.stdin)
"""
DAEMON = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1]], stdin=sys.stdin)
"""
TASK = """
import sys
from hotspare.host.partitioned.ancestors import executor_of_this_task
print(executor_of_this_task().id, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def driver() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_the_end_of_a_process_above_is_told_by_its_name(driver: subprocess.Popen[bytes]) -> None:
    told: SimpleQueue[str] = SimpleQueue()
    above = AncestorProcess.for_process_id("driver", driver.pid)
    with watching_ancestors((above, None), ProcessWatcher(), told.put):
        driver.kill()
        assert told.get(timeout=WAIT_S) == "driver"


def test_a_process_elsewhere_says_nothing(driver: subprocess.Popen[bytes]) -> None:
    """A process id from elsewhere is another process's here, or is unused."""
    told: SimpleQueue[str] = SimpleQueue()
    here, gone = AncestorProcess.for_process_id("driver", driver.pid), AncestorProcess.for_process_id("executor", driver.pid)
    elsewhere = replace(gone, space="another machine", started=1)
    with watching_ancestors((elsewhere, here), ProcessWatcher(), told.put):
        driver.kill()
        assert told.get(timeout=WAIT_S) == "driver"
        assert told.empty()


def test_the_executor_is_the_process_above_the_daemon() -> None:
    words = [sys.executable, "-c", EXECUTOR, DAEMON, TASK]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as executor:
        assert executor.stdout is not None
        assert int(executor.stdout.readline()) == executor.pid
        assert executor.stdin is not None
        executor.stdin.close()


def test_a_process_that_is_not_there_has_none_above() -> None:
    assert parent_of(1_000_000_007) == 0
