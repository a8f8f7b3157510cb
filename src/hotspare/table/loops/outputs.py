"""Loops at the engine's input and output: heartbeats and order of inputs, ordinals and digests of outputs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hotspare.rows.batch import RowKind
from hotspare.rows.chunk import Bools, Int32s, Int64s, Positions, UInt8s
from hotspare.rows.compile import Whole, kernel
from hotspare.rows.partition_clock import NO_TIME
from hotspare.table.loops.hashing import mix, rotate

UInt64s = npt.NDArray[np.uint64]
Int8s = npt.NDArray[np.int8]

BLOCK = 1024
"""The count of rows that are split into columns together, so that they fit in the nearest cache."""
OFFSET, INDEX, ROW = 0, 1, 2
NEWEST_WIDTH = 3
_FOLD = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xD6E8FEB86659FD93)
"""The hash value of a null lane."""


@kernel
def fold(h: np.uint64, value: np.uint64) -> np.uint64:
    return rotate((h ^ value) * _FOLD, 29)


@kernel
def due_heartbeats(ticks: Int64s, time_us: Int64s, last: Whole, interval: int, out: Int64s) -> int:
    """Writes to `out` the heartbeats among the rows `ticks`, and returns their count. `last`: the time of the previous heartbeat.

    A heartbeat is the first tick in an interval, counted from 1970. So heartbeats do not drift, however far apart ticks are.
    """
    count = 0
    for i in range(len(ticks)):
        if time_us[ticks[i]] // interval > last // interval:
            last = time_us[ticks[i]]
            out[count] = ticks[i]
            count += 1
    return count


class EnteredRows(NamedTuple):
    """The facts in the fixed columns of a batch, with room for as many entries as the batch has rows, except `ends`:

    time_us  int64  the system time at each row, which never falls
    ranks    int64  the rows with events, by topic
    ends     int64[topics]  the end of each topic's rows in `ranks`
    ticks    int64  the rows that are ticks
    beats    int64  the ticks that are heartbeats
    counts   int64[ENTERED_WIDTH]
    """

    time_us: Int64s
    ranks: Int64s
    ends: Int64s
    ticks: Int64s
    beats: Int64s
    counts: Int64s


TICKS, BEATS, BAD_ROWS, FIRST_END, IS_ONE_PARTITION, DISORDER = 0, 1, 2, 3, 4, 5
"""Entries of `EnteredRows.counts`: the number of ticks, of heartbeats and of bad rows; the row at which the input ends, -1 without
one; 1 if all rows are of one partition, else 0; the first row whose position is not after that of the row before it, -1 if there is
none."""
ENTERED_WIDTH = 6
_EVENT, _TICK, _BAD, _END = (int(kind) for kind in (RowKind.EVENT, RowKind.TICK, RowKind.BAD, RowKind.END))


@kernel
def enter_rows(
    positions: Positions, time_us: Int64s, kind: Int8s, last_us: Whole, beat_us: Whole, interval_us: int, out: EnteredRows
) -> None:
    """Writes `out`, whose `ends` are 0 before. `time_us`: the believed time of each row; `last_us`: the system time before;
    `beat_us`: that of the last heartbeat, NO_TIME if the first tick is a heartbeat; `interval_us`: as in `due_heartbeats`."""
    topics, partitions, counts = positions.topics, positions.partitions, out.counts
    offsets, indexes = positions.offsets, positions.indexes
    counts[TICKS], counts[BAD_ROWS], counts[FIRST_END], counts[IS_ONE_PARTITION], counts[DISORDER] = 0, 0, -1, 1, -1
    for i in range(len(kind)):
        last_us = max(last_us, time_us[i])
        out.time_us[i] = last_us
        if topics[i] != topics[0] or partitions[i] != partitions[0]:
            counts[IS_ONE_PARTITION] = 0
        is_after = i == 0 or offsets[i] > offsets[i - 1] or (offsets[i] == offsets[i - 1] and indexes[i] > indexes[i - 1])
        if not is_after and counts[DISORDER] < 0:
            counts[DISORDER] = i
        if kind[i] == _EVENT:
            out.ends[topics[i]] += 1
        elif kind[i] == _BAD:
            counts[BAD_ROWS] += 1
        elif kind[i] in (_TICK, _END):
            out.ticks[counts[TICKS]] = i
            counts[TICKS] += 1
            if kind[i] == _END and counts[FIRST_END] < 0:
                counts[FIRST_END] = i
    begin = np.int64(0)
    for topic in range(len(out.ends)):
        size = out.ends[topic]
        out.ends[topic] = begin
        begin += size
    for i in range(len(kind)):
        if kind[i] == _EVENT:
            out.ranks[out.ends[topics[i]]] = i
            out.ends[topics[i]] += 1
    ticks = out.ticks[: counts[TICKS]]
    if len(ticks) and beat_us == NO_TIME:
        beat_us = out.time_us[ticks[0]] - interval_us
    counts[BEATS] = due_heartbeats(ticks, out.time_us, beat_us, interval_us, out.beats)


@kernel
def first_disorder(positions: Positions, number: Int64s, newest: Int64s) -> Whole:
    """Returns the first row whose position is not after that of the previous row of its partition; -1 if there is none. `number`:
    the partition of each row, as a row number of `newest`.

    `newest`: int64[., 3], OFFSET, INDEX and ROW of each partition's newest row. Updated by each row before the returned one.
    """
    for i in range(len(positions.offsets)):
        offset, index, at = positions.offsets[i], np.int64(positions.indexes[i]), number[i]
        if offset < newest[at, OFFSET] or (offset == newest[at, OFFSET] and index <= newest[at, INDEX]):
            return np.int64(i)
        newest[at, OFFSET] = offset
        newest[at, INDEX] = index
        newest[at, ROW] = i
    return np.int64(-1)


@kernel
def row_hash(opcode: Whole, flags: Whole, lanes: Int64s, valid: Bools, row: Whole, coded: Bools, hashes: UInt64s) -> np.uint64:
    """Returns the hash of an event: opcode, flags and fields, strings by content."""
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
    """Splits rows into columns; adds the nulls of column j to `nulls[j]`."""
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
def split_lanes(lanes: Int64s, out_lanes: Int64s) -> None:
    """Splits rows without nulls into columns."""
    for begin in range(0, len(lanes), BLOCK):
        some = lanes[begin : begin + BLOCK]
        for j in range(np.uint64(lanes.shape[1])):
            column = out_lanes[j, begin : begin + BLOCK]
            for i in range(np.uint64(len(some))):
                column[i] = some[i, j]


@kernel
def causes_of(rank: Int64s, positions: Positions, out: Positions) -> None:
    """Writes the input position of each rank to `out`."""
    for i in range(np.uint64(len(rank))):
        at = np.uint64(rank[i])
        out.topics[i] = positions.topics[at]
        out.partitions[i] = positions.partitions[at]
        out.offsets[i] = positions.offsets[at]
        out.indexes[i] = positions.indexes[at]


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
    """Writes the ordinal of each output among the outputs of its input position, and the digest of the stream up to and including
    it. `ordinal`: that of the first output; `digest`: that of the stream before."""
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


class OutputColumns(NamedTuple):
    """Outputs by column:

    longs    int64[2 + fields, rows]: sequence, offset, and lanes
    digests  uint64[rows]
    ints     int32[4, rows]: topic, partition, index, ordinal
    bytes    uint8[2, rows]: opcode, flags
    """

    longs: Int64s
    digests: UInt64s
    ints: Int32s
    bytes: UInt8s

    @classmethod
    def empty(cls, fields: int, rows: int) -> OutputColumns:
        return cls(
            np.empty((2 + fields, rows), np.int64),
            np.empty(rows, np.uint64),
            np.empty((4, rows), np.int32),
            np.empty((2, rows), np.uint8),
        )


@kernel
def write_outputs(
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
    sequence: Whole,
    to: OutputColumns,
    at: Whole,
) -> None:
    """Numbers outputs as `number_outputs`, and writes them to columns from row `at` on; `sequence` is the number of the first
    output in its stream."""
    end = at + len(rank)
    ordinals, digests = to.ints[3, at:end], to.digests[at:end]
    number_outputs(rank, opcode, flags, lanes, valid, coded, hashes, positions, digest, ordinal, ordinals, digests)
    for i in range(len(rank)):
        cause, row = rank[i], at + i
        to.longs[0, row], to.longs[1, row] = sequence + i, positions.offsets[cause]
        to.ints[0, row], to.ints[1, row] = positions.topics[cause], positions.partitions[cause]
        to.ints[2, row] = positions.indexes[cause]
        to.bytes[0, row], to.bytes[1, row] = opcode[i], flags[i]
        for j in range(lanes.shape[1]):
            to.longs[2 + j, row] = lanes[i, j]
