"""What engines that run have of each window in memory, and what is cold and left, as they say (SPEC G1, G12)."""

from __future__ import annotations

from typing import Any

from hotspare.cli.shared.group_report import SILENT_MS_MAX
from hotspare.coordination.contract import Coordination
from hotspare.ha.member_record import memory_by_window
from hotspare.ha.rules.membership import present
from hotspare.ha.rules.roles import AT_WORK


def memory_rows(coordination: Coordination | None, group: str) -> list[dict[str, Any]]:
    """By engine and window, in bytes: what `stays`, what is `hot`, of that what was `fetched` again, and what is `cold`. Nothing of
    an engine without a budget, all of whose state is in memory, nor of windows that stay as they say. Texts are of all windows."""
    members = [] if coordination is None else coordination.members(group)
    return [
        {
            "engine": member.engine,
            "window": window,
            "stays": of.get("stays", 0),
            "hot": of.get("may_leave", 0) + of.get("fetched", 0),
            "fetched": of.get("fetched", 0),
            "cold": of.get("away", 0) - of.get("fetched", 0),
        }
        for member in present(members, SILENT_MS_MAX)
        if member.role in AT_WORK
        for window, of in sorted(memory_by_window(member).items())
    ]
