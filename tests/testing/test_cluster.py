"""The test kit reports processes that outlive those that it started (no JVM outlives its engine), and the
processes of a killed test run end with it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from hotspare.base.processes import has_process_ended, process_start
from hotspare.testing.cluster import Cluster, wait_until

ORPHANING = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
"""


def test_an_orphan_of_a_killed_process_is_a_leftover(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "none.yaml", f"sqlite:///{tmp_path / 'bus.db'}", "group", "prefix", tmp_path)
    command = [sys.executable, "-c", ORPHANING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert parent.stdout is not None
        orphan = int(parent.stdout.readline())
        cluster.session_ids.append(parent.pid)
        pidfd = os.pidfd_open(orphan)
        os.kill(orphan, signal.SIGSTOP)  # so that it does not end with its parent
        parent.kill()
        parent.wait()
        assert [line.split()[0] for line in cluster.leftovers(within_s=0)] == [str(orphan)]
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        select.select([pidfd], [], [], 20)
        os.close(pidfd)
        assert cluster.leftovers() == []
    cluster.stop()


STARTER = """
import subprocess, sys, time
from hotspare.testing.cluster import ParentWatch
watch = ParentWatch()
started = [subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(3)]
for each in started:
    watch.add_process(each.pid)
started[0].kill(); started[0].wait(); watch.remove_process(started[0].pid)
started[2].send_signal(19)
if sys.argv[1] == "closed":
    watch.close()
print(*(each.pid for each in started), flush=True)
time.sleep(600)
"""


def started(how: str) -> tuple[subprocess.Popen[str], list[int]]:
    starter = subprocess.Popen([sys.executable, "-c", STARTER, how], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    with starter.stdout as told:
        return starter, [int(word) for word in told.readline().split()]


def test_processes_end_when_who_started_them_is_killed_also_frozen_ones() -> None:
    starter, (ended, *left) = started("watched")
    assert not psutil.pid_exists(ended)
    begun = {each: process_start(each) for each in left}
    assert not any(has_process_ended(*each) for each in begun.items())
    starter.kill()
    starter.wait()
    wait_until(lambda: all(has_process_ended(*each) for each in begun.items()), "both to be gone")


def test_what_is_not_watched_any_more_stays() -> None:
    starter, (_, running, frozen) = started("closed")
    starter.kill()
    starter.wait()
    try:
        wait_until(lambda: starter.poll() is not None, "its end")
        assert not has_process_ended(running, process_start(running))
    finally:
        for each in (running, frozen):
            psutil.Process(each).kill()
