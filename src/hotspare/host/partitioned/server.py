"""The driver's side of the connections to its tasks: listens, lets in who knows the secret, and passes on what they say."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from hotspare.base.addresses import HostPort
from hotspare.base.errors import UsageError
from hotspare.host.partitioned.link import Channel, LinkBrokenError, Message, accepted

_HANDSHAKE_S = 2.0
_STRANGERS_MAX = 64
"""Connections at a time that have not proved yet that they know the secret."""
_ACCEPT_PAUSE_S = 0.1

OnMessage = Callable[[Channel, Message], None]
"""Called from the connection's thread; may take its time."""


class LinkServer:
    """Listens on a port of `host` that the system chooses. UsageError where it cannot."""

    def __init__(self, host: str, secret: bytes, on_message: OnMessage) -> None:
        self._secret = secret
        self._on_message = on_message
        try:
            family, *_, target = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
            self._listener = socket.create_server((str(target[0]), 0), family=family, backlog=128)
        except OSError as error:
            why, hint = error.strerror or str(error), "--conf spark.driver.host=ADDRESS"
            raise UsageError(f"{host} cannot be listened on for the tasks", detail=why, hint=hint) from error
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
                self._is_over.wait(_ACCEPT_PAUSE_S)  # it was closed, or no descriptor is left
                continue
            if not self._strangers.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), name="hotspare-link", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel = accepted(connection, self._secret, _HANDSHAKE_S)
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

    def close(self) -> None:
        self._is_over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            channels = list(self._channels)
        for channel in channels:
            channel.close()
