"""Calls that take time: while one is in flight its engine is busy with it, and everything else continues.

A call reaches the other side after a while, takes effect there, and its answer takes a while to arrive. An engine that is stopped
meanwhile gets the answer when it resumes. If it is killed, its call may take effect all the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from tests.simulation.faults import FaultKind, FaultPlan


class CallKind(Enum):
    """The target of a call; scripts and runs set how long each kind takes."""

    READ = "read"
    APPEND = "append"
    FENCE = "fence"
    PROGRESS = "progress"
    PUBLISH = "publish"
    COORDINATION = "coordination"
    ROLE = "coordination, on the role"
    """Paced like the others; a run may delay its answer."""
    STORE = "store"
    STORE_WRITE = "store, in the background"
    """Paced like the others; it may never end."""


class Died(BaseException):
    """Raised when the process ends during a call."""


class Fiber(greenlet):
    """A thread of a simulated process. It can be suspended during a call, and ended there."""

    ready_ms: int = -1
    """The world's time until which its call is in flight."""
    is_last: bool = False
    """Whether its current work is to be its last."""

    def end(self) -> None:
        """Ends the thread for good; callable from another fiber."""
        if self and self is not getcurrent():
            self.parent = getcurrent()
            self.throw(GreenletExit)


@dataclass(slots=True)
class _Call:
    """A call in flight: when it takes effect, and its result."""

    due_ms: int
    number: int
    caller: str
    effect: Callable[[], Any]
    answer: Any = None
    error: BaseException | None = None

    def take_effect(self) -> None:
        try:
            self.answer = self.effect()
        except (Exception, Died) as error:
            self.error = error


@dataclass
class Calls:
    """The calls of all engines. `duration` returns, for an engine's call, the ms until it takes effect, and then until its answer
    arrives."""

    now_ms: Callable[[], int]
    duration: Callable[[str, CallKind], tuple[int, int]]
    underway: list[_Call] = field(default_factory=list)
    made: int = 0
    slow: int = 0
    hung: list[Fiber] = field(default_factory=list)
    """Threads whose call does not end before `let_go`."""
    hangs: int = 0

    def make(self, caller: str, kind: CallKind, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        fiber = getcurrent()
        self.made += 1
        before_ms, after_ms = self.duration(caller, kind) if isinstance(fiber, Fiber) else (0, 0)
        if not before_ms and not after_ms:
            return call(*arguments, **options)
        self.slow += 1
        now_ms = self.now_ms()
        fiber.ready_ms = now_ms + before_ms + after_ms  # type: ignore[attr-defined]
        made = _Call(now_ms + before_ms, self.slow, caller, partial(call, *arguments, **options))
        if before_ms + after_ms >= NEVER_MS:
            self.hangs += 1
            self.hung.append(fiber)  # type: ignore[arg-type]
        if before_ms:
            self.underway.append(made)
        else:
            made.take_effect()
        fiber.parent.switch(f"waits until {fiber.ready_ms} for {kind.value}")  # type: ignore[attr-defined, union-attr]
        if made.error is not None:
            raise made.error
        return made.answer

    def next_due(self, until_ms: int) -> _Call | None:
        """Removes and returns the next call that takes effect by then."""
        due = min((c for c in self.underway if c.due_ms <= until_ms), key=lambda c: (c.due_ms, c.number), default=None)
        if due is not None:
            self.underway.remove(due)
        return due

    def let_go(self) -> None:
        """Ends all hung calls."""
        now_ms = self.now_ms()
        for call in self.underway:
            call.due_ms = min(call.due_ms, now_ms) if call.due_ms >= NEVER_MS else call.due_ms
        for fiber in self.hung:
            fiber.ready_ms = now_ms + 1
        self.hung.clear()

    def forget(self, caller: str, rng: random.Random) -> None:
        """Drops the calls of a dead caller at random: each takes effect, or does not."""
        self.underway = [c for c in self.underway if c.caller != caller or rng.random() < 0.5]


class Timed:
    """A door of an engine whose calls take time; `kinds` maps methods to kinds, all others return at once."""

    def __init__(self, inner: Any, calls: Calls, caller: str, kinds: Mapping[str, CallKind]) -> None:
        self.inner = inner
        self._calls = calls
        self._caller = caller
        self._kinds = kinds

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.inner, name)
        kind = self._kinds.get(name)
        return call if kind is None else partial(self._calls.make, self._caller, kind, call)


