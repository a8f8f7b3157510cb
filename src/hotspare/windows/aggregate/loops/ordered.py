"""Loops of ordered multisets (`OrderedValues` of `windows.aggregate.groups`): values with their multiplicity, in order, in many
sets.

A set is identified by the columns of a condition. Each of its values is a row; the rows of a set form a balanced tree, whose root
the index `roots` finds. Trees are balanced by weight, the row count plus one: no subtree of a row weighs more than three times as
much as the other one (Hirai and Yamamoto, Balancing weight-balanced trees, 2011). So a step visits O(log n) rows, and the value at
any place is found as fast as the least one.

Sets of which only the least and the greatest value are needed have heaps instead (`windows.aggregate.loops.extremes`). Trees and
heaps are derived from rows and are in no snapshot: their shape does not show in any output.
"""

from __future__ import annotations

import numpy as np

from hotspare.rows.chunk import Int64s
from hotspare.rows.compile import Whole, called, kernel
from hotspare.table.loops.index import NONE, Index, drop, enter, entry_of, key_hash, place_of, replace, slot_at
from hotspare.table.loops.pages import NEW_SLOT, OLD_SLOT, free_slot, is_ready, take_slot
from hotspare.table.loops.shared import check_gaps_shared, look_up, room_for
from hotspare.table.loops.slots import ARRIVALS, FILL, LIVE, MOVED
from hotspare.windows.aggregate.loops.components import plain_lane
from hotspare.windows.aggregate.loops.extremes import LEAST as LEAST_HEAP
from hotspare.windows.aggregate.loops.extremes import insert_into_both_heaps, is_top, remove_from_both_heaps, replace_in_both_heaps
from hotspare.windows.aggregate.loops.values import (
    CODE,
    EXTREMES,
    MODES,
    NODES_WIDTH,
    NUMBER,
    OF_SET,
    TEXT,
    TIMES,
    Forest,
    Trees,
    forest_of,
    is_asked,
    multiplicity,
    precedes,
)

LEFT, RIGHT, UP, NODES, TOTAL, BEST = 0, 1, 2, 3, 4, 5
"""Columns of `Trees.nodes`, by slot. LEFT, RIGHT and UP: children and parent, or NONE. NODES and TOTAL: the count of rows in the
subtree of a row, and the sum of their multiplicities. BEST, if modes are needed: the slot of the most frequent value of the
subtree, and of the least one if several are.
"""
DELTA, GAMMA = 3, 2
"""Balance: DELTA is the largest ratio of the weights of two subtrees; below the ratio GAMMA one rotation is enough."""


@kernel
def sum_up(forest: Forest, slot: Whole) -> None:
    """Computes NODES, TOTAL and BEST of a row from those of its children."""
    nodes = forest.nodes
    best: Whole = slot
    count, total, compares = np.int64(1), multiplicity(forest, slot), is_asked(forest, slot) == MODES
    for side in (LEFT, RIGHT):
        child = nodes[slot, side]
        if child >= 0:
            count += nodes[child, NODES]
            total += nodes[child, TOTAL]
            if compares:
                other = np.int64(nodes[child, BEST])
                more = multiplicity(forest, other) - multiplicity(forest, best)
                if more > 0 or (more == 0 and side == LEFT):
                    best = other
    nodes[slot, NODES], nodes[slot, TOTAL], nodes[slot, BEST] = count, total, best


@kernel
def weight(nodes: Int64s, slot: Whole) -> Whole:
    return np.int64(nodes[slot, NODES] + 1) if slot >= 0 else np.int64(1)


@kernel
def rotated(forest: Forest, slot: Whole, side: Whole) -> Whole:
    """Rotates the child of `slot` on side `side` into the place of its parent, and returns that child. The caller links the parent
    above to it.
    """
    nodes, other = forest.nodes, LEFT + RIGHT - side
    child = np.int64(nodes[slot, side])
    inner = np.int64(nodes[child, other])
    nodes[slot, side], nodes[child, other] = inner, slot
    nodes[child, UP], nodes[slot, UP] = nodes[slot, UP], child
    if inner >= 0:
        nodes[inner, UP] = slot
    sum_up(forest, slot)
    sum_up(forest, child)
    return child


