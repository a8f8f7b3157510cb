"""The parent of an engine: starts it, watches it, forwards signals to it, and starts it again if it ends by a call or a crash.

It imports nothing that an engine needs, and stays small for as long as the engine runs. It waits for signals and for the time of
the next look in one place, so nothing in it can block but recording an attempt.

`hotspare replay` has such a parent, too. No group decides about its calls: the parent does, at the first call that does not end,
and starts the replay from the beginning with that decision.
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
from typing import TYPE_CHECKING, NoReturn, Protocol

from hotspare.host.watchdog.replay_calls import DECIDED_VARIABLE, ReplayCalls
from hotspare.host.watchdog.rule import EXIT_NOT_LOADED, EndedBy, EngineEnd, RestartPauses
from hotspare.host.watchdog.shared_memory import BOARD_VARIABLE, FACTS_VARIABLE, IS_POSSIBLE, create_memory
from hotspare.host.watchdog.watch import EngineWatch, WatchFinding
from hotspare.telemetry.log import LogEvent

if TYPE_CHECKING:
    from hotspare.host.watchdog.http_answers import ParentFacts
    from hotspare.host.watchdog.published_facts import FactsMemory

_STOPS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
_FORWARDED = _STOPS | {signal.SIGUSR1, signal.SIGUSR2}
_SIGNALS = _FORWARDED | {signal.SIGCHLD}
_SENT_BY_KERNEL = 0x80
"""The code of a signal that the terminal sent; then the engine received it, too."""
STOP_S_MAX = 15.0
"""How long the call that runs when a stop is requested may last."""
_NAME = "hotspare-parent"
_AGAIN = " and started again"
_HTTP = "--http"
_WITHOUT_PARENT = {
    "run": {"--restart": "never"},
    "replay": {"--code-deadline-ms": "0", "--runner": "partitioned"},
}
"""The commands that begin as a parent, each with the values of its options that prevent this."""


def is_parent_wanted(command: str, arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether `hotspare COMMAND` with these arguments begins as a parent."""
    if command not in _WITHOUT_PARENT or not IS_POSSIBLE or BOARD_VARIABLE in environment or "--help" in arguments:
        return False
    return all(_last_value(option, arguments) != value for option, value in _WITHOUT_PARENT[command].items())


def _last_value(option: str, arguments: Sequence[str]) -> str:
    """Returns the value that counts if an option is given more than once; "" without one."""
    last = ""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if word == option:
            last = following
        elif word.startswith(f"{option}="):
            last = word.removeprefix(f"{option}=")
    return last


def parent_of_engine(environment: Mapping[str, str]) -> int | None:
    """Returns the parent that started this process as its engine; None without one."""
    parent = environment.get(BOARD_VARIABLE, "").partition(":")[2]
    return int(parent) if parent.isdecimal() else None


class CallHandling(Protocol):
    """The handling of calls that end the child of a parent."""

    def variables(self) -> Mapping[str, str]:
        """Returns environment variables for the next start of the child."""

    def end_child(self, watch: EngineWatch, finding: WatchFinding, cause: EndedBy) -> None:
        """Ends the child because of a call, or of loading, or during a stop. It is started again if `cause` is CALL."""

    def after_crash(self, watch: EngineWatch, finding: WatchFinding) -> None:
        """Handles a call that crashed the child, which is started again."""

    def pause_s(self, end: EngineEnd, before_s: float) -> float | None:
        """Returns the pause before the next start (`RestartPauses.next_s`)."""


class EngineCalls:
    """The handling of an engine's calls: attempts are recorded in coordination, and the group decides."""

    def __init__(self, pauses: RestartPauses) -> None:
        self._pauses = pauses

    def variables(self) -> Mapping[str, str]:
        return {}

    def end_child(self, watch: EngineWatch, finding: WatchFinding, cause: EndedBy) -> None:
        watch.end_engine(finding, _AGAIN if cause is EndedBy.CALL else "")

    def after_crash(self, watch: EngineWatch, finding: WatchFinding) -> None:
        watch.record_crash(finding, _AGAIN)

    def pause_s(self, end: EngineEnd, before_s: float) -> float | None:
        return self._pauses.next_s(end, before_s)


class ReplayDecisions:
    """The handling of a replay's calls: each that does not end is refused in the next start."""

    def __init__(self) -> None:
        self._calls = ReplayCalls()

    def variables(self) -> Mapping[str, str]:
        return {DECIDED_VARIABLE: self._calls.to_text()}

    def end_child(self, watch: EngineWatch, finding: WatchFinding, cause: EndedBy) -> None:
        if finding.excess is None or cause is not EndedBy.CALL:
            watch.end_engine(finding, "")
            return
        self._decide(watch, finding, f"exceeds the {finding.excess.cause.value} of a call")
        watch.kill()

    def after_crash(self, watch: EngineWatch, finding: WatchFinding) -> None:
        self._decide(watch, finding, "crashed the replay")

    def pause_s(self, end: EngineEnd, before_s: float) -> float | None:
        return 0.0 if end.cause is EndedBy.CALL else None

    def _decide(self, watch: EngineWatch, finding: WatchFinding, what: str) -> None:
        assert finding.excess is not None
        is_one = finding.excess.call.rows == 1
        then = "the window refuses this event" if is_one else "to find the row, the window's code is called row by row"
        attempt = watch.report_call(finding.excess, "", f"{what}: {then}, and the replay begins again")
        self._calls = self._calls.with_attempt(attempt)


