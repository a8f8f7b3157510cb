"""Ticks for finite input (files, tables): the heartbeats among rows whose times are known, and the time of the last tick.

The first heartbeat is one interval after the first row. Each heartbeat precedes the first row whose time is not before the
heartbeat's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hotspare.base.errors import UsageError
from hotspare.rows.chunk import Int64s

TICKS_MAX = 10_000_000
"""Limit on the heartbeats of one run. More heartbeats mean that the input's time field is wrong."""
_TICKS_AT_ONCE = 50_000


def end_us_of(time_us: int, heartbeat_us: int, pulses_us: Sequence[int]) -> int:
    """Returns the time of the last tick, in us since 1970. Without pulses it is `time_us` + 1, `time_us` being the newest event's
    time. With `pulses_us`, the intervals of the project's pulses, it is the first heartbeat by which each of them is due."""
    if not pulses_us:
        return time_us + 1
    pulse_us = max((time_us // each + 1) * each for each in pulses_us)
    return -(-pulse_us // heartbeat_us) * heartbeat_us


def too_many_heartbeats(count: int, time_us: int, ticks_max: int = TICKS_MAX) -> UsageError | None:
    """Returns an error if `count` exceeds `ticks_max`, else None. `count`: the heartbeats until the input's time reaches
    `time_us`."""
    if count <= ticks_max:
        return None
    return UsageError(
        f"time reaches {time_us} us after {count} heartbeats; the limit is {ticks_max}",
        hint="check the field that gives the time, or give the project a longer heartbeat-interval",
    )


class Segment(NamedTuple):
    """Rows from `begin` to before `end`, and the ticks among them. Tick i, at `ticks_us[i]`, precedes row `places[i]`."""

    begin: int
    end: int
    places: Int64s
    ticks_us: Int64s


@dataclass(slots=True)
class Heartbeats:
    """Generates the ticks among rows from the rows' times, which the caller passes in order. `next_us`: the time of the next tick;
    None before the first row if unknown. `count`: the ticks generated so far."""

    interval_us: int
    next_us: int | None = None
    count: int = 0

    def segments_of_rows(self, times_us: Int64s) -> Iterator[Segment]:
        """Yields segments of bounded size that cover all rows and the ticks at or before the last row. Raises UsageError if the run
        has more than TICKS_MAX ticks."""
        if not len(times_us):
            return
        if self.next_us is None:
            self.next_us = int(times_us[0]) + self.interval_us
        yield from self._until(int(times_us[-1]), times_us)

    def until(self, time_us: int) -> Iterator[Segment]:
        """Yields the remaining ticks at or before `time_us`, without rows."""
        if self.next_us is not None and self.next_us <= time_us:
            yield from self._until(time_us, np.empty(0, np.int64))

    def _until(self, last_us: int, times_us: Int64s) -> Iterator[Segment]:
        assert self.next_us is not None
        begin, due = 0, max(0, (last_us - self.next_us) // self.interval_us + 1)
        if (error := too_many_heartbeats(self.count + due, last_us)) is not None:
            raise error
        while begin < len(times_us) or self.next_us <= last_us:
            count = min(_TICKS_AT_ONCE, max(0, (last_us - self.next_us) // self.interval_us + 1))
            ticks_us = self.next_us + self.interval_us * np.arange(count)
            places = np.searchsorted(times_us, ticks_us).astype(np.int64)
            self.next_us += count * self.interval_us
            is_last = self.next_us > last_us
            end = len(times_us) if is_last else int(np.searchsorted(times_us, self.next_us))
            yield Segment(begin, end, places, ticks_us)
            begin, self.count = end, self.count + count
