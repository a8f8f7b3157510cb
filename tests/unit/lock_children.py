"""Processes that keep a file locked until a test ends or stops them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FLOCK = "import fcntl; fcntl.flock(file, fcntl.LOCK_EX)"
_CHILD = """
import sys
file = open(sys.argv[1], "r+b")
{0}
print("locked", flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def locking(path: Path, lock: str) -> Iterator[subprocess.Popen[str]]:
    path.touch()
    command = [sys.executable, "-c", _CHILD.format(lock), str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "locked\n"
        try:
            yield child
        finally:
            child.kill()


def stop(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
