"""Loops of sets of which only the least and the greatest value are needed: two heaps over the rows of a set.

They are pairing heaps: a row has a list of rows below it, the newest first. An inserted value is compared with the top alone. When
a value is removed, the rows below it are merged in pairs, and then the pairs, from the last to the first. A change takes O(log n)
steps, amortised; it takes one or two if values are removed in the order of insertion. The shape of the heaps does not show in any
output.

The index of roots finds the top of the heap of least values, and that row links to the top of the other heap.
"""

from __future__ import annotations

import numpy as np

from hotspare.rows.chunk import Int64s
from hotspare.rows.compile import Whole, called, kernel
from hotspare.table.loops.index import NONE
from hotspare.windows.aggregate.loops.values import NODES_WIDTH, Forest, precedes

BELOW, NEXT, BEFORE = 0, 1, 2
"""Columns of `Trees.nodes` for one heap, counted from the first one of that heap. BELOW: the first of the rows below a row. NEXT
and BEFORE: its neighbours in the list of rows below the same parent; BEFORE of the first row is the parent. NONE if there is none.
"""
LEAST, GREATEST = np.int64(0), np.int64(3)
"""The first column of each heap in `Trees.nodes`."""
OTHER_TOP = 1
"""The column in which the top of the heap of least values has the top of the other heap. It is NEXT, which a top does not need,
since a top is in no list.
"""


@kernel
def melded(forest: Forest, a: Whole, b: Whole, heap: Whole) -> Whole:
    """Merges the heaps with the tops `a` and `b`, and returns the top. NONE is an empty heap; `heap` is LEAST or GREATEST."""
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
def unlink_node(nodes: Int64s, slot: Whole, heap: Whole) -> None:
    """Resets the links of a row to its neighbours; the links of the neighbours do not change."""
    nodes[slot, heap + NEXT] = nodes[slot, heap + BEFORE] = NONE


@called
def merge_heap_list(forest: Forest, first: Whole, heap: Whole) -> Whole:
    """Merges the heaps of a list that begins with `first`. Returns the top, NONE for an empty list."""
    nodes, at = forest.nodes, first
    pairs: Whole = NONE
    while at >= 0:
        other, after = np.int64(nodes[at, heap + NEXT]), np.int64(NONE)
        unlink_node(nodes, at, heap)
        if other >= 0:
            after = np.int64(nodes[other, heap + NEXT])
            unlink_node(nodes, other, heap)
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
def delete_from_heap(forest: Forest, top: Whole, slot: Whole, heap: Whole) -> Whole:
    """Removes row `slot` from the heap with the top `top`. Returns the new top, NONE if the heap is empty."""
    nodes = forest.nodes
    rest = merge_heap_list(forest, np.int64(nodes[slot, heap + BELOW]), heap)
    if slot == top:
        return rest
    before, after = np.int64(nodes[slot, heap + BEFORE]), np.int64(nodes[slot, heap + NEXT])
    nodes[before, heap + (BELOW if nodes[before, heap + BELOW] == slot else NEXT)] = after
    if after >= 0:
        nodes[after, heap + BEFORE] = before
    return melded(forest, top, rest, heap)


@kernel
def greatest_of(nodes: Int64s, least: Whole) -> Whole:
    """Returns the top of the heap of greatest values, by `least`, the top of the least ones; NONE if that is NONE."""
    return np.int64(nodes[least, OTHER_TOP]) if least >= 0 else NONE


@called
def insert_into_both_heaps(forest: Forest, least: Whole, slot: Whole) -> Whole:
    """Inserts row `slot` into both heaps of its set. `least` is the top of the least values, NONE for an empty set; returns the new
    one.
    """
    nodes, greatest = forest.nodes, greatest_of(forest.nodes, least)
    for j in range(NODES_WIDTH):
        nodes[slot, j] = NONE
    if least >= 0:
        nodes[least, OTHER_TOP] = NONE
    top = melded(forest, least, slot, LEAST)
    nodes[top, OTHER_TOP] = melded(forest, greatest, slot, GREATEST)
    return top


@called
def remove_from_both_heaps(forest: Forest, least: Whole, slot: Whole) -> Whole:
    """Removes row `slot` from both heaps of its set. `least` is the top of the least values; returns the new one, NONE if the set
    is empty.
    """
    greatest = delete_from_heap(forest, greatest_of(forest.nodes, least), slot, GREATEST)
    forest.nodes[least, OTHER_TOP] = NONE
    top = delete_from_heap(forest, least, slot, LEAST)
    if top >= 0:
        forest.nodes[top, OTHER_TOP] = greatest
    return top


@kernel
def is_top(nodes: Int64s, slot: Whole, heap: Whole) -> bool:
    return bool(nodes[slot, heap + BEFORE] < 0)


@called
def replace_in_both_heaps(nodes: Int64s, slot: Whole, old: Whole, least: Whole) -> None:
    """Puts row `slot` in the place of row `old`, which has the same value. `least`: the top of the least values, which is `slot` if
    `old` was the top.
    """
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
