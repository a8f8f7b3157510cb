"""Bugs of engines that rebuild their state from recent input: numbers that prove nothing, and states accepted without proof."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest.mock import patch

from hotspare.ha.effects import joining
from hotspare.ha.rules import warming
from hotspare.ha.rules.facts import StreamFacts, Warming
from tests.simulation.faults import FaultKind
from tests.simulation.planting import Groups, both, planted


def _is_known(known: Warming, streams: Iterable[StreamFacts]) -> bool:
    return known.is_warm and not any(each.is_unadopted for each in streams)


@planted(FaultKind.CRASH, FaultKind.ALL_DEAD, groups=Groups.RECENT)
def accepted_after_nothing() -> Any:
    """An engine with too short a span is eligible before a single record matched."""
    shorter = patch.object(joining.JoinProcedure, "_warming", lambda self, begun, complete_us: Warming(complete_us, 1, dict(begun)))
    return both(shorter, patch.object(warming, "is_eligible", _is_known))


@planted(FaultKind.CRASH, FaultKind.UNKNOWN_RESULT, FaultKind.BUS_OUTAGE, groups=Groups.RECENT)
def adopts_what_is_under_way() -> Any:
    """Outputs that the active has computed and not committed are ignored, as if there were none."""
    return patch.object(warming, "is_silent", lambda known, stream, own, leadership, others: True)
