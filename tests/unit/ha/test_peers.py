"""The socket side of detection, against real processes: closing is noticed, freezing is not mistaken for it (C6, E2, E16)."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from hotspare.coordination.contract import Leader
from hotspare.ha.peers import PeerLink, PeerServer
from hotspare.ha.view import PeerStatus
from hotspare.processes import process_start

HOST = socket.gethostname()
CHILD = """
import sys
from hotspare.ha.peers import PeerServer
print(PeerServer("other").address, flush=True)
sys.stdin.read()
"""


class Watcher:
    """A link whose changes can be waited for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self.link = PeerLink("me", HOST, self._note)

    def _note(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait_for(self, status: PeerStatus) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.link.status() is status, timeout=20), f"{self.link.status()}, not {status}"


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    watcher = Watcher()
    yield watcher
    watcher.link.close()


@pytest.fixture
def other() -> Iterator[tuple[subprocess.Popen[str], Leader]]:
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        yield process, leader(address, process.pid)
        if process.poll() is None:
            process.kill()


def leader(address: str, process_id: int, epoch: int = 1) -> Leader:
    return Leader(epoch, "other", "", 1000, address, HOST, process_id, process_start(process_id))


def test_a_killed_holder_is_noticed_e2(watcher: Watcher, other: tuple[subprocess.Popen[str], Leader]) -> None:
    process, holder = other
    watcher.link.watch(holder)
    watcher.wait_for(PeerStatus.CONNECTED)
    process.send_signal(signal.SIGKILL)
    watcher.wait_for(PeerStatus.CLOSED)


def test_a_holder_that_hangs_up_is_noticed_before_its_process_has_ended_e2(watcher: Watcher) -> None:
    server = PeerServer("other")
    watcher.link.watch(leader(server.address, os.getpid()))
    watcher.wait_for(PeerStatus.CONNECTED)
    server.hang_up()
    watcher.wait_for(PeerStatus.CLOSED)
    server.close()


def test_whoever_was_greeted_is_told_of_the_end() -> None:
    for _ in range(50):  # the greeting and the hanging up race each other
        server = PeerServer("other")
        host, _, port = server.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=20) as spare:
            assert spare.recv(100) == b"hotspare other\n"
            server.hang_up()
            assert spare.recv(100) == b""
        server.close()


def test_a_frozen_holder_stays_connected_e16(watcher: Watcher, other: tuple[subprocess.Popen[str], Leader]) -> None:
    process, holder = other
    watcher.link.watch(holder)
    watcher.wait_for(PeerStatus.CONNECTED)
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    assert watcher.link.status() is PeerStatus.CONNECTED
    process.send_signal(signal.SIGCONT)


def test_a_holder_that_was_dead_before_is_noticed(watcher: Watcher, other: tuple[subprocess.Popen[str], Leader]) -> None:
    process, holder = other
    process.kill()
    process.wait()
    watcher.link.watch(holder)
    watcher.wait_for(PeerStatus.CLOSED)


def test_the_next_holder_is_watched_instead_e3(watcher: Watcher, other: tuple[subprocess.Popen[str], Leader]) -> None:
    process, holder = other
    watcher.link.watch(holder)
    watcher.wait_for(PeerStatus.CONNECTED)
    process.kill()
    watcher.wait_for(PeerStatus.CLOSED)
    server = PeerServer("other")
    watcher.link.watch(leader(server.address, os.getpid(), epoch=2))
    watcher.wait_for(PeerStatus.CONNECTED)
    server.close()


def test_somebody_else_on_the_address_is_not_the_holder(watcher: Watcher, other: tuple[subprocess.Popen[str], Leader]) -> None:
    process, _holder = other
    stranger = PeerServer("stranger")
    process.kill()
    process.wait()
    watcher.link.watch(leader(stranger.address, 0))
    watcher.wait_for(PeerStatus.CLOSED)
    stranger.close()
