"""Whether the process of a member record lives: another one, also frozen, until it ends; an invisible one by its socket."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hotspare.base.processes import process_space, process_start
from hotspare.coordination.contract import Member
from hotspare.host.alive import is_alive


def member(process_id: int, started: int, space: str = "", address: str = "127.0.0.1:1") -> Member:
    return Member("e", address, process_id, started, "host", "", "", "", "", {}, {}, process_space=space or process_space())


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    made = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield made
    made.kill()
    made.wait()
    assert made.stdin is not None
    made.stdin.close()


def test_a_process_of_this_machine(process: subprocess.Popen[bytes]) -> None:
    started = process_start(process.pid)
    assert is_alive(member(process.pid, started))
    process.send_signal(signal.SIGSTOP)
    assert is_alive(member(process.pid, started))
    assert not is_alive(member(process.pid, started - 5_000))
    process.kill()
    process.wait()
    assert not is_alive(member(process.pid, started))


def test_this_very_process_is_no_other() -> None:
    assert not is_alive(member(os.getpid(), process_start(os.getpid())))


def test_a_process_that_cannot_be_seen_is_not_known_to_live_without_an_answer(process: subprocess.Popen[bytes]) -> None:
    """Any process here may have its id."""
    assert not is_alive(member(process.pid, process_start(process.pid), "elsewhere"))
