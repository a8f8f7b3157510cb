"""What passes between a relation and its kernels: a chunk that is worked on, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hotspare.engine.kernels import relation as k
from hotspare.engine.rows.chunk import Bools, Chunk, Int64s, Timeline
from hotspare.engine.state.queue import next_rank


@dataclass(frozen=True, slots=True)
class RowTime:
    """The time of each row of a chunk, in microseconds, for retention; not valid is null."""

    time_us: Int64s
    valid: Bools


@dataclass(slots=True)
class Resolution:
    """What a chunk does to a relation; good until the relation's next `apply`. Values come with `Relation.settle`.

    `made`: one row per output, see `kernels.relation.OutputArrays`. `refused_row`, `refused_why`: input rows that cannot be, with a
    REFUSED_ number.
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
    """A chunk and the heartbeats of its batch, and in `counts` how far they are taken: as `kernels.queue.take` counts while rows
    stand in a queue, as `kernels.relation.relate` does else."""

    chunk: Chunk
    time_us: Int64s
    has_time: Bools | None
    """None: every row has one."""
    beats: Int64s
    counts: Int64s


def beats_of(policy: k.Policy, timeline: Timeline) -> Int64s:
    """Rank and time of heartbeats at which such a policy may end rows."""
    beats = np.empty((len(timeline.heartbeat_rank) if policy.kind not in (k.KEEP, k.COUNT_OF_GROUP) else 0, 2), np.int64)
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


def rank_to_go_on(given: k.InputArrays, counts: Int64s) -> int:
    """The rank at which `relate` goes on: all that lower ones cause is made."""
    if counts[k.LEAVING] != k.LEAVE_NONE:
        return int(counts[k.CAUSE])
    return next_rank(given.rank, given.beats, int(counts[k.ROW]), int(counts[k.BEAT]))


def resolution_of(out: k.OutputArrays) -> Resolution:
    outputs, refused = out.counts[: k.REFUSED + 1].tolist()
    return Resolution(
        made=out.made[:outputs],
        refused_row=out.refused[:refused, 0].copy(),
        refused_why=out.refused[:refused, 1].copy(),
    )
