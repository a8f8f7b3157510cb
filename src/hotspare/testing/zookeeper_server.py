"""A real ZooKeeper server for tests and development, from PySpark's jars, on the loopback interface or on a test network's host.
It is a JVM that ends when this process ends, also after `kill -9`. It can be killed, frozen, and started again on the same data
and port, and the session of any client can be ended.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import struct
import time
from pathlib import Path

import psutil

from hotspare.base.errors import ClusterError
from hotspare.runners.spark.jre import find_java
from hotspare.testing.server_process import LOOPBACK, Machine, ServerProcess, free_ports

START_TIMEOUT_S = 120.0
_START_ATTEMPTS = 3
_POLL_S = 0.02
_ANSWER_TIMEOUT_S = 2.0
_EXPIRE_ATTEMPTS = 20
_SESSION_TIMEOUT_MS = 10_000
_CLOSE = -11
"""The type of the request that ends a session, in ZooKeeper's protocol."""
_JARS = ("zookeeper-", "slf4j-api-", "log4j-", "netty-", "metrics-core-", "snappy-java-", "commons-io-", "commons-lang3-")
"""The prefixes of the names of those jars of PySpark that the server needs."""
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JVM_OPTIONS = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
    "-Dzookeeper.jmx.log4j.disable=true",
    # KiB by which its log file grows; the default writes 64 MiB at once.
    "-Dzookeeper.preAllocSize=1024",
)
_SETTINGS = """tickTime={tick_ms}
dataDir={data}
clientPort={port}
clientPortAddress={address}
admin.enableServer=false
4lw.commands.whitelist=srvr
maxClientCnxns=1000
minSessionTimeout={session_timeout_ms_min}
maxSessionTimeout=60000
"""
TICK_MS = 250
"""The interval at which the server checks for expired sessions."""
SESSION_TIMEOUT_MS_MIN = 500


class ZooKeeperServer:
    """A ZooKeeper server. `address` (`host:port`) does not change when the server is killed, stopped and restarted."""

    def __init__(self, process: ServerProcess, place: Machine, port: int) -> None:
        self.process = process
        self.port = port
        self.address = f"{place.address}:{port}"
        self._place = place

    @classmethod
    def start(cls, folder: Path, place: Machine = LOOPBACK) -> ZooKeeperServer:
        """Starts a server with its data in `folder`, new or existing, and returns it when it answers. Raises ClusterError if it
        does not."""
        folder.mkdir(parents=True, exist_ok=True)
        for attempt in range(_START_ATTEMPTS):
            server = cls._with_settings(folder, place, free_ports(1)[0])
            try:
                server.restart()
            except ClusterError as error:
                if attempt + 1 == _START_ATTEMPTS or "already in use" not in error.detail:
                    raise
            else:
                return server
        raise AssertionError

    @classmethod
    def _with_settings(cls, folder: Path, place: Machine, port: int) -> ZooKeeperServer:
        settings = folder / "zoo.cfg"
        data, least = folder / "data", SESSION_TIMEOUT_MS_MIN
        text = _SETTINGS.format(tick_ms=TICK_MS, data=data, address=place.address, port=port, session_timeout_ms_min=least)
        settings.write_text(text, encoding="utf-8")
        command = (str(find_java()), *_JVM_OPTIONS, "-cp", _class_path(), _MAIN, str(settings))
        return cls(ServerProcess("zookeeper", place.command(command), folder), place, port)

    @property
    def url(self) -> str:
        """The URL for `--coordination`."""
        return f"zookeeper://{self.address}"

    def restart(self) -> None:
        """Starts the server again after `stop` or `kill`, on its port and its data; returns when it answers. Raises ClusterError if
        it does not."""
        self.process.launch()
        try:
            self._wait_ready()
        except BaseException:
            self.process.kill()
            raise

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (self._listens() and self.answers()):
            if not self.process.is_running:
                raise ClusterError("zookeeper ended while it started", detail=self.process.log_tail())
            if time.monotonic() > deadline:
                raise ClusterError("zookeeper did not start in time", detail=self.process.log_tail())
            time.sleep(_POLL_S)

    def _listens(self) -> bool:
        """Whether the server's process, and no other one, listens on the port; assumed true on another host."""
        if self._place is not LOOPBACK:
            return True
        with contextlib.suppress(psutil.Error):
            sockets = psutil.Process(self.process.process_id).net_connections("tcp")
            return any(s.status == psutil.CONN_LISTEN and s.laddr.port == self.port for s in sockets)
        return False

    def answers(self) -> bool:
        """Whether the server answers requests."""
        return b"Mode:" in self._send_request(b"srvr")

    def _send_request(self, request: bytes) -> bytes:
        """Returns all bytes of the answer until the server closes the connection; b"" if it cannot be reached in time."""
        address = (self._place.address, self.port)
        with contextlib.suppress(OSError), socket.create_connection(address, _ANSWER_TIMEOUT_S) as connection:
            connection.sendall(request)
            return connection.makefile("rb").read()
        return b""

    def expire_session(self, session: tuple[int, bytes]) -> None:
        """Ends the session of another client at once, as if it had expired. `session`: id and password, as in kazoo's client_id.

        Both requests, to take the session over and to close it, are sent in one piece: the other client reconnects within
        milliseconds.
        """
        number, password = session
        connect = struct.pack(">iqiqi", 0, 0, _SESSION_TIMEOUT_MS, number, len(password)) + password + b"\0"
        close = struct.pack(">ii", 1, _CLOSE)
        request = b"".join(struct.pack(">i", len(part)) + part for part in (connect, close))
        for _ in range(_EXPIRE_ATTEMPTS):
            answer = self._send_request(request)
            if len(answer) >= 12 and struct.unpack_from(">iii", answer)[2] <= 0:  # a session without a time-out has ended
                return
        raise ClusterError(f"zookeeper session {number:x} could not be ended")

    def freeze(self) -> None:
        """Freezes the server by SIGSTOP: connections stay open, but it does not answer."""
        self.process.freeze()

    def thaw(self) -> None:
        self.process.thaw()

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> None:
        """Kills the server; its data remains."""
        self.process.kill()

    def __enter__(self) -> ZooKeeperServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _class_path() -> str:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ClusterError("pyspark, which contains zookeeper, is not installed")
    jars = sorted((Path(spec.origin).parent / "jars").glob("*.jar"))
    needed = [str(jar) for jar in jars if jar.name.startswith(_JARS)]
    if not any(Path(jar).name.startswith("zookeeper-") for jar in needed):
        raise ClusterError("the jars of pyspark do not contain zookeeper", detail=str(Path(spec.origin).parent / "jars"))
    return os.pathsep.join(needed)
