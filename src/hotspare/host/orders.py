"""Orders to one engine through coordination: to start, if it was loaded to wait for that, and to stop (SPEC H1, H2).

An order is a fact of the group for one process of one engine, so no later process of the same name obeys it. The engine that obeys
an order removes it. An engine that waits for its start records that in its member record.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from functools import partial

from hotspare.base.errors import CoordinationError, UsageError
from hotspare.coordination.contract import Coordination, Member

WAITS_FOR_START = "waits_for_start"
"""The detail of a member record which shows that the engine waits for its start."""
POLL_S = 1.0


class EngineOrder(Enum):
    START = "start"
    STOP = "stop"


def send_order(coordination: Coordination, group: str, engine: str, order: EngineOrder) -> Member:
    """Sends an order to an engine and returns its record. Raises UsageError if the group has no engine of that name, or if a start
    is ordered and the engine does not wait for it."""
    members = {member.engine: member for member in coordination.members(group)}
    if engine not in members:
        raise UsageError(f"group {group} has no engine {engine}", hint="engines: " + (", ".join(members) or "none"))
    member = members[engine]
    if order is EngineOrder.START and WAITS_FOR_START not in member.detail:
        raise UsageError(
            f"engine {engine} does not wait for its start", hint="load one that waits with `hotspare run --start asked`"
        )
    coordination.set_fact_once(group, _name(member, order), b"asked")
    return member


def _consume_order(coordination: Coordination, group: str, member: Member, order: EngineOrder) -> bool:
    """Returns whether the order was sent to the process of `member`. Removes the order if so."""
    if coordination.fact(group, _name(member, order)) is None:
        return False
    with contextlib.suppress(CoordinationError):  # the order is obeyed even if it could not be removed
        coordination.remove_facts(group, [_name(member, order)])
    return True


def await_start(coordination: Coordination, group: str, member: Member, stop: threading.Event, poll_s: float = POLL_S) -> None:
    """Waits until the start is ordered or `stop` is set. Meanwhile the member record shows the wait; it is removed at the end."""
    waits = replace(member, detail={**member.detail, WAITS_FOR_START: "yes"})
    while not stop.is_set():
        with contextlib.suppress(CoordinationError):
            coordination.refresh_member(group, waits)
            if _consume_order(coordination, group, member, EngineOrder.START):
                break
        stop.wait(poll_s)
    with contextlib.suppress(CoordinationError):
        coordination.remove_member(group, member.engine)


class StopWatch:
    """Polls for an order to stop this engine, in a thread of its own because coordination may be slow."""

    def __init__(
        self, coordination: Coordination, group: str, member: Member, request_stop: Callable[[], None], poll_s: float = POLL_S
    ) -> None:
        self._poll_s = poll_s
        self._end = threading.Event()
        self._look = partial(_consume_order, coordination, group, member, EngineOrder.STOP)
        self._ask_stop = request_stop
        self._thread = threading.Thread(target=self._run, name="orders", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.wait(self._poll_s):
            with contextlib.suppress(CoordinationError):
                if self._look():
                    self._ask_stop()
                    return

    def close(self) -> None:
        self._end.set()
        self._thread.join()


def _name(member: Member, order: EngineOrder) -> str:
    return f"{order.value}-{member.engine}-{member.process_id}-{member.process_start:x}"
