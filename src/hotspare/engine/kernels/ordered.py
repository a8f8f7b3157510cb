"""Loops of ordered multisets (see `engine.state.ordered_values`): values with how often each is there, in order, many sets side
by side.

A set is named by what stands in the columns of a condition. Each of its values is a row; the rows of a set are a balanced tree,
whose root the index `roots` finds. A tree is one by weight: of the two subtrees of a row, none has more than three times as many
rows as the other one, one counted more in each (Hirai and Yamamoto, Balancing weight-balanced trees, 2011). So a step costs as
many looks as the number of values has digits, and the value at any place is found as fast as the least one.

Trees are derived from rows, and in no snapshot: their shape shows nowhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hotspare.engine.kernels import Whole, called, kernel
from hotspare.engine.kernels.components import plain_lane, sortable
from hotspare.engine.kernels.index import NONE, Index, drop, enter, entry_of, key_hash, place_of, replace, slot_at
from hotspare.engine.kernels.interning import BEGIN, SIZE
from hotspare.engine.kernels.pages import NEW_SLOT, OLD_SLOT, Rows, free_slot, is_ready, take_slot
from hotspare.engine.kernels.shared import look_up, room_for, see_to_gaps
from hotspare.engine.kernels.slots import ARRIVALS, LIVE, MOVED
from hotspare.engine.rows.chunk import Int64s, UInt8s

LEFT, RIGHT, UP, NODES, TOTAL, BEST = 0, 1, 2, 3, 4, 5
"""Columns of `Trees.nodes`, by slot: children and parent, or NONE; of the tree below it, itself included, how many rows it has,
how many values, each as often as it is there, and the slot of the one that is there most often, the least of these."""
NODES_WIDTH = 6
OF_SET, NUMBER, CODE, TIMES = 4, 3, 2, 1
"""Columns of a row, counted from the end: which set of the group it belongs to; its value, a number or the code of a text; how
often it is there."""
PLAIN, DOUBLE, TEXT = np.int64(0), np.int64(1), np.int64(2)
"""Kinds of values."""
DELTA, GAMMA = 3, 2
"""Balance: how much heavier one subtree may be, and when one rotation is enough."""


class Trees(NamedTuple):
    """`rows` has its sets' columns as conditions, and these and the value as keys. `kinds`: of the values of each set of a group.
    `places`, `data`: texts by code. `probe` int64[1, width]: a row that is looked for."""

    rows: Rows
    nodes: Int64s
    roots: Index
    kinds: Int64s
    places: Int64s
    data: UInt8s
    probe: Int64s


@kernel
def text_precedes(trees: Trees, a: Whole, b: Whole) -> bool:
    """Whether the bytes of code a come before those of code b."""
    at, other = trees.places[a, BEGIN], trees.places[b, BEGIN]
    size, other_size = trees.places[a, SIZE], trees.places[b, SIZE]
    i, end = np.int64(0), min(size, other_size)
    while i < end and trees.data[at + i] == trees.data[other + i]:
        i += 1
    if i < end:
        return bool(trees.data[at + i] < trees.data[other + i])
    return bool(size < other_size)


@called
def precedes(trees: Trees, a: Whole, b: Whole) -> bool:
    """Whether the value of slot a is less than that of slot b, which is of the same set."""
    lanes, width = trees.rows.lanes, trees.rows.lanes.shape[1]
    kind = trees.kinds[lanes[a, width - OF_SET]]
    if kind == TEXT:
        return text_precedes(trees, lanes[a, width - CODE], lanes[b, width - CODE])
    return bool(sortable(lanes[a, width - NUMBER], kind) < sortable(lanes[b, width - NUMBER], kind))


@kernel
def times(trees: Trees, slot: Whole) -> Whole:
    return np.int64(trees.rows.lanes[slot, trees.rows.lanes.shape[1] - TIMES])


@kernel
def sum_up(trees: Trees, slot: Whole) -> None:
    """What a row knows of the tree below it, from its children."""
    nodes = trees.nodes
    best: Whole = slot
    count, total = np.int64(1), times(trees, slot)
    for side in (LEFT, RIGHT):
        child = nodes[slot, side]
        if child >= 0:
            count += nodes[child, NODES]
            total += nodes[child, TOTAL]
            other = np.int64(nodes[child, BEST])
            more = times(trees, other) - times(trees, best)
            if more > 0 or (more == 0 and side == LEFT):
                best = other
    nodes[slot, NODES], nodes[slot, TOTAL], nodes[slot, BEST] = count, total, best


@kernel
def weight(nodes: Int64s, slot: Whole) -> Whole:
    return np.int64(nodes[slot, NODES] + 1) if slot >= 0 else np.int64(1)


@kernel
def rotated(trees: Trees, slot: Whole, side: Whole) -> Whole:
    """Let the child on a side take the place of its parent; that child. Its new parent is not told."""
    nodes, other = trees.nodes, LEFT + RIGHT - side
    child = np.int64(nodes[slot, side])
    inner = np.int64(nodes[child, other])
    nodes[slot, side], nodes[child, other] = inner, slot
    nodes[child, UP], nodes[slot, UP] = nodes[slot, UP], child
    if inner >= 0:
        nodes[inner, UP] = slot
    sum_up(trees, slot)
    sum_up(trees, child)
    return child


@kernel
def balanced(trees: Trees, slot: Whole) -> Whole:
    """The row on top when both subtrees are in balance, and sums are right; its parent is not told."""
    nodes = trees.nodes
    sum_up(trees, slot)
    for side in (LEFT, RIGHT):
        other = LEFT + RIGHT - side
        heavy = np.int64(nodes[slot, side])
        if weight(nodes, heavy) > DELTA * weight(nodes, nodes[slot, other]):
            if weight(nodes, nodes[heavy, other]) >= GAMMA * weight(nodes, nodes[heavy, side]):
                nodes[slot, side] = rotated(trees, heavy, other)
            return rotated(trees, slot, side)
    return slot


@kernel
def put_below(trees: Trees, parent: Whole, old: Whole, new: Whole) -> None:
    """Let a parent, where there is one, name another child."""
    if parent >= 0:
        trees.nodes[parent, LEFT if trees.nodes[parent, LEFT] == old else RIGHT] = new
    if new >= 0:
        trees.nodes[new, UP] = parent


@called
def rebalanced(trees: Trees, slot: Whole) -> Whole:
    """See to the balance from a row upwards; the root."""
    top = slot
    while slot >= 0:
        parent = np.int64(trees.nodes[slot, UP])
        top = balanced(trees, slot)
        if top != slot:
            put_below(trees, parent, slot, top)
        slot = parent
    return top


@called
def attached(trees: Trees, root: Whole, slot: Whole) -> Whole:
    """Bring a row into its tree; the root."""
    nodes = trees.nodes
    nodes[slot, LEFT] = nodes[slot, RIGHT] = nodes[slot, UP] = NONE
    at: Whole = root
    parent: Whole = NONE
    side = LEFT
    while at >= 0:
        parent = at
        side = LEFT if precedes(trees, slot, at) else RIGHT
        at = np.int64(nodes[at, side])
    if parent >= 0:
        nodes[parent, side], nodes[slot, UP] = slot, parent
    return rebalanced(trees, slot)


@called
def detached(trees: Trees, slot: Whole) -> Whole:
    """Take a row out of its tree; the root, NONE where nothing is left."""
    nodes = trees.nodes
    left, right, parent = np.int64(nodes[slot, LEFT]), np.int64(nodes[slot, RIGHT]), np.int64(nodes[slot, UP])
    if left < 0 or right < 0:
        child = left if left >= 0 else right
        put_below(trees, parent, slot, child)
        return rebalanced(trees, parent) if parent >= 0 else child
    after = right
    while nodes[after, LEFT] >= 0:
        after = np.int64(nodes[after, LEFT])
    begin = np.int64(nodes[after, UP])
    if begin == slot:
        begin = after
    else:
        put_below(trees, begin, after, np.int64(nodes[after, RIGHT]))
        nodes[after, RIGHT], nodes[right, UP] = right, after
    nodes[after, LEFT], nodes[left, UP] = left, after
    put_below(trees, parent, slot, after)
    return rebalanced(trees, begin)


@called
def stand_in(trees: Trees, slot: Whole, old: Whole) -> None:
    """Let a row take the place of another one with the same value, also as the root."""
    nodes = trees.nodes
    for j in range(NODES_WIDTH):
        nodes[slot, j] = nodes[old, j]
    put_below(trees, np.int64(nodes[old, UP]), old, slot)
    for side in (LEFT, RIGHT):
        if nodes[slot, side] >= 0:
            nodes[nodes[slot, side], UP] = slot
    if nodes[slot, UP] < 0:
        h = key_hash(trees.rows.lanes, slot, trees.rows.conditions)
        replace(trees.roots, place_of(trees.roots, h, old), entry_of(h, slot))
    at: Whole = slot
    while at >= 0:
        sum_up(trees, at)
        at = np.int64(nodes[at, UP])


@kernel
def seek(trees: Trees, lanes: Int64s, row: Whole, keys: Int64s, number: Whole) -> None:
    """Let the probe be of a set of the group that these columns of a row name."""
    width = trees.probe.shape[1]
    for k in range(len(keys)):
        trees.probe[0, k] = lanes[row, keys[k]]
    trees.probe[0, width - OF_SET] = number


@kernel
def seek_value(trees: Trees, lane: Whole) -> None:
    """And of a value. Doubles that are equal get equal bits."""
    width = trees.probe.shape[1]
    kind = trees.kinds[trees.probe[0, width - OF_SET]]
    trees.probe[0, width - NUMBER] = 0 if kind == TEXT else plain_lane(lane, kind)
    trees.probe[0, width - CODE] = lane if kind == TEXT else 0


@called
def root_of(trees: Trees) -> Whole:
    """The root of the set that the probe is of; NONE where it is empty."""
    rows = trees.rows
    h = key_hash(trees.probe, 0, rows.conditions)
    return slot_at(trees.roots, look_up(trees.roots, rows.lanes, rows.conditions, trees.probe, 0, rows.conditions, h))


@called
def name_root(trees: Trees, was: Whole, root: Whole) -> None:
    """Let the index find another root of the set that the probe is of."""
    if was == root:
        return
    rows = trees.rows
    h = key_hash(trees.probe, 0, rows.conditions)
    if was < 0:
        place = look_up(trees.roots, rows.lanes, rows.conditions, trees.probe, 0, rows.conditions, h)
        enter(trees.roots, place, entry_of(h, root))
    elif root < 0:
        drop(trees.roots, place_of(trees.roots, h, was))
    else:
        replace(trees.roots, place_of(trees.roots, h, was), entry_of(h, root))


@called
def is_prepared_for_value(trees: Trees) -> bool:
    """Whether there is room for a change of the set that the probe is of, by its value."""
    rows = trees.rows
    has_roots = room_for(trees.roots, key_hash(trees.probe, 0, rows.conditions))
    return is_ready(rows) and has_roots and room_for(rows.by_key, key_hash(trees.probe, 0, rows.keys))


@kernel
def tidy_values(trees: Trees) -> None:
    """Once before each change: see to gaps of pages, and follow rows that are moved."""
    rows = trees.rows
    see_to_gaps(rows, 0)
    for at in range(rows.state[MOVED]):
        stand_in(trees, np.int64(rows.moved[at, NEW_SLOT]), np.int64(rows.moved[at, OLD_SLOT]))
    rows.state[MOVED] = 0


@called
def change_value(trees: Trees, sign: Whole) -> None:
    """Let the value of the probe come once more (1) or less (-1)."""
    rows, probe = trees.rows, trees.probe
    width = rows.lanes.shape[1]
    h = key_hash(probe, 0, rows.keys)
    place = look_up(rows.by_key, rows.lanes, rows.keys, probe, 0, rows.keys, h)
    was = slot_at(rows.by_key, place)
    if was >= 0 and sign < 0 and times(trees, was) == 1:
        root = root_of(trees)
        drop(rows.by_key, place)
        rows.state[LIVE] -= 1
        name_root(trees, root, detached(trees, was))
        free_slot(rows, was)
        return
    if was < 0 and sign < 0:
        return
    slot = take_slot(rows)
    for j in range(width):
        rows.lanes[slot, j] = probe[0, j]
        rows.valid[slot, j] = True
    rows.lanes[slot, width - TIMES] = 1 if was < 0 else times(trees, was) + sign
    if was >= 0:
        rows.order[slot] = rows.order[was]
        replace(rows.by_key, place, entry_of(h, slot))
        stand_in(trees, slot, was)
        free_slot(rows, was)
        return
    rows.order[slot] = rows.state[ARRIVALS]
    rows.state[ARRIVALS] += 1
    rows.state[LIVE] += 1
    enter(rows.by_key, place, entry_of(h, slot))
    root = root_of(trees)
    name_root(trees, root, attached(trees, root, slot))


@called
def value_at(trees: Trees, root: Whole, number: Whole) -> Whole:
    """The slot of the value at a place, counted from 0, each value as often as it is there."""
    at: Whole = root
    while True:
        left = np.int64(trees.nodes[at, LEFT])
        before = np.int64(trees.nodes[left, TOTAL]) if left >= 0 else np.int64(0)
        if number < before:
            at = left
        elif number < before + times(trees, at):
            return at
        else:
            number -= before + times(trees, at)
            at = np.int64(trees.nodes[at, RIGHT])


@kernel
def fill_trees(trees: Trees, slots: Int64s, begin: Whole) -> Whole:
    """Bring rows into their trees, from number `begin` on; where it stopped: at the end, or where `roots` has no room."""
    at = begin
    while at < len(slots):
        slot = slots[at]
        for j in range(trees.rows.lanes.shape[1]):
            trees.probe[0, j] = trees.rows.lanes[slot, j]
        if not room_for(trees.roots, key_hash(trees.probe, 0, trees.rows.conditions)):
            return at
        root = root_of(trees)
        name_root(trees, root, attached(trees, root, slot))
        at += 1
    return at
