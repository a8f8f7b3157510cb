"""Whether a process of this machine lives, and how early its end is visible."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from hotspare.base.processes import has_process_ended, is_process_ending, process_start


def test_a_process_is_named_by_id_and_start() -> None:
    own = os.getpid()
    assert not has_process_ended(own, process_start(own))
    assert has_process_ended(own, process_start(own) - 5000), "an id that was given again is another process"


def test_a_killed_process_is_ending_and_gone_before_anyone_waited_for_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        started = process_start(child.pid)
        assert not is_process_ending(child.pid)
        assert not has_process_ended(child.pid, started)
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        assert not is_process_ending(child.pid), "a frozen process is not a dead one"
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_process_ending(child.pid)
        assert has_process_ended(child.pid, started), "a zombie has ended"


def test_a_process_stays_itself_when_the_clock_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system computes the start time from the present clock. An engine that looked dead after that would lose its role to every
    new spare, and its scratch folder to every new process."""
    own, started = os.getpid(), process_start(os.getpid())
    before = psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: before + 7)
    assert process_start(own) == started
    assert not has_process_ended(own, started)


def test_there_is_no_telling_of_no_process() -> None:
    assert not is_process_ending(0)
    assert process_start(2**22 + 1) == 0, "no process has an id as large"
