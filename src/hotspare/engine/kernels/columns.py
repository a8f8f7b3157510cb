"""Rearranging lanes, and text made of numbers."""

from __future__ import annotations

import numpy as np

from hotspare.engine.chunk import Bools, Int64s, UInt8s
from hotspare.engine.kernels import kernel
from hotspare.engine.kernels.hashing import mix


@kernel
def pick_columns(lanes: Int64s, valid: Bools, columns: Int64s, out_lanes: Int64s, out_valid: Bools) -> None:
    """Lay rows out anew: output column j is input column `columns[j]`, or null where that is -1."""
    for i in range(len(lanes)):
        for j in range(len(columns)):
            if columns[j] >= 0:
                out_lanes[i, j] = lanes[i, columns[j]]
                out_valid[i, j] = valid[i, columns[j]]
            else:
                out_lanes[i, j] = 0
                out_valid[i, j] = False


@kernel
def identifier_texts(seed: np.uint64, first: int, out: UInt8s) -> None:
    """Write 36 characters per counter value from `first` on: 32 hexadecimal digits of (seed, counter) in groups of 8-4-4-4-12."""
    for i in range(len(out) // 36):
        high = mix(seed ^ mix(np.uint64(first + i)))
        low = mix(high ^ np.uint64(first + i))
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
