"""A bus that cannot take much at once gets the same outputs in smaller pieces, and nobody loses the role over it (SPEC E2, B13)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hotspare.bus.contract import Commit
from hotspare.bus.memory import MemoryProducer
from hotspare.errors import BusUnavailable
from tests.simulation.test_scenarios import EVENTS, FOREVER_MS, two_engines
from tests.simulation.world import SETTINGS


def test_a_backlog_that_a_slow_bus_does_not_take_at_once_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same transaction of all streams would end too late for ever."""
    whole = MemoryProducer.publish

    def publish(self: MemoryProducer, epoch: int, commit: Commit) -> None:
        if sum(len(messages) for messages in commit.messages.values()) > 2:
            raise BusUnavailable("the transaction took too long")
        whole(self, epoch, commit)

    monkeypatch.setattr(MemoryProducer, "publish", publish)
    script = two_engines(tmp_path, settings=replace(SETTINGS, message_rows_max=1))
    script.world.pause("e0", FOREVER_MS)
    script.publish(*EVENTS * 6)
    script.until_active("e1")
    script.finish()
