"""Retries of a call: how many, for how long, with which pauses. Every part of hotspare that retries uses this module.

CONTENDED = Retry(tries_max=20, pause_s=0.01, pause_max_s=0.5)
for _ in CONTENDED.tries():          # the first try counts
    if made := attempt():
        return made
raise BusUnavailable(...)            # all tries are used up

BUSY = Retry(lasting_s=2, pause_s=0.001)
BUSY.call(read, is_busy)             # raises the last try's error
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

_T = TypeVar("_T")


class Pauses(Enum):
    EVEN = "even"
    RANDOM = "random"
    """Each pause lasts between 0 and its full length, so that two competing callers do not retry in step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A policy for repeating a call. `tries_max` bounds the tries, the first one included. Once `lasting_s` has passed since the
    first try, no further try follows. None means no bound. Pauses begin with `pause_s` and double up to `pause_max_s`; if
    `pause_max_s` is less than `pause_s`, all pauses are equal."""

    tries_max: int | None = None
    lasting_s: float | None = None
    pause_s: float = 0.0
    pause_max_s: float = 0.0
    pauses: Pauses = Pauses.EVEN

    def tries(self, wait: Callable[[float], object] = time.sleep, clock_s: Callable[[], float] = time.monotonic) -> Iterator[int]:
        """Yields 0, 1, 2 ... for each try that may begin, with a pause before each but the first. `wait` sleeps for its argument in
        seconds; an error that it raises ends the tries and is raised here."""
        begun_s, pause_s, tried = clock_s(), self.pause_s, 0
        while True:
            yield tried
            tried += 1
            if tried == self.tries_max or (self.lasting_s is not None and clock_s() - begun_s >= self.lasting_s):
                return
            if pause_s > 0:
                wait(pause_s if self.pauses is Pauses.EVEN else random.uniform(0, pause_s))  # noqa: S311
            pause_s = max(pause_s, min(2 * pause_s, self.pause_max_s))

    def call(
        self,
        call: Callable[[], _T],
        passes: Callable[[Exception], bool],
        wait: Callable[[float], object] = time.sleep,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> _T:
        """Returns the call's result. Retries after an error for which `passes` is true; raises any other error at once, and the
        last try's error at the end."""
        failure: Exception | None = None
        for _ in self.tries(wait, clock_s):
            try:
                return call()
            except Exception as error:
                if not passes(error):
                    raise
                failure = error
        assert failure is not None
        raise failure
