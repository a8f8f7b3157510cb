"""Detects an inbound topic with other partitions than the group reads: what is written to them would never be seen.

The call to the bus may take long, so it runs in the background; a later cycle uses its result.
"""

from __future__ import annotations

from dataclasses import replace

from hotspare.base.errors import HotspareError
from hotspare.ha.group_state import GroupState
from hotspare.ha.ports import Ports
from hotspare.ha.rules import intake


def begin(state: GroupState, ports: Ports) -> None:
    """Starts a check in the background; never two at once."""
    state.rounds = replace(state.rounds, inbound_checked_ms=ports.clock_ms())

    def look() -> None:
        try:
            found = intake.other_partitions(ports.bus.topics(), state.topics)
        except HotspareError:
            return  # a bus that does not answer is asked again
        state.inbound_findings.append(found)

    state.inbound_check.begin(ports.background, look)


def take_note(state: GroupState) -> None:
    """Makes this engine stop if a check found other partitions, with the reason. Called at the start of a cycle."""
    while state.inbound_findings:
        found = state.inbound_findings.popleft()
        if found and not state.standing.refusal:
            state.standing = replace(state.standing, refusal=f"{found}; {intake.OTHER_PARTITIONS_HINT}")
