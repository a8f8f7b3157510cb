"""Event time, for pattern windows and for retention by a field: the time of each row, and time while no event arrives (`idle`).

Event time is the newest time of all events of a window. Once the newest of them was appended `idle` ago, event time advances at
heartbeats, as fast as append time; the next event sets event time again. Append time and heartbeats are input, so every engine
agrees.
"""

from __future__ import annotations

import numpy as np

from hotspare.model.types import FieldType
from hotspare.rows.chunk import Chunk, Int64s, Timeline
from hotspare.table.loops.slots import UNSET
from hotspare.windows.shared.contract import Clock

EVENT_TIME_US_MAX = 2**61
"""Limit on event times, 73,000 years: the difference of two such times does not overflow, whatever an event contains."""
_DATE_UNIT_US = 1_000_000


def event_times(chunk: Chunk, column: int, type_: FieldType) -> Int64s:
    """Returns int64[n], in microseconds: the time of each row in a column of this type, a date or a stamp. A time beyond
    EVENT_TIME_US_MAX counts as that limit; the entry of a null is undefined."""
    unit_us = _DATE_UNIT_US if type_ is FieldType.DATE else 1
    farthest = EVENT_TIME_US_MAX // unit_us
    times_us: Int64s = np.clip(chunk.lanes[:, column], -farthest, farthest) * unit_us
    return times_us


def event_clock(idle_us: int) -> Clock:
    """Returns the clock that a window by event time needs: with heartbeats unless `idle_us`, as in `ResolvedWindow`, is 0."""
    return Clock.EVENT_TIME_AND_TICKS if idle_us else Clock.EVENT_TIME


def idle_beats(came_us: Int64s, rank: Int64s, timeline: Timeline, idle_us: int) -> Int64s:
    """Returns int64[., 2]: the rank of each heartbeat of `timeline` at which event time has advanced beyond the newest event, and
    by how many microseconds. `rank` int64[n]: the rows at which events arrive, ascending.

    `came_us` has one entry, the append time of the newest event before these rows, or UNSET without one. It is overwritten with the
    append time of the newest event after them.
    """
    beats = timeline.heartbeat_rank
    known_us = np.append(came_us, timeline.time_us[rank])
    came_us[0] = known_us[-1]
    before_us = known_us[np.searchsorted(rank, beats, side="right")]
    has_arrived = before_us != UNSET
    over_us = timeline.time_us[beats] - np.where(has_arrived, before_us, timeline.time_us[beats]) - idle_us
    is_over = over_us > 0
    return np.column_stack((beats[is_over], over_us[is_over]))
