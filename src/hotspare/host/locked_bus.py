"""Waits for who keeps the bus locked while an engine starts: it has no role yet that others would have to take over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from hotspare.errors import BusLocked

_T = TypeVar("_T")

WAIT_S = 30.0
"""Longer than a publisher at work keeps a bus from one caller, also on a machine that is short of processors."""


def outwait_lock(call: Callable[[], _T], clock_s: Callable[[], float] = time.monotonic) -> _T:
    """The call's result; it is made again while the bus is locked, so it must be one that can be repeated. BusLocked in the end."""
    deadline_s = clock_s() + WAIT_S
    while True:
        try:
            return call()
        except BusLocked:
            if clock_s() >= deadline_s:
                raise
