"""Rearrangement of lanes, and text made of numbers."""

from __future__ import annotations

import numpy as np

from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.rows.compile import Whole, kernel
from hotspare.table.loops.hashing import mix
from hotspare.table.loops.relation import DELETE, INSERT, SAFE_DELETE

BLOCK = 128
"""The count of rows that are rearranged together, so that they fit in the nearest cache."""


@kernel
def pick_columns(lanes: Int64s, valid: Bools, columns: Int64s, out_lanes: Int64s, out_valid: Bools) -> None:
    """Rearranges columns: output column j is input column `columns[j]`, or null if that is -1."""
    for begin in range(0, len(lanes), BLOCK):
        some, here = lanes[begin : begin + BLOCK], valid[begin : begin + BLOCK]
        to, mask = out_lanes[begin : begin + BLOCK], out_valid[begin : begin + BLOCK]
        for j in range(len(columns)):
            if columns[j] < 0:
                for i in range(len(some)):
                    to[i, j] = 0
                    mask[i, j] = False
            else:
                column = np.uint64(columns[j])
                for i in range(len(some)):
                    to[i, j] = some[i, column]
                for i in range(len(some)):
                    mask[i, j] = here[i, column]


@kernel
def certain_rows(opcode: UInt8s, valid: Bools, keys: Int64s, rows: Int64s) -> Whole:
    """Writes the row numbers of a chunk's inserts to `rows`, and returns their count. These rows are certain to be stored if no
    insert has a stored key, as in the changelog of a keyed relation.

    Returns -1 if a row is neither insert nor delete, or if a key of an insert is null.
    """
    count = np.int64(0)
    for i in range(len(opcode)):
        if opcode[i] == INSERT:
            for k in range(len(keys)):
                if not valid[i, keys[k]]:
                    return np.int64(-1)
            rows[count] = i
            count += 1
        elif opcode[i] != DELETE and opcode[i] != SAFE_DELETE:
            return np.int64(-1)
    return count


@kernel
def identifier_texts(seed: np.uint64, numbers: Int64s, out: UInt8s) -> None:
    """Writes 36 characters per number: 32 hexadecimal digits of (seed, number) in groups of 8-4-4-4-12."""
    for i in range(len(numbers)):
        high = mix(seed ^ mix(np.uint64(numbers[i])))
        low = mix(high ^ np.uint64(numbers[i]))
        digit = 0
        for place in range(36):
            at = i * 36 + place
            if place in (8, 13, 18, 23):
                out[at] = 45
                continue
            half = high if digit < 16 else low
            nibble = np.int64((half >> np.uint64(60 - 4 * (digit % 16))) & np.uint64(15))
            out[at] = 48 + nibble if nibble < 10 else 87 + nibble
            digit += 1