def _kinds(**names: Iterable[str]) -> dict[str, CallKind]:
    return {name: CallKind[kind] for kind, group in names.items() for name in group}


PRODUCER = _kinds(FENCE=("fence",), PROGRESS=("progress",), PUBLISH=("publish",))
BUS = _kinds(
    READ=(
        "read",
        "begin_offset",
        "end_offset",
        "newest_with_header",
        "retention_ms",
        "topics",
        "message_bytes_max",
        "readers",
        "owners",
    ),
    APPEND=("append", "append_guarded", "create_topic", "trim", "expire", "record_reader"),
    PROGRESS=("progress",),
)
COORDINATION = _kinds(
    COORDINATION=(
        *("refresh_member", "remove_member", "members", "requested_successor", "withdraw_switchover", "fact", "set_fact_once"),
    ),
    ROLE=("leader", "campaign", "renew", "release"),
)
STORE = _kinds(STORE=("identity", "list", "discard", "get"), STORE_WRITE=("write_candidate", "confirm", "prune_snapshots"))


class TimedBus(Timed):
    """A bus whose producers' calls take time too."""

    def __init__(self, inner: Any, calls: Calls, caller: str) -> None:
        super().__init__(inner, calls, caller, BUS)

    def producer(self, group: str, output_topics: Any) -> Timed:
        return Timed(self.inner.producer(group, output_topics), self._calls, self._caller, PRODUCER)


_SPIKES_MS = (2, 5, 20, 60, 130, 200)
"""Up to a few leases; most are short."""
_STEADY_MS: dict[CallKind, tuple[int, ...]] = {
    CallKind.READ: (0, 0, 1),
    CallKind.APPEND: (0, 1, 3),
    CallKind.FENCE: (0, 3, 10),
    CallKind.PROGRESS: (0, 1, 4),
    CallKind.PUBLISH: (0, 2, 6),
    CallKind.COORDINATION: (0, 1, 2),
    CallKind.STORE: (0, 3, 30),
}
_SLOW_FENCES_MS = (40, 80, 140)
_PACED_AS = {CallKind.ROLE: CallKind.COORDINATION, CallKind.STORE_WRITE: CallKind.STORE}
NEVER_MS = 1 << 40


@dataclass
class Pace:
    """The durations of a run's calls. Steady durations remain when the world heals."""

    plan: FaultPlan
    steady_ms: dict[CallKind, int] = field(default_factory=dict)
    set_ms: dict[tuple[str, CallKind], int] = field(default_factory=dict)
    """Durations set by a script: per engine, "" for all."""

    def draw(self) -> None:
        """Draws the steady durations of a run."""
        rng, enabled = self.plan.rng, self.plan.enabled
        if FaultKind.SLOW_WORLD in enabled:
            self.steady_ms = {kind: rng.choice(most) for kind, most in _STEADY_MS.items()}
        if FaultKind.SLOW_FENCE in enabled:
            self.steady_ms[CallKind.FENCE] = rng.choice(_SLOW_FENCES_MS)

    def __call__(self, caller: str, asked: CallKind) -> tuple[int, int]:
        kind = _PACED_AS.get(asked, asked)
        if self.set_ms:
            engine = caller.partition("#")[0]
            total_ms = self.set_ms.get((engine, kind), self.set_ms.get(("", kind), 0))
            return total_ms - total_ms // 2, total_ms // 2
        rng, most_ms = self.plan.rng, self.steady_ms.get(kind, 0)
        total_ms = rng.randint((most_ms + 1) // 2, most_ms) if most_ms else 0
        if self.plan.happens(FaultKind.SLOW_CALLS, 0.02):
            total_ms += rng.choice(_SPIKES_MS)
        before_ms = rng.randint(0, total_ms) if total_ms else 0
        after_ms = total_ms - before_ms
        if asked is CallKind.ROLE and self.plan.happens(FaultKind.LATE_ANSWER, 0.3):
            after_ms = max(after_ms, 1)  # `run.py` lets its engine sleep meanwhile, until others have moved on
        elif asked is CallKind.STORE_WRITE and self.plan.happens(FaultKind.STORE_HANGS, 0.05):
            return rng.choice(((NEVER_MS, 0), (before_ms, NEVER_MS)))
        return before_ms, after_ms
