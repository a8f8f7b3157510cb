"""Rows of values, each with how often it is there, over which trees (`windows.aggregate.loops.ordered`) or heaps
(`windows.aggregate.loops.extremes`) stand."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hotspare.rows.chunk import Int64s, UInt8s
from hotspare.rows.compile import Whole, kernel
from hotspare.table.loops.index import Index
from hotspare.table.loops.interning import BEGIN, SIZE
from hotspare.table.loops.pages import Rows
from hotspare.windows.aggregate.loops.components import sortable

NODES_WIDTH = 6
"""Columns of `Trees.nodes`, by slot; what they hold depends on what a set is asked."""
OF_SET, NUMBER, CODE, TIMES = 4, 3, 2, 1
"""Columns of a row, counted from the end: which set of the group it belongs to; its value, a number or the code of a text; how
often it is there."""
PLAIN, DOUBLE, TEXT = np.int64(0), np.int64(1), np.int64(2)
"""Kinds of values."""
EXTREMES, PLACES, MODES = np.int64(0), np.int64(1), np.int64(2)
"""What a set is asked: its least and greatest value, for which heaps are enough; also what stands at a place, or how many values
are different; also what is there most often."""


class Trees(NamedTuple):
    """`rows` has its sets' columns as conditions, and these and the value as keys. `kinds`: of the values of each set of a group;
    `asked`: what it is asked. `places`, `data`: texts by code. `probe` int64[1, width]: a row that is looked for."""

    rows: Rows
    nodes: Int64s
    roots: Index
    kinds: Int64s
    asked: Int64s
    places: Int64s
    data: UInt8s
    probe: Int64s


class Forest(NamedTuple):
    """The part of `Trees` that most steps need: less to hand from function to function."""

    lanes: Int64s
    nodes: Int64s
    kinds: Int64s
    asked: Int64s
    places: Int64s
    data: UInt8s


@kernel
def forest_of(trees: Trees) -> Forest:
    return Forest(trees.rows.lanes, trees.nodes, trees.kinds, trees.asked, trees.places, trees.data)


@kernel
def is_asked(forest: Forest, slot: Whole) -> Whole:
    """What the set of a row is asked."""
    return np.int64(forest.asked[forest.lanes[slot, forest.lanes.shape[1] - OF_SET]])


@kernel
def text_precedes(forest: Forest, a: Whole, b: Whole) -> bool:
    """Whether the bytes of code a come before those of code b."""
    at, other = forest.places[a, BEGIN], forest.places[b, BEGIN]
    size, other_size = forest.places[a, SIZE], forest.places[b, SIZE]
    i, end = np.int64(0), min(size, other_size)
    while i < end and forest.data[at + i] == forest.data[other + i]:
        i += 1
    if i < end:
        return bool(forest.data[at + i] < forest.data[other + i])
    return bool(size < other_size)


@kernel
def precedes(forest: Forest, a: Whole, b: Whole) -> bool:
    """Whether the value of slot a is less than that of slot b, which is of the same set."""
    lanes, width = forest.lanes, forest.lanes.shape[1]
    kind = forest.kinds[lanes[a, width - OF_SET]]
    if kind == TEXT:
        return text_precedes(forest, lanes[a, width - CODE], lanes[b, width - CODE])
    return bool(sortable(lanes[a, width - NUMBER], kind) < sortable(lanes[b, width - NUMBER], kind))


@kernel
def times(forest: Forest, slot: Whole) -> Whole:
    return np.int64(forest.lanes[slot, forest.lanes.shape[1] - TIMES])
