"""Which rows a chunk is going to ask for, as far as an index tells without looking at rows: what left memory is fetched at once."""

from __future__ import annotations

from hotspare.rows.chunk import Int64s, UInt8s
from hotspare.rows.compile import Whole, kernel
from hotspare.table.loops.index import Index, first_place, key_hash, likely_place, slot_at


@kernel
def asked_for(index: Index, lanes: Int64s, columns: Int64s, page_slots: Whole, is_away: UInt8s, found: Int64s) -> Whole:
    """Slots of pages that are away (1 by page), the first of each row whose hash of `columns` agrees by half; how many there are.
    `found` has room for one of each row."""
    count = 0
    for i in range(len(lanes)):
        h = key_hash(lanes, i, columns)
        slot = slot_at(index, likely_place(index, h, first_place(index, h)))
        if slot >= 0 and is_away[slot // page_slots] != 0:
            found[count] = slot
            count += 1
    return count
