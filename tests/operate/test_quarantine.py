"""Which windows of a group are in quarantine, and requests to lift one."""

from __future__ import annotations

import json

import pytest

from hotspare.base.call_place import LiftRequest
from hotspare.base.errors import UsageError
from hotspare.coordination.contract import Coordination, Member
from hotspare.coordination.memory import MemoryCoordination
from hotspare.ha.member_record import QUARANTINED
from hotspare.operate.quarantine import await_lifted, read_quarantines, request_lift

CODE = LiftRequest("q/code", "v", 3)


def member(engine: str, text: str) -> Member:
    return Member(engine, "h:1", 1, 1, "h", "p", "v", "c", "standby", {}, {QUARANTINED: text})


def joined(service: Coordination, engine: str, text: str, group: str = "g") -> None:
    service.refresh_member(group, member(engine, text))


def told(*requests: LiftRequest) -> str:
    return json.dumps([[each.window, each.version, each.number] for each in requests])


@pytest.fixture
def service() -> Coordination:
    return MemoryCoordination().client("user")


def test_the_active_engine_says_which_windows_are_in_quarantine(service: Coordination) -> None:
    joined(service, "one", told(CODE))
    joined(service, "two", told())
    assert read_quarantines(service, "g") == (CODE,)
    service.campaign("g", 0, member("two", told()), 3_600_000)
    assert read_quarantines(service, "g") == ()


@pytest.mark.parametrize("text", ["", "{", "7", '[["q/code"]]', '[["q/code", "v", "x"]]'])
def test_what_another_version_told_is_left_out(service: Coordination, text: str) -> None:
    joined(service, "one", text)
    assert read_quarantines(service, "g") == ()


def test_only_shards_with_the_quarantine_are_requested_to_lift_it(service: Coordination) -> None:
    joined(service, "one", told(CODE), "g#0")
    joined(service, "one", told(), "g#1")
    requested = request_lift(service, ["g#0", "g#1"], "q/code")
    assert requested == {"g#0": CODE}
    assert service.fact("g#0", CODE.fact_name) == b""
    assert service.fact("g#1", CODE.fact_name) is None
    assert await_lifted(service, requested, 0) == ["g#0"]
    joined(service, "one", told(), "g#0")
    assert await_lifted(service, requested, 0) == []


def test_a_window_that_is_not_in_quarantine_is_refused_by_name(service: Coordination) -> None:
    joined(service, "one", told(CODE))
    with pytest.raises(UsageError, match="window q/other is not in quarantine") as raised:
        request_lift(service, ["g"], "q/other")
    assert raised.value.hint == "windows in quarantine: q/code"
