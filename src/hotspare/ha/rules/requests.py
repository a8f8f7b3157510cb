"""Which requests for snapshots stay facts of the group, and how the newest is found among them. Pure.

Requests are numbered 1, 2, 3 ... for ever; of those that are done the newest few stay. A search for the newest asks for numbers in
steps that double and then halve (`newest`): so the numbers stay that this comes upon. It comes upon few, and what it comes upon for
a greater number, and is not greater than the newest, it comes upon for the newest too: a number that may go is never asked for
again, however late it is removed.

An engine that knows of an older one and slept meanwhile finds the next one gone. It looks at the numbers that a search from the
older one would miss, one each time (`beyond`): as the search that finds a greater one differs, one of these is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum

KEPT = 100
"""So many of the newest that are done stay, with all that is told of them."""


class RequestPart(IntEnum):
    """What is told of a request, in the order in which it goes: what is left by a cut is never a request that is not done."""

    REQUEST = 0
    CLAIM = 1
    RESULT = 2


@dataclass(frozen=True, slots=True)
class RequestFact:
    """A fact of a request, by the name that it has."""

    name: str
    part: RequestPart
    number: int


def newest(holds: Callable[[int], bool]) -> int:
    """The greatest number that holds, 0 where none does: of these all do that were ever asked for, and none behind."""
    known, step = 0, 1
    while holds(known + step):
        known, step = known + step, step * 2
    while step := step // 2:
        if holds(known + step):
            known += step
    return known


def on_the_way(number: int) -> frozenset[int]:
    """The numbers that the search for this one comes upon."""
    return frozenset(asked for asked in _asked_for(number) if asked <= number)


def beyond(number: int) -> tuple[int, ...]:
    """The greater numbers that the search for this one asks for in vain."""
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
    """The facts that nobody needs any more, in the order in which they are to go."""
    known = list(told)
    done = last_of(known, RequestPart.RESULT)
    ways = on_the_way(done) | on_the_way(last_of(known, RequestPart.REQUEST))
    old = [each for each in known if each.number <= done - kept and (each.part is RequestPart.CLAIM or each.number not in ways)]
    return [each.name for each in sorted(old, key=lambda each: (each.part, each.number))]
