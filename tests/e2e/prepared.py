"""Commands to be killed in the middle: a server that has imported what they need forks a process for each.

They are those of `python -m hotspare`, but for the second or more at their beginning in which nothing is done that a kill could
cut short.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_NEEDED = (
    "pytest",  # the module that runs here is imported in each
    "hotspare.cli.main",
    "hotspare.cli.upgrade",
    "hotspare.cli.upgrading.beside",
    "hotspare.bus.kafka",
    "hotspare.bus.open",
    "hotspare.coordination.open",
    "hotspare.coordination.sqlite",
    "hotspare.coordination.zookeeper",
    "hotspare.stores.open",
    "hotspare.host.process",
    "hotspare.runners.local",
)


class PreparedCommand:
    """Begins at once, in `folder`; what it says goes to `log`. It has what is used of `Popen`."""

    def __init__(self, arguments: Sequence[str], log: Path, folder: Path | None = None) -> None:
        forks = multiprocessing.get_context("forkserver")
        forks.set_forkserver_preload(list(_NEEDED))
        log.touch()
        self._process = forks.Process(target=_run, args=(list(arguments), log, folder))
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("hotspare", timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self._process.exitcode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, number)


def _run(arguments: list[str], log: Path, folder: Path | None) -> None:
    from hotspare.cli.main import main

    os.setsid()
    if folder is not None:
        os.chdir(folder)
    with log.open("w", buffering=1) as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
        sys.stdout = sys.stderr = out
        sys.argv = ["hotspare", *arguments]
        main()
