"""Counts the steps and the depth of one call of user code, equally in every engine.

A step is a turn of a loop or a call of a function. No clock is involved, because two engines would differ. A call beyond a limit
raises `LimitExceeded`, which no `except` of user code catches, and every further step raises it again, so that the call always
ends. The work of Python's own functions is not counted; only the sizes of values that operators and a few methods make are compared
with limits beforehand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, NoReturn

_STEP = True
_FIRST = (_STEP,) * 4096
"""The steps that most calls need. An iterator over a tuple can be reset to its beginning, at a tenth of the cost of a new one."""


@dataclass(frozen=True, slots=True)
class PythonLimits:
    """The limits of a program. `steps`: of one call. `depth`: nested functions in a call. `elements`: of one sequence. `bits`: of
    one number. `kept_bytes`: of all kept state.
    """

    steps: int = 1_000_000
    depth: int = 100
    elements: int = 16 << 20
    bits: int = 1 << 16
    kept_bytes: int = 64 << 20


class LimitExceeded(BaseException):
    """Raised if a call exceeds a limit, which the message names. It is not an `Exception`, and user code cannot catch it."""


class MemoryExhausted(BaseException):
    """Raised if the process has no memory left. Engines reach this at different points, so the engine ends."""


class Meter:
    """Counts the steps and the depth of one call at a time. `tick` counts a step and returns True, or raises LimitExceeded.
    `begin_call` replaces `tick` by another function.
    """

    __slots__ = ("_can_go_back", "_chain", "_depth", "_first", "_left", "_no_more", "is_memory_over", "limits", "over", "tick")

    def __init__(self, limits: PythonLimits) -> None:
        self.limits = limits
        self.is_memory_over = False
        self._no_more = _StepsExhausted(self)
        self.begin_call()

    def begin_call(self, steps: int | None = None) -> None:
        """Begins a call with at most `steps` steps, by default the program's limit. `tick` is another function afterwards."""
        self.over = ""
        """The limit that the current call exceeded, "" if none."""
        self._depth = 0
        self._can_go_back = steps is None
        count = self.limits.steps if steps is None else steps
        self._first: Any = iter(_FIRST[:count])
        self._left = repeat(_STEP, max(0, count - len(_FIRST)))
        self._chain: Iterator[bool] = chain(self._first, self._left, self._no_more)
        self.tick: Callable[[], bool] = self._chain.__next__

    def begin_again(self) -> bool:
        """Begins a call with the `tick` of the call before, which is faster. Returns False, and begins nothing, if that call took
        too many steps or had another limit.
        """
        if self.over or not self._can_go_back or not self._first.__length_hint__():
            return False
        self._first.__setstate__(0)
        self._depth = 0
        return True

    def enter_call(self) -> None:
        """Counts a call of a function, or a resumption of a generator, as a step and as a level of depth. Raises LimitExceeded."""
        self.tick()
        self._depth += 1
        if self._depth > self.limits.depth:
            self.stop(f"more than {self.limits.depth} functions within each other")

    def exit_call(self) -> None:
        self._depth -= 1

    def check_limits(self) -> None:
        """Raises MemoryExhausted or LimitExceeded again if the code continued after one of them."""
        if self.is_memory_over:
            raise MemoryExhausted
        if self.over:
            raise LimitExceeded(self.over)

    def stop(self, over: str) -> NoReturn:
        """Raises LimitExceeded for the limit `over`, now and at every further step."""
        self.over = self.over or over
        deque(self._first, maxlen=0)
        deque(self._left, maxlen=0)
        raise LimitExceeded(self.over)

    def stop_out_of_memory(self) -> NoReturn:
        """Marks the process as out of memory and raises MemoryExhausted. `check_limits` raises it again when the call ends."""
        self.is_memory_over = True
        raise MemoryExhausted


class _StepsExhausted:
    """The iterator after the last step of a call: each step from it raises LimitExceeded."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def __iter__(self) -> Iterator[bool]:
        return self

    def __next__(self) -> bool:
        meter = self._meter
        meter.over = meter.over or f"more than {meter.limits.steps} steps"
        raise LimitExceeded(meter.over)
