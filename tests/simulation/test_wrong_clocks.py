"""Wrong append times, of one message or for a moment, in a whole group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hotspare.bus.contract import Message, Outgoing, Partition
from hotspare.ha.rules.settings import GroupSettings
from tests.simulation.kits import Kit, fast_kit, real_kit
from tests.simulation.script import Script

EVERY_MS = 20


def publishing(script: Script, turns: int) -> None:
    for ms in range(turns):
        if ms % EVERY_MS == 0:
            script.publish(30, 31)
        script.turn()


def started(folder: Path, kit: Kit) -> Script:
    script = Script(folder, "e0", "e1", kit=kit, settings=GroupSettings())
    script.start("e0", "e1")
    publishing(script, 2_500)
    assert script.delivered()
    return script


@pytest.mark.parametrize("ratio", [1_000, 1_000_000, 0])
def test_a_message_with_a_wrong_time_holds_nothing_up(tmp_path: Path, ratio: int) -> None:
    """A time in a wrong unit, or no time at all, by a publisher that sets the times."""
    script = started(tmp_path, fast_kit())
    log = script.world.bus.log(Partition("in0"))
    offset = script.world.outside.append(Partition("in0"), [Outgoing(b"3")])
    log.messages[-1] = Message(offset, script.world.now_ms * 1_000 * ratio, b"3", ())
    delivered = script.world.observer.delivered
    before = delivered()["q/a"]
    publishing(script, 3_000)
    published = 2 * 3_000 // EVERY_MS
    assert delivered()["q/a"] - before >= published - 2 * 600 // EVERY_MS
    state = script.process("e0").state
    assert state is not None
    assert script.world.now_ms - 1_000 <= state.core.time_us // 1_000 <= script.world.now_ms


@pytest.mark.parametrize("kit", [fast_kit, real_kit])
def test_a_clock_that_is_wrong_for_a_moment_stops_nothing(tmp_path: Path, kit: Callable[[], Kit]) -> None:
    """A bus whose clock is thirty seconds ahead for 0.6 s."""
    script = started(tmp_path, kit())
    usual = script.delivered()
    right = script.world.bus.clock
    script.world.bus.clock = lambda: right() + 30_000_000
    publishing(script, 600)
    script.world.bus.clock = right
    before = script.delivered()
    publishing(script, 3_000)
    assert script.delivered() - before >= usual * 2_400 // 2_500
