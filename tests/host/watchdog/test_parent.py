"""The parent of an engine, with real processes: what it ends, starts again and forwards, and how it ends."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hotspare.base.call_place import ATTEMPT_PREFIX, CallAttempt, CallPlace, HangCause
from hotspare.coordination.open import open_coordination
from hotspare.host.watchdog.parent import is_parent_wanted, parent_of_engine
from hotspare.host.watchdog.shared_memory import BOARD_VARIABLE
from tests.host.watchdog import fake_engine
from tests.host.watchdog.fake_engine import DEADLINE_MS, GROUP, MEMORY_BYTES, TOPIC, WINDOW, coordination_url, starts

PARENT = """
import sys
from hotspare.host.watchdog.parent import end_like, supervise
from hotspare.host.watchdog.rule import RestartPauses
end_like(supervise([sys.executable, "-m", *sys.argv[1:]], RestartPauses(first_s=0.001, most_s=0.002)))
"""
WAIT_S = 60
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can watch")
Started = subprocess.Popen[str]
Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a parent with a fake engine that obeys orders."""
    begun: list[Started] = []

    def start_parent(*orders: str) -> Started:
        command = [sys.executable, "-c", PARENT, fake_engine.__name__, str(tmp_path), *orders]
        pipe = subprocess.PIPE
        begun.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True))
        return begun[-1]

    yield start_parent
    for each in begun:
        each.kill()
        each.communicate()


def ended(parent: Started) -> tuple[int, list[dict[str, Any]]]:
    """Waits for the end; returns the exit status and the lines of the parent's log."""
    _, err = parent.communicate(timeout=WAIT_S)
    return parent.returncode, [json.loads(line) for line in err.splitlines()]


def engine_of(parent: Started, word: str) -> int:
    """Returns the process id of the engine, once it has printed `word`."""
    assert parent.stdout is not None
    process = 0
    for line in parent.stdout:
        process = process or int(line.split()[1])
        if line.startswith(word):
            return process
    raise AssertionError(parent.communicate()[1])


def attempts(folder: Path) -> list[CallAttempt]:
    coordination = open_coordination(coordination_url(folder))
    try:
        names = [name for name in coordination.fact_names(GROUP) if name.startswith(ATTEMPT_PREFIX)]
        found = [CallAttempt.from_bytes(coordination.fact(GROUP, name) or b"") for name in sorted(names)]
    finally:
        coordination.close()
    return [attempt for attempt in found if attempt is not None]


def test_a_call_that_does_not_end_is_recorded_and_its_engine_started_again(start: Start, tmp_path: Path) -> None:
    status, log = ended(start("hang", "0"))
    assert (status, [line["event"] for line in log]) == (0, ["hung_call", "engine_restarted"])
    (attempt,) = attempts(tmp_path)
    place = CallPlace(TOPIC, 3, 42, 7, WINDOW)
    assert (attempt.place, attempt.cause, attempt.rows) == (place, HangCause.DEADLINE, 1)
    assert (attempt.start, attempt.engine, attempt.host) == (f"start-{starts(tmp_path)[0]}", "one", "here")
    assert attempt.used_ms >= DEADLINE_MS
    assert (log[0]["window"], log[0]["group"], log[0]["used_ms"]) == (WINDOW, GROUP, attempt.used_ms)
    assert str(place) in log[0]["message"]


def test_a_call_that_takes_memory_is_recorded(start: Start, tmp_path: Path) -> None:
    status, log = ended(start("eat", "0"))
    assert (status, attempts(tmp_path)[0].cause) == (0, HangCause.MEMORY)
    assert log[0]["grown_bytes"] >= MEMORY_BYTES


def test_a_call_without_limits_ends_by_itself(start: Start, tmp_path: Path) -> None:
    assert ended(start("unlimited")) == (0, [])
    assert attempts(tmp_path) == []


def test_a_project_that_does_not_finish_loading_is_an_error(start: Start, tmp_path: Path) -> None:
    status, log = ended(start("load"))
    assert (status, [line["event"] for line in log]) == (1, ["hung_loading"])
    assert len(starts(tmp_path)) == 1


