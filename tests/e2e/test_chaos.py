"""The short campaign on real brokers and a real ZooKeeper, one group through all of it (SPEC E2, E6, E7; law Failover).

test_two_groups.py has SPEC E3, test_group.py SPEC E5 and E16. `make chaos` plays every scenario, each with a group of its own, at
any number of instants.
"""

from pathlib import Path

import pytest

from hotspare.demo.servers import kafka_and_zookeeper
from tests.e2e.chaos.run import play, playable
from tests.e2e.chaos.scenarios import SCENARIOS
from tests.e2e.site import LEASE

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.timeout(900)]


def test_what_happens_to_a_group_on_real_servers_loses_doubles_and_changes_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    with kafka_and_zookeeper(tmp_path) as site:
        scenarios = [s for s in playable(SCENARIOS, site) if s.is_short]
        report, left = play(scenarios, site, tmp_path / "run", 1, said.append, LEASE)
    assert report.is_exact, (report.last_line(), said)
    assert report.published == report.delivered > 0
    assert len(report.gaps) == 2, said
    assert left == []
