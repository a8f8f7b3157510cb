"""Loops of sets of which only the least and the greatest value are asked: two heaps over the rows of a set.

They are pairing heaps: a row has a list of rows below it, the newest first. A value that comes is compared with the top alone; one
that goes, wherever it stands, leaves those below it to be put together two by two, and then from the last two on. Each change
takes O(log n) steps, over many of them, and most take few: where values go in the order in which they came, whatever they
are, it is one or two. What the heaps look like shows in nothing that comes out.

The index of roots finds the top of the heap of least values, and that one the top of the other heap.
"""

from __future__ import annotations

import numpy as np

from hotspare.rows.chunk import Int64s
from hotspare.rows.compile import Whole, called, kernel
from hotspare.table.loops.index import NONE
from hotspare.windows.aggregate.loops.values import NODES_WIDTH, Forest, precedes

BELOW, NEXT, BEFORE = 0, 1, 2
"""Columns of `Trees.nodes` of one heap, from its first one on: the first of the rows below a row; its neighbours in the list of
those below the same row, where the first one is behind that row itself; NONE where there is none."""
LEAST, GREATEST = np.int64(0), np.int64(3)
"""The first column of each heap."""
OTHER_TOP = 1
"""The top of the heap of least values stands in no list: its NEXT is the top of the other heap."""


@kernel
def melded(forest: Forest, a: Whole, b: Whole, heap: Whole) -> Whole:
    """The top of two heaps that become one; NONE is an empty one."""
    if a < 0:
        return b
    if b < 0:
        return a
    nodes, top, low = forest.nodes, a, b
    if precedes(forest, b, a) == (heap == LEAST):
        top, low = b, a
    first = np.int64(nodes[top, heap + BELOW])
    nodes[low, heap + NEXT], nodes[low, heap + BEFORE] = first, top
    if first >= 0:
        nodes[first, heap + BEFORE] = low
    nodes[top, heap + BELOW] = low
    return top


@kernel
def stand_alone(nodes: Int64s, slot: Whole, heap: Whole) -> None:
    """Let a row be in no list."""
    nodes[slot, heap + NEXT] = nodes[slot, heap + BEFORE] = NONE


@called
def put_together(forest: Forest, first: Whole, heap: Whole) -> Whole:
    """The top of the heaps of a list, from its first one on."""
    nodes, at = forest.nodes, first
    pairs: Whole = NONE
    while at >= 0:
        other, after = np.int64(nodes[at, heap + NEXT]), np.int64(NONE)
        stand_alone(nodes, at, heap)
        if other >= 0:
            after = np.int64(nodes[other, heap + NEXT])
            stand_alone(nodes, other, heap)
        pair = melded(forest, at, other, heap)
        nodes[pair, heap + NEXT] = pairs
        pairs, at = pair, after
    top: Whole = NONE
    while pairs >= 0:
        after = np.int64(nodes[pairs, heap + NEXT])
        nodes[pairs, heap + NEXT] = NONE
        top = melded(forest, top, pairs, heap)
        pairs = after
    return top


@called
def without(forest: Forest, top: Whole, slot: Whole, heap: Whole) -> Whole:
    """Take a row out of its heap; the top."""
    nodes = forest.nodes
    rest = put_together(forest, np.int64(nodes[slot, heap + BELOW]), heap)
    if slot == top:
        return rest
    before, after = np.int64(nodes[slot, heap + BEFORE]), np.int64(nodes[slot, heap + NEXT])
    nodes[before, heap + (BELOW if nodes[before, heap + BELOW] == slot else NEXT)] = after
    if after >= 0:
        nodes[after, heap + BEFORE] = before
    return melded(forest, top, rest, heap)


@kernel
def greatest_of(nodes: Int64s, least: Whole) -> Whole:
    """The top of the other heap."""
    return np.int64(nodes[least, OTHER_TOP]) if least >= 0 else NONE


@called
def heaped(forest: Forest, least: Whole, slot: Whole) -> Whole:
    """Bring a row into the heaps of its set; the top of the least values."""
    nodes, greatest = forest.nodes, greatest_of(forest.nodes, least)
    for j in range(NODES_WIDTH):
        nodes[slot, j] = NONE
    if least >= 0:
        nodes[least, OTHER_TOP] = NONE
    top = melded(forest, least, slot, LEAST)
    nodes[top, OTHER_TOP] = melded(forest, greatest, slot, GREATEST)
    return top


@called
def unheaped(forest: Forest, least: Whole, slot: Whole) -> Whole:
    """Take a row out of the heaps of its set; the top of the least values, NONE where nothing is left."""
    greatest = without(forest, greatest_of(forest.nodes, least), slot, GREATEST)
    forest.nodes[least, OTHER_TOP] = NONE
    top = without(forest, least, slot, LEAST)
    if top >= 0:
        forest.nodes[top, OTHER_TOP] = greatest
    return top


@kernel
def is_top(nodes: Int64s, slot: Whole, heap: Whole) -> bool:
    return bool(nodes[slot, heap + BEFORE] < 0)


@called
def take_place(nodes: Int64s, slot: Whole, old: Whole, least: Whole) -> None:
    """Let a row stand where another one with the same value stands. `least`: the top of the least values, also where it is `slot`,
    which the index names then."""
    for j in range(NODES_WIDTH):
        nodes[slot, j] = nodes[old, j]
    if is_top(nodes, slot, GREATEST):
        nodes[least, OTHER_TOP] = slot
    for side in range(2):
        heap = LEAST if side == 0 else GREATEST
        below, before = np.int64(nodes[slot, heap + BELOW]), np.int64(nodes[slot, heap + BEFORE])
        if below >= 0:
            nodes[below, heap + BEFORE] = slot
        if before >= 0:
            nodes[before, heap + (BELOW if nodes[before, heap + BELOW] == old else NEXT)] = slot
            after = np.int64(nodes[slot, heap + NEXT])
            if after >= 0:
                nodes[after, heap + BEFORE] = slot
