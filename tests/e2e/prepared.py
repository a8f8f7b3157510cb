"""Commands and engines that start at once: a fork server with all imports done forks a process for each.

They run the same `hotspare.cli.main` as `python -m hotspare`, without the two seconds of imports before it. Tests without this
launcher show that the command starts in an interpreter of its own.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hotspare.testing.cluster import launch
from hotspare.testing.server_process import LOOPBACK, Machine

_NEEDED = (
    "pytest",  # each fork imports the test module
    "hotspare.adapters.files.publisher",
    "hotspare.adapters.files.subscriber",
    "hotspare.bus.kafka",
    "hotspare.bus.open",
    "hotspare.cli.main",
    "hotspare.cli.upgrade",
    "hotspare.operate.upgrade_steps",
    "hotspare.coordination.open",
    "hotspare.coordination.sqlite",
    "hotspare.coordination.zookeeper",
    "hotspare.host.process",
    "hotspare.runners.local",
    "hotspare.stores.open",
)


class PreparedProcess:
    """A forked command with the methods of `subprocess.Popen` that tests use (`hotspare.testing.cluster.StartedProcess`)."""

    def __init__(self, arguments: Sequence[str], folder: Path, log: Path) -> None:
        forks = multiprocessing.get_context("forkserver")
        forks.set_forkserver_preload(list(_NEEDED))
        log.touch()
        self._process = forks.Process(target=_run, args=(list(arguments), folder, log, dict(os.environ)))
        self._process.start()
        assert self._process.pid is not None
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

    def send_signal(self, sig: int, /) -> None:
        if self._process.exitcode is None:
            with contextlib.suppress(ProcessLookupError):  # the process has ended since
                os.kill(self.pid, sig)


def prepared(arguments: Sequence[str], folder: Path, log: Path, place: Machine) -> PreparedProcess | subprocess.Popen[bytes]:
    """Starts a command as a `Launcher`: forks on this machine. An engine with Spark, which starts a JVM and workers, gets its own
    interpreter."""
    if place is not LOOPBACK or (arguments[0] == "run" and "local" not in arguments):
        return launch(arguments, folder, log, place)
    return PreparedProcess(arguments, folder, log)


def _run(arguments: list[str], folder: Path, log: Path, environment: Mapping[str, str]) -> None:
    from hotspare.cli.main import main

    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
    with log.open("w", buffering=1) as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
        sys.stdout = sys.stderr = out
        sys.argv = ["hotspare", *arguments]
        main()
