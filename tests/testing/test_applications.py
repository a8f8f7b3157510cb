"""Strikes hit the parts of applications in which most shards are active, and nothing else."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from hotspare.base.processes import process_space, process_start
from hotspare.coordination.contract import Member
from hotspare.demo.applications import STRIKE_ORDER, plan_strikes
from hotspare.demo.scenario import DemoReport
from hotspare.testing.applications import Applications, Strike
from hotspare.testing.cluster import Cluster, SpawnedEngine, wait_until

GROUPS = ("p.shop/0", "p.shop/1", "p.shop/2")
WAIT_S = 60


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Yields two sleeping processes, as Python workers."""
    started = [subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(2)]
    yield started
    for each in started:
        each.kill()
        each.wait()


@pytest.fixture
def applications(tmp_path: Path, processes: list[subprocess.Popen[bytes]]) -> Iterator[Applications]:
    """Yields two applications: east is active for one shard in the first process, west for two in the second; each is complete for
    all."""
    cluster = Cluster(tmp_path / "shop.yaml", f"sqlite:///{tmp_path / 'bus.db'}", GROUPS[0], "p", tmp_path)
    cluster.engines = {
        name: SpawnedEngine(name, each, tmp_path / name) for name, each in zip(("east", "west"), processes, strict=True)
    }
    for shard, group in enumerate(GROUPS):
        for name, process in zip(("east", "west"), processes, strict=True):
            is_active = name == ("east" if shard == 0 else "west")
            started = process_start(process.pid)
            own = Member(f"{name}-{shard}", "", process.pid, started, "", "", "", "", "standby", {}, {"application": name})
            own = replace(own, role="active" if is_active else "standby", process_space=process_space())
            cluster.coordination.refresh_member(group, own)
            if is_active:
                assert cluster.coordination.campaign(group, 0, own, 60_000) == 1
    yield Applications(cluster, GROUPS)
    cluster.engines = {}
    cluster.stop()


def test_all_is_hosted_while_processes_run(applications: Applications, processes: list[subprocess.Popen[bytes]]) -> None:
    assert applications.is_hosted()
    assert {shard: member.engine for shard, member in applications.active_by_shard().items()} == {
        0: "east-0",
        1: "west-1",
        2: "west-2",
    }
    del applications.cluster.engines["west"]
    assert not applications.is_hosted(), "nobody else has an engine"


def test_the_worker_with_most_active_shards_is_killed(applications: Applications, processes: list[subprocess.Popen[bytes]]) -> None:
    before_us = time.time_ns() // 1000
    struck = applications.strike(Strike.WORKER)
    wait_until(lambda: processes[1].poll() is not None, "it ends", WAIT_S)
    assert processes[0].poll() is None
    assert (struck.application, {shard: leader.epoch for shard, leader in struck.leaders.items()}) == ("west", {1: 1, 2: 1})
    assert struck.at_us >= before_us


def test_a_worker_is_frozen_and_a_driver_is_no_longer_of_the_cluster(
    applications: Applications, processes: list[subprocess.Popen[bytes]]
) -> None:
    applications.strike(Strike.FREEZE)
    wait_until(lambda: psutil.Process(processes[1].pid).status() == psutil.STATUS_STOPPED, "it stands still", WAIT_S)
    applications.strike(Strike.DRIVER)
    assert list(applications.cluster.engines) == ["east"]
    assert processes[1].poll() is not None


def test_a_demo_of_applications_counts_strikes_and_not_shards() -> None:
    assert plan_strikes(5) == (*STRIKE_ORDER, STRIKE_ORDER[0])
    assert "kills 3 gap" in DemoReport(kills=3).last_line()
