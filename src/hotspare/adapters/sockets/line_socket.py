"""Sockets that exchange lines with clients: limits on lines, connections and time; closed when the turn is over.

The protocol does not depend on which side connects: the other side is called the client either way.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from hotspare.base.errors import BusError, UsageError
from hotspare.base.retry import Retry

_T = TypeVar("_T")

LINE_BYTES_MAX = 1 << 20
CLIENTS_MAX = 64
_RECEIVE_BYTES = 1 << 16
_POLL_S = 0.1
_RETRY = Retry(pause_s=0.05)
SEND_TIMEOUT_S = 30.0
"""The time that a client may leave sent data unread before it is disconnected."""
CONNECT_TIMEOUT_S = 5.0
RECONNECT_S = 0.5
"""The pause before a broken or refused connection is tried again."""
_ADDRESS = re.compile(r"(tcp|tcp-connect):/{1,2}(\[[0-9a-fA-F:.]+\]|[^/:]*):([0-9]{1,5})")


class SocketSide(Enum):
    """The side that opens the connection."""

    LISTEN = "tcp"
    CONNECT = "tcp-connect"


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen on or to connect to. `host` "" is this machine alone. Port 0 lets the system choose one to listen on."""

    host: str
    port: int
    opened_by: SocketSide = SocketSide.LISTEN


def parse_address(text: str) -> Address | None:
    """Parses `tcp://HOST:PORT` or `tcp://:PORT` to listen, `tcp-connect://HOST:PORT` to connect. None for any other text;
    UsageError if the port or the host is invalid."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return None
    opening, host, port = SocketSide(match.group(1)), match.group(2).strip("[]"), int(match.group(3))
    if port > 65_535 or (port == 0 and opening is SocketSide.CONNECT):
        raise UsageError(f"port {port} of {text} is out of range", hint="use 1 to 65535")
    if not host and opening is SocketSide.CONNECT:
        raise UsageError(f"{text} has no host", hint="write tcp-connect://HOST:PORT, or tcp://:PORT to listen")
    return Address(host, port, opening)


class ClientDisconnected(Exception):
    """The client closed the connection, or does not read the data sent to it."""


class LineClientError(Exception):
    """An error that ends a client's connection; the text is sent to the client."""


class LineClient:
    """A connection to a client, used by one thread only."""

    def __init__(self, connection: socket.socket, stop: threading.Event) -> None:
        self._connection = connection
        self._connection.settimeout(_POLL_S)
        self._stop = stop
        self._rest = b""

    def lines(self) -> list[bytes]:
        """Returns the next lines, at least one, without their ends; empty on a stop. ClientDisconnected at the end of the
        connection, which drops a line without an end; LineClientError for a line that is too long."""
        while not self._stop.is_set():
            try:
                data = self._connection.recv(_RECEIVE_BYTES)
            except TimeoutError:
                continue
            except OSError as error:
                raise ClientDisconnected from error
            if not data:
                raise ClientDisconnected
            *lines, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > LINE_BYTES_MAX or any(len(line) > LINE_BYTES_MAX for line in lines):
                raise LineClientError(f"a line is longer than {LINE_BYTES_MAX} bytes")
            if lines:
                return [line.removesuffix(b"\r") for line in lines]
        return []

    def check_connected(self) -> None:
        """Raises ClientDisconnected if the other side has closed; for connections that only send. Discards received data."""
        self._connection.settimeout(0)
        try:
            if not self._connection.recv(_RECEIVE_BYTES):
                raise ClientDisconnected
        except BlockingIOError:
            pass
        except OSError as error:
            raise ClientDisconnected from error
        finally:
            self._connection.settimeout(_POLL_S)

    def send(self, data: bytes) -> None:
        """Sends all data. Raises ClientDisconnected if the client does not read it."""
        self._connection.settimeout(SEND_TIMEOUT_S)
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise ClientDisconnected from error
        finally:
            self._connection.settimeout(_POLL_S)


def retry_for_client(call: Callable[[], _T], stop: threading.Event, passes: Callable[[BusError], bool]) -> _T:
    """Returns the call's result. Retries the call while `passes` is true for its BusError. Raises LineClientError at `stop`."""

    def wait(pause_s: float) -> None:
        if stop.wait(pause_s):
            raise LineClientError("this instance is stopping: connect again")

    return _RETRY.call(call, lambda error: isinstance(error, BusError) and passes(error), wait)


def serve_lines(
    address: Address, serve: Callable[[LineClient], None], stop: threading.Event, bound: Callable[[int], None] = lambda port: None
) -> None:
    """Serves clients until `stop`. An error of `serve` other than ClientDisconnected and LineClientError ends all connections and
    is raised here.

    On a listening address each client has its own thread, and `bound` gets the port; raises UsageError if it cannot listen. On a
    connecting address there is one client at a time; a connection that breaks or fails is opened again.
    """
    if address.opened_by is SocketSide.LISTEN:
        _serve_all(address, serve, stop, bound)
        return
    while not stop.is_set():
        with contextlib.suppress(OSError), socket.create_connection((address.host, address.port), CONNECT_TIMEOUT_S) as connection:
            _serve_one(connection, serve, stop)
        stop.wait(RECONNECT_S)


def _serve_one(connection: socket.socket, serve: Callable[[LineClient], None], stop: threading.Event) -> None:
    """Serves one client until it disconnects, or an error was sent to it."""
    client = LineClient(connection, stop)
    with contextlib.closing(connection), contextlib.suppress(ClientDisconnected):
        try:
            serve(client)
        except LineClientError as error:
            client.send(f"error {error}\n".encode())


def _serve_all(address: Address, serve: Callable[[LineClient], None], stop: threading.Event, bound: Callable[[int], None]) -> None:
    failed: list[BaseException] = []
    over = threading.Event()
    threads: list[threading.Thread] = []

    def run(connection: socket.socket) -> None:
        try:
            _serve_one(connection, serve, _Either(stop, over))
        except BaseException as error:
            failed.append(error)

    with _listening(address) as listener:
        bound(listener.getsockname()[1])
        try:
            while not stop.is_set() and not failed:
                threads = [thread for thread in threads if thread.is_alive()]
                if len(threads) >= CLIENTS_MAX:
                    stop.wait(_POLL_S)
                    continue
                with contextlib.suppress(TimeoutError):
                    connection, _ = listener.accept()
                    threads.append(threading.Thread(target=run, args=(connection,), name="line-client", daemon=True))
                    threads[-1].start()
        finally:
            over.set()
            for thread in threads:
                thread.join(SEND_TIMEOUT_S)
    if failed:
        raise failed[0]


class _Either(threading.Event):
    """An event whose `is_set` is true once one of two events is set."""

    def __init__(self, first: threading.Event, second: threading.Event) -> None:
        super().__init__()
        self._pair = first, second

    def is_set(self) -> bool:
        return any(each.is_set() for each in self._pair)


@contextlib.contextmanager
def _listening(address: Address) -> Iterator[socket.socket]:
    host = address.host or "127.0.0.1"
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, address.port), family=family, backlog=CLIENTS_MAX)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}:{address.port}", detail=error.strerror or str(error)) from error
    with listener:
        listener.settimeout(_POLL_S)
        yield listener
