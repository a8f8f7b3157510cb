"""Keeping the lease while a call of the bus is under way that takes longer than it (DESIGN section 5)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

from hotspare.base.errors import BusError, CoordinationError
from hotspare.ha.group_state import GroupState
from hotspare.ha.ports import Ports
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import lease as rules


def kept(action: do.Action, state: GroupState, ports: Ports) -> AbstractContextManager[None]:
    """Where an action may take longer than the lease, it is renewed meanwhile."""
    if not rules.may_outlast(action):
        return contextlib.nullcontext()
    if not isinstance(action, rules.COMMITS):
        return _renewing(state, ports, lambda: _keeps(state, ports, state.standing.step_ms))
    since_ms = ports.clock_ms() if state.lease.committing_since_ms is None else state.lease.committing_since_ms
    state.lease = replace(state.lease, committing_since_ms=since_ms)
    return _renewing(state, ports, lambda: _keeps(state, ports, since_ms) and _is_answered(state, ports))


def _keeps(state: GroupState, ports: Ports, since_ms: int) -> bool:
    return rules.keeps_meanwhile(ports.clock_ms(), since_ms, state.lease.fruitless_since_ms, state.settings)


def _is_answered(state: GroupState, ports: Ports) -> bool:
    """Whether the bus gives this engine an answer: then a commit without one is slow, and would be elsewhere."""
    try:
        ports.bus.end_offset(state.inbound[0].partition)
    except BusError:
        return False
    return True


@contextlib.contextmanager
def _renewing(state: GroupState, ports: Ports, may_go_on: Callable[[], bool]) -> Iterator[None]:
    """Renew the lease from another thread while something is under way that may go on."""
    settings, epoch, renewed_ms = state.settings, state.standing.epoch, [state.lease.renewed_ms]

    def renew() -> bool:
        if not may_go_on():
            return False
        asked_ms = ports.clock_ms()
        try:
            is_held = ports.coordination.renew(state.group, epoch, state.engine, settings.lease_ms) is not None
        except CoordinationError:
            return True  # it may answer the next time
        if is_held:
            renewed_ms.append(asked_ms)
        return is_held

    try:
        with ports.meanwhile(renew, settings.renew_interval_ms):
            yield
    finally:
        state.lease = replace(state.lease, renewed_ms=max(state.lease.renewed_ms, *renewed_ms))
