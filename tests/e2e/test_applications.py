"""Two Spark applications with executors, on three real brokers and a real ZooKeeper, host a project in four shards. Their failures
lose, duplicate and change nothing, per shard (law Failover).

One pair of applications goes through all scenarios, because starting them takes most of the time. The kill of an executor is in
test_partitioned.py and test_standalone.py. `make chaos` plays every scenario, each with applications of its own.
"""

from pathlib import Path

import pytest

from hotspare.demo.servers import kafka_and_zookeeper
from tests.e2e.chaos.application_scenarios import APPLICATION_SCENARIOS
from tests.e2e.chaos.run import play_applications
from tests.e2e.site import LEASE

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.timeout(900)]


def test_what_happens_to_applications_on_real_servers_loses_doubles_and_changes_nothing(tmp_path: Path) -> None:
    """SPEC K3, K7, K9, Z2, Z19."""
    said: list[str] = []
    scenarios = [s for s in APPLICATION_SCENARIOS if s.is_short]
    with kafka_and_zookeeper(tmp_path) as site:
        report, left = play_applications(scenarios, site, tmp_path / "run", 1, said.append, run_options=LEASE)
    assert report.is_exact, (report.last_line(), said)
    assert report.published == report.delivered > 0
    assert (report.kills, len(scenarios)) == (2, 2), said
    assert left == []
