"""Runs `record`, the process that records an attempt, within a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence

_LOOK_S = 0.02
_REASON_BYTES_MAX = 1_000
_RECORD = "hotspare.host.watchdog.record"


def module_command(module: str, *arguments: str) -> list[str]:
    """Returns the command that runs a module of hotspare by this interpreter, without the working directory on its path."""
    return [sys.executable, "-P", "-m", module, *arguments]


def module_environment() -> dict[str, str]:
    """Returns the environment in which `module_command` finds what this process finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def record_attempt(document: Mapping[str, object], limit_s: float, command: Sequence[str] = ()) -> str:
    """Records an attempt: `document` has `coordination`, `group` and `attempt`. Returns "", or the reason if that failed. Signals
    that arrive meanwhile stay pending. `command` replaces the recording process."""
    given, give = os.pipe()
    reasons, reason = os.pipe()
    files = (
        (os.POSIX_SPAWN_DUP2, given, 0),
        (os.POSIX_SPAWN_DUP2, reason, 1),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    )
    words = list(command) or module_command(_RECORD)
    process = os.posix_spawn(words[0], words, module_environment(), file_actions=files, setsigmask=())
    os.close(given)
    os.close(reason)
    with os.fdopen(give, "wb") as out, contextlib.suppress(BrokenPipeError):
        out.write(json.dumps(document).encode())
    try:
        status = _status_within(process, limit_s)
        if status is None:
            return f"coordination did not answer within {limit_s:.0f} s"
        return "" if status == 0 else os.read(reasons, _REASON_BYTES_MAX).decode(errors="replace") or f"exit status {status}"
    finally:
        os.close(reasons)


def _status_within(process: int, limit_s: float) -> int | None:
    """Returns the exit status of a child process; None if it was killed at the limit."""
    until_s = time.monotonic() + limit_s
    while time.monotonic() < until_s:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_LOOK_S)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None
