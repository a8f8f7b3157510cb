"""Durations as projects write them, `30 minutes`, to whole microseconds and back (SPEC A19)."""

from __future__ import annotations

import re
from decimal import Decimal

UNIT_US: dict[str, int] = {
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
"""The units, longest first; each may also be written with a final s. The SAS documentation has only seconds and longer units."""

DURATION_US_MAX = 36_525 * UNIT_US["day"]
"""The longest duration, a hundred years; sums of such durations still fit into 64 bits."""

_UNITS = ", ".join(f"{name}s" for name in list(UNIT_US)[:-1]) + f" or {list(UNIT_US)[-1]}s"
_DURATION = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z]+)", re.ASCII)


def parse_duration(text: str) -> int:
    """Returns microseconds, from 1 to DURATION_US_MAX. Raises ValueError with the reason for any other text."""
    match = _DURATION.fullmatch(text.strip())
    unit = match and UNIT_US.get(match[2].lower().removesuffix("s"))
    if match is None or not unit:
        raise ValueError(f"{text.strip()!r} is not a duration in {_UNITS}")
    span = Decimal(match[1]) * unit
    if span != int(span):
        raise ValueError(f"{text.strip()!r} is finer than a microsecond")
    if not 0 < span <= DURATION_US_MAX:
        raise ValueError(f"{text.strip()!r} is not between a microsecond and a hundred years")
    return int(span)


def format_duration(duration_us: int) -> str:
    """Returns the shortest exact text: the longest unit that divides the duration."""
    name, unit = next((n, u) for n, u in UNIT_US.items() if duration_us % u == 0)
    count = duration_us // unit
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def parse_unit(text: str) -> int:
    """Returns the microseconds of a calendar unit: `hour`, `hours` or a duration such as `6 hours`. Raises ValueError with the
    reason for any other text."""
    bare = UNIT_US.get(text.strip().lower().removesuffix("s"))
    return bare if bare else parse_duration(text)


def parse_seconds(text: str) -> int:
    """Returns the microseconds of a number of seconds such as `1.5`, the form of the ESP attribute heartbeat-interval. Raises
    ValueError as `parse_duration`."""
    return parse_duration(f"{text.strip()} seconds")


def format_seconds(duration_us: int) -> str:
    whole, rest = divmod(duration_us, 1_000_000)
    return f"{whole}.{rest:06d}".rstrip("0") if rest else str(whole)
