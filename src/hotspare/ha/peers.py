"""The socket side of detection: a spare holds a connection to the active engine and notices its closing at once.

Detection is fast and allowed to be wrong (DESIGN section 5): a mistake costs a needless promotion, never an event. A frozen
process keeps its connections open, so this says nothing about it; the lease does.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable

from hotspare.coordination.contract import Leader
from hotspare.ha.view import PeerStatus
from hotspare.processes import is_process_ending, is_process_gone

_GREETING_BYTES_MAX = 256
_CONNECT_TIMEOUT_S = 0.25
_LOOK_S = 0.005
"""How often a spare on the active's machine looks whether its process has begun to end."""
_LOOPBACK = "127.0.0.1"


class PeerServer:
    """Accepts connections of spares, greets each with the engine's name, and keeps them open until the process ends."""

    def __init__(self, engine: str, host: str = _LOOPBACK) -> None:
        self._greeting = f"hotspare {engine}\n".encode()
        self._listener = socket.create_server((host, 0), backlog=64)
        self._connections: list[socket.socket] = []
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="hotspare-peers", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()[:2]
        return f"{host}:{port}"

    def _serve(self) -> None:
        while not self._stopped.is_set():
            for key, _ in self._selector.select(timeout=0.5):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._drop_if_closed(key.fileobj)  # type: ignore[arg-type]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            with self._lock:
                if self._stopped.is_set():
                    connection.close()
                    return
                self._connections.append(connection)  # before the greeting: who was greeted is told of the end
            connection.settimeout(0)
            self._selector.register(connection, selectors.EVENT_READ)
            connection.sendall(self._greeting)

    def _drop_if_closed(self, connection: socket.socket) -> None:
        try:
            if connection.recv(_GREETING_BYTES_MAX):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._selector.unregister(connection)
        with self._lock:
            self._connections.remove(connection)
        connection.close()

    def hang_up(self) -> None:
        """Tell all spares at once that this engine is dead: for a process that is about to end, which takes the system a while."""
        with self._lock:
            self._stopped.set()
            connections = list(self._connections)
        for connection in (self._listener, *connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=2)
        for connection in (*self._connections, self._listener):
            connection.close()
        self._selector.close()


class PeerLink:
    """A `PeerPort` over sockets: watches the newest leader that it was given, in one thread of its own.

    `changed` is called from that thread whenever the status changes.
    """

    def __init__(self, engine: str, host: str, changed: Callable[[], None]) -> None:
        self._engine = engine
        self._host = host
        self._changed = changed
        self._lock = threading.Lock()
        self._leader: Leader | None = None
        self._status = PeerStatus.UNKNOWN
        self._socket: socket.socket | None = None
        self._wanted = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="hotspare-peer-link", daemon=True)
        self._thread.start()

    def watch(self, leader: Leader) -> None:
        with self._lock:
            known = self._leader
            if known is not None and (known.epoch, known.holder, known.address) == (leader.epoch, leader.holder, leader.address):
                return
            self._leader = leader
            self._status = PeerStatus.UNKNOWN
            self._wake_reader()
            self._wanted.set()

    def status(self) -> PeerStatus:
        with self._lock:
            return self._status

    def close(self) -> None:
        with self._lock:
            self._stopped = True
            self._wake_reader()
            self._wanted.set()
        self._thread.join(timeout=2)

    def _wake_reader(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            with self._lock:
                self._wanted.clear()
                leader, stopped = self._leader, self._stopped
            if stopped:
                return
            if leader is not None and leader.holder and leader.holder != self._engine and leader.address:
                self._follow(leader)

    def _follow(self, leader: Leader) -> None:
        """Hold a connection until it closes for good or another leader is to be watched."""
        attempts_left = 2
        while attempts_left and self._is_current(leader):
            attempts_left -= 1
            connection = self._connect(leader)
            if connection is None:
                continue
            attempts_left = 1  # a connection that stood and closed is retried once
            self._set(leader, PeerStatus.CONNECTED)
            self._wait_until_closed(connection, leader)
        if self._is_current(leader):
            self._set(leader, PeerStatus.CLOSED if self._is_gone(leader) else PeerStatus.UNKNOWN)

    def _is_gone(self, leader: Leader) -> bool:
        if leader.host != self._host or self._is_ending(leader):
            return True
        return is_process_gone(leader.process_id, leader.process_start) or not self._answers(leader)

    def _is_ending(self, leader: Leader) -> bool:
        return leader.host == self._host and is_process_ending(leader.process_id)

    def _connect(self, leader: Leader) -> socket.socket | None:
        host, _, port = leader.address.rpartition(":")
        try:
            connection = socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT_S)
        except (OSError, ValueError):
            return None
        try:
            greeting = connection.recv(_GREETING_BYTES_MAX)
        except OSError:
            greeting = b""
        if greeting != f"hotspare {leader.holder}\n".encode():
            connection.close()
            return None
        with self._lock:
            self._socket = connection
            if not self._is_same(leader):
                connection.close()
                self._socket = None
                return None
        return connection

    def _wait_until_closed(self, connection: socket.socket, leader: Leader) -> None:
        """Until the other side hangs up, or its process, if it is on this machine, has begun to end."""
        connection.settimeout(_LOOK_S if leader.host == self._host else None)
        with contextlib.suppress(OSError):
            while not self._is_ending(leader):
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(_GREETING_BYTES_MAX):
                        break
        with self._lock:
            self._socket = None
        connection.close()

    def _answers(self, leader: Leader) -> bool:
        """Whether anything still listens there: a frozen process does (its kernel accepts), a dead one does not."""
        host, _, port = leader.address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT_S).close()
        except ConnectionRefusedError:
            return False
        except (OSError, ValueError):
            return True
        return True

    def _is_same(self, leader: Leader) -> bool:
        known = self._leader
        return known is not None and (known.epoch, known.holder, known.address) == (leader.epoch, leader.holder, leader.address)

    def _is_current(self, leader: Leader) -> bool:
        with self._lock:
            return not self._stopped and self._is_same(leader)

    def _set(self, leader: Leader, status: PeerStatus) -> None:
        with self._lock:
            if not self._is_same(leader) or self._status is status:
                return
            self._status = status
        self._changed()
