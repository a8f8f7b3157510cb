"""Promotions that take long: they keep their lease while they advance, and lose it when the engine dies (SPEC C3, C6)."""

from dataclasses import replace
from pathlib import Path

import pytest

from hotspare.bus.memory import Fencing
from hotspare.ha.rules.roles import Role
from tests.simulation.calls import CallKind
from tests.simulation.script import Script
from tests.simulation.world import SETTINGS

FENCE_MS = 3 * SETTINGS.lease_ms


def slow_group(folder: Path, fencing: Fencing = Fencing.BY_EPOCH) -> Script:
    """Returns a group of two engines that start together; fencing takes three leases."""
    script = Script(folder, "e0", "e1", fencing=fencing, settings=replace(SETTINGS, promotion_step_ms=2 * FENCE_MS))
    script.world.pace.set_ms["", CallKind.FENCE] = FENCE_MS
    script.start("e0", "e1")
    return script


@pytest.mark.parametrize("fencing", Fencing)
def test_a_fence_that_takes_longer_than_the_lease_is_not_overtaken(tmp_path: Path, fencing: Fencing) -> None:
    script = slow_group(tmp_path, fencing)
    script.publish(2, 4, 6)
    script.until(lambda: bool(script.world.active()))
    assert script.world.coordination.groups["sim.project"].role.epoch == 1
    script.finish()


def test_a_spare_that_joined_just_now_believes_that_the_connection_to_an_old_active_closed(tmp_path: Path) -> None:
    """The time of the holder in the role is in its description; it does not depend on a spare's own time in the group."""
    script = Script(tmp_path, "e0", "e1", settings=replace(SETTINGS, lease_ms=400))
    script.world.lasting.sees_the_end = frozenset()
    script.start("e0")
    script.until_active("e0")
    for _ in range(500):
        script.turn()
    script.start("e1")
    script.until(lambda: script.role("e1") is Role.STANDBY)
    for _ in range(SETTINGS.member_refresh_ms):
        script.turn()
    script.world.kill("e0")
    assert script.until(lambda: script.told("campaigns for epoch 2")) < 100
    script.publish(2, 4)
    script.finish()


def test_of_a_promotion_whose_engine_dies_the_lease_is_soon_over(tmp_path: Path) -> None:
    """Its end is seen by no engine: its lease is at most that of an active one."""
    script = slow_group(tmp_path)
    script.publish(2, 4, 6)
    script.until(lambda: script.told("fences the output with epoch 1"))
    first = next(name for name in ("e0", "e1") if script.world.processes[name].engine.status().epoch == 1)
    for _ in range(FENCE_MS // 2):
        script.turn()
    script.world.pause(first, 1_000_000)
    assert script.until(lambda: script.told("campaigns for epoch 2")) <= SETTINGS.lease_ms + 2 * SETTINGS.leader_poll_ms
    script.finish()


def test_a_promotion_that_hangs_is_overtaken(tmp_path: Path) -> None:
    script = slow_group(tmp_path)
    script.publish(2, 4, 6)
    script.until(lambda: script.told("fences the output with epoch 1"))
    first = next(name for name in ("e0", "e1") if script.world.processes[name].engine.status().epoch == 1)
    script.world.processes[first]._main.ready_ms = 1 << 60
    patience_ms = 2 * FENCE_MS + SETTINGS.lease_ms + 2 * SETTINGS.leader_poll_ms
    assert script.until(lambda: script.told("campaigns for epoch 2")) <= patience_ms
    script.finish()
