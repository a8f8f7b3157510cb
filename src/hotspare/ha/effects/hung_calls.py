"""Reads what a group recorded about calls of user code that did not end (`rules.hung_calls`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hotspare.base.call_place import ATTEMPT_PREFIX, CallAttempt, Decision
from hotspare.base.errors import SnapshotFormat
from hotspare.coordination.contract import Coordination
from hotspare.ha.core import Core
from hotspare.ha.events import HaEvent, HaEventKind
from hotspare.ha.group_state import GroupState
from hotspare.ha.ports import Ports
from hotspare.ha.rules import hung_calls as rules


def read_attempts(coordination: Coordination, group: str) -> tuple[CallAttempt, ...]:
    """Returns the group's attempts, in order of their names. Facts that cannot be read are left out."""
    names = sorted(name for name in coordination.fact_names(group) if name.startswith(ATTEMPT_PREFIX))
    stored = (coordination.fact(group, name) for name in names)
    found = (CallAttempt.from_bytes(each) for each in stored if each is not None)
    return tuple(each for each in found if each is not None)


def refuse_void(core: Core, decisions: Sequence[Decision]) -> None:
    """Shows the decisions to a restored core. Raises SnapshotFormat if its state is void: it passed a position without the decision
    about it."""
    if decisions:
        core.set_decisions(decisions)
    if core.missing_decisions:
        raise SnapshotFormat(f"it lacks the decision about a call that did not end: {core.missing_decisions[0].place}")


def record_stop(state: GroupState, ports: Ports) -> None:
    """Reports, once for each place, that the core has stopped before it."""
    place = state.core.stopped_at
    if place is None or place == state.hung_calls.reported:
        return
    state.hung_calls = replace(state.hung_calls, reported=place)
    sentence = f"{rules.STARTS_MAX} starts of engines failed there: stops before {place}"
    ports.report(HaEvent(HaEventKind.HUNG_CALL, state.group, state.engine, sentence))
