"""The parent of an engine, with real processes: what it ends, starts again and forwards, and how it ends."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hotspare.base.call_place import ATTEMPT_PREFIX, CallAttempt, CallPlace, Decision, HangCause
from hotspare.coordination.open import open_coordination
from hotspare.host.watchdog.parent import is_parent_wanted, parent_of_engine
from hotspare.host.watchdog.replay_calls import DECIDED_VARIABLE, ReplayCalls
from hotspare.host.watchdog.shared_memory import BOARD_VARIABLE
from tests.host.watchdog import fake_engine
from tests.host.watchdog.fake_engine import DEADLINE_MS, GROUP, MEMORY_BYTES, TOPIC, WINDOW, coordination_url, starts

PARENT = """
import sys
from hotspare.host.watchdog.parent import EngineCalls, ReplayDecisions, end_like, supervise
from hotspare.host.watchdog.rule import RestartPauses
kind, http, *command = sys.argv[1:]
calls = ReplayDecisions() if kind == "replay" else EngineCalls(RestartPauses(first_s=0.001, most_s=0.002))
end_like(supervise([sys.executable, "-m", *command], calls, http))
"""
WAIT_S = 60
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can watch")
Started = subprocess.Popen[str]
Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a parent with a fake engine that obeys orders."""
    begun: list[Started] = []

    def start_parent(*orders: str, kind: str = "run", http: str = "") -> Started:
        command = [sys.executable, "-c", PARENT, kind, http, fake_engine.__name__, str(tmp_path), *orders]
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


def test_a_call_that_crashes_the_engine_is_recorded(start: Start, tmp_path: Path) -> None:
    status, log = ended(start("segv", "0"))
    assert (status, [line["event"] for line in log]) == (0, ["hung_call", "engine_restarted"])
    (attempt,) = attempts(tmp_path)
    assert (attempt.place, attempt.cause, attempt.rows) == (CallPlace(TOPIC, 3, 42, 7, WINDOW), HangCause.CRASH, 1)
    assert attempt.start == f"start-{starts(tmp_path)[0]}"


def test_a_kill_from_outside_says_nothing_about_the_call(start: Start, tmp_path: Path) -> None:
    status, log = ended(start("killed in call", "0"))
    assert (status, [line["event"] for line in log], attempts(tmp_path)) == (0, ["engine_restarted"], [])


@pytest.mark.parametrize(("order", "cause"), [("hang", HangCause.DEADLINE), ("segv", HangCause.CRASH)])
def test_a_replay_begins_again_with_the_decision_about_its_call(start: Start, tmp_path: Path, order: str, cause: HangCause) -> None:
    parent = start(order, order, "decided", kind="replay")
    status, log = ended(parent)
    assert (status, [line["event"] for line in log]) == (0, ["hung_call", "hung_call"])
    known = ReplayCalls.taken_from({DECIDED_VARIABLE: (tmp_path / "decided").read_text()})
    place = CallPlace(TOPIC, 3, 42, 7, WINDOW)
    assert known == ReplayCalls((Decision(place, cause, 1), Decision(place, cause, 2)))
    assert not (tmp_path / "coordination.db").exists()


def test_a_replay_that_fails_is_not_repeated(start: Start, tmp_path: Path) -> None:
    assert ended(start("crash", kind="replay")) == (-signal.SIGKILL, [])
    assert len(starts(tmp_path)) == 1


def test_a_call_for_several_rows_is_divided_before_a_decision() -> None:
    attempt = CallAttempt(CallPlace(TOPIC, 3, 42, 7, WINDOW), HangCause.DEADLINE, "s", rows=9)
    known = ReplayCalls().with_attempt(attempt)
    assert known == ReplayCalls((), (attempt.place,))
    assert ReplayCalls.taken_from({DECIDED_VARIABLE: known.to_text()}) == known


def asked(port: int, request: str) -> tuple[str, dict[str, Any]]:
    """Returns the status line and the JSON of the answer."""
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as connection:
        connection.sendall(request.encode())
        answer = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    head, _, body = answer.partition("\r\n\r\n")
    return head.splitlines()[0], json.loads(body or "{}")


def test_a_parent_answers_while_a_call_lasts(start: Start, free_port: Callable[[], int]) -> None:
    port = free_port()
    parent = start("wait", http=f"127.0.0.1:{port}")
    engine = engine_of(parent, "in call")
    request = "GET /livez HTTP/1.1\r\nHost: here\r\n\r\n"
    shown = next(content for status, content in iter(lambda: asked(port, request), None) if content["call"] is not None)
    call = shown.pop("call")
    assert shown == {"engine_process": engine, "starts": 1}
    assert (call["window"], call["topic"], call["offset"], call["index"]) == (WINDOW, TOPIC, 42, 7)
    assert asked(port, "HEAD /livez HTTP/1.0\r\n\r\n") == ("HTTP/1.1 200 OK", {})
    assert asked(port, "GET /nothing HTTP/1.1\r\n\r\n")[0] == "HTTP/1.1 404 Not Found"
    assert asked(port, "POST /livez HTTP/1.1\r\n\r\n")[0] == "HTTP/1.1 405 Method Not Allowed"
    assert asked(port, "x" * 9_000 + "\r\n\r\n")[0] == "HTTP/1.1 405 Method Not Allowed"
    assert asked(port, "OPTIONS /active HTTP/1.0\r\n\r\n") == ("HTTP/1.1 503 Service Unavailable", {})
    assert asked(port, "y" * 8_200)[0] == "HTTP/1.1 400 Bad Request"


def test_a_parent_that_cannot_listen_starts_no_engine(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        parent = start("0", http=f"127.0.0.1:{server.getsockname()[1]}")
        _, err = parent.communicate(timeout=WAIT_S)
    assert (parent.returncode, starts(tmp_path)) == (1, [])
    assert "--http" in err and "cannot listen" in err


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
    command = [sys.executable, "-c", PARENT, "run", "", "lives"]
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
    assert is_parent_wanted("run", arguments, environment) is is_wanted


@pytest.mark.parametrize(
    ("arguments", "is_wanted"),
    [
        (("p.yaml", "--in", "q/w=f.csv"), True),
        (("p.yaml", "--restart", "never"), True),
        (("p.yaml", "--code-deadline-ms", "0"), False),
        (("p.yaml", "--runner", "partitioned"), False),
        (("p.yaml", "--runner=ordered"), True),
    ],
)
def test_a_replay_has_a_parent_unless_its_calls_have_no_limit(arguments: tuple[str, ...], *, is_wanted: bool) -> None:
    assert is_parent_wanted("replay", arguments, {}) is is_wanted
    assert not is_parent_wanted("status", arguments, {})


def test_an_engine_knows_its_parent() -> None:
    assert (parent_of_engine({BOARD_VARIABLE: "3:17"}), parent_of_engine({})) == (17, None)
