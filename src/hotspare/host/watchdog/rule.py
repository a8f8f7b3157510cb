"""Decides, purely: when a call of user code has used too much, and when an engine that ended is started again.

Only processor time of the calling thread counts. A frozen host, a stopped process or a slow machine uses none, so none of them can
turn a good event into a bad one.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from hotspare.base.call_board import ShownCall
from hotspare.base.call_place import HangCause

LOADING_DEADLINES = 6
"""Loading a project may use this many times the deadline of a call: it also reads, checks and compiles."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The limits of one call; 0: no limit."""

    deadline_ms: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CallSample:
    """A look at a running call. `used_ms`: the processor time of its thread since the thread began. `memory_bytes`: the memory of
    its process. `seen_s`: the watcher's clock."""

    call: ShownCall
    used_ms: int
    memory_bytes: int = 0
    seen_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ExcessiveCall:
    """A call that exceeded a limit, or crashed. `used_ms` and `grown_bytes`: since the watcher first saw the call; 0 if it
    crashed."""

    call: ShownCall
    cause: HangCause
    used_ms: int
    grown_bytes: int


def first_sample(first: CallSample | None, now: CallSample | None) -> CallSample | None:
    """Returns the first look at the call that runs now; `first` is that of the look before. None if no call runs.

    The whole call is compared, with its position: between two writes of the engine, a look may see the count of one call and the
    position of the next. The pair is gone as soon as the thread runs, so it never collects processor time.
    """
    return first if first is not None and now is not None and first.call == now.call else now


def excess(first: CallSample, now: CallSample, limits: CallLimits) -> ExcessiveCall | None:
    """Returns which limit the call has exceeded since its first look; None if none."""
    used_ms, grown_bytes = now.used_ms - first.used_ms, now.memory_bytes - first.memory_bytes
    if first.call != now.call or now.call.is_unlimited:
        return None
    if limits.memory_bytes and grown_bytes >= limits.memory_bytes:
        return ExcessiveCall(now.call, HangCause.MEMORY, used_ms, grown_bytes)
    if limits.deadline_ms and used_ms >= limits.deadline_ms:
        return ExcessiveCall(now.call, HangCause.DEADLINE, used_ms, grown_bytes)
    return None


CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT})
"""Signals with which a process ends itself. Others, such as SIGKILL, come from outside and say nothing about a call."""


def crashed_call(status: int, calls: Mapping[int, ShownCall]) -> int | None:
    """Returns the slot whose call crashed the process that ended with `status`, the negative number of a signal; None if none did,
    or it cannot be known which. `calls`: those that ran at the end, by slot."""
    return next(iter(calls)) if -status in CRASHES and len(calls) == 1 else None


def is_loading_excessive(first_ms: int, now_ms: int, limits: CallLimits) -> bool:
    """Whether loading has used more than it may. The arguments are the loading thread's processor times at the first look and
    now."""
    return limits.deadline_ms > 0 and now_ms - first_ms >= LOADING_DEADLINES * limits.deadline_ms


class EndedBy(Enum):
    """The cause of an engine's end, as far as its parent knows it."""

    ITSELF = "itself"
    STOP = "stop"
    """A stop was requested from the parent."""
    CALL = "call"
    """The watch ended it during a call, or it crashed in one."""
    LOADING = "loading"
    """The watch ended it while it loaded its project."""


@dataclass(frozen=True, slots=True)
class EngineEnd:
    """The end of an engine. `status`: its exit status, or the negative number of the signal that ended it. `ran_s`: how long it
    had run."""

    status: int
    cause: EndedBy
    ran_s: float


EXIT_RUNNER_DIED = 70
"""The exit status of an engine whose runner has died or hangs."""
EXIT_AGAIN = 75
"""The exit status of an engine that asks to be started again, because its state is void."""
RESTARTED_STATUSES = frozenset({EXIT_RUNNER_DIED, EXIT_AGAIN})
"""Exit statuses of engines that can go on after another start."""
EXIT_NOT_LOADED = 1
_REQUESTS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals that end an engine only because its end is requested."""


@dataclass(frozen=True, slots=True)
class RestartPauses:
    """The pauses before an engine is started again. They double from `first_s` to `most_s`, and begin again after a run of
    `steady_s`."""

    first_s: float = 0.2
    most_s: float = 30.0
    steady_s: float = 60.0

    def next_s(self, end: EngineEnd, before_s: float) -> float | None:
        """Returns the pause before the next start; None if the engine is not started again. `before_s`: the last pause, 0 before
        the first."""
        if not is_restarted(end):
            return None
        return self.first_s if end.ran_s >= self.steady_s or before_s <= 0 else min(self.most_s, 2 * before_s)


def is_restarted(end: EngineEnd) -> bool:
    """Whether an engine that ended so is started again: after a call, a crash, or a status that asks for it. An error that the
    engine reported would only recur."""
    if end.cause in (EndedBy.STOP, EndedBy.LOADING):
        return False
    return end.cause is EndedBy.CALL or end.status in RESTARTED_STATUSES or (end.status < 0 and -end.status not in _REQUESTS)
