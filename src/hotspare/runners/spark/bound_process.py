"""A process that dies with this one at once, however this one ends: on Linux the kernel kills it.

A JVM that notices by itself that its engine is gone stops Spark in good order first, and takes a core for that just when a spare on
the same machine takes over.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from hotspare.base.errors import RunnerError

_BECOME = """
import ctypes, os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the process that starts this one is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Becomes the command. Ctrl-C is not for it: who started it decides. Set here and not between fork and exec, where a process that
has threads must not run Python."""


def start_bound(command: Sequence[str], log: IO[bytes], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start `command`, an absolute path and its arguments; its standard input is a pipe, what it writes goes to `log`.

    It leaves Ctrl-C to this process, whose process group it shares. RunnerError where it cannot be started.
    """
    whole = [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid()), *command]
    started: queue.SimpleQueue[subprocess.Popen[bytes] | Exception] = queue.SimpleQueue()

    def hold() -> None:
        # The kernel kills it when the thread that started it ends, so that one waits for it.
        try:
            process = subprocess.Popen(whole, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment)  # noqa: S603 - ours
        except Exception as error:
            started.put(error)
            return
        started.put(process)
        process.wait()

    threading.Thread(target=hold, name="bound-process", daemon=True).start()
    outcome = started.get()
    if isinstance(outcome, Exception):
        raise RunnerError(f"{command[0]} cannot be started", detail=str(outcome)) from outcome
    return outcome
