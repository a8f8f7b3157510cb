"""Bugs of how a group agrees about calls of user code that do not end.

Bugs about void snapshots are planted in the model alone (`hang_model`): such snapshots are rare in runs (30 restores in 5,000), and
an engine that restores one notices at once that its state is void.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from hotspare.base.call_place import CallAttempt, CallPlace, Decision, HangCause, LiftRequest
from hotspare.bus.contract import Commit, Partition
from hotspare.ha.core import Core
from hotspare.ha.effects import joining, perform
from hotspare.ha.group_state import GroupState, view_of
from hotspare.ha.ports import Ports
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import hung_calls as rules
from hotspare.ha.rules.facts import HungCalls
from tests.simulation.faults import FaultKind
from tests.simulation.planting import Groups, planted


@planted(FaultKind.CRASH, FaultKind.PAUSE, FaultKind.SWITCHOVER, groups=Groups.HANGS)
def decided_before_progress_is_read() -> Any:
    """A promotion commits its decision right after the fence, by what it knew before."""
    right = perform.PERFORMERS[do.Fence]

    def fence(action: do.Fence, state: GroupState, ports: Ports) -> None:
        right(action, state, ports)
        decision = rules.due_decision(view_of(state, ports))
        if decision is not None and state.producer is not None:
            state.producer.publish(action.epoch, Commit({}, rules.decision_record(decision, action.epoch)))

    return patch.dict(perform.PERFORMERS, {do.Fence: fence})


@planted(FaultKind.CRASH, FaultKind.ALL_DEAD, groups=Groups.HANGS)
def decided_behind_committed_output() -> Any:
    """A place is decided although committed output lies beyond it."""
    return patch.object(rules, "is_output_beyond_committed", lambda streams: False)


@planted(FaultKind.LAG, FaultKind.PAUSE, groups=Groups.HANGS)
def void_states_stay() -> Any:
    """An engine whose state passed a place goes on after the group has decided about it."""
    return patch.object(rules, "void_reason", lambda view: "")


@planted(groups=Groups.HANGS)
def attempts_do_not_count() -> Any:
    """Engines never stop before a place."""
    return patch.object(rules, "places_to_stop_before", lambda attempts, decisions: {})


@planted(groups=Groups.HANGS)
def attempts_count_by_engine() -> Any:
    """Several starts of one engine count as one."""
    right = rules.places_to_stop_before

    def by_engine(attempts: Iterable[CallAttempt], decisions: Collection[Decision]) -> dict[CallPlace, HangCause]:
        return right([replace(each, start=each.engine) for each in attempts], decisions)

    return patch.object(rules, "places_to_stop_before", by_engine)


@planted(FaultKind.CRASH, FaultKind.LAG, groups=Groups.HANGS)
@contextmanager
def decisions_come_to_the_core_late() -> Iterator[None]:
    """The core learns the decisions with the first progress that its engine reads, and may have passed their places by then."""

    def prepare(self: Any, core: Core) -> HungCalls:
        places = rules.places_to_stop_before(self.attempts, self.decisions)
        core.stop_before(places)
        return HungCalls(self.versions, places=places)

    with ExitStack() as stack:
        stack.enter_context(patch.object(joining._HungCallsRead, "prepare_core", prepare))
        stack.enter_context(patch.object(joining, "refuse_void", lambda core, decisions: None))
        stack.enter_context(patch.object(rules, "void_reason", lambda view: ""))
        yield


@planted(groups=Groups.HANGS)
def lifted_where_engines_have_been() -> Any:
    """A quarantine is lifted at a position that the active engine has passed."""
    right = rules.lift_place

    def behind(request: LiftRequest, before: Mapping[Partition, int], now: Mapping[Partition, int]) -> CallPlace | None:
        place = right(request, before, now)
        return None if place is None else replace(place, offset=max(0, before[Partition(place.topic, place.partition)] - 3))

    return patch.object(rules, "lift_place", behind)
