"""The socket side of detection, against real processes: closing is detected, freezing is not mistaken for it (SPEC C6, E2, E16).

For a holder on another machine, only a connection that was open and is refused now is proof; otherwise the lease decides.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import psutil
import pytest

from hotspare.base.addresses import HostPort, parse_host_port
from hotspare.base.errors import UsageError
from hotspare.base.processes import process_space, process_start
from hotspare.coordination.contract import Leader, Member
from hotspare.ha.peers import CONNECTIONS_MAX, PeerLink, PeerServer, greeting, is_answering
from hotspare.ha.rules.view import PeerStatus

HERE = process_space()
ELSEWHERE = "another machine"
OWN_GREETING = greeting("other", HERE, os.getpid(), process_start(os.getpid()))
CHILD = """
import sys
from hotspare.ha.peers import PeerServer
print(PeerServer("other").address, flush=True)
sys.stdin.read()
"""

NO_PROCESS = 1_000_000_007
"""An id that no process on this machine has, for tests that need a process of another machine."""


class Watcher:
    """A link whose changes can be waited for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self.link = PeerLink("me", HERE, self._note)

    def _note(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait_for(self, status: PeerStatus) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.link.status() is status, timeout=60), f"{self.link.status()}, not {status}"


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


def leader(address: str, process_id: int, epoch: int = 1, space: str = HERE) -> Leader:
    return Leader(epoch, "other", "", 1000, address, "host", process_id, process_start(process_id), space)


class Remote:
    """A holder that a spare takes for one on another machine: a port that the test opens and closes."""

    def __init__(self, port: int) -> None:
        self.listener = socket.create_server(("127.0.0.1", port))
        self.listener.settimeout(60)
        self.port = port
        self.leader = leader(f"127.0.0.1:{self.port}", NO_PROCESS, space=ELSEWHERE)

    def accept(self, said: bytes = greeting("other", ELSEWHERE, NO_PROCESS, 0)) -> socket.socket:
        connection, _ = self.listener.accept()
        try:
            connection.sendall(said)
        except OSError:  # the client has closed after enough bytes
            connection.close()
            raise
        return connection


@pytest.fixture
def remote(watcher: Watcher, free_port: Callable[[], int]) -> Iterator[Remote]:
    """Yields a remote holder. The link's time-out is long, as on a busy machine this thread may send late."""
    watcher.link.connect_timeout_s = 30.0
    remote = Remote(free_port())
    yield remote
    remote.listener.close()


def test_a_killed_holder_is_noticed_e2(watcher: Watcher, other: tuple[subprocess.Popen[str], Leader]) -> None:
    process, holder = other
    watcher.link.watch(holder)
    watcher.wait_for(PeerStatus.CONNECTED)
    process.send_signal(signal.SIGKILL)
    watcher.wait_for(PeerStatus.ENDED)


def test_a_holder_that_hangs_up_is_noticed_before_its_process_has_ended_e2(watcher: Watcher) -> None:
    server = PeerServer("other")
    watcher.link.watch(leader(server.address, os.getpid()))
    watcher.wait_for(PeerStatus.CONNECTED)
    server.hang_up()
    watcher.wait_for(PeerStatus.CLOSED)
    server.close()


def test_whoever_was_greeted_is_told_of_the_end() -> None:
    for _ in range(50):  # the greeting and the closing race each other
        server = PeerServer("other")
        host, _, port = server.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=20) as spare:
            assert spare.recv(100) == OWN_GREETING
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
    watcher.wait_for(PeerStatus.ENDED)


def test_the_next_holder_is_watched_instead_e3(watcher: Watcher, other: tuple[subprocess.Popen[str], Leader]) -> None:
    process, holder = other
    watcher.link.watch(holder)
    watcher.wait_for(PeerStatus.CONNECTED)
    process.kill()
    watcher.wait_for(PeerStatus.ENDED)
    server = PeerServer("other")
    watcher.link.watch(leader(server.address, os.getpid(), epoch=2))
    watcher.wait_for(PeerStatus.CONNECTED)
    server.close()


def test_a_connection_that_stood_and_is_refused_now_is_closed_e2(watcher: Watcher, remote: Remote) -> None:
    watcher.link.watch(remote.leader)
    with remote.accept():
        watcher.wait_for(PeerStatus.CONNECTED)
        remote.listener.close()
    watcher.wait_for(PeerStatus.CLOSED)


def test_a_connection_that_can_be_had_again_is_not_closed(watcher: Watcher, remote: Remote) -> None:
    watcher.link.watch(remote.leader)
    remote.accept().close()
    with remote.accept():
        watcher.wait_for(PeerStatus.CONNECTED)
        remote.listener.close()
    watcher.wait_for(PeerStatus.CLOSED)
    again = Remote(remote.port)
    with again.accept():
        watcher.wait_for(PeerStatus.CONNECTED)
    again.listener.close()