@pytest.mark.parametrize("status", [0, 1, 2, 130])
def test_an_engine_that_ends_by_itself_is_not_started_again(start: Start, tmp_path: Path, status: int) -> None:
    assert ended(start(str(status))) == (status, [])
    assert len(starts(tmp_path)) == 1


def test_an_engine_that_crashes_is_started_again(start: Start, tmp_path: Path) -> None:
    status, log = ended(start("crash", "70", "75", "crash", "3"))
    assert (status, [line["status"] for line in log]) == (3, [-9, 70, 75, -9])
    assert len(starts(tmp_path)) == 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_to_stop_reaches_the_engine(start: Start, number: int) -> None:
    parent = start("serve")
    engine_of(parent, "serves")
    parent.send_signal(number)
    engine_of_line(parent, "stops")
    assert ended(parent) == (0, [])


def engine_of_line(parent: Started, word: str) -> None:
    assert parent.stdout is not None
    assert parent.stdout.readline() == f"{word}\n"


def test_a_signal_to_both_is_one_request(start: Start) -> None:
    """A supervisor may signal all processes of a service."""
    parent = start("serve")
    engine = engine_of(parent, "serves")
    os.kill(engine, signal.SIGTERM)
    engine_of_line(parent, "stops")
    parent.send_signal(signal.SIGTERM)
    assert ended(parent) == (0, [])


def test_the_second_request_to_stop_ends_the_engine_at_once(start: Start) -> None:
    parent = start("deaf")
    engine = os.pidfd_open(engine_of(parent, "serves"))
    parent.send_signal(signal.SIGTERM)
    parent.send_signal(signal.SIGINT)
    status, log = ended(parent)
    assert (status in (128 + signal.SIGTERM, 128 + signal.SIGINT), log) == (True, [])
    assert select.select([engine], [], [], WAIT_S)[0]
    os.close(engine)


def test_a_request_to_the_engine_itself_ends_the_parent_likewise(start: Start, tmp_path: Path) -> None:
    parent = start("wait")
    os.kill(engine_of(parent, "in call"), signal.SIGTERM)
    assert ended(parent) == (-signal.SIGTERM, [])
    assert len(starts(tmp_path)) == 1


def test_the_engine_dies_with_its_parent(tmp_path: Path) -> None:
    """The engine is one that begins as `hotspare run` does."""
    program = (
        "import os, sys\n"
        "from hotspare.base.interpreter import end_with_parent\n"
        "from hotspare.host.watchdog.parent import parent_of_engine\n"
        "end_with_parent(parent_of_engine(os.environ))\n"
        "print('serves', os.getpid(), flush=True)\n"
        "sys.stdin.readline()\n"
    )
    (tmp_path / "lives.py").write_text(program)
    command = [sys.executable, "-c", PARENT, "lives"]
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, "PYTHONPATH": path}) as parent:
        engine = os.pidfd_open(engine_of(parent, "serves"))
        parent.kill()
        assert select.select([engine], [], [], WAIT_S)[0]
        os.close(engine)


@pytest.mark.parametrize(
    ("arguments", "environment", "is_wanted"),
    [
        (("p.yaml", "--bus", "sqlite:///b.db"), {}, True),
        (("p.yaml", "--restart", "always"), {}, True),
        (("p.yaml", "--restart", "never"), {}, False),
        (("--restart=never", "p.yaml"), {}, False),
        (("p.yaml", "--restart", "never", "--restart", "always"), {}, True),
        (("p.yaml", "--restart=always", "--restart=never"), {}, False),
        (("p.yaml", "--help"), {}, False),
        (("p.yaml",), {BOARD_VARIABLE: "3:17"}, False),
        (("p.yaml", "--restart"), {}, True),
    ],
)
def test_an_engine_has_a_parent_unless_it_is_never_restarted(
    arguments: tuple[str, ...], environment: dict[str, str], *, is_wanted: bool
) -> None:
    assert is_parent_wanted(arguments, environment) is is_wanted


def test_an_engine_knows_its_parent() -> None:
    assert (parent_of_engine({BOARD_VARIABLE: "3:17"}), parent_of_engine({})) == (17, None)
