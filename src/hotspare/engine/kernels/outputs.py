"""Loops at the engine's two doors: heartbeats and order on the way in, ordinals and digests on the way out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hotspare.engine.kernels import Whole, kernel
from hotspare.engine.kernels.hashing import mix, rotate
from hotspare.engine.rows.chunk import Bools, Int64s, UInt8s

UInt64s = npt.NDArray[np.uint64]
Int32s = npt.NDArray[np.int32]

BLOCK = 1024
"""Rows that are split into columns together, so that they are read from the nearest cache."""
_FOLD = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xD6E8FEB86659FD93)
"""Stands for a null lane."""


class Positions(NamedTuple):
    """Where each row of a batch stands in the input."""

    topics: Int32s
    partitions: Int32s
    offsets: Int64s
    indexes: Int32s


@kernel
def fold(h: np.uint64, value: np.uint64) -> np.uint64:
    return rotate((h ^ value) * _FOLD, 29)


@kernel
def due_heartbeats(ticks: Int64s, time_us: Int64s, last: Whole, interval: int, out: Int64s) -> int:
    """Of the rows `ticks`, those that are heartbeats: the first in each interval, counted from 1970 on, so that they do not drift
    however far ticks are apart. `last`: the heartbeat before. Returns how many were written."""
    count = 0
    for i in range(len(ticks)):
        if time_us[ticks[i]] // interval > last // interval:
            last = time_us[ticks[i]]
            out[count] = ticks[i]
            count += 1
    return count


@kernel
def first_disorder(positions: Positions, offset: Whole, index: Whole) -> Whole:
    """The first row of one partition's rows that does not come after the one before it (at first: offset, index); -1 if none."""
    for i in range(len(positions.offsets)):
        now = positions.offsets[i]
        if now < offset or (now == offset and positions.indexes[i] <= index):
            return i
        offset = now
        index = np.int64(positions.indexes[i])
    return -1


@kernel
def row_hash(opcode: Whole, flags: Whole, lanes: Int64s, valid: Bools, row: Whole, coded: Bools, hashes: UInt64s) -> np.uint64:
    """Hash of an event: what it is and what its fields hold, strings by content."""
    h = fold(np.uint64(opcode), np.uint64(flags))
    i = np.uint64(row)
    for j in range(lanes.shape[1]):
        if not valid[i, j]:
            h = fold(h, _NULL)
        elif coded[j]:
            h = fold(h, hashes[np.uint64(lanes[i, j])])
        else:
            h = fold(h, np.uint64(lanes[i, j]))
    return h


@kernel
def split_columns(lanes: Int64s, valid: Bools, out_lanes: Int64s, out_valid: Bools, nulls: Int64s) -> None:
    """Rows to columns; `nulls[j]` is increased by the nulls of column j."""
    for begin in range(0, len(lanes), BLOCK):
        some, here = lanes[begin : begin + BLOCK], valid[begin : begin + BLOCK]
        for j in range(lanes.shape[1]):
            column, mask = out_lanes[j, begin : begin + BLOCK], out_valid[j, begin : begin + BLOCK]
            count = np.int64(0)
            for i in range(len(some)):
                column[i] = some[i, j]
                mask[i] = here[i, j]
                count += 1 - np.int64(here[i, j])
            nulls[j] += count


@kernel
def number_outputs(
    rank: Int64s,
    opcode: UInt8s,
    flags: UInt8s,
    lanes: Int64s,
    valid: Bools,
    coded: Bools,
    hashes: UInt64s,
    positions: Positions,
    digest: np.uint64,
    ordinal: Whole,
    ordinals: Int32s,
    digests: UInt64s,
) -> None:
    """Give each output its ordinal among those of its position, and the digest of the stream up to it, beginning with `ordinal` and
    `digest`."""
    for i in range(len(rank)):
        at = np.uint64(rank[i])
        if i > 0:
            ordinal = ordinal + 1 if rank[i - 1] == rank[i] else 0
        h = row_hash(opcode[i], flags[i], lanes, valid, i, coded, hashes)
        h = fold(h, (np.uint64(positions.topics[at]) << np.uint64(32)) ^ np.uint64(positions.partitions[at]))
        h = fold(h, np.uint64(positions.offsets[at]))
        h = fold(h, (np.uint64(positions.indexes[at]) << np.uint64(32)) ^ np.uint64(ordinal))
        digest = mix(digest ^ h)
        ordinals[i] = ordinal
        digests[i] = digest
