"""Partitions are added to an inbound topic that a group reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotspare.base.errors import HotspareError, UsageError
from hotspare.bus.memory import PartitionLog
from hotspare.ha.rules.settings import GroupSettings
from tests.simulation.script import Script


def test_engines_stop_with_the_reason_and_none_can_join(tmp_path: Path) -> None:
    """An engine that continued would never see what is written to the new partition."""
    script = Script(tmp_path, "e0", "e1", "e2", settings=GroupSettings())
    script.start("e0", "e1")
    script.until_active("e0")
    script.publish(1, 2)
    script.world.bus.logs["in0"].append(PartitionLog())
    for _ in range(600):
        script.turn(clock_ms=20)
    assert not script.world.processes
    assert script.told("inbound topic in0 has 2 partitions, the group reads 1")
    script.start("e2")
    with pytest.raises(UsageError, match="inbound topic in0 has 2 partitions, the group reads 1"):
        for _ in range(20):
            script.turn()


def test_a_bus_that_does_not_answer_is_no_reason(tmp_path: Path) -> None:
    script = Script(tmp_path, "e0", settings=GroupSettings())
    script.start("e0")
    script.until_active("e0")

    def away() -> dict[str, int]:
        raise HotspareError("the bus is away")

    script.process("e0").ports.bus.topics = away  # type: ignore[method-assign]
    for _ in range(600):
        script.turn(clock_ms=20)
    assert list(script.world.processes) == ["e0"]
