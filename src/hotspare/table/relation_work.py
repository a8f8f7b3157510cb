"""What passes between a relation and its kernels: a chunk that is worked on, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hotspare.rows.chunk import NO_BEATS, Bools, Chunk, Int64s, Timeline
from hotspare.rows.compile import Whole
from hotspare.table.loops import relation as k
from hotspare.table.loops.slots import NEWEST, NONE, UNSET
from hotspare.table.queue import next_rank


@dataclass(frozen=True, slots=True)
class RowTime:
    """The event time of each row of a chunk, in microseconds, for retention; not valid is null. `idle_beats` int64[., 2]: rank of
    each heartbeat at which event time has advanced since the newest row, and by how many microseconds."""

    time_us: Int64s
    valid: Bools
    idle_beats: Int64s = field(default_factory=lambda: NO_BEATS)


@dataclass(slots=True)
class Resolution:
    """What a chunk does to a relation; good until the relation's next `apply`. Values come with `Relation.settle`.

    `made`: one row per output, see `table.loops.relation.OutputArrays`. `refused_row`, `refused_why`: input rows that cannot be,
    with a REFUSED_ number.
    """

    made: Int64s
    refused_row: Int64s
    refused_why: Int64s

    def arrived(self) -> tuple[Int64s, Int64s]:
        """(input rows, slots) of the rows that came or changed, in order: where a window writes what it computes."""
        rows, slots_ = np.empty(len(self.made), np.int64), np.empty(len(self.made), np.int64)
        count = int(k.arrived(self.made, rows, slots_))
        return rows[:count], slots_[:count]


class Change(NamedTuple):
    """What a chunk did to a relation. `refused_row`, `refused_why` as in `Resolution`: rows of `given`.

    `until`: outputs of this rank and of higher ones are still to come, with `Relation.go_on`; None: nothing is.
    """

    chunk: Chunk
    given: Chunk
    refused_row: Int64s
    refused_why: Int64s
    until: int | None = None


@dataclass(slots=True)
class RelationWork:
    """A chunk and the heartbeats of its batch, and in `counts` how far they are taken: as `table.loops.queue.take` counts while
    rows stand in a queue, as `table.loops.relation.relate` does else."""

    chunk: Chunk
    time_us: Int64s
    has_time: Bools | None
    """None: every row has one."""
    beats: Int64s
    counts: Int64s
    idle_beats: Int64s
    """Those of `RowTime` that are not taken yet. Kernels know none of them."""

    @property
    def rows_ahead(self) -> int:
        """The count of rows that are taken before the next idle beat."""
        if not len(self.idle_beats):
            return len(self.chunk)
        return int(np.searchsorted(self.chunk.rank, self.idle_beats[0, 0], side="right"))

    @property
    def rank_to_go_on(self) -> int:
        """The rank at which the work goes on: all that lower ones cause is made."""
        if self.counts[k.LEAVING] != k.LEAVE_NONE:
            return int(self.counts[k.CAUSE])
        beats = self.idle_beats if len(self.idle_beats) else self.beats[self.counts[k.BEAT] :]
        return next_rank(self.chunk.rank, beats, int(self.counts[k.ROW]), 0)

    def take_idle_beat(self, policy: k.Policy, state: Int64s) -> None:
        """Begins the expulsion that the next idle beat causes; `state` is that of the rows. The beat does not change what is the
        newest event time, so the next row sets it again."""
        (rank, over_us), self.idle_beats = self.idle_beats[0].tolist(), self.idle_beats[1:]
        if state[NEWEST] == UNSET:
            return
        edge: Whole = np.int64(state[NEWEST] + over_us)
        if policy.kind != k.TIME_SLIDING:
            edge = k.boundary_passed(state, policy, edge)
        if edge != UNSET:
            leaving = k.LEAVE_ALL if policy.kind == k.TIME_JUMPING else k.LEAVE_OLD
            self.counts[[k.LEAVING, k.EDGE, k.CAME, k.CAUSE]] = leaving, edge, NONE, rank


def beats_of(policy: k.Policy, timeline: Timeline) -> Int64s:
    """Rank and time of heartbeats at which such a policy may end rows."""
    waits = policy.kind not in (k.KEEP, k.COUNT_OF_GROUP) and not policy.by_event
    beats = np.empty((len(timeline.heartbeat_rank) if waits else 0, 2), np.int64)
    if len(beats):
        beats[:, 0] = timeline.heartbeat_rank
        beats[:, 1] = timeline.time_us[timeline.heartbeat_rank]
    return beats


def output_arrays(outputs: int, count: int) -> k.OutputArrays:
    return k.OutputArrays(
        made=np.empty((outputs, 5), np.int64),
        refused=np.empty((count, 2), np.int64),
        counts=np.zeros(k.COUNTS_WIDTH, np.int64),
    )


def resolution_of(out: k.OutputArrays) -> Resolution:
    outputs, refused = out.counts[: k.REFUSED + 1].tolist()
    return Resolution(
        made=out.made[:outputs],
        refused_row=out.refused[:refused, 0].copy(),
        refused_why=out.refused[:refused, 1].copy(),
    )
