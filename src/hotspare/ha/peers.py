"""Detects the end of an active engine by sockets: a spare holds a connection to it and notices at once when the connection closes.

Detection is fast and allowed to be wrong: an error costs a needless promotion, never an event. The states of a
spare's knowledge, from the surest:

    ENDED      the holder's process, in this spare's own process space, has ended or is ending: certain
    CLOSED     this spare was connected to that very process, and is refused now
    CONNECTED  the connection is open; it is also open to a frozen process, and the lease decides
    UNKNOWN    everything else: never connected, or no answer in time, as over a broken link; the lease decides

The server sends each client the engine's name and a digest of its process; the client sends nothing. The system closes a connection
after some seconds of silence if its other end has vanished; the status is then UNKNOWN.
"""

from __future__ import annotations

import contextlib
import hashlib
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from os import getpid

from hotspare.base.addresses import LOOPBACK, HostPort, parse_host_port
from hotspare.base.errors import UsageError
from hotspare.base.processes import is_process_ending_or_ended, process_space, process_start
from hotspare.coordination.contract import Leader, Member
from hotspare.ha.process_watcher import ProcessWatcher
from hotspare.ha.rules.detection import Attempt, Reached, status_after
from hotspare.ha.rules.view import PeerStatus

CONNECTIONS_MAX = 1_024
"""The maximum of connections, more than a group has engines. Later connections are closed at once; their spares rely on the
lease."""
_LOOPBACK = HostPort(LOOPBACK)
_GREETING_BYTES_MAX = 1_024
_CONNECT_TIMEOUT_S = 0.25
_RETRIES_AT_ONCE = 2
_RETRY_SOON_S = 0.02
_RETRY_S = 0.5
_ACCEPT_PAUSE_S = 0.1
_KEEP_ALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3))
"""The socket options of keep-alive: seconds of silence before the first probe, seconds between probes, and unanswered probes."""


def greeting(engine: str, space: str, process_id: int, started: int) -> bytes:
    """Returns the line that an engine sends to each client: its name, and a digest of its process (space, id and start)."""
    process = hashlib.blake2b(f"{space} {process_id} {started}".encode(), digest_size=8).hexdigest()
    return f"hotspare {engine} {process}\n".encode()


def is_answering(member: Member) -> bool:
    """Whether the process that a member record names answers at the address in that record. False proves nothing."""
    address = parse_host_port(member.address)
    if address is None:
        return False
    expected = greeting(member.engine, member.process_space, member.process_id, member.process_start)
    try:
        with socket.create_connection((address.host, address.port), timeout=_CONNECT_TIMEOUT_S) as connection:
            return _read_first_line(connection, _CONNECT_TIMEOUT_S) == expected
    except OSError:
        return False


def _read_first_line(connection: socket.socket, timeout_s: float) -> bytes:
    """Returns the bytes that the other side sends up to its first line end, or until it closes. Raises OSError after
    `timeout_s`."""
    said, deadline_s = b"", time.monotonic() + timeout_s
    while not said.endswith(b"\n") and len(said) < _GREETING_BYTES_MAX:
        connection.settimeout(max(0.001, deadline_s - time.monotonic()))
        part = connection.recv(_GREETING_BYTES_MAX - len(said))
        if not part:
            break
        said += part
    return said


