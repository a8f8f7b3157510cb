"""An authenticated connection between a task of Spark and its driver: TCP on which both sides have proved that they know a secret.

    driver -> task    a random number
    task -> driver    another one, and a MAC over both
    driver -> task    a MAC over both, computed with another label
    both              messages: lengths, MAC, JSON object, bytes

The MACs of messages use keys of this connection and direction, over a counter. So no third party can forge, change, drop, repeat or
reflect a message. The content is not secret and can be read: events, reports, lines of the log, orders to stop. A task gets secrets
(the secret itself, passwords in URLs) from Spark with its code. The driver listens (`LinkServer`).
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from hotspare.base.addresses import HostPort
from hotspare.base.errors import UsageError

Buffer: TypeAlias = bytes | bytearray | memoryview
Message = dict[str, Any]
"""A JSON object. Its member BODY, if any, is bytes, which are sent after the JSON; a receiver gets them as a memoryview."""
BODY = "body"
SECRET_BYTES = 32
_NONCE_BYTES = 32
_MAC_BYTES = 32
_DOCUMENT_BYTES_MAX = 4 << 20
_BODY_BYTES_MAX = (1 << 32) - 1
_JOINED_BYTES_MAX = 1 << 16
"""Up to this size a body is sent in one piece with its JSON; copying a larger one would cost more than a second call."""
_HEAD = struct.Struct(">II")
_LENGTH = struct.Struct(">Q")
_COUNT = struct.Struct(">Q")
_GREETING = b"hotspare-link-1\n"
_CLOSED = "the other side closed the connection"
_AS_TASK, _AS_DRIVER = b"the task", b"the driver"


class LinkBrokenError(Exception):
    """The connection is over, or its peer does not know the secret."""


def new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


def _mac(key: bytes, *parts: Buffer) -> bytes:
    made = hmac.new(key, digestmod="sha256")
    for part in parts:
        made.update(_LENGTH.pack(len(part)))
        made.update(part)
    return made.digest()


class Channel:
    """An end of an authenticated connection. Call `send` from any thread, `receive` from one. Both raise LinkBrokenError, after
    which the channel is unusable. `timeout_s`: how long `send` waits for the other side; None: without limit."""

    def __init__(self, connection: socket.socket, own_key: bytes, other_key: bytes, timeout_s: float | None) -> None:
        self._connection = connection
        self._own_key, self._other_key = own_key, other_key
        connection.settimeout(timeout_s)
        self._sent = self._received = 0
        self._head = bytearray(_HEAD.size + _MAC_BYTES)
        self._content: bytearray | None = None
        """The document and body of the message whose head has arrived; None while the head is awaited."""
        self._filled = 0
        self._lock = threading.Lock()

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends a message; waits at most the time-out of the connection."""
        body: Buffer = message.get(BODY, b"")
        document = json.dumps({name: value for name, value in message.items() if name != BODY}, separators=(",", ":")).encode()
        if len(document) > _DOCUMENT_BYTES_MAX or len(body) > _BODY_BYTES_MAX:
            raise LinkBrokenError(f"a message of {len(document)} and {len(body)} bytes is too long")
        with self._lock:
            head = _HEAD.pack(len(document), len(body)) + _mac(self._own_key, _COUNT.pack(self._sent), document, body)
            self._sent += 1
            try:
                if len(body) <= _JOINED_BYTES_MAX:
                    self._connection.sendall(b"".join((head, document, body)))
                else:
                    self._connection.sendall(head + document)
                    self._connection.sendall(body)
            except OSError as error:
                raise LinkBrokenError(str(error)) from error

    def receive(self, wait_s: float | None = None) -> Message | None:
        """Returns the next message; None if none arrives within `wait_s` (None: no limit)."""
        deadline_s = None if wait_s is None else time.monotonic() + wait_s
        while True:
            buffer = self._head if self._content is None else self._content
            if self._filled < len(buffer):
                left_s = None if deadline_s is None else deadline_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return None
                count = _read_available(self._connection, memoryview(buffer)[self._filled :], left_s)
                if count is None:
                    return None
                self._filled += count
            elif self._content is None:
                self._content, self._filled = self._new_content(), 0
            else:
                return self._pop_message(self._content)

    def _new_content(self) -> bytearray:
        """Returns a buffer for the content that the head announces. Raises LinkBrokenError if the document is too long."""
        document, body = _HEAD.unpack_from(self._head)
        if document > _DOCUMENT_BYTES_MAX:
            raise LinkBrokenError(f"a message of {document} bytes is too long")
        return bytearray(document + body)

    def _pop_message(self, content: bytearray) -> Message:
        """Returns the complete message. Raises LinkBrokenError for an invalid one."""
        self._content, self._filled = None, 0
        length, _ = _HEAD.unpack_from(self._head)
        document, body = memoryview(content)[:length], memoryview(content)[length:]
        mac = _mac(self._other_key, _COUNT.pack(self._received), document, body)
        if not hmac.compare_digest(self._head[_HEAD.size :], mac):
            raise LinkBrokenError("a message has an invalid authentication code")
        self._received += 1
        message = json.loads(bytes(document))
        if not isinstance(message, dict):
            raise LinkBrokenError("a message is not a JSON object")
        return message | {BODY: body} if len(body) else message

    def close(self) -> None:
        """Closes the connection; a thread that waits in `receive` gets LinkBrokenError."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def accept_channel(connection: socket.socket, secret: bytes, timeout_s: float, send_s: float | None) -> Channel:
    """Returns the driver's end of an accepted connection. Closes it and raises LinkBrokenError unless the other side proves within
    `timeout_s` that it knows the secret. `send_s`: the channel's time-out."""
    try:
        own = secrets.token_bytes(_NONCE_BYTES)
        _send_fully(connection, _GREETING + own, timeout_s)
        other, proof = _split(_read_exactly(connection, _NONCE_BYTES + _MAC_BYTES, timeout_s))
        _check_proof(proof, _mac(secret, _AS_TASK, own, other))
        _send_fully(connection, _mac(secret, _AS_DRIVER, own, other), timeout_s)
    except LinkBrokenError:
        connection.close()
        raise
    return _channel(connection, secret, own, other, _AS_DRIVER, send_s)


