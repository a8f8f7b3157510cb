"""Loops of the Summary algorithm: the cost per observation does not grow with the length of the window.

A window of `length` observations covers parts of two blocks of `length` each: the end of the previous block and the beginning of
the present one. Statistics of all ends of a block are computed when it is complete. Those of the beginning are updated with each
observation, and the two are combined. Nothing is ever subtracted from a sum, so infinities and large values have no lasting effect.

A missing value is 0.0 with `valid` False. Adding 0.0 to a sum that began as 0.0 changes no bit of it, so sums need not check.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hotspare.rows.chunk import Bools, Int64s
from hotspare.rows.compile import Whole, kernel

Float64s = npt.NDArray[np.float64]

SUM, SQUARES, MEAN, DIFFERENCES, LEAST, GREATEST = 0, 1, 2, 3, 4, 5
"""Entries of a running state: sum, sum of squares, mean and sum of squared differences by Welford, least and greatest value."""
RUNNING_WIDTH = 6
COUNTED, MISSED = 0, 1
"""Entries of the running counts: observations with a value, and missing ones."""
NEXT, HAS_BEFORE = 0, 1
"""Entries of a window's place: the index of the next observation in its block, and 1 if there is a previous block."""


class Ends(NamedTuple):
    """Statistics of the ends of a block: entry i covers the block's observations from i on, and entry `length` covers none.
    Statistics that are not requested have no entries.

    In results, entry i covers the window that ends with observation i.
    """

    counted: Int64s
    sums: Float64s
    squares: Float64s
    means: Float64s
    differences: Float64s
    least: Float64s
    greatest: Float64s


class SlidingWindow(NamedTuple):
    """The observations of a sliding window, and their statistics.

    values, valid  the present block up to `place[NEXT]`, followed by the rest of the previous block
    place          int64[2]: NEXT and HAS_BEFORE
    ends           statistics of the ends of the previous block
    state, counts  running state and counts of the beginning of the present block
    """

    values: Float64s
    valid: Bools
    place: Int64s
    ends: Ends
    state: Float64s
    counts: Int64s


@kernel
def observe(value: np.float64, is_valid: np.bool_, state: Float64s, counts: Int64s) -> None:
    """Updates a running state and its counts with one observation. A missing one only increases the count of missing ones."""
    if not is_valid:
        counts[MISSED] += 1
        return
    counts[COUNTED] += 1
    state[SUM] += value
    state[SQUARES] += value * value
    difference = value - state[MEAN]
    state[MEAN] += difference / np.float64(counts[COUNTED])
    state[DIFFERENCES] += difference * (value - state[MEAN])
    state[LEAST] = min(state[LEAST], value)
    state[GREATEST] = max(state[GREATEST], value)


@kernel
def begin_block(window: SlidingWindow) -> None:
    window.place[NEXT] = 0
    window.counts[:] = 0
    window.state[:] = 0.0
    window.state[LEAST], window.state[GREATEST] = np.inf, -np.inf


@kernel
def complete_block(window: SlidingWindow) -> None:
    """Makes the complete present block the previous one: computes the statistics of its ends, from the newest observation to the
    oldest.
    """
    ends, count, mean, differences = window.ends, np.int64(0), np.float64(0.0), np.float64(0.0)
    for i in range(len(window.values) - 1, -1, -1):
        value, here = window.values[i], window.valid[i]
        ends.sums[i] = ends.sums[i + 1] + value
        if here:
            count += 1
        ends.counted[i] = count
        if len(ends.squares):
            ends.squares[i] = ends.squares[i + 1] + value * value
        if len(ends.means):
            if here:
                difference = value - mean
                mean += difference / np.float64(count)
                differences += difference * (value - mean)
            ends.means[i], ends.differences[i] = mean, differences
        if len(ends.least):
            low, high = ends.least[i + 1], ends.greatest[i + 1]
            ends.least[i] = value if here and value <= low else low
            ends.greatest[i] = value if here and value >= high else high
    begin_block(window)
    window.place[HAS_BEFORE] = 1


