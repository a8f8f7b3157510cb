"""Answers `GET /livez` from the parent of an engine: it can answer while user code holds the engine's interpreter for ever.

A few lines over a socket instead of a server of the standard library, which would double the parent's memory.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping

REQUEST_S_MAX = 2.0
"""How long a client may take to send its request."""
_REQUEST_BYTES_MAX = 8192
_TYPE = "application/json"


def serve_liveness(host: str, port: int, facts: Callable[[], Mapping[str, object]]) -> int:
    """Answers in a thread of its own, until the process ends, with the JSON of `facts()`. Returns the port, also if `port` is 0.
    Raises OSError if the address cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    threading.Thread(target=_serve, args=(listener, facts), name="liveness", daemon=True).start()
    return int(listener.getsockname()[1])


def _serve(listener: socket.socket, facts: Callable[[], Mapping[str, object]]) -> None:
    while True:
        with contextlib.suppress(OSError):  # the client went away, or is too slow
            connection, _ = listener.accept()
            with connection:
                connection.sendall(_answer(_request_line(connection), facts))


def _request_line(connection: socket.socket) -> bytes:
    """Returns the first line of the request, once its headers have arrived; b"" if they do not come in time or are too long."""
    until_s, received = time.monotonic() + REQUEST_S_MAX, b""
    while b"\r\n\r\n" not in received and len(received) <= _REQUEST_BYTES_MAX:
        connection.settimeout(max(0.001, until_s - time.monotonic()))
        more = connection.recv(_REQUEST_BYTES_MAX)
        if not more:
            return b""
        received += more
    return received.partition(b"\r\n")[0] if b"\r\n\r\n" in received else b""


def _answer(line: bytes, facts: Callable[[], Mapping[str, object]]) -> bytes:
    method, path, _ = [*line.split(b" "), b"", b"", b""][:3]
    status, content = "200 OK", dict[str, object]()
    if path.partition(b"?")[0] != b"/livez":
        status = "404 Not Found" if line else "400 Bad Request"
    elif method not in (b"GET", b"HEAD"):
        status = "405 Method Not Allowed"
    else:
        content.update(facts())
    body = json.dumps(content).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (b"" if method == b"HEAD" else body)
