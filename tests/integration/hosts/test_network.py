"""The links of the test network fail as scenarios require: a scenario over a link that does not fail would prove nothing."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hotspare.testing.hosts import Host, Network, PacketDirection
from hotspare.testing.server_process import ServerProcess

pytestmark = pytest.mark.system

PORT = 7_000
SOON_S = 1.0
"""The wait for an answer that must not arrive."""
ECHO = """
import socket
listener = socket.create_server(("0.0.0.0", %d), backlog=64)
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    connection.sendall(connection.recv(100))
    connection.close()
"""
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], %d), timeout=float(sys.argv[2])) as connection:
    connection.settimeout(float(sys.argv[2]))
    connection.sendall(b"word")
    print(connection.recv(100).decode(), end="")
"""
SHOUT = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
    for _ in range(int(sys.argv[3])):
        try:
            out.sendto(b"word", (sys.argv[1], int(sys.argv[2])))
        except PermissionError:
            pass  # so the packet filter answers a sender of this host
"""


@contextmanager
def echo_on(host: Host, folder: Path) -> Iterator[None]:
    server = ServerProcess(f"echo-{host.name}", host.command([sys.executable, "-c", ECHO % PORT]), folder)
    server.launch()
    try:
        server.wait_for_log("ready", 60)
        yield
    finally:
        server.kill()


def asked(host: Host, other: Host, timeout_s: float = 20.0) -> str:
    """Returns the answer that `host` gets from `other`, or the name of its error."""
    program = [sys.executable, "-c", ASK % PORT, other.address, str(timeout_s)]
    done = subprocess.run(host.command(program), capture_output=True, text=True, check=False, timeout=120)
    return done.stdout or done.stderr.strip().splitlines()[-1].partition(":")[0]


@pytest.fixture
def pair(network: Network, tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    a, b = network.host("a"), network.host("b")
    with echo_on(b, tmp_path):
        yield a, b


def test_hosts_have_names_and_addresses_of_their_own_and_reach_each_other(network: Network, pair: tuple[Host, Host]) -> None:
    a, b = pair
    assert asked(a, b) == "word"
    assert a.address != b.address
    done = subprocess.run(a.command(["hostname"]), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "a" != socket.gethostname()
    with socket.create_connection((b.address, PORT), timeout=30) as connection:  # from this process, too
        assert connection.getsockname()[0] == network.address


@pytest.mark.parametrize("way", list(PacketDirection))
def test_a_cut_link_gives_no_sign_and_a_mended_one_works(network: Network, pair: tuple[Host, Host], way: PacketDirection) -> None:
    a, b = pair
    network.cut_links(a, b, way=way)
    assert asked(a, b, SOON_S) == "TimeoutError"
    network.remove_faults(a, b)
    assert asked(a, b) == "word"


def test_a_cut_between_two_leaves_the_third_alone(network: Network, pair: tuple[Host, Host]) -> None:
    a, b = pair
    c = network.host("c")
    network.cut_links(a, b)
    assert asked(c, b) == "word"
    network.cut_links(b)
    assert asked(c, b, SOON_S) == "TimeoutError"
    network.remove_faults(b)
    assert asked(c, b) == "word"
    assert asked(a, b, SOON_S) == "TimeoutError"


def test_a_link_that_refuses_resets_connections_that_stand(network: Network, pair: tuple[Host, Host]) -> None:
    a, b = pair
    network.refuse_connections(a, b)
    assert asked(a, b) == "ConnectionRefusedError"
    network.remove_faults(a)
    with socket.create_connection((b.address, PORT), timeout=30) as connection:
        network._set(b, [], lambda address: (f"input ip saddr {network.address} meta l4proto tcp reject with tcp reset",))
        connection.sendall(b"word")
        with pytest.raises(ConnectionResetError):
            connection.recv(100)


def test_a_lossy_link_loses_some_packets_and_not_all(network: Network, pair: tuple[Host, Host]) -> None:
    a, b = pair
    sent = 500
    network.lose_packets(a, percent=30)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mine:
        mine.bind((network.address, 0))
        mine.setblocking(False)
        program = [sys.executable, "-c", SHOUT, network.address, str(mine.getsockname()[1]), str(sent)]
        subprocess.run(a.command(program), check=True)
        came = 0
        with suppress(BlockingIOError):
            while mine.recv(100):
                came += 1
    assert 0 < came < sent
    assert asked(a, b, 60.0) == "word"


def test_a_slow_link_is_late_both_ways(network: Network, pair: tuple[Host, Host]) -> None:
    a, b = pair
    network.slow_links(a, b, delay_ms=300)
    assert asked(a, b) == "word"
    network.slow_links(a, b, delay_ms=2_000)
    assert asked(a, b, 3.0) == "TimeoutError", "an answer takes two seconds there and two back"
    network.remove_faults(a, b)
    assert asked(a, b) == "word"
