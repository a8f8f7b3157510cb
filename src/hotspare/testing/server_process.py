"""A server that a test or `hotspare dev` starts in the background, and can freeze and kill. It never outlives the process that
started it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

from hotspare.base.errors import ClusterError

STOP_TIMEOUT_S = 20.0
_POLL_S = 0.02
_LOG_TAIL_LENGTH = 2_000
_PORTS_FILE = Path(tempfile.gettempdir()) / f"hotspare-ports-{os.getuid()}.lock"
_PORTS = range(20_000, 32_000)
"""The ports of servers. Linux never assigns them to outgoing connections, so that a restarted server finds its port free."""

WATCHED_SCRIPT = """
trap "" INT
exec 3<&0
(read -r _ <&3 || kill -9 $$) &
exec "$@" </dev/null 3<&-
"""
"""A shell script that starts a watcher and then becomes the command in its arguments. The watcher reads the pipe from the parent,
and kills the command if the pipe closes without a line."""


class Machine(Protocol):
    """The place of a process: this machine, or a host of a test network (`hosts.Host`)."""

    @property
    def address(self) -> str:
        """The address at which other machines reach servers on this one."""

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Returns the command that runs `arguments` on this machine."""


class _Loopback:
    address = "127.0.0.1"

    def command(self, arguments: Sequence[str]) -> list[str]:
        return list(arguments)


LOOPBACK: Machine = _Loopback()
"""This machine, by its loopback address."""


class ServerProcess:
    """A server process. `launch` starts it, also again after it has ended; its output is appended to `log`."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.command = tuple(command)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        if self.is_running:
            raise ClusterError(f"{self.name} runs already")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                ["/bin/sh", "-c", WATCHED_SCRIPT, "sh", *self.command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self._folder,
            )

    @property
    def was_launched(self) -> bool:
        """Whether `launch` was called after the last `kill` or `stop`; the server may have ended by itself since."""
        return self._process is not None

    @property
    def process_id(self) -> int:
        """The process id; 0 if the server does not run."""
        return self._process.pid if self._process is not None and self.is_running else 0

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def freeze(self) -> None:
        """Sends SIGSTOP to the server; returns when all its threads have stopped."""
        self._signal(signal.SIGSTOP)
        if self._process is not None:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Sends SIGKILL to the server, which also ends a frozen one; returns when it has ended."""
        self._signal(signal.SIGKILL)
        self._wait(STOP_TIMEOUT_S)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Sends SIGTERM to the server, and SIGKILL after `timeout_s`; returns when it has ended."""
        self._signal(signal.SIGTERM)
        self._wait(timeout_s)

    def wait_for_log(self, word: str, timeout_s: float) -> None:
        """Waits until the end of the log contains `word`. Raises ClusterError with the log after `timeout_s`, or if the server
        ends."""
        deadline = time.monotonic() + timeout_s
        while word not in self.log_tail():
            if not self.is_running or time.monotonic() > deadline:
                raise ClusterError(f"{self.name} did not start", detail=self.log_tail())
            time.sleep(_POLL_S)

    def log_tail(self) -> str:
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL_LENGTH))
            return log.read().decode(errors="replace").strip()
        return ""

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _wait(self, timeout_s: float) -> None:
        process = self._process
        if process is None:
            return
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # this line ends the watching shell before another process may get the id
            process.stdin.write(b"\n")
            process.stdin.close()
        self._process = None


_taken: set[int] = set()
"""The ports that `free_ports` returned in this process."""


def free_ports(count: int) -> list[int]:
    """Returns `count` ports of the loopback interface on which no process listens. This function returns them to no other process
    until this process ends, even while the server on a port is killed and restarted. A foreign program may still bind one: be ready
    to retry. Raises ClusterError if there are not enough."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if _reserve_port(port):
                found.append(port)
        if len(found) == count:
            return found
    raise ClusterError("no free port on the loopback interface")


def _reserve_port(port: int) -> bool:
    """Reserves a port for this process; returns False if it is reserved already. The reservation is a lock, until the process ends,
    on the byte of the port's number in a file that all processes share."""
    if port in _taken:
        return False
    try:
        fcntl.lockf(_open_ports(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _taken.add(port)
    return True


@cache
def _open_ports() -> int:
    return os.open(_PORTS_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
