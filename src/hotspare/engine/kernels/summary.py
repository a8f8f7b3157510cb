"""Loops of the Summary algorithm. Every sum runs from the oldest to the newest value of its window, one after another.

Windows overlap, so the loops go over a block of windows for each step along the windows: each window still adds its values in
order, and the additions of different windows run side by side.

A missing value is 0.0 with `valid` False. Adding 0.0 to a sum that began as 0.0 changes no bit of it, so sums need not look.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hotspare.engine.kernels import kernel
from hotspare.engine.rows.chunk import Bools, Int64s

Float64s = npt.NDArray[np.float64]

BLOCK = 512
"""Windows that are computed side by side; their accumulators stay in the nearest cache."""

SUM, SQUARES, MEAN, DIFFERENCES, LEAST, GREATEST = 0, 1, 2, 3, 4, 5
"""Entries of the running state over all values: sum, sum of squares, mean and sum of squared differences by Welford, extremes."""
RUNNING_WIDTH = 6
COUNTED, MISSED = 0, 1
"""Entries of the running counts."""


@kernel
def window_sums(line: Float64s, length: int, out: Float64s) -> None:
    """`out[i]` = line[i] + ... + line[i + length - 1]."""
    for begin in range(0, len(out), BLOCK):
        sums = out[begin : begin + BLOCK]
        sums[:] = 0.0
        for step in range(length):
            part = line[begin + step : begin + step + len(sums)]
            for i in range(len(sums)):
                sums[i] += part[i]


@kernel
def window_squares(line: Float64s, length: int, out: Float64s) -> None:
    """`out[i]` = the sum of squares of the same values."""
    for begin in range(0, len(out), BLOCK):
        sums = out[begin : begin + BLOCK]
        sums[:] = 0.0
        for step in range(length):
            part = line[begin + step : begin + step + len(sums)]
            for i in range(len(sums)):
                sums[i] += part[i] * part[i]


@kernel
def window_differences(line: Float64s, valid: Bools, length: int, mean: Float64s, out: Float64s) -> None:
    """`out[i]` = the sum of squared differences from `mean[i]` of those values that are valid."""
    for begin in range(0, len(out), BLOCK):
        sums = out[begin : begin + BLOCK]
        means = mean[begin : begin + BLOCK]
        sums[:] = 0.0
        for step in range(length):
            part = line[begin + step : begin + step + len(sums)]
            here = valid[begin + step : begin + step + len(sums)]
            for i in range(len(sums)):
                difference = part[i] - means[i]
                sums[i] += difference * difference if here[i] else 0.0


@kernel
def window_extremes(line: Float64s, valid: Bools, length: int, least: Float64s, greatest: Float64s) -> None:
    """Smallest and greatest of those values that are valid; infinities where none is."""
    for begin in range(0, len(least), BLOCK):
        low = least[begin : begin + BLOCK]
        high = greatest[begin : begin + BLOCK]
        low[:] = np.inf
        high[:] = -np.inf
        for step in range(length):
            part = line[begin + step : begin + step + len(low)]
            here = valid[begin + step : begin + step + len(low)]
            for i in range(len(low)):
                low[i] = part[i] if here[i] and part[i] < low[i] else low[i]
                high[i] = part[i] if here[i] and part[i] > high[i] else high[i]


@kernel
def running(values: Float64s, valid: Bools, state: Float64s, counts: Int64s, out: Float64s, out_counts: Int64s) -> None:
    """Carry the state over all values on, value by value; `out[i]` and `out_counts[i]` are state and counts after value i."""
    for i in range(len(values)):
        if valid[i]:
            value = values[i]
            counts[COUNTED] += 1
            state[SUM] += value
            state[SQUARES] += value * value
            difference = value - state[MEAN]
            state[MEAN] += difference / np.float64(counts[COUNTED])
            state[DIFFERENCES] += difference * (value - state[MEAN])
            state[LEAST] = min(state[LEAST], value)
            state[GREATEST] = max(state[GREATEST], value)
        else:
            counts[MISSED] += 1
        for j in range(RUNNING_WIDTH):
            out[i, j] = state[j]
        out_counts[i, COUNTED] = counts[COUNTED]
        out_counts[i, MISSED] = counts[MISSED]
