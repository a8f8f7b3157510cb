"""Member records show the phase of an engine's start, but never replace the record of another process under its name."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from hotspare.base.errors import UsageError
from hotspare.base.processes import process_space, process_start
from hotspare.cli.looking.screen import screen_lines
from hotspare.coordination.memory import MemoryCoordination
from hotspare.host.starting import STARTING, StartPhase, shown_start
from hotspare.operate.groups import GroupSources
from hotspare.operate.report import report
from hotspare.testing.cluster import wait_until
from tests.contract.material import member

GROUP = "p.project"
POLL_S = 0.01
OWN = replace(
    member("e"),
    role="joining",
    process_id=os.getpid(),
    process_start=process_start(os.getpid()),
    process_space=process_space(),
)


@pytest.fixture
def coordination() -> Any:
    return MemoryCoordination().client("here")


def details(coordination: Any) -> list[str | None]:
    return [each.detail.get(STARTING) for each in coordination.members(GROUP)]


@pytest.mark.parametrize("columns", [60, 80])
def test_a_start_is_shown_until_the_engine_takes_part(coordination: Any, columns: int) -> None:
    with shown_start(coordination, [(GROUP, OWN)], StartPhase.SPARK, POLL_S):
        wait_until(lambda: details(coordination) == ["Spark"], "the record")
        lines = list(screen_lines(report(GroupSources(coordination)), 0, columns))
    assert lines[1:3] == ["! no engine is active: one is starting", "e  starting: Spark"]
    assert details(coordination) == ["Spark"], "until the engine describes itself anew"
    coordination.refresh_member(GROUP, OWN)
    assert details(coordination) == [None]


def test_a_start_that_fails_leaves_no_record(coordination: Any) -> None:
    with pytest.raises(UsageError), shown_start(coordination, [(GROUP, OWN)], StartPhase.STATE, POLL_S):
        wait_until(lambda: details(coordination) == ["state"], "the record")
        raise UsageError("the project was changed")
    assert coordination.members(GROUP) == ()


@pytest.mark.parametrize("space", [process_space(), "elsewhere"])
def test_the_record_of_another_process_under_this_name_stays(coordination: Any, space: str) -> None:
    """The other process lives, or this one cannot see whether it does."""
    other = replace(OWN, process_id=os.getppid(), process_start=process_start(os.getppid()), process_space=space)
    coordination.refresh_member(GROUP, other)
    with pytest.raises(UsageError), shown_start(coordination, [(GROUP, OWN)], StartPhase.STATE, POLL_S):
        raise UsageError("the name is taken")
    assert [each.process_id for each in coordination.members(GROUP)] == [os.getppid()]


def test_the_record_of_a_dead_process_is_replaced(coordination: Any) -> None:
    coordination.refresh_member(GROUP, replace(OWN, process_start=OWN.process_start + 1))
    with shown_start(coordination, [(GROUP, OWN)], StartPhase.LOADING, POLL_S):
        wait_until(lambda: details(coordination) == ["loading kernels"], "the record")


class Counted:
    """A coordination client that counts the requests for members."""

    def __init__(self, coordination: Any) -> None:
        self.looks, self._members = 0, coordination.members
        self.refresh_member, self.remove_member = coordination.refresh_member, coordination.remove_member

    def members(self, group: str) -> Any:
        self.looks += 1
        return self._members(group)


def test_an_engine_that_takes_part_before_its_start_is_over_keeps_its_record(coordination: Any) -> None:
    """Spark may deliver input before its runner reports its start."""
    counted = Counted(coordination)
    active = replace(OWN, role="active", sequences={"q/w": 7})

    def is_kept() -> bool:
        """Whether the engine's record outlives two looks at each group. A record written during a look is lost once."""
        coordination.refresh_member(GROUP, active)
        looks = counted.looks
        wait_until(lambda: counted.looks >= looks + 4, "two looks at each")
        return [(each.role, dict(each.sequences)) for each in coordination.members(GROUP)] == [("active", {"q/w": 7})]

    with shown_start(counted, [(GROUP, OWN), ("p.other", OWN)], StartPhase.SPARK, POLL_S):  # type: ignore[arg-type]
        wait_until(lambda: details(coordination) == ["Spark"], "the record")
        wait_until(is_kept, "the engine's record stays", 10)