def test_a_holder_that_no_longer_answers_is_unknown(watcher: Watcher, remote: Remote) -> None:
    """It accepts and sends nothing, as a frozen process does, or one with too many connections."""
    watcher.link.watch(remote.leader)
    with remote.accept():
        watcher.wait_for(PeerStatus.CONNECTED)
        watcher.link.connect_timeout_s = 0.25
    with remote.accept(b""):
        watcher.wait_for(PeerStatus.UNKNOWN)


def test_another_process_on_the_holders_address_is_not_the_holder(watcher: Watcher, remote: Remote) -> None:
    """The same name does not make it the same process."""
    watcher.link.watch(remote.leader)
    with remote.accept():
        watcher.wait_for(PeerStatus.CONNECTED)
    with remote.accept(greeting("other", ELSEWHERE, NO_PROCESS, 1)):
        watcher.wait_for(PeerStatus.CLOSED)


def test_a_greeting_may_come_in_pieces_and_may_be_no_greeting(watcher: Watcher, remote: Remote) -> None:
    watcher.link.watch(remote.leader)
    with contextlib.suppress(OSError):
        remote.accept(b"x" * (1 << 20)).close()
    whole = greeting("other", ELSEWHERE, NO_PROCESS, 0)
    with remote.accept(whole[:5]) as connection:
        assert watcher.link.status() is PeerStatus.UNKNOWN, "it tries again"
        connection.sendall(whole[5:])
        watcher.wait_for(PeerStatus.CONNECTED)


def test_a_member_answers_as_the_very_process() -> None:
    server = PeerServer("other")
    started = process_start(os.getpid())
    member = Member("other", server.address, os.getpid(), started, "host", "", "", "", "", {}, {}, process_space=HERE)
    try:
        assert is_answering(member)
        assert not is_answering(replace(member, engine="third"))
        assert not is_answering(replace(member, process_start=started + 1))
        assert not is_answering(replace(member, address="nonsense:"))
    finally:
        server.close()
    assert not is_answering(member)


def test_a_client_that_talks_is_left_and_the_others_stay() -> None:
    server = PeerServer("other")
    target = parse_host_port(server.address)
    assert target is not None
    with (
        socket.create_connection((target.host, target.port), 20) as spare,
        socket.create_connection((target.host, target.port), 20) as talker,
    ):
        assert spare.recv(100) == talker.recv(100) == OWN_GREETING
        talker.sendall(b"hello")
        with contextlib.suppress(ConnectionResetError):
            assert talker.recv(100) == b""
        spare.settimeout(0)
        with pytest.raises(BlockingIOError):
            spare.recv(1)
    server.close()


def test_connections_are_bounded() -> None:
    server = PeerServer("other")
    target = parse_host_port(server.address)
    assert target is not None
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS_MAX):
            spare = stack.enter_context(socket.create_connection((target.host, target.port), 20))
            assert spare.recv(100) == OWN_GREETING
        late = stack.enter_context(socket.create_connection((target.host, target.port), 20))
        assert late.recv(100) == b""
    server.close()


def test_the_address_that_is_told_may_be_another_than_the_one_listened_on() -> None:
    """The address may be translated; a port that is not given is the one listened on."""
    server = PeerServer("other", HostPort("127.0.0.1"), HostPort("engine.example"))
    told = parse_host_port(server.address)
    assert told is not None
    assert told.host == "engine.example"
    with socket.create_connection(("127.0.0.1", told.port), 20) as spare:
        assert spare.recv(100) == OWN_GREETING
    server.close()


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_an_ipv6_address_is_written_in_brackets(watcher: Watcher) -> None:
    server = PeerServer("other", HostPort("::1"))
    assert server.address.startswith("[::1]:")
    watcher.link.watch(leader(server.address, os.getpid()))
    watcher.wait_for(PeerStatus.CONNECTED)
    server.close()


def test_what_cannot_be_listened_on_is_refused_with_a_hint() -> None:
    with pytest.raises(UsageError, match=r"cannot listen on 192\.0\.2\.77:0") as refused:
        PeerServer("other", HostPort("192.0.2.77"))
    assert "--listen" in refused.value.hint


def test_a_holder_lives_on_when_the_clock_is_set(
    watcher: Watcher, other: tuple[subprocess.Popen[str], Leader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start time that it reported is from before the change."""
    _, holder = other
    before = psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: before + 7)
    watcher.link.watch(holder)
    watcher.wait_for(PeerStatus.CONNECTED)


def test_somebody_else_on_the_address_is_not_the_holder(watcher: Watcher, other: tuple[subprocess.Popen[str], Leader]) -> None:
    process, _holder = other
    stranger = PeerServer("stranger")
    process.kill()
    process.wait()
    watcher.link.watch(leader(stranger.address, 0))
    watcher.wait_for(PeerStatus.ENDED)
    stranger.close()
