"""Whether the process of a member record lives: another one, also frozen, until it ends; on another machine by its socket."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hotspare.coordination.contract import Member
from hotspare.ha.peers import PeerServer
from hotspare.host.alive import is_alive
from hotspare.processes import process_start


def member(process_id: int, started: int, host: str = "", address: str = "127.0.0.1:1") -> Member:
    return Member("e", address, process_id, started, host or socket.gethostname(), "", "", "", "", {}, {})


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


def test_a_process_of_another_machine_greets() -> None:
    server, other = PeerServer("e"), PeerServer("f")
    address = server.address
    try:
        assert is_alive(member(1, 1, "elsewhere", address))
        assert not is_alive(member(1, 1, "elsewhere", other.address))
    finally:
        server.close()
        other.close()
    assert not is_alive(member(1, 1, "elsewhere", address))
    assert not is_alive(member(1, 1, "elsewhere", "nonsense"))
