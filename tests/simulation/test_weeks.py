"""An idle group, and one with steady input, keep no more after a week than after a few days."""

from pathlib import Path

import pytest

from hotspare.ha.effects import persisting
from tests.simulation.checkers import Violation
from tests.simulation.weeks import MINUTE_MS, Weeks


@pytest.mark.parametrize("event_every_ms", [0, 30 * MINUTE_MS], ids=["idle", "steady"])
def test_nothing_grows_within_a_week(tmp_path: Path, event_every_ms: int) -> None:
    weeks = Weeks(tmp_path, event_every_ms)
    weeks.run(1)
    assert weeks.world.forgotten > 1_000  # retention deleted messages
    done = persisting.newest_finished_request(weeks.world.coordination.client("world"), "sim.project")
    assert done is not None
    assert (weeks.started, weeks.asked - done.number <= 1, weeks.asked) == (7, True, 56)
    assert done.outcome is not None
    assert done.outcome.failure == ""
    assert weeks.world.observer.newest_change_epoch >= (3 if event_every_ms else 0)


def test_what_grows_is_named(tmp_path: Path) -> None:
    """Adds one more fact each hour, as a rule without garbage collection would."""
    weeks = Weeks(tmp_path, 0)
    weeks.world.start("e0")
    client = weeks.world.coordination.client("untidy")
    for hour in range(7 * 24):
        weeks.world.turn()
        client.set_fact_once("sim.project", f"fact-{hour}", b"")
        weeks.measure(hour // 24)
    with pytest.raises(Violation, match=r"growth: coordination\[\*\].facts had \d+ elements on day 4 and has \d+ on day 7"):
        weeks.check_growth()
    weeks.world.close()
