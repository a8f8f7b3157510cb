"""The components of a group, which summarise its rows, and how an event changes them (see `windows.aggregate.loops.aggregate`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.rows.compile import Whole, called, kernel
from hotspare.table.loops.pages import Rows
from hotspare.windows.aggregate.loops.exact import add_within, add_words, mantissa_of, mul_high, position_of

KIND, AT, WIDTH, A, B, LIMBS, PERIOD = 0, 1, 2, 3, 4, 5, 6
"""Columns of `GroupProgram.components`:

KIND, AT, WIDTH  the kind; the first column in a row of a group, and the number of columns
A, B             columns of events that the component reads, or a constant
LIMBS            words of a sum
PERIOD           the number of the period in `GroupProgram.periods`, or NONE
"""
COMPONENT_WIDTH = 7
COUNT, SUM, DOUBLE_SUM, PRODUCT, DOUBLE_PRODUCT, LEAST, GREATEST = (np.int64(kind) for kind in range(7))
"""Kinds of components over the rows of a group. COUNT: the count of values of A that are not null, or of rows if A is NONE. SUM and
DOUBLE_SUM: sums of A; PRODUCT and DOUBLE_PRODUCT: sums of A * B. LEAST and GREATEST: extremes that ignore removed values.
"""
OPCODES, LAST, LAST_KEPT, LAST_OPCODE, EVENTS = (np.int64(kind) for kind in range(7, 12))
"""Kinds of components over the events of a group. OPCODES: the count of events with opcode A. LAST and LAST_KEPT: the value of the
last event, and of the last one that was not a delete. LAST_OPCODE: the opcode of the last event. EVENTS: the number of its change
among those of the window.
"""
NTH, NEWEST = np.int64(12), np.int64(13)
"""Kinds of components over rows that are never removed. NTH: the value of row number B, from 1 on. NEWEST: the values of the newest
rows, the last row first.
"""
LEAST_TEXT, GREATEST_TEXT = np.int64(14), np.int64(15)
"""Kinds of components for the extremes of texts; they ignore removed values (`windows.aggregate.loops.text_extremes`)."""
INLINE_AT, INLINE_DOUBLE = 0, 1
"""Columns of `GroupProgram.inline_sets`: the first column of a set in a row of a group, or NONE; 1 if its values are doubles."""
NANS, INFINITIES, NEGATIVE_INFINITIES, LOW = 0, 1, 2, 3
"""Columns of a sum of doubles: the counts of NaN and of both infinities among the values; then the sum of all other values
(`windows.aggregate.loops.exact`).
"""

INSERTED, UPDATED, DELETED = np.int64(1), np.int64(2), np.int64(3)
"""Opcodes as the components OPCODES and LAST_OPCODE count and report them."""
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_SIGN = np.uint64(1 << 63)
_INFINITE = np.uint64(0x7FF << 52)
_NAN = np.uint64(0x7FF8 << 48)
_ONE_POINT = np.uint64(0x3FF << 52)
"""The bits of the double 1.0."""


class GroupProgram(NamedTuple):
    """The program run for each event. `keys`: columns of events that identify a group.

    A row of a group has these columns first, then one column for each row of `results`, and FAILED, the number of the first result
    with an error, counted from 1, or 0. Then come the count of the group's rows, the components, the beginnings of the periods, and
    the inline sets.

    components   int64[., 7]  columns KIND to PERIOD
    results      int64[., 7]  columns HOW to BIAS (`windows.aggregate.loops.results`)
    periods      int64[., 2]  column of the beginning of a period, and its length in microseconds
    sets         int64[.]     columns of events whose values are kept in order, by set
    shares       double[.]    the share of a percentile, from 0 to 1, by result; unused for other results
    texts        int64[.]     numbers of the components that are LEAST_TEXT or GREATEST_TEXT
    inline_sets  int64[., 2]  INLINE_AT and INLINE_DOUBLE of each set (`windows.aggregate.loops.inline_sets`)
    """

    keys: Int64s
    components: Int64s
    results: Int64s
    periods: Int64s
    sets: Int64s
    shares: npt.NDArray[np.float64]
    texts: Int64s
    inline_sets: Int64s


class GroupEvents(NamedTuple):
    """Resolved events; the old row of an update block follows the new one. `time_us`: system time in microseconds, by rank."""

    rank: Int64s
    opcode: UInt8s
    flags: UInt8s
    lanes: Int64s
    valid: Bools
    time_us: Int64s


class Group(NamedTuple):
    """The row of a group while it is changed, in arrays of shape [1, width]; `doubles` is a view of `lanes`."""

    lanes: Int64s
    doubles: npt.NDArray[np.float64]
    valid: Bools


@kernel
def clear_columns(group: Group, begin: Whole, end: Whole) -> None:
    for j in range(begin, end):
        group.lanes[0, j] = 0
        group.valid[0, j] = True


@kernel
def load_group(group: Group, rows: Rows, slot: Whole) -> None:
    for j in range(rows.lanes.shape[1]):
        group.lanes[0, j] = rows.lanes[slot, j]
        group.valid[0, j] = rows.valid[slot, j]


@called
def begin_group(group: Group, program: GroupProgram, events: GroupEvents, row: Whole) -> None:
    """Resets `group` to a group without rows, with the key of event row `row`."""
    clear_columns(group, np.int64(0), np.int64(group.lanes.shape[1]))
    for k in range(len(program.keys)):
        group.lanes[0, k] = events.lanes[row, program.keys[k]]
    for c in range(len(program.components)):
        part = program.components[c]
        if part[KIND] in (LAST, LAST_KEPT, LEAST, GREATEST, NTH, NEWEST, LEAST_TEXT, GREATEST_TEXT):
            for j in range(part[WIDTH]):
                group.valid[0, part[AT] + j] = False
    for p in range(len(program.periods)):
        group.valid[0, program.periods[p, 0]] = False


@called
def widen_group(group: Group, program: GroupProgram, narrow: Rows, slot: Whole, was: GroupProgram) -> None:
    """Copies the narrow row at `slot` to `group`, with more words for its sums. `program` is the program of wide rows, `was` that
    of narrow rows; both have equally many columns after the components.
    """
    for j in range(len(program.keys) + len(program.results) + 2):
        group.lanes[0, j], group.valid[0, j] = narrow.lanes[slot, j], narrow.valid[slot, j]
    for c in range(len(program.components)):
        part, old = program.components[c], was.components[c]
        at, begin = part[AT], old[AT]
        for j in range(part[WIDTH]):
            is_there = j < old[WIDTH]
            group.lanes[0, at + j] = narrow.lanes[slot, begin + j] if is_there else 0
            group.valid[0, at + j] = narrow.valid[slot, begin + j] if is_there else True
        if part[WIDTH] > old[WIDTH]:
            low, words, limbs = at + LOW, at + LOW + 1, part[LIMBS]
            shift, held = group.lanes[0, low], old[LIMBS]
            sign = np.int64(group.lanes[0, words + held - 1] >> 63)
            for j in range(limbs - 1, -1, -1):
                source = j - shift
                group.lanes[0, words + j] = sign if source >= held else group.lanes[0, words + source] if source >= 0 else 0
            group.lanes[0, low] = 0
    more = group.lanes.shape[1] - narrow.lanes.shape[1]
    behind = len(program.keys) + len(program.results) + 2
    for c in range(len(program.components)):
        behind = program.components[c, AT] + program.components[c, WIDTH]
    for j in range(behind, group.lanes.shape[1]):
        group.lanes[0, j], group.valid[0, j] = narrow.lanes[slot, j - more], narrow.valid[slot, j - more]


@kernel
def plain_lane(lane: Whole, is_double: Whole) -> Whole:
    """Returns the canonical bits of a value. For doubles, -0.0 becomes 0.0, and all NaN become one."""
    bits = np.uint64(lane)
    if is_double == 0 or (bits & ~_SIGN <= _INFINITE and bits != _SIGN):
        return np.int64(lane)
    return np.int64(_NAN) if bits != _SIGN else np.int64(0)


@kernel
def sortable(lane: Whole, is_double: Whole) -> Whole:
    """Returns a whole number that orders as the value does. For doubles, NaN is the greatest, and -0.0 equals 0.0."""
    lane = plain_lane(lane, is_double)
    return lane if is_double == 0 or lane >= 0 else np.int64(~np.uint64(lane) | _SIGN)


@kernel
def count_non_finite(group: Group, at: Whole, a: np.uint64, b: np.uint64, sign: Whole) -> bool:
    """Counts the product of the doubles with the bits `a` and `b` in the sum at column `at`, if a factor is infinite or NaN: as one
    more (`sign` 1), or one less (-1). Returns False, without a change, if both factors are finite.
    """
    size_a, size_b = a & ~_SIGN, b & ~_SIGN
    if size_a < _INFINITE and size_b < _INFINITE:
        return False
    column = np.int64(NANS)
    if size_a <= _INFINITE and size_b <= _INFINITE and size_a != _ZERO and size_b != _ZERO:
        column = np.int64(NEGATIVE_INFINITIES) if (a ^ b) & _SIGN != _ZERO else np.int64(INFINITIES)
    group.lanes[0, at + column] += sign
    return True


@kernel
def add_value(group: Group, part: Int64s, events: GroupEvents, row: Whole, sign: Whole) -> bool:
    """Adds (`sign` 1) a value, or a product of two, to a sum, or subtracts it (-1). `part`: the row of `GroupProgram.components`
    for the sum. Returns False if the sum needs more words.
    """
    kind, at = part[KIND], part[AT]
    a, b = np.uint64(events.lanes[row, part[A]]), np.uint64(events.lanes[row, part[B]])
    if kind == DOUBLE_SUM and add_within(group.lanes, np.int64(0), at + LOW, part[LIMBS], a, sign):
        return True
    is_product = kind in (PRODUCT, DOUBLE_PRODUCT)
    if not is_product:
        b = _ONE if kind == SUM else _ONE_POINT
    x, y = a if a < _SIGN else _ZERO - a, b if b < _SIGN else _ZERO - b
    position: Whole = np.int64(0)
    if kind in (DOUBLE_SUM, DOUBLE_PRODUCT):
        if count_non_finite(group, at, a, b, sign):
            return True
        x, y, position, at = mantissa_of(a), _ONE, position_of(a), at + LOW
        if is_product:
            y, position = mantissa_of(b), position + position_of(b)
    low, high = x * y, mul_high(x, y)
    if (a ^ b) & _SIGN != _ZERO:
        sign = -sign
    return (low | high) == _ZERO or add_words(group.lanes, np.int64(0), at, part[LIMBS], position, low, high, sign)


@called
def update_extreme(group: Group, part: Int64s, events: GroupEvents, row: Whole) -> None:
    at, lane = part[AT], plain_lane(events.lanes[row, part[A]], part[B])
    if group.valid[0, at]:
        new, old = sortable(lane, part[B]), sortable(group.lanes[0, at], part[B])
        if (part[KIND] == LEAST and new >= old) or (part[KIND] == GREATEST and new <= old):
            return
    group.lanes[0, at], group.valid[0, at] = lane, True


@kernel
def add_row(group: Group, program: GroupProgram, events: GroupEvents, row: Whole, sign: Whole) -> bool:
    """Adds event row `row` to the group (`sign` 1), or removes it (-1). Returns False if a sum needs more words; earlier components
    are then changed already.
    """
    group.lanes[0, len(program.keys) + len(program.results) + 1] += sign
    for c in range(len(program.components)):
        part = program.components[c]
        kind = part[KIND]
        if kind <= GREATEST and (part[PERIOD] < 0 or sign > 0) and (part[A] < 0 or events.valid[row, part[A]]):
            if kind == COUNT:
                group.lanes[0, part[AT]] += sign
            elif kind in (LEAST, GREATEST):
                update_extreme(group, part, events, row)
            elif not add_value(group, part, events, row, sign):
                return False
    return True


@kernel
def record_event(group: Group, program: GroupProgram, events: GroupEvents, new: Whole, old: Whole, number: Whole) -> None:
    """Updates the components over events. `new` and `old` are the rows of the event, or NONE; `number` is that of the change among
    all changes of the window.

    An old row after the new one means an update. An old row before the new one was evicted for it, which counts as a delete and
    then an insert.
    """
    opcode = (UPDATED if old > new else INSERTED) if new >= 0 else DELETED
    is_evicted = new > old >= 0
    row, rows = new if new >= 0 else old, group.lanes[0, len(program.keys) + len(program.results) + 1]
    for c in range(len(program.components)):
        part = program.components[c]
        kind, at = part[KIND], part[AT]
        if kind <= GREATEST:
            continue
        if kind == OPCODES:
            group.lanes[0, at] += 1 if part[A] == opcode or (is_evicted and part[A] == DELETED) else 0
        elif kind == LAST_OPCODE:
            group.lanes[0, at] = opcode
        elif kind == EVENTS:
            group.lanes[0, at] = number
        elif kind == NEWEST:
            for j in range(at + part[WIDTH] - 1, at, -1):
                group.lanes[0, j], group.valid[0, j] = group.lanes[0, j - 1], group.valid[0, j - 1]
        if kind in (LAST, NEWEST) or (kind == LAST_KEPT and new >= 0) or (kind == NTH and rows == part[B]):
            group.lanes[0, at], group.valid[0, at] = events.lanes[row, part[A]], events.valid[row, part[A]]


@kernel
def reset_expired_periods(group: Group, program: GroupProgram, now: Whole) -> None:
    """Resets the components of each period that is over at `now`, in microseconds, and begins the next period then."""
    for p in range(len(program.periods)):
        start = program.periods[p, 0]
        if group.valid[0, start] and now - group.lanes[0, start] < program.periods[p, 1]:
            continue
        group.lanes[0, start], group.valid[0, start] = now, True
        for c in range(len(program.components)):
            part = program.components[c]
            if part[PERIOD] == p:
                clear_columns(group, part[AT], part[AT] + part[WIDTH])
                if part[KIND] in (LEAST, GREATEST, LEAST_TEXT, GREATEST_TEXT):
                    group.valid[0, part[AT]] = False


@kernel
def change_group(group: Group, program: GroupProgram, events: GroupEvents, new: Whole, old: Whole, number: Whole) -> bool:
    """Applies an event to the components of `group`. Returns False if a sum needs more words; `group` is then incomplete."""
    if new >= 0:
        reset_expired_periods(group, program, events.time_us[events.rank[new]])
    for step in range(2):
        row = old if step == 0 else new
        if row >= 0 and not add_row(group, program, events, row, np.int64(2 * step - 1)):
            return False
    record_event(group, program, events, new, old, number)
    return True
