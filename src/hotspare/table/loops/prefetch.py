"""Prediction of the rows that a chunk needs, from an index alone, so that evicted ones are prefetched together."""

from __future__ import annotations

from hotspare.rows.chunk import Int64s, UInt8s
from hotspare.rows.compile import Whole, kernel
from hotspare.table.loops.index import Index, first_place, key_hash, likely_place, slot_at


@kernel
def find_evicted_slots(
    index: Index, lanes: Int64s, columns: Int64s, page_slots: Whole, is_page_evicted: UInt8s, found: Int64s
) -> Whole:
    """Writes slots of evicted pages (`is_page_evicted` is 1) to `found`: for each row of `lanes`, the first indexed slot whose hash
    of `columns` has the same half. Returns their count. `found` has room for one per row."""
    count = 0
    for i in range(len(lanes)):
        h = key_hash(lanes, i, columns)
        slot = slot_at(index, likely_place(index, h, first_place(index, h)))
        if slot >= 0 and is_page_evicted[slot // page_slots] != 0:
            found[count] = slot
            count += 1
    return count
