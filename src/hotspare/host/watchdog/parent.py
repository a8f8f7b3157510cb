"""The parent of an engine: starts it, watches it, forwards signals to it, and starts it again if it ends by a call or a crash.

It imports nothing that an engine needs, and stays small for as long as the engine runs. It waits for signals and for the time of
the next look in one place, so nothing in it can block but recording an attempt.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from hotspare.host.watchdog.rule import EXIT_NOT_LOADED, EndedBy, EngineEnd, RestartPauses
from hotspare.host.watchdog.shared_memory import BOARD_VARIABLE, IS_POSSIBLE, create_memory
from hotspare.host.watchdog.watch import EngineWatch
from hotspare.telemetry.log import LogEvent

_STOPS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
_FORWARDED = _STOPS | {signal.SIGUSR1, signal.SIGUSR2}
_SIGNALS = _FORWARDED | {signal.SIGCHLD}
_SENT_BY_KERNEL = 0x80
"""The code of a signal that the terminal sent; then the engine received it, too."""
STOP_S_MAX = 15.0
"""How long the call that runs when a stop is requested may last."""
_NAME = "hotspare-parent"
_OPTION, _NEVER = "--restart", "never"


def is_parent_wanted(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether `hotspare run` with these arguments begins as a parent. `arguments` follow the command's name."""
    if not IS_POSSIBLE or BOARD_VARIABLE in environment or "--help" in arguments:
        return False
    last = ""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if word == _OPTION:
            last = following
        elif word.startswith(f"{_OPTION}="):
            last = word.removeprefix(f"{_OPTION}=")
    return last != _NEVER


def parent_of_engine(environment: Mapping[str, str]) -> int | None:
    """Returns the parent that started this process as its engine; None without one."""
    parent = environment.get(BOARD_VARIABLE, "").partition(":")[2]
    return int(parent) if parent.isdecimal() else None


def run_parent() -> NoReturn:
    """Runs this process's own command as an engine, and ends as the engine ends."""
    end_like(supervise([sys.executable, *sys.orig_argv[1:]]))


def supervise(command: Sequence[str], pauses: RestartPauses | None = None) -> int:
    """Runs the command until it ends and is not started again. Returns its exit status, or the negative number of the signal that
    ended it. Blocks the signals that it forwards, for good."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(_NAME)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    return _Parent(command, pauses or RestartPauses()).run()


def end_like(status: int) -> NoReturn:
    """Ends this process with an exit status, or by the signal -`status`."""
    sys.stderr.flush()
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the engine's own dump is the useful one
        with contextlib.suppress(OSError):
            signal.signal(-status, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-status})
        os.kill(os.getpid(), -status)
        os._exit(128 - status)  # the first process of a container ignores its own signals
    os._exit(status)


class _Parent:
    def __init__(self, command: Sequence[str], pauses: RestartPauses) -> None:
        self._command = list(command)
        self._pauses = pauses
        self._engine = 0
        self._stopped_s: float | None = None
        """When the first stop was requested; None before."""

    def run(self) -> int:
        pause_s: float | None = 0.0
        while pause_s is not None:
            with contextlib.closing(self._started()) as watch:
                begun_s = time.monotonic()
                cause, status = self._watched(watch)
                end = EngineEnd(status, cause, time.monotonic() - begun_s)
                pause_s = self._pauses.next_s(end, pause_s)
                if pause_s is not None:
                    message = f"the engine ended ({_described(end)}) and is started again in {pause_s:g} s"
                    watch.report(LogEvent.ENGINE_RESTARTED, message, status=status, ran_ms=int(end.ran_s * 1_000))
            if pause_s is not None and self._is_stopped_within(pause_s):
                return 0
        return EXIT_NOT_LOADED if cause is EndedBy.LOADING else status

    def _started(self) -> EngineWatch:
        """Starts the engine; returns its watch."""
        memory = create_memory()
        environment = {**os.environ, BOARD_VARIABLE: f"{memory}:{os.getpid()}"}
        self._engine = os.posix_spawn(self._command[0], self._command, environment, setsigmask=())
        return EngineWatch(memory, self._engine)

    def _watched(self, watch: EngineWatch) -> tuple[EndedBy, int]:
        """Watches the engine until its end. Returns the cause and the exit status or negative signal."""
        while True:
            received = signal.sigtimedwait(_SIGNALS, watch.pause_s)
            if received is not None and received.si_signo != signal.SIGCHLD:
                self._forward(received)
            status = self._ended()
            if status is not None:
                return EndedBy.ITSELF if self._stopped_s is None else EndedBy.STOP, status
            finding = watch.look()
            if finding is not None:
                cause = EndedBy.LOADING if finding.excess is None else EndedBy.CALL
                cause = cause if self._stopped_s is None else EndedBy.STOP
                watch.end_engine(finding, " and started again" if cause is EndedBy.CALL else "")
                return cause, self._awaited_end()
            if self._stopped_s is not None and self._is_stop_overdue(watch, self._stopped_s):
                watch.report(
                    LogEvent.STOP_OVERDUE, f"a call does not end for {STOP_S_MAX:.0f} s after the stop: the engine is ended"
                )
                os.kill(self._engine, signal.SIGKILL)
                return EndedBy.STOP, self._awaited_end()

    def _awaited_end(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self._engine, 0)[1])

    def _is_stop_overdue(self, watch: EngineWatch, stopped_s: float) -> bool:
        return time.monotonic() - stopped_s >= STOP_S_MAX and watch.has_call_since(stopped_s)

    def _forward(self, received: signal.struct_siginfo) -> None:
        """Forwards a signal to the engine. The second request to stop ends the engine at once."""
        number = received.si_signo
        if number in _STOPS and self._stopped_s is not None:
            os.kill(self._engine, signal.SIGKILL)
            self._awaited_end()
            os._exit(128 + number)
        if number in _STOPS and _ends_processes(number):
            self._stopped_s = time.monotonic()
        if received.si_code != _SENT_BY_KERNEL:
            os.kill(self._engine, number)

    def _ended(self) -> int | None:
        """Returns how the engine ended; None if it runs. Collects all children that ended: the first process of a container
        inherits orphans."""
        found = None
        with contextlib.suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if not process:
                    break
                if process == self._engine:
                    found = os.waitstatus_to_exitcode(status)
        return found

    def _is_stopped_within(self, pause_s: float) -> bool:
        until_s = time.monotonic() + pause_s
        while (left_s := until_s - time.monotonic()) > 0:
            received = signal.sigtimedwait(_SIGNALS, left_s)
            if received is not None and received.si_signo in _STOPS and _ends_processes(received.si_signo):
                return True
        return False


def _ends_processes(number: int) -> bool:
    """Whether the signal ends processes that do not handle it: `nohup` makes them ignore SIGHUP."""
    return number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN


def _described(end: EngineEnd) -> str:
    if end.cause is EndedBy.CALL:
        return "its call exceeded a limit"
    return f"signal {signal.Signals(-end.status).name}" if end.status < 0 else f"exit status {end.status}"
