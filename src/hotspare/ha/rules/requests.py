"""Which requests for snapshots stay facts of the group, and how the newest is found among them. Pure.

Requests are numbered 1, 2, 3 ... for ever; of the finished ones the newest few stay. A search for the newest probes numbers in
steps that double and then halve (`search_newest`), so the numbers that it probes have to stay. There are few. A search for a
greater number also probes those of them that are not greater than the newest. So a removed number is never probed again, however
late it is removed.

An engine that knows an older number and slept meanwhile finds the next one gone. It probes, one at a time, the numbers that a
search for the older one misses (`search_misses`): as a search that finds a greater one differs, one of these exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum

FINISHED_KEPT_MAX = 100
"""The newest finished requests that stay, with all their facts."""


class RequestFactKind(IntEnum):
    """The kinds of facts of a request, in the order of removal: an interrupted removal never leaves a request that looks
    unfinished."""

    REQUEST = 0
    CLAIM = 1
    RESULT = 2


@dataclass(frozen=True, slots=True)
class RequestFact:
    """A fact of a request, with its name."""

    name: str
    kind: RequestFactKind
    number: int


def search_newest(holds: Callable[[int], bool]) -> int:
    """Returns the greatest number that holds, 0 if none does: of the probed numbers, all up to it hold and none beyond."""
    known, step = 0, 1
    while holds(known + step):
        known, step = known + step, step * 2
    while step := step // 2:
        if holds(known + step):
            known += step
    return known


def search_hits(number: int) -> frozenset[int]:
    """Returns the numbers that the search for `number` finds."""
    return frozenset(asked for asked in _probed_numbers(number) if asked <= number)


def search_misses(number: int) -> tuple[int, ...]:
    """Returns the greater numbers that the search for `number` probes in vain."""
    return tuple(asked for asked in _probed_numbers(number) if asked > number)


def _probed_numbers(number: int) -> list[int]:
    requested: list[int] = []

    def holds(asked: int) -> bool:
        requested.append(asked)
        return asked <= number

    search_newest(holds)
    return requested


def greatest_number(told: Iterable[RequestFact], part: RequestFactKind) -> int:
    return max((each.number for each in told if each.kind is part), default=0)


def removable(told: Iterable[RequestFact], kept: int) -> list[str]:
    """Returns the names of the facts that are no longer needed, in the order of removal."""
    known = list(told)
    done = greatest_number(known, RequestFactKind.RESULT)
    ways = search_hits(done) | search_hits(greatest_number(known, RequestFactKind.REQUEST))
    old = [each for each in known if each.number <= done - kept and (each.kind is RequestFactKind.CLAIM or each.number not in ways)]
    return [each.name for each in sorted(old, key=lambda each: (each.kind, each.number))]
