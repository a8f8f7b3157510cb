"""Ends a frozen process that keeps the embedded bus locked past its lease (DESIGN section 5)."""

from __future__ import annotations

import os
import signal

from hotspare.coordination.contract import Leader
from hotspare.processes import is_process_gone, process_space


def end_frozen_process(leader: Leader) -> bool:
    """SIGKILL to the holder, if this process can see it and it still is that very process; False when nothing was done."""
    if leader.process_space != process_space() or leader.process_id in (0, os.getpid()):
        return False
    if is_process_gone(leader.process_id, leader.process_start):
        return False
    try:
        os.kill(leader.process_id, signal.SIGKILL)
    except OSError:
        return False
    return True
