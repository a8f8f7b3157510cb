"""An order to one engine is a fact until it is obeyed, and no longer: a year of starts and stops leaves no facts."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from hotspare.base.errors import CoordinationSuspended, UsageError
from hotspare.coordination.memory import MemoryCoordination
from hotspare.host.orders import WAITS_FOR_START, EngineOrder, StopWatch, await_start, send_order
from tests.contract.material import member

GROUP = "p.project"
POLL_S = 0.01
OWN = member("e")


@pytest.fixture
def coordination() -> Any:
    return MemoryCoordination().client("here")


def test_an_order_goes_when_it_is_obeyed(coordination: Any) -> None:
    coordination.refresh_member(GROUP, replace(OWN, detail={WAITS_FOR_START: "yes"}))
    send_order(coordination, GROUP, "e", EngineOrder.START)
    assert len(coordination.fact_names(GROUP)) == 1
    await_start(coordination, GROUP, OWN, threading.Event(), POLL_S)
    assert coordination.fact_names(GROUP) == ()
    coordination.refresh_member(GROUP, OWN)
    other = replace(OWN, process_id=OWN.process_id + 1)
    asked, not_asked = threading.Event(), threading.Event()
    watch = StopWatch(coordination, GROUP, OWN, asked.set, POLL_S)
    later = StopWatch(coordination, GROUP, other, not_asked.set, POLL_S)
    send_order(coordination, GROUP, "e", EngineOrder.STOP)
    assert asked.wait(60)
    watch.close()
    later.close()
    assert coordination.fact_names(GROUP) == ()
    assert not not_asked.is_set(), "another life of the same name"
    with pytest.raises(UsageError, match="does not wait for its start"):
        send_order(coordination, GROUP, "e", EngineOrder.START)


def test_an_order_is_obeyed_also_where_it_cannot_be_removed(coordination: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(group: str, names: list[str]) -> None:
        raise CoordinationSuspended("it cannot be reached")

    monkeypatch.setattr(coordination, "remove_facts", fails)
    coordination.refresh_member(GROUP, OWN)
    send_order(coordination, GROUP, "e", EngineOrder.STOP)
    asked = threading.Event()
    watch = StopWatch(coordination, GROUP, OWN, asked.set, POLL_S)
    assert asked.wait(60)
    watch.close()
