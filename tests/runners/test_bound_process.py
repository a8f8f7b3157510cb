"""A process that is bound to this one ends with it, and with nothing else (no JVM outlives its Python)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hotspare.base.processes import has_process_ended, process_start
from hotspare.runners.spark.session import start_bound
from hotspare.testing.cluster import wait_until

ROOT = Path(__file__).parents[2]
_SLEEP = (
    "import os, signal, time; print(os.getpid(), signal.getsignal(signal.SIGINT) is signal.SIG_IGN, flush=True); time.sleep(600)"
)
SLEEPER = (sys.executable, "-c", _SLEEP)
"""Reads nothing, so it does not notice a closed pipe. Prints its process id, and whether it ignores a Ctrl-C."""
STARTER = f"""
import sys, time
from pathlib import Path
from hotspare.runners.spark.session import start_bound
with open(sys.argv[1], "wb") as log:
    start_bound({SLEEPER!r}, log, {{}})
time.sleep(600)
"""


def said(log: Path) -> tuple[int, str]:
    """Returns the sleeper's process id, and whether it ignores SIGINT, as it printed them."""
    wait_until(lambda: log.exists() and log.read_text().endswith("\n"), "the sleeper's word")
    process_id, ignores = log.read_text().split()
    return int(process_id), ignores


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's doing")
def test_it_dies_when_its_starter_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen([sys.executable, "-c", STARTER, str(log)], env=environment) as starter:
        sleeper, _ = said(log)
        started = process_start(sleeper)
        assert not has_process_ended(sleeper, started)
        starter.kill()
    wait_until(lambda: has_process_ended(sleeper, started), "the sleeper's end")


def test_it_outlives_the_thread_that_asked_for_it_and_heeds_no_ctrl_c(tmp_path: Path) -> None:
    log = tmp_path / "log"
    processes: list[subprocess.Popen[bytes]] = []
    with log.open("wb") as file:
        asking = threading.Thread(target=lambda: processes.append(start_bound(SLEEPER, file, {})))
        asking.start()
        asking.join()
    process = processes[0]
    assert said(log) == (process.pid, "True"), "the command runs in the very process that was started"
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM
    assert process.stdin is not None
    process.stdin.close()


def test_a_command_that_is_not_there_ends_at_once_and_the_log_says_why(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = start_bound((str(tmp_path / "nothing"),), file, {})
    assert process.wait(60) != 0
    assert "No such file" in log.read_text()
    assert process.stdin is not None
    process.stdin.close()
