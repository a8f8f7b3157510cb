"""Snapshots continue whichever engine hangs, and an engine whose runner hangs ends (SPEC H3)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hotspare.base.errors import StoreError
from hotspare.coordination.memory import CoordinationFault
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import GroupSettings
from hotspare.stores.contract import SnapshotStatus
from tests.simulation.script import Script
from tests.simulation.test_scenarios import EVENTS, FOREVER_MS
from tests.simulation.world import GROUP, SETTINGS

LATE_MS = 8 * SETTINGS.snapshot_interval_ms


class NoCampaigns:
    """Faults by which no engine can take the role."""

    def fault_of_call(self, client: str, operation: str) -> CoordinationFault:
        return CoordinationFault.SUSPENDED if operation == "campaign" else CoordinationFault.NONE


def group_of_three(folder: Path, **settings: int) -> Script:
    """Returns a group whose `e2` is active, `e0` and `e1` its spares."""
    script = Script(folder, "e0", "e1", "e2", settings=replace(SETTINGS, **settings))  # type: ignore[arg-type]
    script.start("e2")
    script.until_active("e2")
    script.start("e0", "e1")
    script.until(lambda: all(script.role(name) is Role.STANDBY for name in ("e0", "e1")))
    return script


def newest_confirmed(script: Script) -> int:
    infos = script.world.store.list(GROUP)
    return max((info.order for info in infos if info.status is SnapshotStatus.CONFIRMED), default=-1)


def steady_input(script: Script, duration_ms: int) -> None:
    until_ms = script.world.now_ms + duration_ms
    while script.world.now_ms < until_ms:
        if script.world.now_ms % 4 == 0:
            script.publish(script.world.now_ms % 97, 2)
        script.turn()


def lose_store(script: Script, name: str) -> None:
    """Makes this engine's writes to the store fail from now on."""
    state = script.process(name).engine
    store = script.process(name).ports.store

    class Storeless:
        def __getattr__(self, attribute: str) -> object:
            return getattr(store, attribute)

        def write_candidate(self, *arguments: object) -> None:
            raise StoreError("the folder is not there")

    object.__setattr__(state._ports, "store", Storeless())


@pytest.mark.parametrize("who", [("e0",), ("e1",), ("e0", "e1")])
@pytest.mark.parametrize("how", ["hangs", "has no store"])
def test_snapshots_are_confirmed_whichever_spare_fails(tmp_path: Path, who: tuple[str, ...], how: str) -> None:
    """Another spare takes them, or else the active."""
    script = group_of_three(tmp_path)
    for name in who:
        if how == "hangs":
            script.process(name).is_stuck = True
        else:
            lose_store(script, name)
    for _ in range(4):
        before = newest_confirmed(script)
        steady_input(script, LATE_MS)
        assert newest_confirmed(script) > before
    script.finish()


def test_not_all_take_over_at_once(tmp_path: Path) -> None:
    """While a spare takes them, neither another one nor the active does."""
    script = group_of_three(tmp_path)
    steady_input(script, LATE_MS)
    begun_ms = script.world.now_ms
    steady_input(script, 2 * LATE_MS)
    takers = {line.split()[1] for line in script.lines if "takes a snapshot" in line and int(line.split()[0]) >= begun_ms}
    assert len(takers) == 1
    assert takers < {"e0", "e1"}


def test_a_spare_whose_runner_hangs_ends_and_says_so(tmp_path: Path) -> None:
    """Its topic advances and its pipeline does not, with the default settings."""
    script = Script(tmp_path, "e0", "e1", "e2", settings=GroupSettings())
    script.start("e2")
    script.until_active("e2")
    script.start("e0", "e1")
    script.until(lambda: all(script.role(name) is Role.STANDBY for name in ("e0", "e1")))
    script.process("e0").is_stuck = True
    turns = 0
    while "e0" in script.world.processes and turns < 8_000:
        script.turn(clock_ms=50)
        turns += 1
    assert "e0" not in script.world.processes
    assert script.told("input is pending and the runner does not deliver it")
    assert {"e1", "e2"} <= set(script.world.processes)
    script.publish(*EVENTS)
    script.finish()


def test_a_lone_engine_whose_runner_hangs_ends(tmp_path: Path) -> None:
    """It never reads the ticks that it writes; then another process may begin."""
    script = Script(tmp_path, "e0", settings=replace(SETTINGS, pipeline_stall_ms=300))
    script.start("e0")
    script.until_active("e0")
    script.process("e0").is_stuck = True
    steady_input(script, 600)
    assert "e0" not in script.world.processes
    script.start("e0")
    script.finish()


def test_spares_without_an_active_and_without_input_wait_for_as_long_as_it_takes(tmp_path: Path) -> None:
    script = group_of_three(tmp_path, pipeline_stall_ms=100)
    script.finish()
    script.world.pause("e2", FOREVER_MS)
    right = script.world.coordination.faults
    script.world.coordination.faults = NoCampaigns()
    for _ in range(1_000):
        script.turn()
    assert {"e0", "e1"} <= set(script.world.processes)
    script.world.coordination.faults = right
    script.publish(*EVENTS)
    script.finish()