@kernel
def balanced(forest: Forest, slot: Whole) -> Whole:
    """Balances the two subtrees of a row and updates their totals. Returns the row that is then on top; the caller links the parent
    above to it.
    """
    nodes = forest.nodes
    sum_up(forest, slot)
    for side in (LEFT, RIGHT):
        other = LEFT + RIGHT - side
        heavy = np.int64(nodes[slot, side])
        if weight(nodes, heavy) > DELTA * weight(nodes, nodes[slot, other]):
            if weight(nodes, nodes[heavy, other]) >= GAMMA * weight(nodes, nodes[heavy, side]):
                nodes[slot, side] = rotated(forest, heavy, other)
            return rotated(forest, slot, side)
    return slot


@kernel
def replace_child(forest: Forest, parent: Whole, old: Whole, new: Whole) -> None:
    """Links `parent` to the child `new` in place of `old`, and `new` to `parent`. `parent` and `new` may be NONE."""
    if parent >= 0:
        forest.nodes[parent, LEFT if forest.nodes[parent, LEFT] == old else RIGHT] = new
    if new >= 0:
        forest.nodes[new, UP] = parent


@called
def rebalanced(forest: Forest, slot: Whole) -> Whole:
    """Balances the tree from row `slot` up to the root. Returns the root."""
    top = slot
    while slot >= 0:
        parent = np.int64(forest.nodes[slot, UP])
        top = balanced(forest, slot)
        if top != slot:
            replace_child(forest, parent, slot, top)
        slot = parent
    return top


@called
def insert_into_tree(forest: Forest, root: Whole, slot: Whole) -> Whole:
    """Inserts row `slot` into the tree with the root `root`, NONE for an empty one. Returns the new root."""
    nodes = forest.nodes
    nodes[slot, LEFT] = nodes[slot, RIGHT] = nodes[slot, UP] = NONE
    at: Whole = root
    parent: Whole = NONE
    side = LEFT
    while at >= 0:
        parent = at
        side = LEFT if precedes(forest, slot, at) else RIGHT
        at = np.int64(nodes[at, side])
    if parent >= 0:
        nodes[parent, side], nodes[slot, UP] = slot, parent
    return rebalanced(forest, slot)


@called
def remove_from_tree(forest: Forest, slot: Whole) -> Whole:
    """Removes row `slot` from its tree. Returns the root, NONE if the tree is empty."""
    nodes = forest.nodes
    left, right, parent = np.int64(nodes[slot, LEFT]), np.int64(nodes[slot, RIGHT]), np.int64(nodes[slot, UP])
    if left < 0 or right < 0:
        child = left if left >= 0 else right
        replace_child(forest, parent, slot, child)
        return rebalanced(forest, parent) if parent >= 0 else child
    after = right
    while nodes[after, LEFT] >= 0:
        after = np.int64(nodes[after, LEFT])
    begin = np.int64(nodes[after, UP])
    if begin == slot:
        begin = after
    else:
        replace_child(forest, begin, after, np.int64(nodes[after, RIGHT]))
        nodes[after, RIGHT], nodes[right, UP] = right, after
    nodes[after, LEFT], nodes[left, UP] = left, after
    replace_child(forest, parent, slot, after)
    return rebalanced(forest, begin)


@kernel
def replace_row_in_heaps(trees: Trees, slot: Whole, old: Whole) -> None:
    """Replaces a row as `replace_row_in_set` does, in heaps."""
    rows, roots = trees.rows, trees.roots
    h = key_hash(rows.lanes, slot, rows.conditions)
    if is_top(trees.nodes, old, LEAST_HEAP):
        replace(roots, place_of(roots, h, old), entry_of(h, slot))
        replace_in_both_heaps(trees.nodes, slot, old, slot)
    else:
        place = look_up(roots, rows.lanes, rows.conditions, rows.lanes, slot, rows.conditions, h)
        replace_in_both_heaps(trees.nodes, slot, old, slot_at(roots, place))


