"""Bugs of cold spares by which the last reserve never starts.

A bug that only starts one too early costs work and no output, so no run could find it.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from hotspare.coordination.contract import Leader
from hotspare.ha.rules import cold_spare
from tests.simulation.faults import FaultKind
from tests.simulation.planting import planted


@planted(FaultKind.COLD, FaultKind.CRASH)
def cold_spare_forgets_since() -> Any:
    """Each look at a free role restarts the count of its free time: no cold spare is ever needed."""
    seen = cold_spare.updated_free_role
    return patch.object(cold_spare, "updated_free_role", lambda before, leader, now_ms: seen(None, leader, now_ms))


@planted(FaultKind.COLD)
def cold_spare_waits_for_a_release() -> Any:
    """Only a released role counts as free: an engine that dies releases nothing."""
    seen = cold_spare.updated_free_role

    def released(before: cold_spare.FreeRole | None, leader: Leader, now_ms: int) -> cold_spare.FreeRole | None:
        return None if leader.holder else seen(before, leader, now_ms)

    return patch.object(cold_spare, "updated_free_role", released)
