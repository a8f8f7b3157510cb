"""A single thread reports the end of a process to all watchers, once, and never reports a living one (SPEC C6, E2)."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from hotspare.base.processes import process_start
from hotspare.ha import process_watcher
from hotspare.ha.process_watcher import ProcessWatcher

WAIT_S = 60


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_all_who_ask_are_told_of_an_end(child: subprocess.Popen[bytes]) -> None:
    endings, started = ProcessWatcher(), process_start(child.pid)
    told = [threading.Event() for _ in range(3)]
    with (
        endings.watch_process(child.pid, started, told[0].set),
        endings.watch_process(child.pid, started, told[1].set),
        endings.watch_process(os.getpid(), process_start(os.getpid()), told[2].set),
    ):
        child.kill()
        assert all(each.wait(WAIT_S) for each in told[:2])
        assert not told[2].is_set(), "that one lives"


def test_a_frozen_process_has_not_ended_e16(child: subprocess.Popen[bytes]) -> None:
    endings, frozen, other = ProcessWatcher(), threading.Event(), threading.Event()
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    with endings.watch_process(child.pid, process_start(child.pid), frozen.set), endings.watch_process(child.pid, 1, other.set):
        assert other.wait(WAIT_S), "an id that was given again is another process"
        assert not frozen.is_set()


def test_one_that_was_gone_before_is_told_of(child: subprocess.Popen[bytes]) -> None:
    started = process_start(child.pid)
    child.kill()
    child.wait()
    told = threading.Event()
    with ProcessWatcher().watch_process(child.pid, started, told.set):
        assert told.wait(WAIT_S)


def test_it_looks_often_only_for_a_while_after_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks take most of the time of a spare at rest."""
    now_s, pauses, enough = [100.0], list[float](), threading.Event()

    def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        now_s[0] += pause_s
        if len(pauses) == 2:
            watcher.look_often()
        if pauses.count(0.02) == 4:
            enough.set()

    monkeypatch.setattr(process_watcher, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep))
    watcher = ProcessWatcher()
    with watcher.watch_process(os.getpid(), process_start(os.getpid()), enough.set):
        assert enough.wait(WAIT_S)
    assert [pauses[0], pauses[1], pauses[-1]] == [0.02, 0.02, 0.02]
    assert 999 <= pauses.count(0.002) <= 1001


def test_who_no_longer_asks_is_not_told(child: subprocess.Popen[bytes]) -> None:
    endings, started = ProcessWatcher(), process_start(child.pid)
    first, second = threading.Event(), threading.Event()
    with endings.watch_process(child.pid, started, second.set):
        with endings.watch_process(child.pid, started, first.set):
            pass
        child.kill()
        assert second.wait(WAIT_S)
    assert not first.is_set()
