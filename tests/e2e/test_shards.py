"""A project in three shards, in two engine processes: one is killed, and only the shards for which it was active change engines.
Each shard's outputs equal those of the `local` runner on its partitions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotspare.bus.naming import group_name
from hotspare.bus.sqlite import SqliteBus
from hotspare.ha.rules.settings import GroupSettings
from hotspare.testing.cluster import Cluster, wait_until
from tests.e2e.prepared import prepared
from tests.e2e.site import PATIENT
from tests.host.shards import PREFIX, PROJECT, PROJECT_NAME, SHARDS, all_shards, check_exact, delivered, lines, publish

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]
TIMEOUT_S = 180
GROUPS = [group_name(PREFIX, PROJECT_NAME, shard) for shard in all_shards()]
MOVED = 1


@pytest.fixture(params=["local", "ordered"])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    project = tmp_path / "shop.yaml"
    project.write_text(PROJECT)
    options = ("--runner", request.param, "--shards", str(SHARDS), "--snapshots", "500 milliseconds", *PATIENT)
    made = Cluster(project, f"sqlite:///{tmp_path / 'bus.db'}", GROUPS[MOVED], PREFIX, tmp_path, options, launcher=prepared)
    try:
        yield made
    finally:
        made.stop()


def test_a_kill_of_one_process_moves_only_its_shards(cluster: Cluster, tmp_path: Path) -> None:
    """Law Failover, shard by shard. SPEC K3, K9."""
    service = cluster.coordination
    with contextlib.closing(SqliteBus(tmp_path / "bus.db")) as bus:

        def holders() -> list[str]:
            return [service.leader(group).holder for group in GROUPS]

        cluster.start_engine("e0")
        wait_until(lambda: holders() == ["e0"] * SHARDS, "the first process is active for all shards", TIMEOUT_S)
        cluster.start_engine("e1")
        wait_until(lambda: all(len(service.members(group)) == 2 for group in GROUPS), "the second one joins", TIMEOUT_S)
        cluster.wait_ready()
        service.request_switchover(GROUPS[MOVED], "e1")
        wait_until(lambda: holders() == ["e0", "e1", "e0"], "one shard moves", TIMEOUT_S)
        published_notes = publish(bus, tmp_path, "notes", lines("notes", 200))
        publish(bus, tmp_path, "people", lines("people", 200))
        wait_until(lambda: delivered(bus) == published_notes, "what was published comes out", TIMEOUT_S)
        epochs = [service.leader(group).epoch for group in GROUPS]
        publish(bus, tmp_path, "orders", lines("orders", 2_000))
        cluster.engines["e1"].kill()
        del cluster.engines["e1"]
        wait_until(lambda: holders() == ["e0"] * SHARDS, "its shard is taken over", TIMEOUT_S)
        published_notes += publish(bus, tmp_path, "notes", lines("notes", 400))
        wait_until(lambda: delivered(bus) == published_notes, "all shards go on", TIMEOUT_S)
        after = [service.leader(group).epoch for group in GROUPS]
        assert [new - old for new, old in zip(after, epochs, strict=True)] == [int(k == MOVED) for k in range(SHARDS)]
        cluster.start_engine("e1")
        wait_until(lambda: all(_is_ready(cluster, group, "e1") for group in GROUPS), "it comes back as a spare of all", TIMEOUT_S)
        cluster.engines["e0"].kill()
        del cluster.engines["e0"]
        wait_until(lambda: holders() == ["e1"] * SHARDS, "all shards move", TIMEOUT_S)
        published_notes += publish(bus, tmp_path, "notes", lines("notes", 600))
        wait_until(lambda: delivered(bus) == published_notes, "all shards go on", TIMEOUT_S)
        check_exact(bus, GroupSettings().skew_max_ms * 1000)


def _is_ready(cluster: Cluster, group: str, engine: str) -> bool:
    """Whether the running process of this name has a complete state of the group."""
    process_id = cluster.engines[engine].process.pid
    members = cluster.coordination.members(group)
    return any((each.engine, each.process_id, each.role) == (engine, process_id, "standby") for each in members)
