"""Whether the process that a member record names still runs: asked before an engine takes part under the same name."""

from __future__ import annotations

import os
import socket

from hotspare.coordination.contract import Member
from hotspare.processes import is_process_ending, is_process_gone

_TIMEOUT_S = 0.25
_GREETING_BYTES_MAX = 256


def is_alive(member: Member) -> bool:
    """True for another process of this machine until it begins to end, also while it is frozen; for one of another machine as long
    as its liveness socket greets with its name."""
    if member.host == socket.gethostname():
        if member.process_id == os.getpid() or is_process_gone(member.process_id, member.process_start):
            return False
        return not is_process_ending(member.process_id)
    host, _, port = member.address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as connection:
            connection.settimeout(_TIMEOUT_S)
            return connection.recv(_GREETING_BYTES_MAX) == f"hotspare {member.engine}\n".encode()
    except (OSError, ValueError):
        return False