def connect_channel(address: HostPort, secret: bytes, timeout_s: float, send_s: float | None) -> Channel:
    """Returns the task's end of a new connection. Raises LinkBrokenError if no driver that knows the secret answers within
    `timeout_s`. `send_s`: the channel's time-out."""
    try:
        connection = socket.create_connection((address.host, address.port), timeout=timeout_s)
    except OSError as error:
        raise LinkBrokenError(str(error)) from error
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        other, own = _read_greeting(connection, timeout_s), secrets.token_bytes(_NONCE_BYTES)
        _send_fully(connection, own + _mac(secret, _AS_TASK, other, own), timeout_s)
        _check_proof(_read_exactly(connection, _MAC_BYTES, timeout_s), _mac(secret, _AS_DRIVER, other, own))
    except (LinkBrokenError, OSError) as error:
        connection.close()
        raise LinkBrokenError(str(error)) from error
    return _channel(connection, secret, other, own, _AS_TASK, send_s)


def _read_greeting(connection: socket.socket, timeout_s: float) -> bytes:
    """Returns the random number in a driver's greeting."""
    greeting = _read_exactly(connection, len(_GREETING) + _NONCE_BYTES, timeout_s)
    if not greeting.startswith(_GREETING):
        raise LinkBrokenError("another program answers at this address")
    return greeting[len(_GREETING) :]


def _check_proof(proof: bytes, right: bytes) -> None:
    if not hmac.compare_digest(proof, right):
        raise LinkBrokenError("the other side does not know the secret")


def _channel(connection: socket.socket, secret: bytes, driver: bytes, task: bytes, role: bytes, send_s: float | None) -> Channel:
    keys = {each: _mac(secret, b"key of " + each, driver, task) for each in (_AS_TASK, _AS_DRIVER)}
    other = _AS_TASK if role is _AS_DRIVER else _AS_DRIVER
    return Channel(connection, keys[role], keys[other], send_s)


