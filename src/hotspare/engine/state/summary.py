"""The Summary algorithm (SPEC A39): statistics of the newest observations, or of all of them, as a part of a page.

Definitions, which an independent program can follow bit for bit in IEEE double arithmetic, without fused operations:

- The window of an observation is it and the `length - 1` observations before it. A null or NaN observation takes its place in the
  window, but does not count except in nMissOut.
- sumOut and ussOut add the values, or their squares, from the oldest to the newest, beginning with 0. cssOut adds the squares of
  (value - meanOut) in the same order. Without a length they carry on from one observation to the next: sumOut and ussOut by adding,
  cssOut by Welford's recurrence.
- meanOut = sumOut / nOut; varOut = cssOut / (nOut - 1); stdOut = sqrt(varOut); stderrOut = stdOut / sqrt(nOut);
  cvOut = 100 * stdOut / meanOut. What is not defined (no observation, nOut - 1 = 0, a mean of 0, infinities that cancel) is null.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hotspare.engine.kernels import summary as k
from hotspare.engine.kernels.summary import Float64s
from hotspare.engine.rows.chunk import Bools, Int64s
from hotspare.engine.state.pages import Column, Columns, expect
from hotspare.errors import SnapshotDamaged


@dataclass(slots=True)
class Basis:
    """What the statistics of each of n observations are computed from; what costs more is a function, called at most once."""

    counted: Int64s
    missed: Int64s
    sums: Float64s
    squares: Callable[[], Float64s]
    differences: Callable[[Float64s], Float64s]
    extremes: Callable[[], tuple[Float64s, Float64s]]
    memory: dict[str, Float64s] = field(default_factory=dict)

    def statistic(self, name: str) -> Float64s:
        """One of SUMMARY_OUTPUTS per observation; NaN where it is not defined."""
        if name not in self.memory:
            with np.errstate(all="ignore"):  # infinities may meet; what comes of it is null
                self.memory[name] = _STATISTICS[name](self)
        return self.memory[name]


def _where(defined: Bools, values: Float64s) -> Float64s:
    return np.where(defined, values, np.nan)


def _mean(b: Basis) -> Float64s:
    return _where(b.counted > 0, b.sums / np.maximum(b.counted, 1))


def _css(b: Basis) -> Float64s:
    mean = b.statistic("meanOut")
    return _where(b.counted > 0, b.differences(np.where(np.isnan(mean), 0.0, mean)))


def _var(b: Basis) -> Float64s:
    return _where(b.counted > 1, b.statistic("cssOut") / np.maximum(b.counted - 1, 1))


def _cv(b: Basis) -> Float64s:
    mean = b.statistic("meanOut")
    return _where(mean != 0.0, 100.0 * b.statistic("stdOut") / np.where(mean == 0.0, 1.0, mean))


_STATISTICS: dict[str, Callable[[Basis], Float64s]] = {
    "nOut": lambda b: b.counted.astype(np.float64),
    "nMissOut": lambda b: b.missed.astype(np.float64),
    "minOut": lambda b: _where(b.counted > 0, b.extremes()[0]),
    "maxOut": lambda b: _where(b.counted > 0, b.extremes()[1]),
    "sumOut": lambda b: _where(b.counted > 0, b.sums),
    "meanOut": _mean,
    "stdOut": lambda b: np.sqrt(b.statistic("varOut")),
    "varOut": _var,
    "stderrOut": lambda b: b.statistic("stdOut") / np.sqrt(np.maximum(b.counted, 1)),
    "cvOut": _cv,
    "ussOut": lambda b: _where(b.counted > 0, b.squares()),
    "cssOut": _css,
}


class Newest:
    """Observations of the newest `length`: the last `length - 1` are kept."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.values: Float64s = np.empty(0, np.float64)
        self.valid: Bools = np.empty(0, np.bool_)

    def observe(self, values: Float64s, valid: Bools) -> Basis:
        """Take observations; `values` is 0.0 where not valid."""
        count, length = len(values), self.length
        absent = length - 1 - len(self.values)
        line = np.concatenate([np.zeros(absent), self.values, values])
        here = np.concatenate([np.zeros(absent, np.bool_), self.valid, valid])
        present = np.minimum(np.arange(1, count + 1) + len(self.values), length)
        passed = np.zeros(len(line) + 1, np.int64)
        np.cumsum(here, out=passed[1:])
        counted = passed[length : length + count] - passed[:count]
        sums = np.empty(count)
        k.window_sums(line, length, sums)
        keep = min(length - 1, len(self.values) + count)
        self.values = line[len(line) - keep :].copy()
        self.valid = here[len(here) - keep :].copy()

        def squares() -> Float64s:
            out = np.empty(count)
            k.window_squares(line, length, out)
            return out

        def differences(mean: Float64s) -> Float64s:
            out = np.empty(count)
            k.window_differences(line, here, length, mean, out)
            return out

        def extremes() -> tuple[Float64s, Float64s]:
            least, greatest = np.empty(count), np.empty(count)
            k.window_extremes(line, here, length, least, greatest)
            return least, greatest

        return Basis(counted, present - counted, sums, squares, differences, extremes)

    def freeze(self) -> Newest:
        twin = Newest(self.length)
        twin.values, twin.valid = self.values, self.valid
        return twin

    def columns(self) -> Columns:
        return {"values": Column(self.values), "valid": Column(self.valid)}

    def load(self, columns: Columns) -> None:
        values = expect(columns, "values", np.dtype(np.float64), (-1,)).array
        if len(values) >= self.length:
            raise SnapshotDamaged("a page holds more observations than its window is long")
        self.valid = expect(columns, "valid", np.dtype(np.bool_), (len(values),)).array
        self.values = values

    def mark(self, used: Bools) -> None:
        pass

    def recode(self, codes: Int64s) -> None:
        pass


class All:
    """Observations since the beginning, as running state."""

    def __init__(self) -> None:
        self.state: Float64s = np.zeros(k.RUNNING_WIDTH)
        self.state[k.LEAST], self.state[k.GREATEST] = np.inf, -np.inf
        self.counts: Int64s = np.zeros(2, np.int64)

    def observe(self, values: Float64s, valid: Bools) -> Basis:
        """Take observations; `values` is 0.0 where not valid."""
        out = np.empty((len(values), k.RUNNING_WIDTH))
        counts = np.empty((len(values), 2), np.int64)
        k.running(values, valid, self.state, self.counts, out, counts)
        return Basis(
            counted=counts[:, k.COUNTED],
            missed=counts[:, k.MISSED],
            sums=out[:, k.SUM],
            squares=lambda: out[:, k.SQUARES],
            differences=lambda _mean: out[:, k.DIFFERENCES],
            extremes=lambda: (out[:, k.LEAST], out[:, k.GREATEST]),
        )

    def freeze(self) -> All:
        twin = All()
        twin.state, twin.counts = self.state.copy(), self.counts.copy()
        return twin

    def columns(self) -> Columns:
        return {"state": Column(self.state), "counts": Column(self.counts)}

    def load(self, columns: Columns) -> None:
        self.state = expect(columns, "state", np.dtype(np.float64), (k.RUNNING_WIDTH,)).array.copy()
        self.counts = expect(columns, "counts", np.dtype(np.int64), (2,)).array.copy()

    def mark(self, used: Bools) -> None:
        pass

    def recode(self, codes: Int64s) -> None:
        pass
