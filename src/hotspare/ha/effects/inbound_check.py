"""Detects inbound topics whose partition count is not the one that the group reads: messages in additional partitions would never
be read.

The call to the bus may take long, so it runs in the background; a later run of the HA loop uses its result.
"""

from __future__ import annotations

from dataclasses import replace

from hotspare.base.errors import HotspareError
from hotspare.ha.group_state import GroupState
from hotspare.ha.ports import Ports
from hotspare.ha.rules import intake


def start_inbound_check(state: GroupState, ports: Ports) -> None:
    """Starts a check in the background, unless one is still running. `apply_inbound_findings` uses its result."""
    state.last_runs = replace(state.last_runs, inbound_checked_ms=ports.clock_ms())

    def run_check() -> None:
        try:
            found = intake.partition_count_mismatch(ports.bus.topics(), state.topics)
        except HotspareError:
            return  # a bus that does not answer is asked again
        state.inbound_findings.append(found)

    state.inbound_check.start_unless_running(ports.background, run_check)


def apply_inbound_findings(state: GroupState) -> None:
    """Makes this engine refuse to continue if a check found another partition count; the reason names it. The HA loop calls it at
    the start of each run."""
    while state.inbound_findings:
        found = state.inbound_findings.popleft()
        if found and not state.role_state.refusal:
            state.role_state = replace(state.role_state, refusal=f"{found}; {intake.PARTITION_COUNT_HINT}")
