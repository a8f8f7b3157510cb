"""Turns the append times of one inbound partition, which may be wrong, into times that an engine believes.

The bus stamps messages with the clock of the machine that stores them. Such a clock may be wrong for a moment or for hours, and if
publishers set the times, any single one may be anything. A believed time never falls. From one message to the next:

- A time that rises by `skew_max_us` at most is believed as it is.
- A leap beyond that waits for what follows in the same partition. It is believed when a tick shows the partition's clock still on
  that side and `skew_max_us / CONFIRMED_BY` later; so a gap without messages keeps its length. A message that continues at the
  earlier clock, or is more than `skew_max_us` before the leap, refutes it: then the message has the time believed before it.
  Without ticks, `unticked_rows_max` rows that follow confirm a leap, too: old input, from before there was an engine.
- A time that has fallen does not stop time: it continues at half the speed of the partition's clock until that has caught up.

The believed time of a message depends on the state after the previous one (`Belief`) and on what follows it in the partition. So it
is the same in every engine, however the input is cut, and after a restore. Of a partition's first messages, the first tick is
believed as it is, and events before it wait for it as they would after a leap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hotspare.rows import tuning
from hotspare.rows.chunk import Bools, Int64s

NO_TIME = -(2**63)
CONFIRMED_BY = 5
"""A leap is believed when the clock has advanced by this part of `skew_max_us`."""
UNTICKED_ROWS_MAX = 100_000
_FAR = 2**61
"""The bound of times: sums with one never overflow."""


@dataclass(frozen=True, slots=True)
class Belief:
    """The state after a row: the newest believed time, and the append time from which it continues when the clock has fallen."""

    time_us: int = NO_TIME
    clock_us: int = NO_TIME


class PartitionClock:
    """Takes rows in order and settles them in order. `skew_max_us` None: the newest time of all is believed, at once. Engines of a
    group have the same `unticked_rows_max`."""

    def __init__(self, skew_max_us: int | None, belief: Belief, unticked_rows_max: int = UNTICKED_ROWS_MAX) -> None:
        self._skew_us = skew_max_us
        self._unticked_rows_max, self._rows = unticked_rows_max, tuning.current().clock_rows
        self._time_us, self._clock_us = belief.time_us, belief.clock_us
        self._times = np.empty(0, np.int64)
        self._ticks = np.empty(0, np.bool_)
        self._searched = 0
        """The count of rows after the waiting leap that decide nothing about it."""

    @property
    def time_us(self) -> int:
        """The newest believed time; no row that is not settled gets an earlier one."""
        return self._time_us

    def settle_rows(self, times: Int64s, ticks: Bools) -> tuple[Int64s, Int64s]:
        """Returns, for the rows settled now, including those that waited, oldest first: believed time, and `clock_us` after it."""
        if self._skew_us is None:
            return self._newest(times)
        settled: list[tuple[Int64s, Int64s]] = []
        self._times = np.concatenate([self._times, np.clip(times, -_FAR, _FAR)])
        self._ticks = np.concatenate([self._ticks, ticks])
        at = 0
        while at < len(self._times):
            count = self._settle(at, self._skew_us, settled)
            if count == 0:
                break
            at, self._searched = at + count, 0
        self._times, self._ticks = self._times[at:], self._ticks[at:]
        empty = np.empty(0, np.int64)
        believed, clocks = zip(*settled, strict=True) if settled else ((empty,), (empty,))
        return np.concatenate(believed), np.concatenate(clocks)

    def _newest(self, times: Int64s) -> tuple[Int64s, Int64s]:
        believed = np.maximum.accumulate(np.maximum(times, self._time_us))
        if len(believed):
            self._time_us = int(believed[-1])
        return believed, believed

    def _settle(self, at: int, skew_us: int, settled: list[tuple[Int64s, Int64s]]) -> int:
        """Adds the rows from `at` on that are settled now to `settled`. Returns their count."""
        first_us = int(self._times[at])
        if self._time_us == NO_TIME or first_us > self._time_us + skew_us:
            return self._settle_leap(at, skew_us, settled)
        return self._settle_behind(at, skew_us, settled) if first_us < self._time_us else self._plain(at, skew_us, settled)

    def _plain(self, at: int, skew_us: int, settled: list[tuple[Int64s, Int64s]]) -> int:
        """Settles rows whose times rise as they should."""

        def judge(times: Int64s) -> tuple[Int64s, Bools]:
            before = np.concatenate([[self._time_us], times[:-1]])
            return times, (times < before) | (times > before + skew_us)

        return self._believe_run(at, judge, settled)

    def _settle_behind(self, at: int, skew_us: int, settled: list[tuple[Int64s, Int64s]]) -> int:
        """Settles rows whose clock has fallen: time continues at half its speed. A step that is itself a leap does not count."""

        def judge(times: Int64s) -> tuple[Int64s, Bools]:
            clock = np.concatenate([[max(self._clock_us, -_FAR)], times[:-1]])
            is_step = (times >= clock) & (times - clock <= skew_us)
            believed = self._time_us + np.cumsum(np.where(is_step, (times >> 1) - (clock >> 1), 0))
            before = np.concatenate([[self._time_us], believed[:-1]])
            return believed, times >= before

        return self._believe_run(at, judge, settled)

    def _believe_run(self, at: int, judge: Callable[[Int64s], tuple[Int64s, Bools]], settled: list[tuple[Int64s, Int64s]]) -> int:
        """Settles rows from `at` on up to the first that ends the run. `judge` returns believed times, and which rows end it."""
        size = self._rows
        while True:
            times = self._times[at : at + size]
            believed, ends = judge(times)
            count = int(ends.argmax()) if ends.any() else len(times)
            if count < len(times) or at + size >= len(self._times):
                self._believe(believed[:count], times[:count], settled)
                return count
            size *= 4

    def _settle_leap(self, at: int, skew_us: int, settled: list[tuple[Int64s, Int64s]]) -> int:
        """Settles a row that waits for what follows; 0 as long as nothing there confirms or refutes it."""
        leap_us, is_first = int(self._times[at]), self._time_us == NO_TIME
        low_us = leap_us - skew_us if is_first else max(self._time_us + skew_us + 1, leap_us - skew_us)
        high_us = low_us if is_first else leap_us + skew_us // CONFIRMED_BY
        verdict = at if is_first and self._ticks[at] else self._verdict(at, leap_us, low_us, high_us)
        if verdict is None:
            return 0
        if self._times[verdict] >= low_us:
            self._believe(self._times[at : at + 1], self._times[at : at + 1], settled)
            return 1
        if is_first:  # nothing was believed before: what refutes it is the best guess
            found = self._times[verdict : verdict + 1]
            self._believe(found, found, settled)
            return 1
        count = self._refuted(at, verdict, skew_us)
        settled.append((np.full(count, self._time_us), np.full(count, self._clock_us)))
        return count

    def _verdict(self, at: int, leap_us: int, low_us: int, high_us: int) -> int | None:
        """Returns the first row after `at` that refutes its time or confirms it."""
        begin, size, unticked_max = at + 1 + self._searched, self._rows, self._unticked_rows_max
        while begin < len(self._times):
            times, ticks = self._times[begin : begin + size], self._ticks[begin : begin + size]
            tells = (times < low_us) | (ticks & (times >= high_us))
            if begin + size > at + unticked_max and not self._ticks[at : at + unticked_max].any():
                behind = np.arange(begin, begin + len(times)) >= at + unticked_max
                tells |= behind & (times != leap_us)
            if tells.any():
                return begin + int(tells.argmax())
            begin, size = begin + len(times), size * 4
        self._searched = len(self._times) - at - 1
        return None

    def _refuted(self, at: int, verdict: int, skew_us: int) -> int:
        """Returns how many rows from `at` on are refuted, at least one. If the row `verdict` continues at the earlier clock, these
        are all before it that nothing in between can confirm."""
        if self._times[verdict] > self._time_us + skew_us:
            return 1
        times, ticks = self._times[at:verdict], self._ticks[at:verdict]
        newest_tick = np.maximum.accumulate(np.where(ticks, times, -_FAR)[::-1])[::-1]
        may_be_confirmed = newest_tick >= times + skew_us // CONFIRMED_BY
        if len(times) > self._unticked_rows_max:
            where = np.append(np.flatnonzero(ticks), len(times))
            rows = np.arange(len(times))
            may_be_confirmed |= where[np.searchsorted(where, rows)] - rows >= self._unticked_rows_max
        return max(1, int(may_be_confirmed.argmax())) if may_be_confirmed.any() else len(times)

    def _believe(self, believed: Int64s, clocks: Int64s, settled: list[tuple[Int64s, Int64s]]) -> None:
        if len(believed):
            self._time_us, self._clock_us = int(believed[-1]), int(clocks[-1])
            settled.append((believed, clocks))
