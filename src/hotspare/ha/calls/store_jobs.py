"""Work on the store under way in the background: what began, what ended, and what was given up because no answer came.

A call to a store may hang for ever. It then costs only a thread: it no longer counts as under way, and other work may begin while
few are stuck.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from hotspare.bus.contract import Partition


class StoreJobKind(Enum):
    WRITE = "write"
    CONFIRM = "confirm"
    DISCARD = "discard"
    TIDY = "delete the predecessors of"
    """Discards the snapshots that a newly confirmed one makes useless."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A snapshot of this engine that is written but not confirmed."""

    name: str
    order: int
    sequences: Mapping[str, int]
    taken_ms: int = 0
    needed_offsets: Mapping[Partition, int] = field(default_factory=dict)
    """The offsets from which on input is read by an engine that starts from it."""
    taken_wall_ms: int = 0
    taken_events: int = 0
    """When it was taken: by the time of day, and by the count of events of this engine."""
    persist_request: int = 0
    """The number of the request that it is for; 0: none."""
    target_url: str = ""
    """The store that it is in; "": the group's own."""
    keep_max: int = 0
    """At most this many of the group's snapshots stay in that other store once this one is confirmed; 0: all."""
    bytes: int = 0
    """Its size in its store, once it is written."""
    shifts: Mapping[str, int] = field(default_factory=dict)
    """The shifts (`HeldStream.shift`) that were not 0 when it was taken, by stream."""

    @property
    def is_in_group_store(self) -> bool:
        """Whether the candidate is in the group's own store."""
        return not self.target_url


@dataclass(slots=True, eq=False)
class StoreJob:
    """Work for one snapshot, compared by identity."""

    kind: StoreJobKind
    candidate: Candidate
    last_progress_ms: int
    """When it began, or last gave a sign of life."""


@dataclass(frozen=True, slots=True)
class StoreJobResult:
    """The end of a job. `failure` is "" after a success. `bytes`: the size of a written snapshot."""

    job: StoreJob
    failure: str = ""
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class StoreLoad:
    """The work under way at one moment, as decisions need it."""

    is_writing: bool = False
    is_updating: bool = False
    """Whether other work than a write is under way."""
    oldest_ms: int | None = None
    """The earliest last sign of life among the work under way."""
    stuck: int = 0
    """The count of jobs that were given up and have not ended."""


@dataclass(slots=True)
class StoreJobs:
    """The jobs on the store. `ended` is filled by background threads; the rest is used by one thread at a time."""

    running: list[StoreJob] = field(default_factory=list)
    stuck: list[StoreJob] = field(default_factory=list)
    ended: deque[StoreJobResult] = field(default_factory=deque)

    @property
    def current_load(self) -> StoreLoad:
        works = [job.kind for job in self.running]
        return StoreLoad(
            is_writing=StoreJobKind.WRITE in works,
            is_updating=any(work is not StoreJobKind.WRITE for work in works),
            oldest_ms=min((job.last_progress_ms for job in self.running), default=None),
            stuck=len(self.stuck),
        )

    def take_ended(self) -> StoreJobResult | None:
        """Returns the next result, also of work that was given up; None without any."""
        if not self.ended:
            return None
        done = self.ended.popleft()
        for jobs in (self.running, self.stuck):
            if done.job in jobs:
                jobs.remove(done.job)
        return done

    def mark_stuck(self, heard_ms: int) -> list[StoreJob]:
        """Marks jobs without a sign of life since `heard_ms` as stuck, and returns them."""
        late = [job for job in self.running if job.last_progress_ms <= heard_ms]
        self.running = [job for job in self.running if job not in late]
        self.stuck += late
        return late
