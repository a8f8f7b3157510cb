"""Converts gaps in the output to downtime per year (SPEC N4): the gap of one failover, times failovers per year."""

from __future__ import annotations

from collections.abc import Sequence

MINUTES_A_YEAR = 365 * 24 * 60
DAILY = 365
NINES = 4


def nines_minutes(nines: int) -> float:
    """Returns the minutes of downtime per year that an availability of `nines` nines allows: 52.56 for four nines."""
    return MINUTES_A_YEAR / float(10**nines)


def down_minutes(gap_ms: float, failovers: float) -> float:
    """Returns the minutes of downtime per year with `failovers` failovers of `gap_ms` milliseconds each."""
    return gap_ms * failovers / 60_000


def failovers_max(gap_ms: float, nines: int) -> int:
    """Returns the maximum number of failovers per year, with gaps of `gap_ms` milliseconds, that `nines` nines allow."""
    return int(nines_minutes(nines) / down_minutes(gap_ms, 1))


def availability_sentence(gaps_ms: Sequence[float]) -> str:
    """Returns a sentence on the availability with the longest of `gaps_ms`; "" if there are no gaps."""
    longest = max(gaps_ms, default=0.0)
    if longest <= 0:
        return ""
    down = down_minutes(longest, DAILY)
    share = 100 * (1 - down / MINUTES_A_YEAR)
    return (
        f"with the longest of these gaps at a failover every day, output stands still for {down:.1f} minutes in a year "
        f"({share:.4f} % available); four nines leave {nines_minutes(NINES):.1f} minutes, "
        f"or {failovers_max(longest, NINES)} such failovers"
    )
