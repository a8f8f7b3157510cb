"""The growing hash index of a relation (`table.loops.index` has its loops). It is derived from rows and is in no snapshot."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hotspare.rows import tuning
from hotspare.rows.chunk import Int64s
from hotspare.table.loops import index as k
from hotspare.table.loops.multi_index import COUNTS_WIDTH, Lists
from hotspare.table.loops.pages import Rows
from hotspare.table.memory import grown, largest_granted, longer

_SMALL_SEGMENTS = 256
"""Up to this many segments (1 MiB), growing copies the table."""


def empty_index(segments: int = 1) -> k.Index:
    """Returns an empty index with room for `segments` segments."""
    index = k.Index(
        table=np.zeros(segments * k.SEGMENT, np.uint64),
        directory=np.zeros(1, np.int64),
        segments=np.zeros((segments, 2), np.int64),
        stuck=np.empty(0, np.uint64),
        scratch=np.empty(k.SEGMENT, np.uint64),
        sizes=np.zeros(k.SIZES_WIDTH, np.int64),
    )
    index.sizes[k.SEGMENTS] = 1
    return index


def grown_index(index: k.Index) -> k.Index:
    """Returns the index with longer arrays in place of those without room for one more entry."""
    bits, segments, stuck = index.sizes.tolist()
    if len(index.directory) <= 1 << bits and bits < k.DEPTH_MAX:
        index = index._replace(directory=grown(index.directory, 1 << bits, 4 << bits))
    if len(index.segments) - segments < 2:
        length = 2 * len(index.segments)
        index = index._replace(segments=grown(index.segments, segments, length))
        if length * k.SEGMENT > len(index.table):
            index = index._replace(table=_larger(index.table, segments * k.SEGMENT, length))
    if len(index.stuck) - stuck < 2:
        index = index._replace(stuck=grown(index.stuck, stuck, 2 * stuck + k.SEGMENT))
    return index


def index_bytes(index: k.Index) -> int:
    """Returns the bytes of the segments in use."""
    return (8 * k.SEGMENT + 24) * int(index.sizes[k.SEGMENTS])


def likely_slots(index: k.Index, hashes: npt.NDArray[np.uint64]) -> Int64s:
    """Returns for each hash the slot of the first entry with the same half; NONE if there is none. Ignores `stuck`."""
    half, bits = hashes & k.HALF, int(index.sizes[k.BITS])
    base = index.directory[(half >> np.uint64(32 - bits)).astype(np.int64)] * k.SEGMENT
    at = half.astype(np.int64) & (k.SEGMENT - 1)
    found, left = np.full(len(hashes), k.NONE), np.arange(len(hashes))
    while len(left):
        entry = index.table[base[left] + at[left]]
        is_it = (entry != k.EMPTY) & (entry >> np.uint64(32) == half[left])
        found[left[is_it]] = (entry[is_it] & k.HALF).astype(np.int64) - 1
        left = left[~is_it & (entry != k.EMPTY)]
        at[left] = (at[left] + 1) & (k.SEGMENT - 1)
    return found


def slots_in(index: k.Index) -> Int64s:
    """Returns the slots of all entries, ascending."""
    _, segments, stuck = index.sizes.tolist()
    entries = np.concatenate([index.table[: segments * k.SEGMENT], index.stuck[:stuck]])
    return np.sort((entries[entries != k.EMPTY] & k.HALF).astype(np.int64) - 1)


def _larger(table: npt.NDArray[np.uint64], used: int, segments: int) -> npt.NDArray[np.uint64]:
    """Allocates a table for `segments` segments; a large one reserves the maximum."""
    if segments <= _SMALL_SEGMENTS:
        return grown(table, used, segments * k.SEGMENT)
    return largest_granted(tuning.current().reserved_bytes // 8, segments * k.SEGMENT, lambda length: longer(table, used, length))


def empty_lists(rows: Rows, links_width: int) -> Lists:
    """Returns empty lists for the rows in these arrays, none of which is in a list yet."""
    return Lists(
        by_condition=empty_index(),
        links=np.empty((0, links_width), np.int64),
        lanes=rows.lanes,
        valid=rows.valid,
        order=rows.order,
        moved=rows.moved,
        counts=np.zeros(COUNTS_WIDTH, np.int64),
        conditions=rows.conditions,
    )
