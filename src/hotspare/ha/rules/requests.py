"""Which requests for snapshots stay facts of the group, and how the newest is found among them. Pure.

Requests are numbered 1, 2, 3 ... for ever; of the finished ones the newest few stay. A search for the newest probes numbers in
steps that double and then halve (`newest`), so the numbers that it probes have to stay. There are few. A search for a greater
number also probes those of them that are not greater than the newest. So a removed number is never probed again, however late it is
removed.

An engine that knows an older number and slept meanwhile finds the next one gone. It probes, one at a time, the numbers that a
search for the older one misses (`beyond`): as a search that finds a greater one differs, one of these exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum

KEPT = 100
"""The newest finished requests that stay, with all their facts."""


class RequestPart(IntEnum):
    """The kinds of facts of a request, in the order of removal: an interrupted removal never leaves a request that looks
    unfinished."""

    REQUEST = 0
    CLAIM = 1
    RESULT = 2


@dataclass(frozen=True, slots=True)
class RequestFact:
    """A fact of a request, with its name."""

    name: str
    part: RequestPart
    number: int


def newest(holds: Callable[[int], bool]) -> int:
    """Returns the greatest number that holds, 0 if none does: of the probed numbers, all up to it hold and none beyond."""
    known, step = 0, 1
    while holds(known + step):
        known, step = known + step, step * 2
    while step := step // 2:
        if holds(known + step):
            known += step
    return known


def on_the_way(number: int) -> frozenset[int]:
    """Returns the numbers that the search for `number` finds."""
    return frozenset(asked for asked in _asked_for(number) if asked <= number)


def beyond(number: int) -> tuple[int, ...]:
    """Returns the greater numbers that the search for `number` probes in vain."""
    return tuple(asked for asked in _asked_for(number) if asked > number)


def _asked_for(number: int) -> list[int]:
    asked_for: list[int] = []

    def holds(asked: int) -> bool:
        asked_for.append(asked)
        return asked <= number

    newest(holds)
    return asked_for


def last_of(told: Iterable[RequestFact], part: RequestPart) -> int:
    return max((each.number for each in told if each.part is part), default=0)


def gone(told: Iterable[RequestFact], kept: int) -> list[str]:
    """Returns the names of the facts that are no longer needed, in the order of removal."""
    known = list(told)
    done = last_of(known, RequestPart.RESULT)
    ways = on_the_way(done) | on_the_way(last_of(known, RequestPart.REQUEST))
    old = [each for each in known if each.number <= done - kept and (each.part is RequestPart.CLAIM or each.number not in ways)]
    return [each.name for each in sorted(old, key=lambda each: (each.part, each.number))]
