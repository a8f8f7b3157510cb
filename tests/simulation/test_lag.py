"""A spare that computes everything later than the active: its snapshots count, and a wrong one is noticed (SPEC Z9, Z10)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hotspare.bus.contract import Message, Partition
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import OnDivergence
from hotspare.stores.contract import SnapshotStatus
from tests.simulation.script import Script
from tests.simulation.test_scenarios import EVENTS, confirmed_by, two_engines
from tests.simulation.world import GROUP, SETTINGS

LAG_MS = 4 * SETTINGS.progress_poll_ms
STEADY_MS = 8 * SETTINGS.snapshot_interval_ms + 4 * LAG_MS


def lag(script: Script, name: str, lag_ms: int) -> None:
    """Makes this life of the engine read only messages that have been on the bus for `lag_ms`."""
    bus, world = script.process(name).ports.bus, script.world
    right = bus.read

    def read(partition: Partition, offset: int, *, messages_max: int, bytes_max: int, wait_ms: int = 0) -> Sequence[Message]:
        messages = right(partition, offset, messages_max=messages_max, bytes_max=bytes_max, wait_ms=wait_ms)
        return [m for m in messages if m.append_time_us <= (world.now_ms - lag_ms) * 1000]

    bus.read = read  # type: ignore[method-assign]


def steady_input(script: Script, duration_ms: int) -> None:
    until_ms = script.world.now_ms + duration_ms
    while script.world.now_ms < until_ms:
        if script.world.now_ms % 4 == 0:
            script.publish(script.world.now_ms % 97, 2)
        script.turn()


def lagging(folder: Path) -> Script:
    script = two_engines(folder)
    lag(script, "e1", LAG_MS)
    return script


def test_snapshots_are_confirmed_while_the_spare_lags(tmp_path: Path) -> None:
    """Otherwise no engine could join once retention has passed the last snapshot."""
    script = lagging(tmp_path)
    before = set(confirmed_by(script, "e1"))
    steady_input(script, STEADY_MS)
    assert set(confirmed_by(script, "e1")) - before
    newest = max(i.order for i in script.world.store.list(GROUP) if i.status is SnapshotStatus.CONFIRMED)
    state = script.process("e0").state
    assert state is not None
    assert newest > state.order - 2 * (LAG_MS + 2 * SETTINGS.snapshot_interval_ms)
    script.finish()


def test_a_lagging_spare_that_is_wrong_is_noticed(tmp_path: Path) -> None:
    """SPEC Z9: it ends before it has caught up."""
    script = lagging(tmp_path)
    state = script.process("e1").state
    assert state is not None
    state.core.salt = 1  # type: ignore[attr-defined]
    script.world.wrong_from[script.process("e1").door] = {s: n + 1 for s, n in script.world.observer.delivered().items()}
    assert SETTINGS.on_divergence is OnDivergence.STOP
    steady_input(script, STEADY_MS + 2 * SETTINGS.divergence_wait_ms)
    assert "e1" not in script.world.processes
    assert script.told("e1   (difference seen")


@pytest.mark.parametrize("lag_ms", [0, LAG_MS])
def test_a_lagging_spare_that_starts_again_goes_on_being_compared(tmp_path: Path, lag_ms: int) -> None:
    """It begins without points; those that it reads from then on are enough."""
    script = lagging(tmp_path)
    steady_input(script, STEADY_MS)
    script.world.kill("e1")
    script.start("e1")
    script.until(lambda: script.role("e1") is Role.STANDBY)
    lag(script, "e1", lag_ms)
    before = set(confirmed_by(script, "e1"))
    steady_input(script, STEADY_MS)
    assert set(confirmed_by(script, "e1")) - before
    script.finish()


def test_a_spare_promoted_far_behind_goes_on_exactly(tmp_path: Path) -> None:
    """SPEC E2: points that it has not reached yet are passed while it is active."""
    script = lagging(tmp_path)
    steady_input(script, STEADY_MS)
    script.world.kill("e0")
    script.until_active("e1")
    steady_input(script, STEADY_MS)
    lag(script, "e1", 0)
    script.publish(*EVENTS)
    script.finish()
    assert not script.told("e1   (difference seen")
