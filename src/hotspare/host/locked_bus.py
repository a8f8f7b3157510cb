"""Waits for who keeps the bus locked while an engine starts: it has no role yet that others would have to take over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from hotspare.base.errors import BusLocked
from hotspare.base.retry import Retry

_T = TypeVar("_T")

WAIT_S = 30.0
"""Longer than a publisher at work keeps a bus from one caller, also on a machine that is short of processors."""
_LOCKED = Retry(lasting_s=WAIT_S)
"""Without a pause: the bus itself waits for its lock, for a while, before it says that it is locked."""


def outwait_lock(call: Callable[[], _T], clock_s: Callable[[], float] = time.monotonic) -> _T:
    """The call's result; it is made again while the bus is locked, so it must be one that can be repeated. BusLocked in the end."""
    return _LOCKED.call(call, lambda error: isinstance(error, BusLocked), clock_s=clock_s)
