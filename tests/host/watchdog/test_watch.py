"""The watch of an engine, look by look, and the watcher that an engine without a parent starts."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotspare.base.call_place import ATTEMPT_PREFIX, CallAttempt, CallPlace
from hotspare.coordination.open import open_coordination
from hotspare.flow.plan import compile_plan
from hotspare.host.watchdog.recorder import record_attempt
from hotspare.host.watchdog.shared_memory import BOARD_VARIABLE, create_memory
from hotspare.host.watchdog.trace import innermost_line
from hotspare.host.watchdog.watch import EngineWatch, WatchFinding, process_bytes, thread_ms
from hotspare.projects.load import load_project
from tests.host.watchdog import fake_engine
from tests.host.watchdog.fake_engine import DEADLINE_MS, GROUP, coordination_url

WAIT_S = 60
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can watch")


@contextlib.contextmanager
def watched(
    folder: Path, order: str, word: str, record_before_s: float = 5.0
) -> Iterator[tuple[EngineWatch, subprocess.Popen[str]]]:
    """Yields a fake engine that has printed `word`, and its watch, by a clock that passes 30 s with each look."""
    memory = create_memory()
    command = [sys.executable, "-m", fake_engine.__name__, str(folder), order]
    environment = {**os.environ, BOARD_VARIABLE: f"{memory}:{os.getpid()}"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, pass_fds=(memory,)) as engine:
        assert engine.stdout is not None
        assert any(line.startswith(word) for line in engine.stdout)
        seconds = itertools.count(0, 30)
        try:
            with contextlib.closing(EngineWatch(memory, engine.pid, lambda: next(seconds), record_before_s, WAIT_S)) as watch:
                yield watch, engine
        finally:
            engine.kill()


def found_by(watch: EngineWatch) -> WatchFinding:
    """Looks until there is a finding."""
    return next(finding for finding in iter(watch.look, object()) if isinstance(finding, WatchFinding))


def test_a_stopped_process_in_a_call_uses_nothing(tmp_path: Path) -> None:
    """However long it is stopped: the call goes on after it and ends."""
    with watched(tmp_path, "wait", "in call") as (watch, engine):
        assert watch.look() is None
        engine.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, engine.pid, os.WSTOPPED | os.WNOWAIT)
        assert [watch.look() for _ in range(20)] == [None] * 20
        engine.send_signal(signal.SIGCONT)
        engine.communicate("\n", timeout=WAIT_S)
        assert engine.returncode == 0


def test_a_call_that_was_seen_before_a_stop_is_known(tmp_path: Path) -> None:
    with watched(tmp_path, "wait", "in call") as (watch, _):
        assert not watch.has_call_since(0)
        watch.look()
        watch.look()
        assert watch.has_call_since(0)
        assert not watch.has_call_since(-1)


def test_an_attempt_is_recorded_although_the_engine_holds_the_lock_of_coordination(tmp_path: Path) -> None:
    """A thread of the engine may be amid a transaction when a call takes the interpreter's lock for ever."""
    with watched(tmp_path, "lock", "locked", record_before_s=0.5) as (watch, engine):
        finding = found_by(watch)
        watch.end_engine(finding, "")
        assert engine.wait(WAIT_S) == -signal.SIGKILL
    assert finding.excess is not None
    assert finding.excess.used_ms >= DEADLINE_MS
    coordination = open_coordination(coordination_url(tmp_path))
    assert len(coordination.fact_names(GROUP)) == 1
    coordination.close()


def test_a_recording_that_does_not_end_is_given_up() -> None:
    forever = [sys.executable, "-c", "import signal; signal.pause()"]
    assert "did not answer within" in record_attempt({}, 0.1, forever)


def test_the_reason_of_a_failure_is_told_without_passwords(tmp_path: Path) -> None:
    attempt = {"place": vars_of(CallPlace("t", 0, 1, 2, "q/w")), "cause": "deadline", "start": "s"}
    document = {"coordination": f"nowhere://u:hush@{tmp_path}", "group": GROUP, "attempt": attempt}
    assert record_attempt(document, WAIT_S) == "'nowhere' is not a kind of coordination"


def vars_of(place: CallPlace) -> dict[str, object]:
    return {name: getattr(place, name) for name in ("topic", "partition", "offset", "index", "window", "version")}


STACKS = """\
Fatal Python error: Segmentation fault

Thread 0x00007f0000000001 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "<frozen runpy>", line 88 in _run_code

Current thread 0x00007f0000000002 (most recent call first):
  File "/usr/lib/python3.11/re/__init__.py", line 166 in match
  File "<sales/code>", line 3 in helper
  File "<sales/code>", line 5 in create
  File "/opt/hotspare/flow/step.py", line 190 in _applied
"""


def test_the_innermost_line_of_user_code_is_found() -> None:
    assert innermost_line(STACKS) == "line 3 of sales/code, in helper"
    assert innermost_line(STACKS.replace("<sales/code>", "/opt/other.py")) == ""


def test_processes_that_do_not_exist_use_nothing() -> None:
    assert (thread_ms(2**22 + 1, 1), process_bytes(2**22 + 1)) == (None, 0)
    own_ms = thread_ms(os.getpid(), os.getpid())
    assert own_ms is not None
    assert own_ms >= 0
    assert process_bytes(os.getpid()) > 1 << 20


ENGINE = """
import re, sys, threading
from array import array
from pathlib import Path
from hotspare.flow.plan import compile_plan
from hotspare.host.options import EngineOptions
from hotspare.host.watchdog.attach import attach
from hotspare.projects.load import load_project
project, coordination = Path(sys.argv[1]), sys.argv[2]
options = EngineOptions(project, "memory://b", "p", engine="one", shards=2, code_deadline_ms=300)
board = attach(options)
with board.loading():
    plan = compile_plan(load_project(project).resolved)
board.name_places(options, plan, coordination)
slot = board.slot(1)
slot.set_thread(threading.get_native_id())
slot.begin_step(*(memoryview(array("q", [number])) for number in (0, 1, 42, 7)))
slot.node = [node.window for node in plan.nodes].index("q/some")
slot.begin_call(0)
re.match("(a+)+b", "a" * 60)
"""


@pytest.mark.parametrize("url", ["sqlite", "memory://b"])
def test_an_engine_without_a_parent_is_ended_by_its_watcher(tmp_path: Path, url: str) -> None:
    """The watcher names shard, window and topic as the engine does. Coordination in memory ends with the engine."""
    url = coordination_url(tmp_path) if url == "sqlite" else url
    project = tmp_path / "p.yaml"
    project.write_text(
        "project: try\nqueries:\n  q:\n    windows:\n      given: {type: source, schema: 'id*:string,price:double'}\n"
        "      some: {type: copy, publish: true}\n    edges: [given -> some]\n"
    )
    command = [sys.executable, "-c", ENGINE, str(project), url]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert "hung_call" in done.stderr
    if url.startswith("memory:"):
        assert "attempt_lost" in done.stderr
        return
    coordination = open_coordination(url)
    (name,) = (name for name in coordination.fact_names("p.try/1") if name.startswith(ATTEMPT_PREFIX))
    attempt = CallAttempt.from_bytes(coordination.fact("p.try/1", name) or b"")
    coordination.close()
    assert attempt is not None
    version = compile_plan(load_project(project).resolved).window_versions["q/some"]
    assert (attempt.place, attempt.fact_name) == (CallPlace("p.try.q.given.I", 1, 42, 7, "q/some", version), name)
