"""Mistakes that only time shows: by them no output is lost or wrong, but it is late, or something grows, or the role wanders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from hotspare.ha import actions as do
from hotspare.ha import decide, group_state, perform
from hotspare.ha.group_state import LONG_AGO_MS, GroupState
from hotspare.ha.ports import Ports
from hotspare.ha.roles import Reason
from hotspare.ha.view import View
from tests.simulation.faults import FaultKind
from tests.simulation.planting import planted

FOREVER_MS = 1 << 60


def _duties_without(name: str, is_forgotten: Callable[[do.Action], bool]) -> Any:
    """A group of rules, some of whose duties are forgotten."""
    right = getattr(decide, name)

    def rest(view: View) -> Iterator[decide.Duty]:
        return (duty for duty in right(view) if not is_forgotten(duty.action))

    return patch.object(decide, name, rest)


@planted()
def no_snapshot_is_taken() -> Any:
    """So after retention nobody can join."""
    return _duties_without("duties", lambda action: isinstance(action, do.TakeSnapshot))


@planted()
def no_snapshot_is_confirmed() -> Any:
    """Candidates stay candidates."""
    return _duties_without("duties", lambda action: isinstance(action, do.ConfirmSnapshot))


@planted()
def no_ticks() -> Any:
    """Time does not enter the input."""
    return _duties_without("duties", lambda action: isinstance(action, do.Tick))


@planted()
def idle_partitions_wait_for_the_timer() -> Any:
    """An event waits for the next tick of the timer where another partition is idle."""
    return _duties_without("duties", lambda action: isinstance(action, do.Tick) and action.reason is Reason.IDLE_PARTITION)


@planted()
def the_lease_is_not_renewed() -> Any:
    """The active believes that it was."""

    def renew(_: do.Renew, state: GroupState, ports: Ports) -> None:
        state.has_moved, state.renewed_ms = False, ports.clock_ms()

    return patch.dict(perform.PERFORMERS, {do.Renew: renew})


@planted(FaultKind.WRONG_ACTIVE)
def agreeing_spares_do_not_depose() -> Any:
    """A wrong active stays, whoever agrees against it."""
    return patch.object(decide, "_spares_agree", lambda view: False)


@planted(FaultKind.BUS_LOCKED)
def the_frozen_holder_lives() -> Any:
    """Who keeps the bus locked past its lease is not ended."""
    return _duties_without("duties", lambda action: isinstance(action, do.EndFrozenHolder))


@planted(FaultKind.ALWAYS_AT_HAND)
def collected_outputs_have_no_deadline() -> Any:
    """As long as more input is at hand, outputs wait."""
    right = group_state.publish_due_ms

    def publish_due_ms(state: GroupState) -> int | None:
        due_ms = right(state)
        return due_ms if due_ms in (None, LONG_AGO_MS) else FOREVER_MS

    return patch.object(group_state, "publish_due_ms", publish_due_ms)
