"""Law 2, Crash: stop after any prefix of the actions, restart from durable state, and the delivered output is the same.

The planted faults `snapshot-ahead` and `separate-progress` break it, and the simulation finds them (tests/simulation).
"""

from pathlib import Path

import pytest

from tests.simulation.checkers import Violation
from tests.simulation.kits import Kit, fast_kit, real_kit
from tests.simulation.planted import PLANTED
from tests.simulation.script import Script

pytestmark = pytest.mark.law

EVENTS = (2, 4, 7, 10, 13, 20, 16, 19, 22, 27)


def _run_until_crash(folder: Path, kit: Kit, actions: int) -> Script:
    """Runs one engine, kills it after `actions` actions, and lets a new process finish the work."""
    script = Script(folder, "e0", kit=kit)
    script.start("e0")
    script.publish(*EVENTS[:4])
    for action in range(actions):
        if action == 30:
            script.publish(*EVENTS[4:])
        script.turn(clock_ms=2)
    script.world.kill("e0")
    script.start("e0")
    script.finish()
    return script


@pytest.mark.parametrize("begin", range(0, 180, 20))
def test_killed_after_any_action(tmp_path: Path, begin: int) -> None:
    for actions in range(begin, begin + 20):
        _run_until_crash(tmp_path, fast_kit(), actions)


def test_killed_after_actions_of_the_engines_own_core(tmp_path: Path) -> None:
    for actions in range(5, 180, 25):
        _run_until_crash(tmp_path, real_kit(), actions)


def test_killed_twice(tmp_path: Path) -> None:
    """The second process dies too, at every action until it has published."""
    for actions in range(1, 60, 2):
        script = Script(tmp_path, "e0")
        script.start("e0")
        script.publish(*EVENTS)
        for _ in range(45):
            script.turn(clock_ms=2)
        script.world.kill("e0")
        script.start("e0")
        for _ in range(actions):
            script.turn()
        script.world.kill("e0")
        script.start("e0")
        script.finish()


def test_the_law_would_notice_outputs_without_their_progress(tmp_path: Path) -> None:
    with PLANTED["separate-progress"](), pytest.raises(Violation):
        _run_until_crash(tmp_path, fast_kit(), 60)
