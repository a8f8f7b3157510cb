"""Results of a group, computed from its components (see `windows.aggregate.loops.aggregate`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hotspare.rows.chunk import Int64s
from hotspare.rows.compile import Whole, called, kernel
from hotspare.table.loops.interning import SIZE
from hotspare.table.loops.multi_index import AFTER
from hotspare.windows.aggregate.loops.arrivals import Arrivals, arrival_at, first_arrival
from hotspare.windows.aggregate.loops.components import (
    INFINITIES,
    INLINE_AT,
    INLINE_DOUBLE,
    LOW,
    NANS,
    NEGATIVE_INFINITIES,
    Group,
    GroupProgram,
)
from hotspare.windows.aggregate.loops.exact import POWERS, Scratch, likely_rounded, rounded, spread
from hotspare.windows.aggregate.loops.extremes import greatest_of
from hotspare.windows.aggregate.loops.inline_sets import count_inline_distinct, inline_mode_column, inline_percentile
from hotspare.windows.aggregate.loops.ordered import BEST, NODES, TOTAL, probe_root, set_probe_group, value_at
from hotspare.windows.aggregate.loops.values import CODE, EXTREMES, NUMBER, TEXT, Trees, forest_of

HOW, FIRST, SECOND, COUNTED, FIRST_LIMBS, SECOND_LIMBS, BIAS = 0, 1, 2, 3, 4, 5, 6
"""Columns of `GroupProgram.results`. HOW: the kind of result. FIRST, SECOND, COUNTED: columns of the row that it reads.
FIRST_LIMBS, SECOND_LIMBS: words of the sums in FIRST and SECOND. BIAS: bias of the first sum.
"""
RESULT_WIDTH = 7
AS_IT_IS, NULLS, WHOLE_SUM, MONEY_SUM, NEAREST, MEAN, SPREAD, VARIANCE, DEVIATION, VARIATION, WEIGHTED = (
    np.int64(how) for how in range(11)
)
LEAST_VALUE, GREATEST_VALUE, DISTINCT, MODE, PERCENTILE = (np.int64(how) for how in range(11, 16))
"""Kinds of results over set number FIRST of the group; a percentile interpolates between adjacent values."""
ARRIVAL, LISTED = np.int64(16), np.int64(17)
"""Kinds of results over the rows of a group in order of arrival, from the stored column FIRST. ARRIVAL: the value of the row SECOND
steps from the first row, or, below 0, from the last. LISTED: the values of all rows.
"""
LISTS, ENTRIES, LISTED_RESULTS = 0, 1, 2
"""Entries of `OrderedState.counts`; the last one is the count of results that list all rows."""


class OrderedState(NamedTuple):
    """The ordered state of a window outside the rows of groups: sets in `trees`, rows in `arrivals`, and the lists that the kernel
    makes.

    `entries`: codes of the values of all lists; `ends`: the end of each list in `entries`. `counts` int64[3]: LISTS, ENTRIES,
    LISTED_RESULTS.
    """

    trees: Trees
    arrivals: Arrivals
    entries: Int64s
    ends: Int64s
    counts: Int64s


TEXT_BYTES_MAX = 1 << 24
"""Limit on the bytes of a text that lists all rows, the same as for a text of an expression."""
MONEY_MAX = np.int64(10**18 - 1)


@kernel
def non_finite_sum(group: Group, at: Whole) -> np.float64:
    """Returns the sum of those values that are not finite; 0.0 if all values are finite."""
    up, down = group.lanes[0, at + INFINITIES], group.lanes[0, at + NEGATIVE_INFINITIES]
    if group.lanes[0, at + NANS] > 0 or (up > 0 and down > 0):
        return np.float64(np.nan)
    return np.float64(np.inf) if up > 0 else np.float64(-np.inf) if down > 0 else np.float64(0.0)


@kernel
def nearest(group: Group, at: Whole, limbs: Whole, bias: Whole) -> np.float64:
    """Returns the sum at column `at` as the nearest double. A `bias` above 0 means that it is a sum of doubles."""
    if bias > 0:
        odd = non_finite_sum(group, at)
        if odd != 0.0:
            return odd
        at = at + LOW
    likely = likely_rounded(group.lanes, np.int64(0), at, limbs, bias)
    return likely if likely == likely else rounded(group.lanes, np.int64(0), at, limbs, bias)


@kernel
def mean_of(group: Group, at: Whole, limbs: Whole, bias: Whole, total: np.float64, count: Whole) -> np.float64:
    """Returns a sum, whose nearest double is `total`, divided by `count`. If `total` is infinite, the exact sum is divided instead,
    since the mean may still be finite.
    """
    if bias > 0 and non_finite_sum(group, at) != 0.0:
        return total
    if abs(total) != np.inf or count == 1:
        return total / np.float64(count)
    part = rounded(group.lanes, np.int64(0), at + LOW if bias > 0 else at, limbs, bias + 128) / np.float64(count)
    return np.float64(part * POWERS[1074 + 128])


@called
def spread_of(group: Group, result: Int64s, s: Scratch) -> np.float64:
    """Returns the statistic of `result`: the sum of squared differences from the mean (SPREAD), or VARIANCE, DEVIATION or
    VARIATION.
    """
    how, first, second, count = result[HOW], result[FIRST], result[SECOND], group.lanes[0, result[COUNTED]]
    bias, row = result[BIAS], np.int64(0)
    if bias > 0:
        if non_finite_sum(group, first) != 0.0 or non_finite_sum(group, second) != 0.0:
            return np.float64(np.nan)
        first, second = first + LOW, second + LOW
    spread(group.lanes, row, first, result[FIRST_LIMBS], second, result[SECOND_LIMBS], count, s)
    css = rounded(s.numerator, row, row, np.int64(s.numerator.shape[1] - 1), 2 * bias) / np.float64(count)
    if how == SPREAD:
        return css
    variance = css / np.float64(count - 1)
    if how == VARIANCE:
        return variance
    if how == DEVIATION:
        return np.float64(np.sqrt(variance))
    total = nearest(group, result[FIRST], result[FIRST_LIMBS], bias)
    mean = mean_of(group, result[FIRST], result[FIRST_LIMBS], bias, total, count)
    return np.float64(100.0) * np.sqrt(variance) / mean if mean != 0.0 else np.float64(np.inf)


@kernel
def is_sum_in_range(group: Group, at: Whole, how: Whole) -> bool:
    """Whether a sum of whole numbers fits the type of the result: int64, or money if `how` is MONEY_SUM."""
    value, over = group.lanes[0, at + 1], group.lanes[0, at + 2]
    if over != value >> 63:
        return False
    return how == WHOLE_SUM or -MONEY_MAX <= value <= MONEY_MAX


@kernel
def write_value(group: Group, at: Whole, trees: Trees, number: Whole, slot: Whole) -> None:
    """Writes the value of row `slot` of set `number` to column `at` of the group."""
    width = trees.rows.lanes.shape[1]
    column = CODE if trees.kinds[number] == TEXT else NUMBER
    group.lanes[0, at], group.valid[0, at] = trees.rows.lanes[slot, width - column], True


@kernel
def percentile(group: Group, at: Whole, trees: Trees, number: Whole, root: Whole, share: np.float64) -> np.float64:
    """Returns the percentile `share` of a set in trees, interpolated between the values on both sides of its place. Column `at` of
    the group is overwritten.
    """
    place = share * np.float64(trees.nodes[root, TOTAL] - 1)
    low, high = np.int64(np.floor(place)), np.int64(np.ceil(place))
    found, other = np.float64(0.0), np.float64(0.0)
    for side in range(2):
        write_value(group, at, trees, number, value_at(forest_of(trees), root, low if side == 0 else high))
        value = group.doubles[0, at] if trees.kinds[number] > 0 else np.float64(group.lanes[0, at])
        if side == 0:
            found = value
        else:
            other = value
    if found == other or low == high:
        return found
    return (np.float64(high) - place) * found + (place - np.float64(low)) * other


@kernel
def write_ordered(group: Group, result: Int64s, share: np.float64, at: Whole, keys: Int64s, trees: Trees) -> None:
    """Writes a result of a set kept in trees or heaps to column `at` of the group. For an empty set, DISTINCT is 0, any other is
    null.
    """
    how, number = result[HOW], result[FIRST]
    set_probe_group(trees, group.lanes, np.int64(0), keys, number)
    root = probe_root(trees)
    if how == DISTINCT:
        group.lanes[0, at], group.valid[0, at] = (trees.nodes[root, NODES] if root >= 0 else 0), True
    elif root >= 0 and how == PERCENTILE:
        group.doubles[0, at] = percentile(group, at, trees, number, root, share)
    elif root >= 0 and how == MODE:
        write_value(group, at, trees, number, np.int64(trees.nodes[root, BEST]))
    elif root >= 0 and trees.queries_by_set[number] == EXTREMES:
        write_value(group, at, trees, number, root if how == LEAST_VALUE else greatest_of(trees.nodes, root))
    elif root >= 0:
        last = np.int64(trees.nodes[root, TOTAL] - 1)
        write_value(group, at, trees, number, value_at(forest_of(trees), root, last if how == GREATEST_VALUE else np.int64(0)))


@kernel
def write_inline_result(group: Group, how: Whole, share: np.float64, at: Whole, begin: Whole, is_double: Whole) -> None:
    """Writes a result of a set kept in the row of the group, from column `begin` on, to column `at`. For an empty set, DISTINCT is
    0, and any other result is null.
    """
    count = group.lanes[0, begin]
    if how == DISTINCT:
        group.lanes[0, at], group.valid[0, at] = count_inline_distinct(group, begin), True
    elif count > 0 and how == PERCENTILE:
        group.doubles[0, at], group.valid[0, at] = inline_percentile(group, begin, is_double, share), True
    elif count > 0:
        column = inline_mode_column(group, begin) if how == MODE else begin + count if how == GREATEST_VALUE else begin + 1
        group.lanes[0, at], group.valid[0, at] = group.lanes[0, column], True


@called
def write_arrival(group: Group, result: Int64s, at: Whole, keys: Int64s, ordered: OrderedState) -> bool:
    """Writes a result of the rows of the group in order of arrival to column `at`. Returns False if a list has more than
    TEXT_BYTES_MAX bytes.
    """
    rows, links, column = ordered.arrivals.rows, ordered.arrivals.lists.links, result[FIRST]
    slot = first_arrival(ordered.arrivals, group.lanes, np.int64(0), keys)
    if result[HOW] == ARRIVAL:
        slot = arrival_at(ordered.arrivals, slot, result[SECOND])
        if slot >= 0:
            group.lanes[0, at], group.valid[0, at] = rows.lanes[slot, column], rows.valid[slot, column]
        return True
    begin, size = ordered.counts[ENTRIES], np.int64(0)
    while slot >= 0:
        if rows.valid[slot, column]:
            size += ordered.trees.places[rows.lanes[slot, column], SIZE] + result[SECOND]
            ordered.entries[ordered.counts[ENTRIES]] = rows.lanes[slot, column]
            ordered.counts[ENTRIES] += 1
        slot = np.int64(links[slot, AFTER])
    if size > TEXT_BYTES_MAX:
        ordered.counts[ENTRIES] = begin
        return False
    if ordered.counts[ENTRIES] > begin:
        group.lanes[0, at], group.valid[0, at] = ordered.counts[LISTS], True
        ordered.ends[ordered.counts[LISTS]] = ordered.counts[ENTRIES]
        ordered.counts[LISTS] += 1
    return True


@kernel
def has_list_room(ordered: OrderedState, rows: Whole) -> bool:
    """Whether `entries` and `ends` have room for the lists of a group of `rows` rows."""
    results, counts = ordered.counts[LISTED_RESULTS], ordered.counts
    lists = counts[LISTS] + results <= len(ordered.ends)
    return bool(results == 0 or (lists and counts[ENTRIES] + results * rows <= len(ordered.entries)))


@kernel
def write_results(group: Group, program: GroupProgram, ordered: OrderedState, s: Scratch) -> None:
    """Writes the results of a group to its row, and FAILED. A result is null if too few values are counted for it."""
    keys, failed = len(program.keys), np.int64(0)
    total_at: Whole = np.int64(-1)
    total = np.float64(0.0)
    for r in range(len(program.results)):
        result, at = program.results[r], keys + r
        how, first, counted = result[HOW], result[FIRST], result[COUNTED]
        group.lanes[0, at], group.valid[0, at] = 0, False
        least = 2 if how in (VARIANCE, DEVIATION, VARIATION) else 1
        if how == AS_IT_IS:
            group.lanes[0, at], group.valid[0, at] = group.lanes[0, first], group.valid[0, first]
        elif how == NULLS:
            group.lanes[0, at], group.valid[0, at] = group.lanes[0, first] - group.lanes[0, counted], True
        elif LEAST_VALUE <= how <= PERCENTILE:
            few = program.inline_sets[first, INLINE_AT]
            if few >= 0 and group.lanes[0, few] >= 0:
                write_inline_result(group, how, program.shares[r], at, few, program.inline_sets[first, INLINE_DOUBLE])
            else:
                write_ordered(group, result, program.shares[r], at, program.keys, ordered.trees)
        elif how in (ARRIVAL, LISTED):
            if not write_arrival(group, result, at, program.keys, ordered) and failed == 0:
                failed = np.int64(r + 1)
        elif group.lanes[0, counted] < least:
            continue
        elif how in (WHOLE_SUM, MONEY_SUM):
            if is_sum_in_range(group, first, how):
                group.lanes[0, at], group.valid[0, at] = group.lanes[0, first + 1], True
            elif failed == 0:
                failed = np.int64(r + 1)
        else:
            limbs, bias, weights = result[FIRST_LIMBS], result[BIAS], np.float64(1.0)
            if how in (NEAREST, MEAN, WEIGHTED):
                if total_at != first:
                    total_at, total = first, nearest(group, first, limbs, bias)
                value = total if how != MEAN else mean_of(group, first, limbs, bias, total, group.lanes[0, counted])
            else:
                value = spread_of(group, result, s)
            if how == WEIGHTED:
                weights = nearest(group, result[SECOND], result[SECOND_LIMBS], bias // 2)
                value = value / weights if weights != 0.0 else np.float64(0.0)
            if weights != 0.0 and (how != VARIATION or abs(value) != np.inf):
                group.doubles[0, at], group.valid[0, at] = value, True
    group.lanes[0, keys + len(program.results)] = failed
