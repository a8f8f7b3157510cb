"""Ends a frozen process that keeps the embedded bus locked past its lease (DESIGN section 5)."""

from __future__ import annotations

import os
import signal
import socket

from hotspare.coordination.contract import Leader
from hotspare.processes import is_process_gone


def end_frozen_process(leader: Leader) -> bool:
    """SIGKILL to the holder, if it is a process of this machine and still that very process; False when nothing was done."""
    if leader.host != socket.gethostname() or leader.process_id in (0, os.getpid()):
        return False
    if is_process_gone(leader.process_id, leader.process_start):
        return False
    try:
        os.kill(leader.process_id, signal.SIGKILL)
    except OSError:
        return False
    return True
