"""Engines as processes with their own Spark, killed and frozen in every way while they publish (law Failover; SPEC E1-E5, E16)."""

import os
import signal
from pathlib import Path

import pytest

from hotspare.base.choices import DemoProject
from hotspare.demo.faults import Fault
from hotspare.demo.scenario import Demo, DemoOptions
from hotspare.demo.site import embedded
from hotspare.host.process import EXIT_RUNNER_DIED
from hotspare.testing.cluster import settings_options, wait_until
from tests.e2e.site import LEASE, PATIENT, Site

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.timeout(600)]


def test_killed_jvm_killed_and_frozen_engines_lose_double_and_change_nothing_e2_e3_e5_e16(tmp_path: Path) -> None:
    """SPEC E2, E3, E5, E16, L5. Patterns are open, groups half full, and user code runs in between."""
    said: list[str] = []
    faults = (Fault.KILL, Fault.KILL_JVM, Fault.FREEZE)
    options = DemoOptions(
        tmp_path, embedded(tmp_path), events=6000, rate=300, faults=faults, engine_options=LEASE, project=DemoProject.WINDOWS
    )
    demo = Demo(options, said.append)
    report = demo.run()
    assert report.is_exact, (report.last_line(), said)
    assert report.published == report.delivered == options.events
    windows = {"by_slot", "compared", "risen", "smoothed", "records"}
    assert {stream for stream, reader in demo.readers.items() if reader.rows} == {f"memory/{window}" for window in windows}
    assert [gap.fault for gap in report.gaps] == list(faults)
    assert len(demo.cluster.session_ids) >= 6, "two engines, two adapters, and one more for each that was killed"
    assert demo.cluster.leftovers() == [], "no JVM and no worker outlives its engine"


def test_a_spare_whose_jvm_hangs_ends_and_says_why(tmp_path: Path) -> None:
    """SPEC H3: its topic advances and its pipeline does not; a supervisor may start it again."""
    site = Site(tmp_path, options=())
    try:
        site.cluster.start_engine("one")
        site.cluster.wait_ready()
        hung = site.cluster.start_engine("two", *settings_options(tmp_path, {"pipeline-stall-ms": 3000}))
        site.cluster.wait_ready()
        for process_id in hung.jvm_ids():
            os.kill(process_id, signal.SIGSTOP)
        assert hung.wait_stopped(180) == EXIT_RUNNER_DIED, hung.log_tail()
        assert "input is pending and the runner does not deliver it" in hung.log_tail()
        site.publish("".join(f"i,n,{i},1,1\n" for i in range(50)))
        site.wait_for_outputs(50)
        wait_until(lambda: not hung.jvm_ids(), "its JVM is gone")
    finally:
        site.stop()
    assert site.cluster.leftovers() == [], "a stopped JVM ends with its engine"


def test_a_planned_switch_over_moves_the_role_and_loses_nothing_c3_z15(tmp_path: Path) -> None:
    site = Site(tmp_path, options=("--runner", "local", *PATIENT))
    try:
        site.cluster.start_engine("one")
        site.cluster.start_engine("two")
        site.cluster.wait_ready()
        before = site.cluster.leader()
        site.publish("".join(f"i,n,{i},1,1\n" for i in range(50)))
        site.wait_for_outputs(50)
        done = site.run("switchover", site.cluster.group, "--bus", site.bus_url)
        assert done.returncode == 0, done.stderr
        after = site.cluster.leader()
        assert after.holder not in ("", before.holder)
        assert after.epoch == before.epoch + 1
        site.publish("".join(f"i,n,{i},1,1\n" for i in range(50, 80)), "more.csv")
        assert [row.split(",")[2].strip() for row in site.wait_for_outputs(80)] == [str(i) for i in range(80)]
    finally:
        site.stop()