def _keep_alive(connection: socket.socket) -> None:
    """Enables keep-alive, so that the system detects a vanished other end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _listening(listen: HostPort) -> socket.socket:
    try:
        family, *_, target = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)[0]
        both = listen.host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server((str(target[0]), int(target[1])), family=family, backlog=64, dualstack_ipv6=both)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {listen} for the group's other engines",
            detail=error.strerror or str(error),
            hint="write --address HOST at which they reach this engine; if HOST is not an address of this machine, add --listen",
        ) from error


class PeerServer:
    """Accepts connections of spares, sends each the `greeting` of this process, and keeps them open until the process ends.

    The server listens on `listen`. `address` is the `advertised` address, by default `listen`; port 0 in it is replaced by the
    actual port. Raises UsageError if it cannot listen.
    """

    def __init__(self, engine: str, listen: HostPort = _LOOPBACK, advertised: HostPort | None = None) -> None:
        self._greeting = greeting(engine, process_space(), getpid(), process_start(getpid()))
        self._listener = _listening(listen)
        self._listener.settimeout(0)
        port = int(self._listener.getsockname()[1])
        reached = advertised or listen
        self.address = str(HostPort(reached.host, reached.port or port))
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="hotspare-peers", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            for key, _ in self._selector.select(timeout=0.5):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._drop(key.fileobj)  # type: ignore[arg-type]

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # the client has left
        except OSError:
            self._stopped.wait(_ACCEPT_PAUSE_S)  # no descriptor is left; the client waits
            return
        with self._lock:
            if self._stopped.is_set() or len(self._connections) >= CONNECTIONS_MAX:
                connection.close()
                return
            self._connections.add(connection)  # before the greeting: a greeted client is notified of the end
        try:
            connection.settimeout(0)
            _keep_alive(connection)
            self._selector.register(connection, selectors.EVENT_READ)
            connection.sendall(self._greeting)  # fits into the buffer of a new connection, so it never waits
        except OSError:
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        """Closes a connection that a spare has closed, or on which the other side sent data, which no spare does."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(connection)
        with self._lock:
            self._connections.discard(connection)
        connection.close()

    def hang_up(self) -> None:
        """Closes all connections at once when the process is about to end, so that spares notice before the system closes them."""
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
    """Watches the leader last passed to `watch`, over sockets, in a thread of its own: a `PeerPort`.

    `space` is this engine's process space. The thread calls `changed` whenever the status changes. `endings`, shared by all links
    of this process, watches the leader's process if it is in the same process space.
    """

    def __init__(self, engine: str, space: str, changed: Callable[[], None], endings: ProcessWatcher | None = None) -> None:
        self._engine = engine
        self.connect_timeout_s = _CONNECT_TIMEOUT_S
        """The seconds within which a leader has to accept the connection, and then to send its greeting."""
        self._endings = endings or ProcessWatcher()
        self._space = space
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
            if self._is_same(leader):
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
        """Connects, and reconnects, to `leader` and updates the status, until its process has ended or another leader is to be
        watched."""
        reached, tries = Reached.NEVER, 0
        while self._is_current(leader):
            attempt, connection = self._try_connect(leader)
            self._set(leader, status_after(attempt, reached))
            if attempt is Attempt.ENDED:
                return
            tries += 1
            if connection is not None:
                reached, tries = Reached.BEFORE, 0
                self._wait_until_closed(connection, leader)
                continue
            self._pause(leader, _RETRY_SOON_S if tries <= _RETRIES_AT_ONCE else _RETRY_S)

    def _try_connect(self, leader: Leader) -> tuple[Attempt, socket.socket | None]:
        """Returns (result of an attempt to reach the leader, connection); the connection is None unless the result is ANSWERED."""
        if self._has_ended(leader):
            return Attempt.ENDED, None
        try:
            return Attempt.ANSWERED, self._connect(leader)
        except ConnectionError:
            return Attempt.REFUSED, None
        except OSError:
            return Attempt.NO_ANSWER, None

    def _has_ended(self, leader: Leader) -> bool:
        return self._can_see_process(leader) and is_process_ending_or_ended(leader.process_id, leader.process_start)

    def _can_see_process(self, leader: Leader) -> bool:
        return leader.process_space == self._space

    def _connect(self, leader: Leader) -> socket.socket:
        """Returns a connection to exactly the leader's process. Raises ConnectionError if it is refused or another process answers,
        OSError in unclear cases."""
        address = parse_host_port(leader.address)
        if address is None:
            raise OSError(f"{leader.address[:80]!r} is not an address")
        connection = socket.create_connection((address.host, address.port), timeout=self.connect_timeout_s)
        try:
            self._check_greeting(connection, leader)
            _keep_alive(connection)
            with self._lock:
                if self._stopped or not self._is_same(leader):
                    raise TimeoutError("the leader to watch has changed")
                self._socket = connection
        except OSError:
            connection.close()
            raise
        return connection

    def _check_greeting(self, connection: socket.socket, leader: Leader) -> None:
        said = _read_first_line(connection, self.connect_timeout_s)
        if not said:
            raise TimeoutError("the other side closed the connection without a greeting")
        if said != greeting(leader.holder, leader.process_space, leader.process_id, leader.process_start):
            raise ConnectionResetError("another process answered")

    def _wait_until_closed(self, connection: socket.socket, leader: Leader) -> None:
        """Waits until the other side closes the connection or has vanished, or until the leader's process, if visible, begins to
        end. Closes the connection."""
        connection.settimeout(None)
        with contextlib.suppress(OSError), self._watching_process_end(connection, leader):
            connection.recv(1)  # nothing is ever sent after the greeting
        with self._lock:
            self._socket = None
        connection.close()

    def _watching_process_end(self, connection: socket.socket, leader: Leader) -> AbstractContextManager[None]:
        """Returns a context that, as soon as the leader's process begins to end, sets the status to ENDED and shuts the connection
        down. The system would close it later. Does nothing for an invisible process."""

        def hang_up() -> None:
            self._set(leader, PeerStatus.ENDED)  # the status does not wait for this link's own thread
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

        if not self._can_see_process(leader):
            return contextlib.nullcontext()
        return self._endings.watch_process(leader.process_id, leader.process_start, hang_up)

    def _pause(self, leader: Leader, pause_s: float) -> None:
        """Waits for `pause_s`, or until the leader's process has ended or another leader is to be watched."""
        until_s, look_s = time.monotonic() + pause_s, _RETRY_SOON_S if self._can_see_process(leader) else pause_s
        while not self._wanted.wait(look_s) and time.monotonic() < until_s and not self._has_ended(leader):
            pass

    def _is_same(self, leader: Leader) -> bool:
        known = self._leader
        return known is not None and _watched(known) == _watched(leader)

    def _is_current(self, leader: Leader) -> bool:
        with self._lock:
            return not self._stopped and self._is_same(leader)

    def _set(self, leader: Leader, status: PeerStatus) -> None:
        with self._lock:
            if not self._is_same(leader) or self._status is status:
                return
            self._status = status
        self._changed()


def _watched(leader: Leader) -> tuple[int, str, str]:
    return leader.epoch, leader.holder, leader.address
