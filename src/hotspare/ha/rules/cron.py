"""Parses and evaluates schedules in cron's form (SPEC H4): five fields, minute to day of the week, in UTC. Pure.

A field is `*`, a number, a range `a-b`, or a list of these, each with a step `/n`. As in cron, if both the day of the month and the
day of the week are restricted, a day matches if either does. Sunday is 0 and 7.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise

from hotspare.base.errors import UsageError

_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("day of the week", 0, 7))
_PART = re.compile(r"(?P<first>\*|\d{1,2})(?:-(?P<last>\d{1,2}))?(?:/(?P<step>\d{1,2}))?")
_TIMES_LOOKED_AT = 1_000
_DAYS_MAX = 8 * 366
"""The days to search for a match: every date occurs within them, as the 29th of February may be eight years away."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed schedule: its `text` as written, and the matching values of each field."""

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    """Whether both the day of the month and the day of the week are restricted, so that either may match."""

    def next_ms(self, after_ms: int) -> int:
        """Returns the first matching time after `after_ms`, both in milliseconds since 1970. Repeated calls are cached. Raises
        UsageError if no day matches."""
        return _next_ms(self, after_ms)

    def _first_after(self, after_ms: int) -> int:
        after = datetime.fromtimestamp(after_ms / 1_000, UTC).replace(second=0, microsecond=0)
        day = after.replace(hour=0, minute=0)
        for _ in range(_DAYS_MAX):
            if self._is_day(day):
                for hour in self.hours:
                    for minute in self.minutes:
                        at = day.replace(hour=hour, minute=minute)
                        if at > after:
                            return int(at.timestamp()) * 1_000
            day += timedelta(days=1)
        raise UsageError(f"schedule {self.text!r}: its day never occurs", hint="write a day that its month has")

    def longest_ms(self) -> int:
        """Returns the longest gap, in milliseconds, between two successive times of the schedule, among its first thousand since
        1970."""
        times = [0]
        for _ in range(_TIMES_LOOKED_AT):
            times.append(self.next_ms(times[-1]))
        return max(later - earlier for earlier, later in pairwise(times[1:]))

    def _is_day(self, day: datetime) -> bool:
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (of_month or of_week if self.either_day else of_month and of_week)


@lru_cache(maxsize=64)
def _next_ms(cron: Cron, after_ms: int) -> int:
    """Caches `Cron._first_after`: rules call it at each decision, and a rare day may take thousands of steps to find."""
    return cron._first_after(after_ms)


@lru_cache(maxsize=16)
def parse_cron(text: str) -> Cron:
    """Parses a schedule. Raises UsageError if the text is not one, or names a day that never occurs."""
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise UsageError(
            f"schedule {text!r}: not five fields", hint="write minute, hour, day, month and day of the week: '30 4 * * *'"
        )
    minutes, hours, days, months, weekdays = (_values(text, field, *limits) for field, limits in zip(fields, _FIELDS, strict=True))
    found = Cron(
        text=text,
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=days,
        months=months,
        weekdays=frozenset(day % 7 for day in weekdays),
        either_day=not fields[2].startswith("*") and not fields[4].startswith("*"),
    )
    found.next_ms(0)
    return found


def _values(text: str, field: str, name: str, least: int, greatest: int) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise UsageError(
                f"schedule {text!r}: {name} {part!r} is invalid", hint="write *, a number, a-b, or one of these with /n"
            )
        first, last, step = match["first"], match["last"], int(match["step"] or 1)
        if first == "*":
            low, high = least, greatest
        else:
            low = int(first)
            high = int(last) if last is not None else greatest if match["step"] else low
        if (first == "*" and last is not None) or not least <= low <= high <= greatest or step < 1:
            raise UsageError(
                f"schedule {text!r}: {name} {part!r} is out of range",
                hint=f"write {least} to {greatest}, in rising order; a step is 1 or more",
            )
        found.update(range(low, high + 1, step))
    return frozenset(found)
