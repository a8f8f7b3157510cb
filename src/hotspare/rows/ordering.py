"""The order in which a window applies rows of several inputs: by rank, then by input, then by arrival (SPEC A35); and rows by
partition and position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hotspare.rows.chunk import Int64s, Positions, is_all


def merged_order(ranks: Sequence[Int64s]) -> tuple[Int64s, Int64s]:
    """Returns two arrays with an entry per row, in order: the number of its input, and its row number there. `ranks`: the ranks of
    the rows, by input. The two rows of an update block stay together, because they have one rank."""
    counts = [len(rank) for rank in ranks]
    numbers = np.repeat(np.arange(len(ranks), dtype=np.int64), counts)
    rows = np.concatenate([np.arange(count, dtype=np.int64) for count in counts])
    if sum(count > 0 for count in counts) > 1:
        order = np.argsort(np.concatenate(ranks), kind="stable")
        return numbers[order], rows[order]
    return numbers, rows


def partition_numbers(
    topics: npt.NDArray[np.int32], partitions: npt.NDArray[np.int32]
) -> tuple[list[tuple[int, int]], Int64s | None]:
    """Returns the (topic, partition) pairs of the rows, ascending, and for each row the index of its pair; None if there is only
    one pair. At least one row is required. The cost depends on the rows, not on the number of partitions."""
    if is_all(topics == topics[0]) and is_all(partitions == partitions[0]):
        return [(int(topics[0]), int(partitions[0]))], None
    size = int(partitions.max()) + 1
    code: Int64s = topics.astype(np.int64) * size + partitions
    if (int(topics.max()) + 1) * size > _COUNTED_MAX:
        codes, number = np.unique(code, return_inverse=True)
    else:
        number_of = np.zeros((int(topics.max()) + 1) * size, np.int64)
        number_of[code] = 1
        codes = np.flatnonzero(number_of)
        number_of[codes] = np.arange(len(codes))
        number = number_of[code]
    return [divmod(each, size) for each in codes.tolist()], number


def by_partition(topics: npt.NDArray[np.int32], partitions: npt.NDArray[np.int32]) -> list[tuple[tuple[int, int], Int64s | None]]:
    """Returns the (topic, partition) pairs of the rows, ascending, each with its row numbers (None: all rows). At least one row is
    required. The cost depends on the rows, not on the number of partitions."""
    keys, number = partition_numbers(topics, partitions)
    if number is None:
        return [(keys[0], None)]
    small = number.astype(np.uint16) if len(keys) <= _COUNTED_MAX else number
    rows = np.split(np.argsort(small, kind="stable"), np.cumsum(np.bincount(number))[:-1])
    return list(zip(keys, rows, strict=True))


_COUNTED_MAX = 1 << 16
"""The count of 16-bit numbers, which numpy sorts without comparing them; also the longest table by which pairs are numbered."""


def row_at(positions: Positions, *wanted: int) -> int:
    """Returns the number of the row at a position: topic index, partition, offset and index; -1 if no row is there."""
    found = np.flatnonzero(np.logical_and.reduce([column == value for column, value in zip(positions, wanted, strict=True)]))
    return int(found[0]) if len(found) else -1


def first_row_from(positions: Positions, topic: int, partition: int, offset: int, index: int) -> int:
    """Returns the number of the first row of a partition at or after an offset and index; -1 if there is none."""
    topics, partitions, offsets, indexes = positions
    is_after = (offsets > offset) | ((offsets == offset) & (indexes >= index))
    found = np.flatnonzero((topics == topic) & (partitions == partition) & is_after)
    return int(found[0]) if len(found) else -1