@kernel
def slide(values: Float64s, valid: Bools, window: SlidingWindow, out: Ends, missed: Int64s) -> None:
    """Processes observations. Writes to entry i of `out` and of `missed` the statistics over the window that ends with observation
    i. Arrays of `out` without entries, and `out.means`, are not written.
    """
    length, ends, state, counts = len(window.values), window.ends, window.state, window.counts
    for i in range(len(values)):
        at = window.place[NEXT]
        observe(values[i], valid[i], state, counts)
        window.values[at], window.valid[at] = values[i], valid[i]
        rest = at + 1
        before, here = ends.counted[rest], counts[COUNTED]
        out.counted[i] = before + here
        missed[i] = counts[MISSED] + (length - rest - before if window.place[HAS_BEFORE] else 0)
        out.sums[i] = ends.sums[rest] + state[SUM]
        if len(out.squares):
            out.squares[i] = ends.squares[rest] + state[SQUARES]
        if len(out.differences):
            out.differences[i] = differences_of_both(ends, rest, before, state, here)
        if len(out.least):
            low, high = ends.least[rest], ends.greatest[rest]
            out.least[i] = low if low <= state[LEAST] else state[LEAST]
            out.greatest[i] = high if high >= state[GREATEST] else state[GREATEST]
        window.place[NEXT] = rest
        if rest == length:
            complete_block(window)


@kernel
def differences_of_both(ends: Ends, rest: Whole, before: Whole, state: Float64s, here: Whole) -> np.float64:
    """Returns the sum of squared differences from the mean over two blocks: the end of the previous one, from entry `rest` of
    `ends` on, and the beginning of the present one, with the running state `state`. `before` and `here`: the counts of values in
    both.
    """
    if before == 0:
        return np.float64(state[DIFFERENCES])
    if here == 0:
        return np.float64(ends.differences[rest])
    apart = state[MEAN] - ends.means[rest]
    weight = np.float64(before) * np.float64(here) / np.float64(before + here)
    return np.float64(ends.differences[rest] + state[DIFFERENCES] + apart * apart * weight)


@kernel
def accumulate_statistics(
    values: Float64s, valid: Bools, state: Float64s, counts: Int64s, out: Float64s, out_counts: Int64s
) -> None:
    """Updates the running state value by value. Writes state and counts after value i to `out[i]` and `out_counts[i]`."""
    for i in range(len(values)):
        observe(values[i], valid[i], state, counts)
        for j in range(RUNNING_WIDTH):
            out[i, j] = state[j]
        out_counts[i, COUNTED] = counts[COUNTED]
        out_counts[i, MISSED] = counts[MISSED]


@kernel
def observed_doubles(doubles: Float64s, valid: Bools, rows: Int64s, column: Whole, values: Float64s, here: Bools) -> None:
    """Writes the observations of rows: to `values` the value of a column, to `here` whether it counts. Null and NaN do not count,
    and are 0.0.
    """
    for i in range(len(rows)):
        value = doubles[rows[i], column]
        counts = valid[rows[i], column] and value == value
        values[i] = value if counts else np.float64(0.0)
        here[i] = counts


@kernel
def observed_whole(lanes: Int64s, valid: Bools, rows: Int64s, column: Whole, values: Float64s, here: Bools) -> None:
    """Writes the observations of rows, as `observed_doubles` does, from a column of whole numbers."""
    for i in range(len(rows)):
        counts = valid[rows[i], column]
        values[i] = np.float64(lanes[rows[i], column]) if counts else np.float64(0.0)
        here[i] = counts


@kernel
def write_doubles(values: Float64s, at: Int64s, column: Whole, doubles: Float64s, valid: Bools) -> None:
    """Writes values to a column of the rows `at`; NaN becomes null."""
    for i in range(len(values)):
        value, row = values[i], at[i]
        defined = value == value
        doubles[row, column] = value if defined else np.float64(0.0)
        valid[row, column] = defined


@kernel
def write_whole(
    values: Float64s, low: np.float64, high: np.float64, at: Int64s, column: Whole, lanes: Int64s, valid: Bools, unfit: Int64s
) -> Whole:
    """Writes values without their fraction to a column of the rows `at`. NaN, and values not between `low` and `high`, become null.
    Returns the count of values not between these limits, and lists their indexes in `unfit`; NaN is not among them.
    """
    count = np.int64(0)
    for i in range(len(values)):
        value, row = values[i], at[i]
        fits = low < value and value < high
        lanes[row, column] = np.int64(value) if fits else np.int64(0)
        valid[row, column] = fits
        if value == value and not fits:
            unfit[count] = i
            count += 1
    return count
