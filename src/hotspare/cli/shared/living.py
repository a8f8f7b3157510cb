"""Whether engines of a group live: what takes the group's state away, or gives it another project, waits until they are stopped."""

from __future__ import annotations

from enum import Enum

from hotspare.base.errors import UsageError
from hotspare.cli.shared.group_report import is_running
from hotspare.coordination.contract import Coordination


class Others(Enum):
    """What is known of engines on other machines, whose processes cannot be seen from here."""

    UNKNOWN = "unknown"
    GONE = "gone"


def refuse_if_alive(service: Coordination, group: str, others: Others) -> None:
    """UsageError naming the engines that live, or may live."""
    states = {member.engine: is_running(member) for member in service.members(group)}
    alive = [engine for engine, running in states.items() if running]
    unseen = [engine for engine, running in states.items() if running is None and others is Others.UNKNOWN]
    leader = service.leader(group)
    if leader.holder and leader.lease_left_ms > 0 and states.get(leader.holder, True):
        alive.append(leader.holder)
    if alive:
        raise UsageError(f"group {group} has engines that are alive: {', '.join(dict.fromkeys(alive))}", hint="stop them first")
    if unseen:
        raise UsageError(
            f"group {group} has engines on other machines: {', '.join(unseen)}", hint="stop them, or say --force if they are gone"
        )
