"""The managed ZooKeeper itself: only on the loopback interface, its data outlive it, and it ends with the process that started
it."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest
from kazoo.client import KazooClient

from hotspare.base.errors import ClusterError
from hotspare.testing.cluster import wait_until
from hotspare.testing.server_process import LOOPBACK
from hotspare.testing.zookeeper_server import ZooKeeperServer
from tests.contract.material import child

pytestmark = pytest.mark.servers

WAIT_S = 60.0


def written(server: ZooKeeperServer) -> bytes:
    client = KazooClient(server.address)
    client.start(WAIT_S)
    try:
        client.ensure_path("/a")
        if not client.get("/a")[0]:
            client.set("/a", b"kept")
        return bytes(client.get("/a")[0])
    finally:
        client.stop()
        client.close()


def test_data_and_port_are_the_same_after_a_kill(tmp_path: Path) -> None:
    with ZooKeeperServer.start(tmp_path / "zk") as server:
        assert written(server) == b"kept"
        port, first = server.port, server.process.process_id
        server.kill()
        assert not server.answers()
        server.restart()
        assert (server.port, written(server)) == (port, b"kept")
        assert server.process.process_id != first
        with pytest.raises(ClusterError, match="runs already"):
            server.restart()
        listening = {(c.laddr.ip, c.laddr.port) for c in psutil.Process(server.process.process_id).net_connections() if not c.raddr}
        assert {(ip.removeprefix("::ffff:"), number) for ip, number in listening} == {("127.0.0.1", port)}
    assert not server.process.is_running


_STARTER = """
import sys
from pathlib import Path
from hotspare.testing.zookeeper_server import ZooKeeperServer
print(ZooKeeperServer.start(Path(sys.argv[1])).process.process_id, flush=True)
sys.stdin.readline()
"""


def test_it_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    with child(_STARTER, tmp_path) as starter:
        assert starter.stdout is not None
        server = psutil.Process(int(starter.stdout.readline()))
        assert server.is_running()
        starter.send_signal(signal.SIGKILL)
        starter.wait()
        gone, _ = psutil.wait_procs([server], timeout=WAIT_S)
    assert gone == [server]


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with ZooKeeperServer.start(tmp_path / "one") as server:
        other = ZooKeeperServer._with_settings(tmp_path / "one", LOOPBACK, server.port)
        with pytest.raises(ClusterError, match="ended while it started") as refused:
            other.restart()
        assert "already in use" in refused.value.detail


def test_a_session_can_be_ended(tmp_path: Path) -> None:
    with ZooKeeperServer.start(tmp_path) as server:
        client = KazooClient(server.address, timeout=6)
        client.start(WAIT_S)
        client.create("/mine", ephemeral=True)
        session = client.client_id
        assert session is not None
        server.expire_session(session)
        wait_until(lambda: client.connected and client.client_id != session, "a session of its own again", WAIT_S)
        assert client.exists("/mine") is None
        client.stop()
        client.close()
