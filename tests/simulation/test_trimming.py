"""A group whose bus deletes old messages: the input remains short, and an engine that starts from a snapshot finds its input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hotspare.bus.contract import Partition
from tests.simulation.script import Script
from tests.simulation.world import SETTINGS

KEEPS = replace(SETTINGS, bus_retention_ms=30, trim_interval_ms=5)


def kept(script: Script, topic: str) -> int:
    log = script.world.bus.log(Partition(topic))
    return log.end - log.begin


def publishing(script: Script, turns: int) -> int:
    """Publishes during `turns` turns and returns the count of events."""
    for turn in range(turns):
        if turn % 4 == 0:
            script.publish(turn, turn + 1)
        script.turn()
    return 2 * -(-turns // 4)


def test_old_messages_go_but_not_those_that_a_restart_needs(tmp_path: Path) -> None:
    """SPEC H11, Z26."""
    script = Script(tmp_path, "e0", "e1", settings=KEEPS)
    script.start("e0", "e1")
    published = publishing(script, 1_500)
    assert kept(script, "in0") < script.world.bus.log(Partition("in0")).end // 3
    assert kept(script, "out0") < script.world.bus.log(Partition("out0")).end // 3
    for name in ("e0", "e1", "e0"):
        script.world.processes.pop(name)
        published += publishing(script, 50)
        script.start(name)
        published += publishing(script, 400)
    assert sorted(script.world.processes) == ["e0", "e1"]
    assert not any("no longer holds" in line for line in script.lines)
    script.until(lambda: script.world.observer.delivered()["q/a"] == published)


def test_before_there_are_two_snapshots_no_input_goes(tmp_path: Path) -> None:
    script = Script(tmp_path, "e0", "e1", settings=replace(KEEPS, snapshot_interval_ms=0))
    script.start("e0", "e1")
    publishing(script, 600)
    assert script.world.bus.log(Partition("in0")).begin == 0
    assert script.world.bus.log(Partition("out0")).begin > 0


def test_for_a_reader_that_is_away_outputs_stay(tmp_path: Path) -> None:
    script = Script(tmp_path, "e0", "e1", settings=KEEPS)
    script.start("e0", "e1")
    publishing(script, 50)
    script.world.outside.record_reader("file /away", {Partition("out0"): 3})
    publishing(script, 600)
    assert script.world.bus.log(Partition("out0")).begin == 3
