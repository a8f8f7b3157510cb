"""The loop that writes the rows of a window's stream: updates as one row, without retention deletes (SPEC I14, I15)."""

from __future__ import annotations

import numpy as np

from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.rows.compile import Whole, kernel
from hotspare.table.loops.relation import DELETE, RETENTION, UPDATE, UPDATE_BLOCK


@kernel
def deliver(
    rank: Int64s,
    opcode: UInt8s,
    flags: UInt8s,
    lanes: Int64s,
    valid: Bools,
    collapses: Whole,
    drops: Whole,
    to_rank: Int64s,
    to_opcode: UInt8s,
    to_flags: UInt8s,
    to_lanes: Int64s,
    to_valid: Bools,
) -> Whole:
    """Writes the delivered rows to the `to_` arrays, and returns their count. `collapses` 1: an update block becomes one update.
    `drops` 1: deletes of retention are dropped.
    """
    count, is_second, width = np.uint64(0), False, np.uint64(lanes.shape[1])
    for i in range(np.uint64(len(rank))):
        if is_second:
            passes, is_second = collapses == 0, False
        else:
            is_second = opcode[i] == UPDATE_BLOCK
            passes = drops == 0 or opcode[i] != DELETE or flags[i] & RETENTION == 0
        if passes:
            to_rank[count], to_flags[count] = rank[i], flags[i]
            to_opcode[count] = UPDATE if collapses == 1 and opcode[i] == UPDATE_BLOCK else opcode[i]
            for j in range(width):
                to_lanes[count, j] = lanes[i, j]
            for j in range(width):
                to_valid[count, j] = valid[i, j]
            count += np.uint64(1)
    return np.int64(count)
