"""Rows in pieces of bounded text, for conversion to Arrow arrays, in which each code becomes its whole text.

A row may have megabytes, many rows may hold the same text, and an Arrow array of text holds at most 2 GiB.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hotspare.rows.chunk import OUTPUT_BYTES_MAX, Int64s
from hotspare.table.strings import StringTable


def text_pieces(lanes: Int64s, coded: Sequence[int], strings: StringTable) -> list[tuple[int, int]]:
    """Returns (begin, end) of consecutive pieces of the rows, at least one: each of at most about OUTPUT_BYTES_MAX of text, or of
    one row. `coded`: the columns that become text."""
    if strings.longest * len(coded) * len(lanes) <= OUTPUT_BYTES_MAX:
        return [(0, len(lanes))]
    sizes = np.zeros(len(lanes), np.int64)
    for i in coded:
        sizes += strings.sizes(np.ascontiguousarray(lanes[:, i]))
    return pieces_of(sizes)


def pieces_of(sizes: Int64s) -> list[tuple[int, int]]:
    """Returns the same for rows of these sizes in bytes."""
    ends, begin, pieces = np.cumsum(sizes), 0, []
    while begin < len(sizes):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + OUTPUT_BYTES_MAX, side="right")))
        pieces.append((begin, end))
        begin = end
    return pieces
