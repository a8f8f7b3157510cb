"""A project in three shards is upgraded to a changed one, back, and finally, whether engine processes or Spark applications host
the shards (SPEC Z6).

For streams that are equal in both projects, each shard's outputs equal those of the `local` runner on its partitions.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from hotspare.bus.naming import group_name
from hotspare.bus.sqlite import SqliteBus
from hotspare.ha.rules.joining import restorable
from hotspare.ha.rules.settings import GroupSettings
from hotspare.stores.open import default_store_url, open_store
from hotspare.testing.applications import Applications, application_of, kill_all
from hotspare.testing.cluster import Cluster, wait_until
from tests.cli.running import hotspare_here
from tests.e2e.site import PATIENT
from tests.host.shards import PREFIX, PROJECT, PROJECT_NAME, SHARDS, all_shards, delivered, expected, publish_all, published

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.timeout(900)]
TIMEOUT_S = 240
GROUPS = [group_name(PREFIX, PROJECT_NAME, shard) for shard in all_shards()]
PROJECTS = {"before": PROJECT, "changed": PROJECT.replace("condition: x >= 2", "condition: x >= 1")}
UNCHANGED = ("q/named", "q/kept")
RUNNERS = {"processes": ("--runner", "local"), "applications": ("--runner", "partitioned", "--master", "local[2]")}


@dataclass
class ShopInShards:
    """A host has the name of its project: an engine process or an application, which hosts all shards."""

    bus: SqliteBus
    cluster: Cluster
    rows: int = 0
    notes: int = 0

    def __post_init__(self) -> None:
        self.hosts = Applications(self.cluster, GROUPS)

    def start(self, name: str) -> None:
        self.cluster.project = self.cluster.folder / f"{name}.yaml"
        self.cluster.project.write_text(PROJECTS[name])
        self.cluster.start_engine(name)

    def upgrade(self, step: str) -> str:
        project = self.cluster.folder / "upgrade.yaml"
        project.write_text(PROJECTS["changed"])
        done = hotspare_here("upgrade", project, "--bus", self.cluster.bus_url, "--shards", str(SHARDS), step)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def forward(self) -> None:
        """Starts the changed project next to the current one, and makes it active once it hosts all shards."""
        wait_until(self.has_snapshots, "there is a state to go on from", TIMEOUT_S, 0.1)
        self.upgrade("--beside")
        self.start("changed")
        self.hosts.wait_hosted(TIMEOUT_S)
        assert self.active() == {"before"}
        assert self.upgrade("--lead").count("is active") == SHARDS

    def has_snapshots(self) -> bool:
        with contextlib.closing(open_store(default_store_url(self.cluster.bus_url))) as store:
            return all(restorable(store.list(group)) for group in GROUPS)

    def go_on(self, active: set[str]) -> None:
        """Publishes more and waits for the outputs; every started host has all shards, and `active` have the roles."""
        self.rows += 300
        self.notes += publish_all(self.bus, self.cluster.folder, self.rows)
        wait_until(lambda: delivered(self.bus) == self.notes, "all that was published comes out", TIMEOUT_S, 0.1)
        self.hosts.wait_hosted(TIMEOUT_S)
        assert self.active() == active

    def active(self) -> set[str]:
        return {application_of(member) for member in self.hosts.active_by_shard().values()}

    def kill(self, name: str) -> None:
        kill_all(self.cluster.engines.pop(name))

    def ends(self, name: str) -> None:
        exclusion_reason = self.cluster.engines.pop(name)
        wait_until(lambda: not exclusion_reason.is_running, f"{name} ends by itself", TIMEOUT_S, 0.1)
        assert "upgraded" in exclusion_reason.log.read_text(), exclusion_reason.log_tail()

    def is_exact(self) -> None:
        high = set()
        for shard in all_shards():
            found, wanted = published(self.bus, shard), expected(self.bus, shard, GroupSettings().skew_max_ms * 1000)
            for stream in UNCHANGED:
                assert found[stream].equals(wanted[stream].slice(0, found[stream].num_rows)), f"{shard}, {stream}"
            assert found["q/kept"].num_rows == wanted["q/kept"].num_rows, shard
            numbers = found["q/high"].column("hs:sequence").to_pylist()
            assert numbers == list(range(1, len(numbers) + 1)), shard
            high |= set(found["q/high"].column("x").to_pylist())
        assert high == {1.0, 2.0, 3.0, 4.0}, "both projects took part"


@pytest.mark.parametrize("runner", RUNNERS)
def test_all_shards_go_on_with_a_changed_project_back_and_for_good(tmp_path: Path, runner: str) -> None:
    """SPEC Z6. A process that has the roles is killed while the changed project is active: the previous one is the last resort
    then, and has them also before `--back`. An application gives them back, and ends by itself."""
    options = (*RUNNERS[runner], "--shards", str(SHARDS), "--snapshots", "500 milliseconds", *PATIENT)
    cluster = Cluster(tmp_path / "before.yaml", f"sqlite:///{tmp_path / 'bus.db'}", GROUPS[0], PREFIX, tmp_path, options)
    try:
        with contextlib.closing(SqliteBus(tmp_path / "bus.db")) as bus:
            shop = ShopInShards(bus, cluster)
            shop.start("before")
            shop.go_on({"before"})
            shop.forward()
            shop.go_on({"changed"})
            if runner == "processes":
                shop.kill("changed")
                shop.go_on({"before"})
            shop.upgrade("--back")
            if runner == "applications":
                shop.ends("changed")
                shop.go_on({"before"})
            shop.forward()
            shop.upgrade("--finish")
            shop.ends("before")
            shop.go_on({"changed"})
            shop.is_exact()
    except BaseException:
        print(cluster.state_report())
        raise
    finally:
        cluster.stop()
    assert cluster.leftovers() == []
