"""What a killed test run started ends with it."""

from __future__ import annotations

import subprocess
import sys

import psutil

from hotspare.base.processes import is_process_gone, process_start
from hotspare.testing.cluster import wait_until

STARTER = """
import subprocess, sys, time
from hotspare.testing.parent_watch import ParentWatch
watch = ParentWatch()
started = [subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(3)]
for each in started:
    watch.began(each.pid)
started[0].kill(); started[0].wait(); watch.ended(started[0].pid)
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
    assert not any(is_process_gone(*each) for each in begun.items())
    starter.kill()
    starter.wait()
    wait_until(lambda: all(is_process_gone(*each) for each in begun.items()), "both to be gone")


def test_what_is_not_watched_any_more_stays() -> None:
    starter, (_, running, frozen) = started("closed")
    starter.kill()
    starter.wait()
    try:
        wait_until(lambda: starter.poll() is not None, "its end")
        assert not is_process_gone(running, process_start(running))
    finally:
        for each in (running, frozen):
            psutil.Process(each).kill()
