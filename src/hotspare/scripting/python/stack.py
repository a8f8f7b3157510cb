"""Fixes the number of free levels on Python's stack at which calls of user code begin, equally in every engine.

Python refuses functions, and values within values, that are nested too deeply, and counts from the bottom of the thread's stack. So
the result would depend on the caller's depth. Each call of user code therefore begins with exactly `STACK_LEVELS` free levels.
`Meter` stops functions earlier.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
STACK_LEVELS = 1500
_BELOW = 500
"""The additional levels that are reserved when the limit of the stack is raised, so that deeper callers rarely raise it again."""


def at_fixed_level(work: Callable[[], T]) -> T:
    """Runs `work` with exactly STACK_LEVELS free levels on the stack. Returns its value, or raises its error."""
    missing = STACK_LEVELS - (sys.getrecursionlimit() - _level())
    if missing > 0:
        sys.setrecursionlimit(sys.getrecursionlimit() + missing + _BELOW)
    return _raised(sys.getrecursionlimit() - _level() - STACK_LEVELS, work)


def _raised(levels: int, work: Callable[[], T]) -> T:
    return work() if levels <= 0 else _raised(levels - 1, work)


def _level() -> int:
    """Returns the caller's depth on the thread's stack. Python reports that depth in the error for a limit that is too low."""
    try:
        sys.setrecursionlimit(1)
    except RecursionError as error:
        found = re.search(r"depth (\d+)", str(error))
        if found:
            return int(found[1])
    raise RuntimeError("Python does not tell how deep its stack is")
