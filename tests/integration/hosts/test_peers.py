"""A spare on another host notices its active engine by its connection, and notices nothing if the network gives no sign (SPEC C6,
E2)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hotspare.testing.hosts import Host, Network
from hotspare.testing.server_process import ServerProcess

pytestmark = pytest.mark.system

PORT = 7_001
WAIT_S = 60.0
ACTIVE = """
import os, sys
from hotspare.base.addresses import HostPort
from hotspare.ha.peers import PeerServer
from hotspare.base.processes import process_space, process_start
from hotspare.testing.cluster import wait_until
server = PeerServer("active", HostPort(sys.argv[1], int(sys.argv[2])))
print("process", os.getpid(), process_start(os.getpid()), process_space(), flush=True)
known = 0
while True:
    wait_until(lambda: len(server._connections) != known, "another number of connections", 3600.0, poll_s=0.05)
    known = len(server._connections)
    print("serves", known, flush=True)
"""
SPARE = """
import sys, threading
from hotspare.coordination.contract import Leader
from hotspare.ha.peers import PeerLink
from hotspare.base.processes import process_space
number = 0
def changed():
    global number
    number += 1
    print("status", number, link.status().value, flush=True)
link = PeerLink("spare", process_space(), lambda: changed())
link.watch(Leader(1, "active", "", 1000, sys.argv[1], "a", int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
threading.Event().wait()
"""


@contextmanager
def running(name: str, host: Host, folder: Path, code: str, *arguments: object) -> Iterator[ServerProcess]:
    process = ServerProcess(name, host.command([sys.executable, "-c", code, *map(str, arguments)]), folder)
    process.launch()
    try:
        yield process
    finally:
        process.kill()


@pytest.fixture
def pair(network: Network, tmp_path: Path) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Yields an active engine on host `a` and a spare on host `b`, connected."""
    a, b = network.host("a"), network.host("b")
    with running("active", a, tmp_path, ACTIVE, a.address, PORT) as active:
        active.wait_for_log("process", WAIT_S)
        said = next(line for line in active.log.read_text().splitlines() if line.startswith("process"))
        _, process_id, started, space = said.split(" ", 3)
        with running("spare", b, tmp_path, SPARE, f"{a.address}:{PORT}", process_id, started, space) as spare:
            spare.wait_for_log("status 1 connected", WAIT_S)
            yield active, spare


def test_a_link_that_is_cut_leaves_both_sides_without_a_connection_and_proves_nothing(
    network: Network, pair: tuple[ServerProcess, ServerProcess]
) -> None:
    active, spare = pair
    active.wait_for_log("serves 1", WAIT_S)
    network.cut_links(network.host("a"))
    spare.wait_for_log("status 2 unknown", WAIT_S)
    active.wait_for_log("serves 0", WAIT_S)
    network.remove_faults(network.host("a"))
    spare.wait_for_log("status 3 connected", WAIT_S)


def test_the_end_of_a_process_on_another_host_closes_its_connection(pair: tuple[ServerProcess, ServerProcess]) -> None:
    active, spare = pair
    active.kill()
    spare.wait_for_log("status 2 closed", WAIT_S)
