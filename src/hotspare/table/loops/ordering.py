"""Counting sort: orders rows by small numbers, in as many steps as there are rows and numbers."""

from __future__ import annotations

from hotspare.rows.chunk import Int64s
from hotspare.rows.compile import Whole, kernel


@kernel
def order_by_number(numbers: Int64s, ends: Int64s, order: Int64s) -> Whole:
    """Writes the rows to `order` by ascending number, stable; omits rows with a negative number. `ends` has an entry per number:
    zeros at first, and afterwards the end of its rows in `order`. Returns the count of rows written."""
    for i in range(len(numbers)):
        if numbers[i] >= 0:
            ends[numbers[i]] += 1
    count = 0
    for number in range(len(ends)):
        size = ends[number]
        ends[number] = count
        count += size
    for i in range(len(numbers)):
        if numbers[i] >= 0:
            order[ends[numbers[i]]] = i
            ends[numbers[i]] += 1
    return count
