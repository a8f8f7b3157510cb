"""A group is upgraded to a changed project, and back, while input arrives and engines are killed (SPEC Z4-Z6)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from hotspare.base.errors import ClusterError
from hotspare.testing.cluster import SpawnedEngine, wait_until
from hotspare.testing.kafka_server import KafkaServers
from hotspare.testing.zookeeper_server import ZooKeeperServer
from tests.e2e.chaos.upgrade_scenarios import OPTIONS, STEPS, UpgradeScenario
from tests.e2e.shop import NEW, OLD, Shop, check_changed, check_unchanged
from tests.e2e.site import LEASE, PATIENT, Site

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

NEWER = """\
import sys
from hotspare.flow import semantics
semantics.SEMANTICS += 1
from hotspare.cli.main import main
sys.exit(main())
"""


def newer(shop: Shop, *arguments: str) -> list[str]:
    """Returns a command of a hotspare version that declares other window semantics."""
    return [sys.executable, "-c", NEWER, *arguments, *shop.site.services]


def test_stopped_engines_go_on_with_a_changed_project_and_back(tmp_path: Path) -> None:
    """SPEC Z6. All engines are killed, with unpublished outputs; so are engines of the changed project. An engine of the previous
    project that starts late is refused."""
    shop = Shop(Site(tmp_path, options=OPTIONS))
    try:
        shop.start(OLD, "one", "two")
        publisher = shop.begin()
        shop.wait_for_more("sales/kept", 100)
        shop.kill("one", "two")
        assert "begins empty" in shop.upgrade(NEW, "--empty")
        late = shop.begin_engine(OLD, "late")
        shop.site.cluster.others.append(shop.site.cluster.engines.pop("late"))
        shop.start(NEW, "one", "two")
        shop.wait_for_more("sales/recent", 100)
        shop.kill(shop.active())
        shop.wait_for_more("sales/recent", 100)
        assert (late.wait_stopped(180), "runs another project" in late.log_tail()) == (1, True), late.log_tail()
        shop.kill(*shop.site.cluster.engines)
        shop.upgrade(OLD)
        shop.start(OLD, "one")
        shop.wait_for_more("sales/old", 100)
        shop.end(publisher)
        check_unchanged(shop)
        check_changed(shop)
    except ClusterError as error:
        raise AssertionError(f"{error}\n{shop.site.cluster.state_report()}") from error
    finally:
        shop.close()


def test_a_changed_project_runs_beside_the_one_before_takes_over_and_gives_back(
    tmp_path: Path, kafka: KafkaServers, zookeeper: ZooKeeperServer
) -> None:
    """SPEC Z6, while events arrive, on real servers: engines of both projects, the active one killed under each of them, forwards
    and back."""
    servers = {"bus_url": kafka.url, "coordination_url": f"{zookeeper.url}/{tmp_path.name}", "prefix": tmp_path.name}
    shop = Shop(Site(tmp_path, options=(*OPTIONS, *PATIENT), **servers))
    try:
        shop.start(OLD, "one", "two")
        publisher = shop.begin()
        shop.wait_for_more("sales/kept", 100)
        assert "may start" in shop.upgrade(NEW, "--beside", "--empty")
        shop.start(NEW, "three", "four")
        shop.kill(shop.active())
        shop.wait_for_more("sales/old", 50)
        before = shop.active()
        assert before in ("one", "two"), "before it leads, the changed project has the role only where no other engine lives"
        assert "three" in shop.upgrade(NEW, "--dry-run", "--lead")
        assert f"after {before}" in shop.upgrade(NEW, "--lead")
        shop.wait_for_more("sales/recent", 100)
        shop.kill(shop.active())
        shop.wait_for_more("sales/recent", 50)
        assert shop.active() in ("three", "four")
        shop.upgrade(NEW, "--back")
        shop.wait_for_more("sales/old", 100)
        assert shop.active() == before
        left = next(name for name in ("three", "four") if name in shop.site.cluster.engines)
        ended = shop.site.cluster.engines.pop(left)
        wait_until(lambda: not ended.is_running, "an engine of the project that is left out ends", 180)
        assert "was upgraded" in ended.log_tail()
        shop.end(publisher)
        check_unchanged(shop)
        check_changed(shop)
    except ClusterError as error:
        raise AssertionError(f"{error}\n{shop.site.cluster.state_report()}") from error
    finally:
        shop.close()


def test_kills_in_the_middle_of_every_step_forwards_and_back_change_nothing(tmp_path: Path) -> None:
    """SPEC Z6. Engines of both projects and the command itself are killed; `make chaos` has more kills, and other servers."""
    said: list[str] = []
    site = Site(tmp_path, options=OPTIONS)
    report = UpgradeScenario("Z6", strikes=2, engines={"one": OLD, "two": OLD, "three": NEW}).run(site, Random(1), said.append)
    assert report.is_exact, (report.last_line(), said)
    assert report.delivered >= 500
    assert report.kills is not None and report.kills > len(STEPS), "of the command in each step, and of engines"
    assert site.cluster.leftovers() == []


def test_engines_of_two_versions_of_hotspare_take_part_and_the_newer_one_takes_over(tmp_path: Path) -> None:
    """The project is the same, and the newer hotspare declares other window semantics: it recomputes states from the topics, and
    every stream goes on."""
    shop = Shop(Site(tmp_path, options=OPTIONS))
    cluster = shop.site.cluster

    def upgraded(*options: str) -> str:
        command = newer(shop, "upgrade", str(shop.site.project), *options)
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        shop.site.project.write_text(OLD)
        shop.start(OLD, "one")
        publisher = shop.begin()
        shop.wait_for_more("sales/kept", 100)
        upgraded("--beside")
        run = newer(shop, "run", str(shop.site.project), "--engine", "two", *LEASE, *shop.site.options)
        log = cluster.next_log("two")
        with log.open("wb") as out:
            process = subprocess.Popen(run, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd=tmp_path)
        cluster.engines["two"] = cluster.track_process(SpawnedEngine("two", process, log, cluster.watch))
        cluster.wait_ready(240)
        assert "two is active" in upgraded("--lead")
        shop.wait_for_more("sales/kept", 100)
        assert "only one" in upgraded("--finish")
        ended = cluster.engines.pop("one")
        wait_until(lambda: not ended.is_running, "the engine of the older version ends", 180)
        shop.end(publisher)
        check_unchanged(shop, 200)
    except ClusterError as error:
        raise AssertionError(f"{error}\n{cluster.state_report()}") from error
    finally:
        shop.close()
