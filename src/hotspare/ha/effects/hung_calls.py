"""Reads what a group recorded about calls of user code that did not end, and lifts quarantines (`rules.hung_calls`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

from hotspare.base.call_place import ATTEMPT_PREFIX, CallAttempt, CallPlace, Decision, HangCause
from hotspare.base.errors import SnapshotFormat
from hotspare.base.inbound_role import InboundRole
from hotspare.bus.contract import Partition
from hotspare.coordination.contract import Coordination
from hotspare.ha.core import Core
from hotspare.ha.events import HaEvent, HaEventKind
from hotspare.ha.group_state import GroupState
from hotspare.ha.ports import Ports
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import hung_calls as rules
from hotspare.ha.rules.roles import Role


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
    if place is None or place == state.hung_calls.reported or state.hung_calls.places.get(place) is HangCause.LIFTED:
        return
    state.hung_calls = replace(state.hung_calls, reported=place)
    sentence = f"{rules.STARTS_MAX} starts of engines failed there: stops before {place}"
    ports.report(HaEvent(HaEventKind.HUNG_CALL, state.group, state.engine, sentence))


def lift_quarantines(_: do.LiftQuarantines, state: GroupState, ports: Ports) -> None:
    """Chooses, in an active engine, the places at which quarantines are lifted as requested, and stops the core before them. An
    engine that has lost the role drops its choices."""
    state.last_runs = replace(state.last_runs, lifts_read_ms=ports.clock_ms())
    known, ends = state.hung_calls, dict[Partition, int]()
    places: dict[CallPlace, HangCause] = {at: cause for at, cause in known.places.items() if cause is not HangCause.LIFTED}
    if state.role_state.role is Role.ACTIVE:
        chosen = {place.window: place for place in rules.chosen_lifts(known)}
        wanted = [each for each in rules.lift_requests(known) if ports.coordination.fact(state.group, each.fact_name) is not None]
        if any(each.window not in chosen for each in wanted):
            merged = (each.facts.kind is not InboundRole.TICKS for each in state.inbound)
            ends = {each.partition: ports.bus.end_offset(each.partition) for each in compress(state.inbound, merged)}
        found = (chosen.get(each.window) or rules.lift_place(each, known.ends, ends) for each in wanted)
        places |= dict.fromkeys((place for place in found if place is not None), HangCause.LIFTED)
    state.hung_calls = replace(known, places=places, ends=ends)
    state.core.stop_before(places)
