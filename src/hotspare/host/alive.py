"""Whether the process that a member record names still runs: asked before an engine takes part under the same name."""

from __future__ import annotations

import os

from hotspare.base.processes import is_process_ending, is_process_gone, process_space
from hotspare.coordination.contract import Member
from hotspare.ha.peers import answers


def is_alive(member: Member) -> bool:
    """True for another process that this one can see until it begins to end, also while it is frozen; for one elsewhere where that
    very process answers at its address. False of one elsewhere proves nothing."""
    if member.process_space == process_space():
        if member.process_id == os.getpid() or is_process_gone(member.process_id, member.process_start):
            return False
        return not is_process_ending(member.process_id)
    return answers(member)
