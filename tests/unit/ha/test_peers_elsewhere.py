"""What a spare may say of a holder on another machine that it never was connected to: nothing (SPEC C6, E2)."""

import contextlib
import socket
import threading
from collections.abc import Callable

from hotspare.coordination.contract import Leader
from hotspare.ha.peers import PeerLink
from hotspare.ha.rules.view import PeerStatus


def test_a_holder_that_was_never_connected_to_is_unknown_c6(free_port: Callable[[], int]) -> None:
    """On another machine an address that refuses proves nothing, and it is tried again."""
    port, changed = free_port(), threading.Event()
    link = PeerLink("me", "here", changed.set)
    link.watch(Leader(1, "other", "", 1000, f"127.0.0.1:{port}", "elsewhere", 77, 5))
    assert not changed.wait(0.2), f"{link.status()} before anything answered"
    with socket.create_server(("127.0.0.1", port)) as later:
        later.settimeout(60)
        with contextlib.closing(later.accept()[0]):
            assert link.status() is PeerStatus.UNKNOWN
    link.close()
