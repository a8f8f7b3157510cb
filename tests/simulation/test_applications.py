"""Applications at certain moments: an orphan of a driver or an executor is one engine more, and disturbs no other."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from hotspare.host.partitioned import attempt
from tests.simulation.application_healing import Ending
from tests.simulation.application_world import HostedWorld
from tests.simulation.applications import Application, Applications
from tests.simulation.checkers import Violation
from tests.simulation.drivers import Attempt, Driver
from tests.simulation.faults import FaultPlan
from tests.simulation.shards import beside, kits_of
from tests.simulation.world import GROUP

SHARDS = 2
LEASE_MS = 100
_TURNS_MAX = 1_500


@pytest.fixture
def applications(tmp_path: Path) -> Applications:
    """Two applications that run all their tasks, without faults."""
    rng, (kit, *kits) = random.Random(7), kits_of(SHARDS)
    first = HostedWorld(rng, (), FaultPlan(rng, frozenset()), tmp_path, kit=kit, group=f"{GROUP}/0")
    worlds = [first, *(beside(first, each) for each in kits)]
    made = Applications(worlds, [Application("east", (2,)), Application("west", (1,))], LEASE_MS)
    settle(made)
    return made


def settle(applications: Applications) -> None:
    until(applications, Ending(applications).is_settled)


def until(applications: Applications, condition: Callable[[], bool]) -> None:
    for _ in range(_TURNS_MAX):
        if condition():
            return
        applications.turn()
    raise AssertionError(f"it never came true: {Ending(applications).describe()}")


def driver(applications: Applications, number: int = 0) -> Driver:
    found = applications.applications[number].driver
    assert found is not None
    return found


def brings_out(applications: Applications) -> None:
    """Checks that an event of each shard is answered, and that all outputs are right."""
    for world in applications.worlds:
        world.publish(0, 5)
    due = [world.due() for world in applications.worlds]
    until(
        applications,
        lambda: all(
            w.observer.delivered()[s] >= n for w, each in zip(applications.worlds, due, strict=True) for s, n in each.items()
        ),
    )
    for world, each in zip(applications.worlds, due, strict=True):
        world.check_end(each)


def names(applications: Applications) -> set[str]:
    return {each.name for each in applications.attempts.values()}


def freeze(applications: Applications, frozen: Attempt, ms: int) -> None:
    world = next(world for world in applications.worlds if frozen.key in world.processes)
    world.pause(frozen.key, ms)


def test_tasks_host_the_shards_that_their_driver_gave_them(applications: Applications) -> None:
    assert {each.wanted for each in driver(applications).current()} == {frozenset({0}), frozenset({1})}
    assert [each.wanted for each in driver(applications, 1).current()] == [frozenset({0, 1})]
    brings_out(applications)


def test_a_frozen_task_is_replaced_under_another_name_and_ends_when_it_thaws(applications: Applications) -> None:
    """Its machine hangs: the driver abandons it, and Spark cannot reach it."""
    frozen = driver(applications).current()[0]
    frozen.cut_until_ms = applications.now_ms() + 6 * LEASE_MS
    freeze(applications, frozen, 6 * LEASE_MS)
    until(applications, lambda: any(each.job == 2 and applications.has_joined(each) for each in driver(applications).current()))
    assert frozen.key in applications.attempts, "it is still frozen"
    assert frozen.name not in {each.name for each in driver(applications).current()}
    until(applications, lambda: frozen.key not in applications.attempts)
    settle(applications)
    brings_out(applications)


def test_tasks_that_are_cut_off_from_their_driver_end_within_their_lease(applications: Applications) -> None:
    cut, left = driver(applications), set(applications.attempts)
    own = {each.key for each in cut.current()}
    cut.cut_until_ms = applications.now_ms() + 3 * LEASE_MS
    begun_ms = applications.now_ms()
    until(applications, lambda: not own & set(applications.attempts))
    assert applications.now_ms() - begun_ms <= LEASE_MS + 30
    assert left - own <= set(applications.attempts)
    settle(applications)
    brings_out(applications)


def _dies_and_starts_anew(applications: Applications) -> set[str]:
    """Ends the first driver without its tasks; another one starts at once. Returns the names of the old tasks."""
    before = {each.name for each in driver(applications).current()}
    first = applications.applications[0]
    applications.end_driver(first)
    applications._start(first)
    until(
        applications,
        lambda: all(map(applications.has_joined, driver(applications).current())) and driver(applications).is_complete(),
    )
    return before


def test_a_driver_that_starts_anew_beside_tasks_of_the_one_before_is_complete_at_once(applications: Applications) -> None:
    begun_ms = applications.now_ms()
    before = _dies_and_starts_anew(applications)
    assert applications.now_ms() - begun_ms < LEASE_MS
    assert before < names(applications), "they still run, beside those that follow them"
    settle(applications)
    assert not before & names(applications)
    brings_out(applications)


def test_under_the_names_of_those_before_it_would_be_refused(applications: Applications, monkeypatch: pytest.MonkeyPatch) -> None:
    def same(application: str, run: str, task: int, job: int, number: int) -> str:
        return f"{application}-r1-{task}.{job}.{number}"

    monkeypatch.setattr(attempt, "engine_name", same)
    with pytest.raises(Violation, match="refused"):
        _dies_and_starts_anew(applications)


def test_an_executor_that_ends_takes_its_tasks_along_and_they_come_back(applications: Applications) -> None:
    lost = driver(applications).current()[0]
    gone = {each.name for each in driver(applications).current()}
    lost.driver.lose(lost.executor, executor_ends=applications.kill)
    assert not gone & names(applications)
    settle(applications)
    assert not gone & {each.name for each in driver(applications).current()}
    brings_out(applications)
