"""Checks whether the process that a member record names still runs, before another engine joins under the same name."""

from __future__ import annotations

import os

from hotspare.base.processes import has_process_ended, is_process_ending, process_space
from hotspare.coordination.contract import Member
from hotspare.ha.peers import is_answering


def is_alive(member: Member) -> bool:
    """Whether the process of `member` is another one than this, and still runs. A process of the same process space counts until
    it begins to end, also while it is frozen. A process elsewhere counts if it answers at its address; for such a process
    False proves nothing."""
    if member.process_space == process_space():
        if member.process_id == os.getpid() or has_process_ended(member.process_id, member.process_start):
            return False
        return not is_process_ending(member.process_id)
    return is_answering(member)
