"""Turns the append times of one inbound partition, which may be wrong, into times that an engine believes.

The bus stamps messages with the clock of the machine that stores them. Such a clock may be wrong for a moment or for hours, and if
publishers set the times, any single time may be arbitrary. A believed time never falls. From one message to the next:

- A time that rises by `skew_max_us` at most is believed as it is.
- A greater rise, a leap, waits for later rows of the same partition. A tick at least `skew_max_us / CONFIRMED_BY` after the leap
  confirms it: then the leap's time is believed, so a gap without messages keeps its length. A row that continues at the earlier
  clock, or is more than `skew_max_us` before the leap, refutes it: then the leaping message gets the time believed before it.
  Without ticks, as in input older than the engines, `unticked_rows_max` later rows confirm a leap, too.
- If the partition's clock falls, believed time does not stop: it advances at half the clock's speed until the clock has caught up.

The believed time of a message depends on the state after the previous message (`Belief`) and on the messages after it in the
partition. So the time is the same in every engine, however the input is cut, and after a restore. The first tick of a partition is
believed as it is; events before that tick wait for it, as they would after a leap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hotspare.rows import tuning
from hotspare.rows.chunk import Bools, Int64s, is_all

NO_TIME = -(2**63)
CONFIRMED_BY = 5
"""A leap is believed when the clock has advanced by this part of `skew_max_us`."""
UNTICKED_ROWS_MAX = 100_000
_FAR = 2**61
"""Times are clipped to this bound, so that sums of two never overflow."""


@dataclass(frozen=True, slots=True)
class Belief:
    """The state after a row. `time_us`: the newest believed time; `clock_us`: the append time of that row, from which time
    continues if the clock has fallen.
    """

    time_us: int = NO_TIME
    clock_us: int = NO_TIME


class PartitionClock:
    """Settles the rows of one partition in order: decides the believed time of each. If `skew_max_us` is None, each row gets the
    newest append time so far, at once. All engines of a group must have the same `unticked_rows_max`."""

    def __init__(self, skew_max_us: int | None, belief: Belief, unticked_rows_max: int = UNTICKED_ROWS_MAX) -> None:
        self._skew_us = skew_max_us
        self._unticked_rows_max, self._rows = unticked_rows_max, tuning.current().clock_rows
        self._time_us, self._clock_us = belief.time_us, belief.clock_us
        self._times = np.empty(0, np.int64)
        self._ticks = np.empty(0, np.bool_)
        self._searched = 0
        """The count of rows after the waiting leap that were checked and neither confirm nor refute it."""

    @property
    def time_us(self) -> int:
        """The newest believed time; no row that is not settled gets an earlier one."""
        return self._time_us

    def settle_rows(self, times: Int64s, ticks: Bools) -> tuple[Int64s, Int64s]:
        """Adds rows, by their append times and whether they are ticks. Returns, for each row settled now, including rows that
        waited, oldest first: its believed time, and `Belief.clock_us` after it."""
        if self._skew_us is None:
            return self._newest(times)
        if self._is_plain(times, self._skew_us):
            self._time_us = self._clock_us = times.item(-1)
            return times, times
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
            self._time_us = believed.item(-1)
        return believed, believed

    def _is_plain(self, times: Int64s, skew_us: int) -> bool:
        """Whether no earlier row waits, and these, at least one, rise from the newest believed time without a leap: then each is
        believed, as `_plain` does. That is nearly always so."""
        if len(self._times) or not len(times) or self._time_us == NO_TIME:
            return False
        first_us, last_us = times.item(0), times.item(-1)
        is_near = max(self._time_us, -_FAR) <= first_us and last_us <= min(self._time_us + skew_us, _FAR)
        return is_near and is_all(times[1:] >= times[:-1])

    def _settle(self, at: int, skew_us: int, settled: list[tuple[Int64s, Int64s]]) -> int:
        """Adds the rows from `at` on that are settled now to `settled`. Returns their count."""
        first_us = int(self._times[at])
        if self._time_us == NO_TIME or first_us > self._time_us + skew_us:
            return self._settle_leap(at, skew_us, settled)
        return self._settle_behind(at, skew_us, settled) if first_us < self._time_us else self._plain(at, skew_us, settled)

    def _plain(self, at: int, skew_us: int, settled: list[tuple[Int64s, Int64s]]) -> int:
        """Settles rows whose times rise by at most the skew. Returns their count."""

        def judge(times: Int64s) -> tuple[Int64s, Bools]:
            before = np.concatenate([[self._time_us], times[:-1]])
            return times, (times < before) | (times > before + skew_us)

        return self._believe_run(at, judge, settled)

    def _settle_behind(self, at: int, skew_us: int, settled: list[tuple[Int64s, Int64s]]) -> int:
        """Settles rows after the clock has fallen: believed time advances at half the clock's speed, without steps that are leaps.
        Returns the count of rows settled."""

        def judge(times: Int64s) -> tuple[Int64s, Bools]:
            clock = np.concatenate([[max(self._clock_us, -_FAR)], times[:-1]])
            is_step = (times >= clock) & (times - clock <= skew_us)
            believed = self._time_us + np.cumsum(np.where(is_step, (times >> 1) - (clock >> 1), 0))
            before = np.concatenate([[self._time_us], believed[:-1]])
            return believed, times >= before

        return self._believe_run(at, judge, settled)

    def _believe_run(self, at: int, judge: Callable[[Int64s], tuple[Int64s, Bools]], settled: list[tuple[Int64s, Int64s]]) -> int:
        """Settles rows from `at` on up to the first that ends the run, and returns their count. `judge` returns, for append times,
        the believed times, and which rows end the run."""
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
        """Settles a leap if later rows confirm or refute it. Returns the count of rows settled from `at` on; 0 if the leap still
        waits."""
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
        """Returns the first row after `at` that decides about the time of row `at`; None if no row does so yet. A row before
        `low_us` refutes the time. A tick from `high_us` on, or enough rows without ticks, confirms it.
        """
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
        """Returns the count of refuted rows from `at` on, at least one. If row `verdict` continues at the earlier clock, it refutes
        all rows up to the first that a row before `verdict` may confirm."""
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
