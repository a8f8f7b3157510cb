"""Fixes the depth of Python's stack at which calls of user code begin, equally in every engine.

Python refuses functions, and values within values, that are nested too deeply, and counts from the bottom of the thread's stack. So
the result would depend on the caller's depth. Each call of user code therefore has exactly `STACK_LEVELS` above it. `Meter` stops
functions earlier.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
STACK_LEVELS = 1500
_BELOW = 500
"""The levels of callers that are reserved at once; more later."""


def at_fixed_level(work: Callable[[], T]) -> T:
    """Returns or raises what `work` does."""
    missing = STACK_LEVELS - (sys.getrecursionlimit() - _level())
    if missing > 0:
        sys.setrecursionlimit(sys.getrecursionlimit() + missing + _BELOW)
    return _raised(sys.getrecursionlimit() - _level() - STACK_LEVELS, work)


def _raised(levels: int, work: Callable[[], T]) -> T:
    return work() if levels <= 0 else _raised(levels - 1, work)


def _level() -> int:
    """Returns the caller's depth on the thread's stack. Python reports it in the error for a limit below it."""
    try:
        sys.setrecursionlimit(1)
    except RecursionError as error:
        found = re.search(r"depth (\d+)", str(error))
        if found:
            return int(found[1])
    raise RuntimeError("Python does not tell how deep its stack is")
