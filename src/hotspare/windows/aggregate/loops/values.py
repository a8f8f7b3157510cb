"""Rows of values with their multiplicity, on which trees (`windows.aggregate.loops.ordered`) or heaps
(`windows.aggregate.loops.extremes`) are built."""

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
"""Columns of `Trees.nodes`. Their meaning depends on the queries that a set answers: see `ordered` and `extremes`."""
OF_SET, NUMBER, CODE, TIMES = 4, 3, 2, 1
"""Columns of a row, counted from the end. OF_SET: the number of its set in the group. NUMBER and CODE: its value, as a number or as
the code of a text. TIMES: its multiplicity.
"""
PLAIN, DOUBLE, TEXT = np.int64(0), np.int64(1), np.int64(2)
"""Kinds of values: whole numbers, doubles, and texts."""
EXTREMES, PLACES, MODES = np.int64(0), np.int64(1), np.int64(2)
"""Queries that a set answers, each including the ones before. EXTREMES: the least and greatest value, for which heaps suffice.
PLACES: the value at a place, and the count of distinct values. MODES: the most frequent value.
"""


class Trees(NamedTuple):
    """The arguments for kernels over ordered multisets.

    rows            a row per value; the columns of a set are its condition, and these and the value its key
    nodes           int64[., 6]: the links of each row in a tree or in heaps, by slot
    roots           the index that finds the root of a set
    kinds           int64[.]: the kind of the values of each set of a group
    queries_by_set  int64[.]: the queries of each set
    places, data    the texts by code: place of each, and the bytes of all
    probe           int64[1, width]: the row that is searched for
    """

    rows: Rows
    nodes: Int64s
    roots: Index
    kinds: Int64s
    queries_by_set: Int64s
    places: Int64s
    data: UInt8s
    probe: Int64s


class Forest(NamedTuple):
    """The part of `Trees` that most steps need, so that fewer arguments are passed from function to function."""

    lanes: Int64s
    nodes: Int64s
    kinds: Int64s
    queries_by_set: Int64s
    places: Int64s
    data: UInt8s


@kernel
def forest_of(trees: Trees) -> Forest:
    return Forest(trees.rows.lanes, trees.nodes, trees.kinds, trees.queries_by_set, trees.places, trees.data)


@kernel
def is_asked(forest: Forest, slot: Whole) -> Whole:
    """Returns the queries of the set of row `slot`: EXTREMES, PLACES or MODES."""
    return np.int64(forest.queries_by_set[forest.lanes[slot, forest.lanes.shape[1] - OF_SET]])


@kernel
def text_precedes(forest: Forest, a: Whole, b: Whole) -> bool:
    """Whether the text of code `a` precedes that of code `b`, by bytes."""
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
    """Whether the value of slot `a` precedes that of slot `b`, which is of the same set."""
    lanes, width = forest.lanes, forest.lanes.shape[1]
    kind = forest.kinds[lanes[a, width - OF_SET]]
    if kind == TEXT:
        return text_precedes(forest, lanes[a, width - CODE], lanes[b, width - CODE])
    return bool(sortable(lanes[a, width - NUMBER], kind) < sortable(lanes[b, width - NUMBER], kind))


@kernel
def multiplicity(forest: Forest, slot: Whole) -> Whole:
    return np.int64(forest.lanes[slot, forest.lanes.shape[1] - TIMES])
