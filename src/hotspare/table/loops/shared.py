"""Long loops over rows and their index, compiled once for kernels that call them in several places."""

from __future__ import annotations

import numpy as np

from hotspare.rows.chunk import Int64s
from hotspare.rows.compile import Whole, called
from hotspare.table.loops.index import Index, find, has_room
from hotspare.table.loops.pages import Rows, tidy


@called
def check_gaps_shared(rows: Rows, made: Whole) -> None:
    tidy(rows, made)


@called
def room_for(index: Index, h: np.uint64) -> bool:
    return has_room(index, h)


@called
def look_up(index: Index, stored: Int64s, stored_keys: Int64s, lanes: Int64s, row: Whole, keys: Int64s, h: np.uint64) -> np.uint64:
    return find(index, stored, stored_keys, lanes, row, keys, h)