@called
def replace_row_in_set(trees: Trees, slot: Whole, old: Whole) -> None:
    """Puts row `slot` in the place of row `old`, which has the same value, in the tree or heaps of its set. If `old` is the root,
    the index of roots is changed, too.
    """
    nodes, forest = trees.nodes, forest_of(trees)
    if is_asked(forest, slot) == EXTREMES:
        replace_row_in_heaps(trees, slot, old)
        return
    for j in range(NODES_WIDTH):
        nodes[slot, j] = nodes[old, j]
    replace_child(forest, np.int64(nodes[old, UP]), old, slot)
    for side in (LEFT, RIGHT):
        if nodes[slot, side] >= 0:
            nodes[nodes[slot, side], UP] = slot
    if nodes[slot, UP] < 0:
        h = key_hash(trees.rows.lanes, slot, trees.rows.conditions)
        replace(trees.roots, place_of(trees.roots, h, old), entry_of(h, slot))
    at: Whole = slot
    while at >= 0:
        sum_up(forest, at)
        at = np.int64(nodes[at, UP])


@kernel
def set_probe_group(trees: Trees, lanes: Int64s, row: Whole, keys: Int64s, number: Whole) -> None:
    """Sets the probe to set `number` of the group whose key is in columns `keys` of `lanes[row]`."""
    width = trees.probe.shape[1]
    for k in range(len(keys)):
        trees.probe[0, k] = lanes[row, keys[k]]
    trees.probe[0, width - OF_SET] = number


@kernel
def set_probe_value(trees: Trees, lane: Whole) -> None:
    """Sets the value of the probe. Equal doubles get equal bits."""
    width = trees.probe.shape[1]
    kind = trees.kinds[trees.probe[0, width - OF_SET]]
    trees.probe[0, width - NUMBER] = 0 if kind == TEXT else plain_lane(lane, kind)
    trees.probe[0, width - CODE] = lane if kind == TEXT else 0


@kernel
def insert_into_set(forest: Forest, root: Whole, slot: Whole) -> Whole:
    """Inserts a row into the tree or the heaps of its set; returns the root."""
    return (
        insert_into_both_heaps(forest, root, slot) if is_asked(forest, slot) == EXTREMES else insert_into_tree(forest, root, slot)
    )


@kernel
def remove_from_set(forest: Forest, root: Whole, slot: Whole) -> Whole:
    """Removes a row from the tree or the heaps of its set; returns the root, NONE if the set is empty."""
    return remove_from_both_heaps(forest, root, slot) if is_asked(forest, slot) == EXTREMES else remove_from_tree(forest, slot)


@called
def find_root(roots: Index, lanes: Int64s, conditions: Int64s, probe: Int64s) -> Whole:
    h = key_hash(probe, 0, conditions)
    return slot_at(roots, look_up(roots, lanes, conditions, probe, 0, conditions, h))


@kernel
def probe_root(trees: Trees) -> Whole:
    """Returns the root of the probe's set; NONE if it is empty."""
    return find_root(trees.roots, trees.rows.lanes, trees.rows.conditions, trees.probe)


@called
def replace_root(roots: Index, lanes: Int64s, conditions: Int64s, probe: Int64s, was: Whole, root: Whole) -> None:
    """Replaces `was`, the root of the probe's set, by `root` in the index of roots. Either may be NONE."""
    if was == root:
        return
    h = key_hash(probe, 0, conditions)
    if was < 0:
        place = look_up(roots, lanes, conditions, probe, 0, conditions, h)
        enter(roots, place, entry_of(h, root))
    elif root < 0:
        drop(roots, place_of(roots, h, was))
    else:
        replace(roots, place_of(roots, h, was), entry_of(h, root))


