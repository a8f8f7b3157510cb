"""Decides which persist requests remain facts of the group, and finds the newest among them. Pure.

Requests are numbered 1, 2, 3 ... for ever; of the finished ones only the newest remain. A search for the newest probes numbers in
steps that double and then halve (`search_newest`), so the few numbers that it probes have to remain. Of the numbers up to the
present newest, a later search probes no others than these. So a removed number is never probed again, however late it is removed.

An engine that knows an older number and slept meanwhile may find the next one removed. It then probes, one at a time, the numbers
that a search for the older number misses (`search_misses`). A search for the newest number hits one of these, so at least one
remains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum

FINISHED_KEPT_MAX = 100
"""The number of newest finished requests that remain, with all their facts."""


class RequestFactKind(IntEnum):
    """The kinds of a request's facts, in the order of removal: so an interrupted removal never leaves a request that looks
    unfinished."""

    REQUEST = 0
    CLAIM = 1
    RESULT = 2


@dataclass(frozen=True, slots=True)
class RequestFact:
    """A fact of a request: its name in the group, its kind, and the number of the request."""

    name: str
    kind: RequestFactKind
    number: int


def search_newest(holds: Callable[[int], bool]) -> int:
    """Returns the greatest number for which `holds` is True; 0 if none is. Requires that, of the numbers probed, all up to the
    result hold and none above it."""
    known, step = 0, 1
    while holds(known + step):
        known, step = known + step, step * 2
    while step := step // 2:
        if holds(known + step):
            known += step
    return known


def search_hits(number: int) -> frozenset[int]:
    """Returns the numbers up to `number` that `search_newest` probes if `number` is the newest."""
    return frozenset(asked for asked in _probed_numbers(number) if asked <= number)


def search_misses(number: int) -> tuple[int, ...]:
    """Returns the numbers above `number` that `search_newest` probes if `number` is the newest."""
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
    """Returns the names of the facts to remove so that the newest `kept` finished requests, and the numbers that searches need,
    remain; in the order of removal."""
    known = list(told)
    done = greatest_number(known, RequestFactKind.RESULT)
    ways = search_hits(done) | search_hits(greatest_number(known, RequestFactKind.REQUEST))
    old = [each for each in known if each.number <= done - kept and (each.kind is RequestFactKind.CLAIM or each.number not in ways)]
    return [each.name for each in sorted(old, key=lambda each: (each.kind, each.number))]