def run_parent(command: str, arguments: Sequence[str]) -> NoReturn:
    """Runs this process's own command, `hotspare COMMAND`, as a child, and ends as the child ends."""
    calls = EngineCalls(RestartPauses()) if command == "run" else ReplayDecisions()
    end_like(supervise([sys.executable, *sys.orig_argv[1:]], calls, _last_value(_HTTP, arguments)))


def supervise(command: Sequence[str], calls: CallHandling, http: str = "") -> int:
    """Runs the command until it ends and is not started again. Returns its exit status, or the negative number of the signal that
    ended it. Blocks the signals that it forwards, for good. `http`: the address `HOST:PORT` at which it answers requests
    (`http_answers`); the child reports one that is not an address."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(_NAME)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    parent = _Parent(command, calls)
    if http and not _serves(http, parent):
        return EXIT_NOT_LOADED
    return parent.run()


def _serves(http: str, parent: _Parent) -> bool:
    from hotspare.base.addresses import parse_host_port  # only here: it costs the parent memory
    from hotspare.host.watchdog.http_answers import serve

    address = parse_host_port(http)
    try:
        if address is not None:
            parent.share_facts()
            serve(address.host, address.port, parent.facts)
    except OSError as error:
        sys.stderr.write(f"error: {_HTTP} {http}: cannot listen there: {error.strerror or error}\n")
        return False
    return True


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
    def __init__(self, command: Sequence[str], calls: CallHandling) -> None:
        self._command = list(command)
        self._calls = calls
        self._engine = 0
        self._starts = 0
        self._watch: EngineWatch | None = None
        """The watch of the child that runs; None between two starts."""
        self._stopped_s: float | None = None
        """When the first stop was requested; None before."""
        self._facts: FactsMemory | None = None
        """The memory in which the child publishes; None if nothing answers requests."""

    def share_facts(self) -> None:
        """Makes every child publish its facts for `facts`."""
        from hotspare.host.watchdog.published_facts import FactsMemory  # only here: it costs the parent memory

        self._facts = FactsMemory()

    def facts(self) -> ParentFacts:
        """Returns what the answers need. Callable from any thread."""
        from hotspare.host.watchdog.http_answers import ParentFacts

        watch = self._watch
        call = None if watch is None else watch.call_facts()
        published = None if watch is None or self._facts is None else self._facts.read()
        return ParentFacts(0 if watch is None else self._engine, self._starts, time.monotonic_ns(), call, published)

    def run(self) -> int:
        pause_s: float | None = 0.0
        while pause_s is not None:
            with contextlib.closing(self._started()) as watch:
                begun_s = time.monotonic()
                self._watch = watch
                cause, status = self._watched(watch)
                self._watch = None
                end = EngineEnd(status, cause, time.monotonic() - begun_s)
                pause_s = self._calls.pause_s(end, pause_s)
                if pause_s:
                    message = f"the engine ended ({_described(end)}) and is started again in {pause_s:g} s"
                    watch.report(LogEvent.ENGINE_RESTARTED, message, status=status, ran_ms=int(end.ran_s * 1_000))
            if pause_s is not None and self._is_stopped_within(pause_s):
                return 0
        return EXIT_NOT_LOADED if cause is EndedBy.LOADING else status

    def _started(self) -> EngineWatch:
        """Starts the engine; returns its watch."""
        memory = create_memory()
        self._starts += 1
        environment = {**os.environ, **self._calls.variables(), BOARD_VARIABLE: f"{memory}:{os.getpid()}"}
        if self._facts is not None:
            self._facts.begin_start(self._starts)
            environment[FACTS_VARIABLE] = f"{self._facts.descriptor}:{self._starts}"
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
                return self._cause_of(watch, status), status
            finding = watch.look()
            if finding is not None:
                cause = EndedBy.LOADING if finding.excess is None else EndedBy.CALL
                cause = cause if self._stopped_s is None else EndedBy.STOP
                self._calls.end_child(watch, finding, cause)
                return cause, self._awaited_end()
            if self._stopped_s is not None and self._is_stop_overdue(watch, self._stopped_s):
                watch.report(
                    LogEvent.STOP_OVERDUE, f"a call does not end for {STOP_S_MAX:.0f} s after the stop: the engine is ended"
                )
                os.kill(self._engine, signal.SIGKILL)
                return EndedBy.STOP, self._awaited_end()

    def _cause_of(self, watch: EngineWatch, status: int) -> EndedBy:
        """Returns the cause of an end that nothing here caused; handles it if a call crashed the child."""
        if self._stopped_s is not None:
            return EndedBy.STOP
        finding = watch.crash(status)
        if finding is None:
            return EndedBy.ITSELF
        self._calls.after_crash(watch, finding)
        return EndedBy.CALL

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
