"""Held locks of the embedded bus: a process that is stopped with one is ended, and no other."""

from pathlib import Path

from hotspare.ha.rules.roles import Role
from tests.simulation.script import Script

FOREVER_MS = 1_000_000
EVENTS = (2, 4, 6, 8)


def two_engines(folder: Path) -> Script:
    """Returns a group whose `e0` is active and `e1` a spare."""
    script = Script(folder, "e0", "e1")
    script.start("e0")
    script.until_active("e0")
    script.start("e1")
    script.publish(*EVENTS)
    script.finish()
    script.until(lambda: script.role("e1") is Role.STANDBY)
    return script


def test_a_frozen_holder_of_the_bus_lock_is_ended(tmp_path: Path) -> None:
    """Past its lease, by the spare that claimed the role, with a report."""
    script = two_engines(tmp_path)
    script.world.pause("e0", FOREVER_MS)
    script.world.plan.lock_holder = "e0"
    script.until_active("e1")
    assert "e0" not in script.world.processes
    assert script.told("process 1 was ended: it was stopped and kept the bus locked")
    script.finish()


def test_a_stranger_that_is_stopped_with_the_bus_lock_is_ended_and_no_engine(tmp_path: Path) -> None:
    """A publisher, or a shell; the engines are healthy."""
    script = two_engines(tmp_path)
    script.world.plan.lock_holder = "a stopped publisher"
    script.publish(*EVENTS)
    script.until(lambda: not script.world.plan.lock_holder)
    assert sorted(script.world.processes) == ["e0", "e1"]
    assert script.world.lives == {"e0": 1, "e1": 1}
    script.finish()
