"""Engines, broker and ZooKeeper on hosts of their own: the effect of link failures on a group (law Failover).

One group goes through all of it. `make chaos` plays every scenario, each with a group of its own and with Spark.
"""

from pathlib import Path

import pytest

from hotspare.demo.servers import on_hosts
from tests.e2e.chaos.host_scenarios import HOST_SCENARIOS
from tests.e2e.chaos.run import play
from tests.e2e.site import LEASE

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


def test_links_that_fail_cost_at_most_one_takeover_and_lose_double_and_change_nothing(
    hosts_can_be_made: None, tmp_path: Path
) -> None:
    said: list[str] = []
    scenarios = [s for s in HOST_SCENARIOS if s.is_short]
    events = len(scenarios) * 2_000
    with on_hosts(tmp_path, engines=2) as site:
        report, left = play(scenarios, site, tmp_path / "run", 1, said.append, ("--runner", "local", *LEASE), events)
    assert report.is_exact, (report.last_line(), said)
    assert report.published == report.delivered > 0
    assert left == []
