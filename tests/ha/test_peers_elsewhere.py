"""A spare proves nothing about a holder on another machine to which it was never connected (SPEC C6, E2)."""

import contextlib
import socket
import threading
from collections.abc import Callable

import pytest

from hotspare.coordination.contract import Leader
from hotspare.ha.peers import PeerLink
from hotspare.ha.rules.view import PeerStatus
from hotspare.testing.cluster import wait_until


def test_a_holder_that_was_never_connected_to_is_unknown_c6(free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection to another machine proves nothing, and is retried."""
    port, changed, tried = free_port(), threading.Event(), list[int]()
    connect = socket.create_connection
    monkeypatch.setattr("hotspare.ha.peers.socket.create_connection", lambda *to, **how: tried.append(1) or connect(*to, **how))
    link = PeerLink("me", "here", changed.set)
    link.watch(Leader(1, "other", "", 1000, f"127.0.0.1:{port}", "elsewhere", 77, 5))
    wait_until(lambda: len(tried) > 2, "it was refused, and tries again")
    assert not changed.is_set(), f"{link.status()} before anything answered"
    with socket.create_server(("127.0.0.1", port)) as later:
        later.settimeout(60)
        with contextlib.closing(later.accept()[0]):
            assert link.status() is PeerStatus.UNKNOWN
    link.close()
