"""Rows of several inputs in the one order in which a window takes them: by rank, then by input, then as they came (SPEC A35).

And rows of several partitions, taken apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hotspare.engine.rows.chunk import Chunk, Int64s


def in_order(ranks: Sequence[Int64s]) -> tuple[Int64s, Int64s]:
    """(number of the input, row there) of every row; `ranks`: of each input's rows. The two rows of an update block stay together:
    they have one rank."""
    counts = [len(rank) for rank in ranks]
    numbers = np.repeat(np.arange(len(ranks), dtype=np.int64), counts)
    rows = np.concatenate([np.arange(count, dtype=np.int64) for count in counts])
    if sum(count > 0 for count in counts) > 1:
        order = np.argsort(np.concatenate(ranks), kind="stable")
        return numbers[order], rows[order]
    return numbers, rows


def by_partition(topics: npt.NDArray[np.int32], partitions: npt.NDArray[np.int32]) -> list[tuple[tuple[int, int], Int64s | None]]:
    """(topic, partition) of each partition that rows are of, rising, and its rows; None: all. Costs what the rows cost, however
    many partitions there are."""
    if (topics == topics[0]).all() and (partitions == partitions[0]).all():
        return [((int(topics[0]), int(partitions[0])), None)]
    codes, number = np.unique(topics.astype(np.int64) << 32 | partitions, return_inverse=True)
    small = number.astype(np.uint16) if len(codes) <= _SORTED_BY_DIGITS_MAX else number
    rows = np.split(np.argsort(small, kind="stable"), np.cumsum(np.bincount(number))[:-1])
    return [((code >> 32, code & 0xFFFF_FFFF), mine) for code, mine in zip(codes.tolist(), rows, strict=True)]


_SORTED_BY_DIGITS_MAX = 1 << 16
"""Of numbers of 16 bits a stable order is found without comparing them."""


def merged(chunks: Sequence[Chunk]) -> Chunk:
    """All rows, of one schema, in order."""
    filled = [chunk for chunk in chunks if len(chunk)]
    if len(filled) < 2:
        return filled[0] if filled else chunks[0]
    order = np.argsort(np.concatenate([chunk.rank for chunk in filled]), kind="stable")
    columns = ([getattr(chunk, name) for chunk in filled] for name in ("rank", "opcode", "flags", "lanes", "valid"))
    return Chunk(*(np.concatenate(column)[order] for column in columns))
