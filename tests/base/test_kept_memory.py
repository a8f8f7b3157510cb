"""A process keeps freed memory for its next step up to a bound, and returns the rest to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from hotspare.base.interpreter import KEPT_BYTES_MAX, keep_freed_memory

TABLE = 3 << 20  # numpy asks for large pages from 4 MB on

def faults_of_step(bytes_):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    tables = [np.empty(TABLE, np.uint8) for _ in range(bytes_ // TABLE)]
    for table in tables:
        table.fill(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

if sys.argv[1] == "kept" and not keep_freed_memory():
    print("cannot")
    raise SystemExit
small = [faults_of_step(KEPT_BYTES_MAX // 4) for _ in range(4)][-1]
before = resident()
faults_of_step(2 * KEPT_BYTES_MAX)
print(small, resident() - before)
"""


def steps(how: str) -> tuple[int, int]:
    """Returns the page faults of a repeated step, and the bytes that remain of one beyond the bound."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True, timeout=300)
    if done.stdout.strip() == "cannot":
        pytest.skip("the C library does not take this setting")
    faults, left = done.stdout.split()
    return int(faults), int(left)


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of the C library of Linux")
def test_a_step_takes_memory_of_the_one_before_and_a_bound_holds() -> None:
    pages = (64 << 20) // 4096
    faults, left = steps("kept")
    otherwise, _ = steps("as it is")
    assert otherwise > pages / 2, "without the setting each page is asked for anew"
    assert faults < pages / 20
    assert left <= 256 << 20
