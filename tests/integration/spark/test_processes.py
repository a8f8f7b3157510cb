"""The processes around a Spark runner: none outlives its Python, and a death is reported at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from hotspare.base.processes import has_process_ended, process_start
from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.open import open_bus
from hotspare.runners.contract import HeadPlace
from hotspare.testing.cluster import wait_until

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
GONE_WITHIN_S = 60.0
ROWS_PER_MESSAGE = 1000
CATCH_UP_MESSAGES = 5_000
PEAK_GROWTH_KIB_MAX = 2.5 * 1024 * 1024


def filled(folder: Path, messages: int, rows: int) -> str:
    url = f"sqlite:///{folder / 'bus.db'}"
    bus = open_bus(url)
    bus.create_topic("rows")
    value = "\n".join(f"i,n,{i},{i / 8},name {i % 7}" for i in range(rows)).encode()
    for first in range(0, messages, 500):
        bus.append(Partition("rows"), [Outgoing(value)] * min(500, messages - first))
    bus.close()
    return url


@contextmanager
def subject(folder: Path, url: str, place: HeadPlace, rows: int) -> Iterator[subprocess.Popen[str]]:
    """Yields the process of subject.py, with an empty folder as its working folder."""
    work = folder / "work"
    work.mkdir()
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.spark.subject", url, place.value, str(rows)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=work,
            env={**os.environ, "PYTHONPATH": path},
            process_group=0,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def heard(process: subprocess.Popen[str], what: str) -> dict[str, Any]:
    """Returns the subject's next line of the kind `what`."""
    assert process.stdout is not None
    for line in process.stdout:
        said: dict[str, Any] = json.loads(line)
        if said["what"] == what:
            return said
    raise AssertionError(f"the subject ended without saying {what}")


def gone(pids: list[int]) -> bool:
    return all(has_process_ended(pid, process_start(pid)) for pid in pids)


@pytest.mark.parametrize("place", list(HeadPlace))
def test_killing_python_takes_the_jvm_and_every_worker_with_it(tmp_path: Path, place: HeadPlace) -> None:
    with subject(tmp_path, filled(tmp_path, 5, 10), place, 50) as process:
        started, rows = heard(process, "started"), heard(process, "rows")
        below = [child["pid"] for child in rows["children"]]
        assert started["jvm"] in below
        assert len(below) >= (2 if place is HeadPlace.DRIVER else 4), rows["children"]
        process.send_signal(signal.SIGKILL)
        wait_until(lambda: gone(below), f"the end of {below}", GONE_WITHIN_S)


def test_a_killed_jvm_is_reported_at_once_and_leaves_no_worker(tmp_path: Path) -> None:
    with subject(tmp_path, filled(tmp_path, 5, 10), HeadPlace.WORKERS, 50) as process:
        started, rows = heard(process, "started"), heard(process, "rows")
        os.kill(started["jvm"], signal.SIGKILL)
        end = heard(process, "end")
        assert end["cause"] == "process died"
        assert "exit status -9" in end["error"]
        assert heard(process, "stopped")["left"] == []
        wait_until(lambda: gone([c["pid"] for c in rows["children"]]), "the end of all workers", GONE_WITHIN_S)


def test_ctrl_c_reaches_the_handler_set_before_and_stop_leaves_nothing(tmp_path: Path) -> None:
    """SparkContext puts a handler of its own in place of SIGINT's; the JVM must not take the signal as its own either."""
    with subject(tmp_path, filled(tmp_path, 5, 10), HeadPlace.DRIVER, 50) as process:
        started = heard(process, "started")
        heard(process, "rows")
        os.killpg(process.pid, signal.SIGINT)
        assert heard(process, "end")["cause"] == "stopped"
        assert heard(process, "stopped")["left"] == []
        assert process.wait(GONE_WITHIN_S) == 0
        assert gone([started["jvm"]])
        assert not Path(started["scratch"]).exists()
        assert list((tmp_path / "work").iterdir()) == []
        assert (tmp_path / "errors").read_text() == ""


def _pythons(process: subprocess.Popen[str]) -> dict[int, str]:
    """Returns the commands of the Python processes below the subject, by id."""
    found = {}
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.Error):
            found[child.pid] = " ".join(child.cmdline()[1:])
    return {pid: command for pid, command in found.items() if "pyspark" in command and "org.apache" not in command}


@pytest.mark.parametrize("is_restarted", [False, True])
def test_three_pythons_stay_beside_the_engine_also_after_a_restart_of_the_query(tmp_path: Path, is_restarted: bool) -> None:
    """The processes that planned the query end. After a worker was killed, Spark plans again with new ones."""
    url = filled(tmp_path, 5, 10)
    with subject(tmp_path, url, HeadPlace.DRIVER, 100) as process:
        heard(process, "started")
        wait_until(lambda: len(_pythons(process)) == 3, "the end of the planners", GONE_WITHIN_S)
        if is_restarted:
            (worker, *_) = [pid for pid, command in _pythons(process).items() if command.endswith("pyspark.daemon pyspark.worker")]
            os.kill(worker, signal.SIGKILL)
        bus = open_bus(url)
        bus.append(Partition("rows"), [Outgoing(b"i,n,1,2,x\n" * 10)] * 5)
        bus.close()
        seen = heard(process, "rows")
    assert (seen["rows"], seen["mistakes"]) == (100, 0)


@pytest.mark.timeout(900)
def test_five_million_waiting_events_are_caught_up_within_memory(tmp_path: Path) -> None:
    rows = CATCH_UP_MESSAGES * ROWS_PER_MESSAGE
    with subject(tmp_path, filled(tmp_path, CATCH_UP_MESSAGES, ROWS_PER_MESSAGE), HeadPlace.WORKERS, rows) as process:
        started, seen = heard(process, "started"), heard(process, "rows")
    assert (seen["rows"], seen["mistakes"]) == (rows, 0)
    assert seen["batches"] > 5
    assert seen["peak_kib"] - started["before_kib"] < PEAK_GROWTH_KIB_MAX
