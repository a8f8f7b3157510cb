"""How much one call of people's Python code may do: steps and depth, counted the same in every engine.

A step is a turn of a loop, a call of a function, or work on 64 elements that Python does by itself, such as joining texts. No clock
decides: two engines would differ. What goes beyond a limit raises `LimitExceeded`, which no `except` of people's code catches, and
goes on raising it at every further step, so that the call ends soon whatever the code does about it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any

ELEMENTS_PER_STEP = 64
_STEP = True
"""What a step is for whoever asks: true."""
FREE_ELEMENTS = 256
"""Work on fewer elements than this is part of the step in which it is done."""
_FIRST = (_STEP,) * 4096
"""The steps of most calls. An iterator over a tuple can be put back to its beginning, which takes a tenth of making another one."""


@dataclass(frozen=True, slots=True)
class PythonLimits:
    """Of one call: `steps` and `depth` of functions within each other. Of one value that it makes: `elements` of a sequence and
    `bits` of a number. Of all that a program keeps: `kept_bytes`."""

    steps: int = 1_000_000
    depth: int = 100
    elements: int = 16 << 20
    bits: int = 1 << 16
    kept_bytes: int = 64 << 20


class LimitExceeded(BaseException):
    """The call does more than it may; the text says more of what. Not an `Exception`: people's code does not catch it."""


class Meter:
    """Counts one call at a time. `tick` is a step: true, and one of them less. It is another object where `begin` says so."""

    __slots__ = ("_can_go_back", "_chain", "_depth", "_first", "_left", "_no_more", "limits", "over", "tick")

    def __init__(self, limits: PythonLimits) -> None:
        self.limits = limits
        self._no_more = _NoMore(self)
        self.begin()

    def begin(self, steps: int | None = None) -> None:
        """A call begins, with a `tick` of its own."""
        self.over = ""
        """What went beyond its limit, "" while nothing did."""
        self._depth = 0
        self._can_go_back = steps is None
        count = self.limits.steps if steps is None else steps
        self._first: Any = iter(_FIRST[:count])
        self._left = repeat(_STEP, max(0, count - len(_FIRST)))
        self._chain: Iterator[bool] = chain(self._first, self._left, self._no_more)
        self.tick: Callable[[], bool] = self._chain.__next__

    def begin_again(self) -> bool:
        """A call begins, with the `tick` of the one before. False, and nothing has begun: that one took too many steps for this, or
        had others to take."""
        if self.over or not self._can_go_back or not self._first.__length_hint__():
            return False
        self._first.__setstate__(0)
        self._depth = 0
        return True

    @property
    def steps(self) -> Iterator[bool]:
        """One item for each step that is left; whoever takes them pays."""
        return self._chain

    def charge(self, elements: int) -> None:
        """Python is about to work on so many elements by itself."""
        if elements > FREE_ELEMENTS:
            if elements > self.limits.elements:
                self.stop(f"a value of more than {self.limits.elements} elements")
            deque(islice(self._chain, elements // ELEMENTS_PER_STEP), maxlen=0)

    def charge_bits(self, bits: int) -> None:
        """A number of about so many bits is about to be made."""
        if bits > self.limits.bits:
            self.stop(f"a number of more than {self.limits.bits} bits")
        self.charge(bits // 8)

    def enter(self) -> None:
        """A function that may call itself begins, or a generator goes on."""
        self._depth += 1
        if self._depth > self.limits.depth:
            self.stop(f"more than {self.limits.depth} functions within each other")

    def leave(self) -> None:
        self._depth -= 1

    def check(self) -> None:
        """LimitExceeded where the code went on as if it had not been raised."""
        if self.over:
            raise LimitExceeded(self.over)

    def stop(self, over: str) -> None:
        """Raise LimitExceeded, now and at every further step."""
        self.over = self.over or over
        deque(self._first, maxlen=0)
        deque(self._left, maxlen=0)
        raise LimitExceeded(self.over)


class _NoMore:
    """What is left where no step is: it raises, and does so again."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def __iter__(self) -> Iterator[bool]:
        return self

    def __next__(self) -> bool:
        meter = self._meter
        meter.over = meter.over or f"more than {meter.limits.steps} steps"
        raise LimitExceeded(meter.over)