@kernel
def is_prepared_for_value(trees: Trees) -> bool:
    """Whether the pages, their index and the index of roots have room for a change of the probe's set by its value."""
    rows = trees.rows
    has_roots = room_for(trees.roots, key_hash(trees.probe, 0, rows.conditions))
    return is_ready(rows) and has_roots and room_for(rows.by_key, key_hash(trees.probe, 0, rows.keys))


@kernel
def tidy_values(trees: Trees) -> None:
    """Prepares a change: checks gaps of pages, which may move rows, and updates trees and heaps for moved rows. Call it once before
    each change.
    """
    rows = trees.rows
    if rows.state[FILL] == 1:
        check_gaps_shared(rows, 0)
    for at in range(rows.state[MOVED]):
        replace_row_in_set(trees, np.int64(rows.moved[at, NEW_SLOT]), np.int64(rows.moved[at, OLD_SLOT]))
    rows.state[MOVED] = 0


@kernel
def change_value(trees: Trees, sign: Whole) -> None:
    """Increases (`sign` 1) or decreases (-1) the multiplicity of the probe's value. A value whose multiplicity becomes 0 is
    removed; a decrease of an absent value is ignored.
    """
    rows, probe = trees.rows, trees.probe
    width, forest = rows.lanes.shape[1], forest_of(trees)
    h = key_hash(probe, 0, rows.keys)
    place = look_up(rows.by_key, rows.lanes, rows.keys, probe, 0, rows.keys, h)
    was = slot_at(rows.by_key, place)
    if was >= 0 and sign < 0 and multiplicity(forest, was) == 1:
        root = probe_root(trees)
        drop(rows.by_key, place)
        rows.state[LIVE] -= 1
        replace_root(trees.roots, rows.lanes, rows.conditions, probe, root, remove_from_set(forest, root, was))
        free_slot(rows, was)
        return
    if was < 0 and sign < 0:
        return
    slot = take_slot(rows)
    for j in range(width):
        rows.lanes[slot, j] = probe[0, j]
        rows.valid[slot, j] = True
    rows.lanes[slot, width - TIMES] = 1 if was < 0 else multiplicity(forest, was) + sign
    if was >= 0:
        rows.order[slot] = rows.order[was]
        replace(rows.by_key, place, entry_of(h, slot))
        replace_row_in_set(trees, slot, was)
        free_slot(rows, was)
        return
    rows.order[slot] = rows.state[ARRIVALS]
    rows.state[ARRIVALS] += 1
    rows.state[LIVE] += 1
    enter(rows.by_key, place, entry_of(h, slot))
    root = probe_root(trees)
    replace_root(trees.roots, rows.lanes, rows.conditions, probe, root, insert_into_set(forest, root, slot))


@called
def value_at(forest: Forest, root: Whole, number: Whole) -> Whole:
    """Returns the slot of the value at place `number` of a tree, counted from 0 in ascending order; each value counts with its
    multiplicity.
    """
    at: Whole = root
    while True:
        left = np.int64(forest.nodes[at, LEFT])
        before = np.int64(forest.nodes[left, TOTAL]) if left >= 0 else np.int64(0)
        if number < before:
            at = left
        elif number < before + multiplicity(forest, at):
            return at
        else:
            number -= before + multiplicity(forest, at)
            at = np.int64(forest.nodes[at, RIGHT])


@kernel
def fill_trees(trees: Trees, slots: Int64s, begin: Whole) -> Whole:
    """Inserts the rows `slots[begin:]` into their trees or heaps. Returns the index in `slots` at which it stopped: the end, or
    that of a row for which `roots` has no room.
    """
    at = begin
    while at < len(slots):
        slot = slots[at]
        for j in range(trees.rows.lanes.shape[1]):
            trees.probe[0, j] = trees.rows.lanes[slot, j]
        if not room_for(trees.roots, key_hash(trees.probe, 0, trees.rows.conditions)):
            return at
        root = probe_root(trees)
        made = insert_into_set(forest_of(trees), root, slot)
        replace_root(trees.roots, trees.rows.lanes, trees.rows.conditions, trees.probe, root, made)
        at += 1
    return at
