"""Loops of small ordered multisets inside the row of their group: a group of a few rows needs no tree.

A set has INLINE_SET_WIDTH columns from the one in `GroupProgram.inline_sets` on: the count of values, and then the values in order,
repeated by multiplicity; free columns hold 0. A set that becomes larger moves to the trees of `windows.aggregate.loops.ordered`
until its group is empty, and its first column is then IN_TREES."""

from __future__ import annotations

import numpy as np

from hotspare.rows.compile import Whole, kernel
from hotspare.windows.aggregate.loops.components import (
    INLINE_AT,
    INLINE_DOUBLE,
    Group,
    GroupEvents,
    GroupProgram,
    plain_lane,
    sortable,
)

INLINE_VALUES_MAX = 7
"""Largest number of values of a set inside the row of its group: these values and their count fill a cache line."""
INLINE_SET_WIDTH = INLINE_VALUES_MAX + 1
IN_TREES = np.int64(-1)


@kernel
def insert_inline_value(group: Group, at: Whole, lane: Whole, is_double: Whole) -> None:
    """Inserts a value into the set at column `at`; the caller checks that there is room."""
    value = plain_lane(lane, is_double)
    place, rank = at + group.lanes[0, at], sortable(value, is_double)
    while place > at and sortable(group.lanes[0, place], is_double) > rank:
        group.lanes[0, place + 1] = group.lanes[0, place]
        place -= 1
    group.lanes[0, place + 1] = value
    group.lanes[0, at] += 1


@kernel
def remove_inline_value(group: Group, at: Whole, lane: Whole, is_double: Whole) -> None:
    """Removes one occurrence of a value from the set at column `at`, if the value is present."""
    value, last = plain_lane(lane, is_double), at + group.lanes[0, at]
    place = at + 1
    while place <= last and group.lanes[0, place] != value:
        place += 1
    if place > last:
        return
    for j in range(place, last):
        group.lanes[0, j] = group.lanes[0, j + 1]
    group.lanes[0, last] = 0
    group.lanes[0, at] -= 1


@kernel
def can_stay_inline(group: Group, program: GroupProgram, number: Whole, events: GroupEvents, new: Whole, old: Whole) -> bool:
    """Whether set `number` is inside the row of its group, and has room there for an event with the rows `new` and `old`."""
    at, column = program.inline_sets[number, INLINE_AT], program.sets[number]
    if at < 0 or group.lanes[0, at] == IN_TREES:
        return False
    comes = new >= 0 and events.valid[new, column]
    goes = old >= 0 and events.valid[old, column]
    return bool(group.lanes[0, at] < INLINE_VALUES_MAX or goes or not comes)


@kernel
def change_inline_sets(group: Group, program: GroupProgram, events: GroupEvents, new: Whole, old: Whole) -> None:
    """Applies an event to all sets inside the row of a group; the caller checks that they have room."""
    for number in range(len(program.sets)):
        at, is_double, column = (
            program.inline_sets[number, INLINE_AT],
            program.inline_sets[number, INLINE_DOUBLE],
            program.sets[number],
        )
        if at >= 0 and group.lanes[0, at] != IN_TREES:
            if old >= 0 and events.valid[old, column]:
                remove_inline_value(group, at, events.lanes[old, column], is_double)
            if new >= 0 and events.valid[new, column] and group.lanes[0, at] < INLINE_VALUES_MAX:
                insert_inline_value(group, at, events.lanes[new, column], is_double)


@kernel
def move_set_to_trees(group: Group, at: Whole) -> None:
    """Marks the set at column `at` as one in trees and resets its columns. The caller has inserted its values into the trees."""
    for j in range(INLINE_SET_WIDTH):
        group.lanes[0, at + j] = 0
    group.lanes[0, at] = IN_TREES


@kernel
def count_inline_distinct(group: Group, at: Whole) -> Whole:
    """Returns the number of distinct values of the set at column `at`."""
    found = np.int64(0)
    for j in range(at + 1, at + 1 + group.lanes[0, at]):
        found += 1 if j == at + 1 or group.lanes[0, j] != group.lanes[0, j - 1] else 0
    return found


@kernel
def inline_mode_column(group: Group, at: Whole) -> Whole:
    """Returns the column of the most frequent value, and of the least one if several are. The set must not be empty."""
    best, most, times = at + 1, np.int64(0), np.int64(0)
    for j in range(at + 1, at + 1 + group.lanes[0, at]):
        times = times + 1 if j > at + 1 and group.lanes[0, j] == group.lanes[0, j - 1] else np.int64(1)
        if times > most:
            best, most = j, times
    return np.int64(best)


@kernel
def inline_number(group: Group, column: Whole, is_double: Whole) -> np.float64:
    return np.float64(group.doubles[0, column] if is_double == 1 else np.float64(group.lanes[0, column]))


@kernel
def inline_percentile(group: Group, at: Whole, is_double: Whole, share: np.float64) -> np.float64:
    """Returns the percentile `share`, from 0 to 1, interpolated between the values on both sides of its place. The set must not be
    empty.
    """
    place = share * np.float64(group.lanes[0, at] - 1)
    low, high = np.int64(np.floor(place)), np.int64(np.ceil(place))
    found, other = inline_number(group, at + 1 + low, is_double), inline_number(group, at + 1 + high, is_double)
    if found == other or low == high:
        return found
    return (np.float64(high) - place) * found + (place - np.float64(low)) * other
