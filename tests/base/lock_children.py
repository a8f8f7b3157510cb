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
_OPENS = 'import sys; file = open(sys.argv[1], "r+b")'
_WAITS = "import sys; print('ready', flush=True); sys.stdin.readline()"


@contextlib.contextmanager
def child(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Yields a process that has run `code` and lives until it is killed."""
    command = [sys.executable, "-c", f"{code}\n{_WAITS}", *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def locking(path: Path, lock: str) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    path.touch()
    return child(f"{_OPENS}\n{lock}", path)


def stop(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