def _read_available(connection: socket.socket, target: memoryview, wait_s: float | None) -> int | None:
    """Reads available bytes into `target` and returns their count; None if none arrive in time. A socket has one time-out for both
    directions, and another thread uses it for sending, so this polls."""
    try:
        waiting = select.poll()
        waiting.register(connection, select.POLLIN)
        if not waiting.poll(None if wait_s is None else wait_s * 1_000):
            return None
        count = connection.recv_into(target)
    except (OSError, ValueError) as error:  # ValueError: it was closed meanwhile
        raise LinkBrokenError(str(error)) from error
    if not count:
        raise LinkBrokenError(_CLOSED)
    return count


def _read_exactly(connection: socket.socket, count: int, timeout_s: float) -> bytes:
    said, deadline_s = b"", time.monotonic() + timeout_s
    while len(said) < count:
        try:
            connection.settimeout(max(0.001, deadline_s - time.monotonic()))
            part = connection.recv(count - len(said))
        except OSError as error:
            raise LinkBrokenError(str(error)) from error
        if not part:
            raise LinkBrokenError(_CLOSED)
        said += part
    return said


def _send_fully(connection: socket.socket, data: bytes, timeout_s: float) -> None:
    try:
        connection.settimeout(timeout_s)
        connection.sendall(data)
    except OSError as error:
        raise LinkBrokenError(str(error)) from error


def _split(data: bytes) -> tuple[bytes, bytes]:
    return data[:_NONCE_BYTES], data[_NONCE_BYTES:]


HANDSHAKE_S = 2.0
"""The time within which a task must prove that it knows the secret, and the time-out of the channels of control messages."""
_STRANGERS_MAX = 64
"""Limit on concurrent connections that have not yet proved that they know the secret."""
_ACCEPT_PAUSE_S = 0.1

OnMessage = Callable[[Channel, Message], None]
"""Called from the connection's thread; it may block."""
OnClosed = Callable[[Channel], None]
"""Called from the connection's thread when the connection is over."""


class LinkServer:
    """Accepts connections of tasks on a port of `host` that the system chooses, and passes their messages to `on_message`.
    `send_s`: the time-out of the channels. Raises UsageError if it cannot listen."""

    def __init__(
        self,
        host: str,
        secret: bytes,
        on_message: OnMessage,
        send_s: float | None,
        on_closed: OnClosed = lambda _: None,
    ) -> None:
        self._secret = secret
        self._on_message, self._on_closed = on_message, on_closed
        self._send_s = send_s
        try:
            family, *_, target = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
            self._listener = socket.create_server((str(target[0]), 0), family=family, backlog=128)
        except OSError as error:
            why, hint = error.strerror or str(error), "name another address: --conf spark.driver.host=ADDRESS"
            raise UsageError(f"cannot listen on {host} for the tasks", detail=why, hint=hint) from error
        self.address = HostPort(host, int(self._listener.getsockname()[1]))
        self._strangers = threading.BoundedSemaphore(_STRANGERS_MAX)
        self._is_over = threading.Event()
        self._channels: set[Channel] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, name="hotspare-link-server", daemon=True).start()

    def _accept(self) -> None:
        while not self._is_over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                self._is_over.wait(_ACCEPT_PAUSE_S)  # the listener was closed, or no descriptor is left
                continue
            if not self._strangers.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), name="hotspare-link", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel = accept_channel(connection, self._secret, HANDSHAKE_S, self._send_s)
        except (LinkBrokenError, OSError):
            return
        finally:
            self._strangers.release()
        with self._lock:
            self._channels.add(channel)
        try:
            with contextlib.suppress(LinkBrokenError):
                while (message := channel.receive()) is not None and not self._is_over.is_set():
                    self._on_message(channel, message)
        finally:
            with self._lock:
                self._channels.discard(channel)
            channel.close()
            self._on_closed(channel)

    def close(self) -> None:
        self._is_over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            channels = list(self._channels)
        for channel in channels:
            channel.close()
