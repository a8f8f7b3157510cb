"""A group that is idle, and one that has steady input, keep no more after a week than after a few days (DESIGN section 5, 6)."""

from pathlib import Path

import pytest

from tests.simulation.checkers import Violation
from tests.simulation.weeks import HOUR_MS, MINUTE_MS, Weeks


@pytest.mark.parametrize("event_every_ms", [0, 30 * MINUTE_MS], ids=["idle", "steady"])
def test_nothing_grows_within_a_week(tmp_path: Path, event_every_ms: int) -> None:
    weeks = Weeks(tmp_path, event_every_ms)
    weeks.run(1)
    assert weeks.world.forgotten > 1_000  # topics did forget
    assert weeks.world.observer.newest_epoch >= (3 if event_every_ms else 0)


def test_what_grows_is_named(tmp_path: Path) -> None:
    """One more fact each hour, as a rule that forgets to tidy up would leave."""

    class Untidy(Weeks):
        def _let_happen(self, elapsed_ms: int) -> None:
            super()._let_happen(elapsed_ms)
            if elapsed_ms % HOUR_MS == 0:
                client = self.world.coordination.client("untidy")
                client.set_fact_once("sim.project", f"fact-{elapsed_ms}", b"")

    with pytest.raises(Violation, match=r"growth: coordination\[\*\].facts had \d+ elements on day 4 and has \d+ on day 7"):
        Untidy(tmp_path, 0).run(1)
