"""Calls of people's code begin at the same place of Python's stack, in every engine.

Python ends functions, and values within values, that are too deep, and counts from the bottom of the thread's stack: who is called
from further up would end sooner. So each call of people's code has exactly `LEVELS` above it. Functions end earlier, by `Meter`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LEVELS = 1500
_BELOW = 500
"""So many levels of callers are made room for at once; the others later."""


def at_fixed_level(work: Callable[[], T]) -> T:
    """What `work` returns, or raises."""
    missing = LEVELS - (sys.getrecursionlimit() - _level())
    if missing > 0:
        sys.setrecursionlimit(sys.getrecursionlimit() + missing + _BELOW)
    return _raised(sys.getrecursionlimit() - _level() - LEVELS, work)


def _raised(levels: int, work: Callable[[], T]) -> T:
    return work() if levels <= 0 else _raised(levels - 1, work)


def _level() -> int:
    """How far up the stack of the thread the caller stands. Python tells it to who asks for a limit below it."""
    try:
        sys.setrecursionlimit(1)
    except RecursionError as error:
        found = re.search(r"depth (\d+)", str(error))
        if found:
            return int(found[1])
    raise RuntimeError("Python does not tell how deep its stack is")
