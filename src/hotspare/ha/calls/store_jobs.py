"""Tracks background jobs on the store: which run, which have ended, and which were given up because the store did not answer.

A call to a store may hang for ever. Such a job costs only a thread: it no longer counts as running, and other jobs may begin as
long as few are stuck.
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
    """Deletes the snapshots that a newly confirmed one supersedes."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A snapshot of this engine that is being written, or written but not confirmed."""

    name: str
    order: int
    sequences: Mapping[str, int]
    taken_ms: int = 0
    needed_offsets: Mapping[Partition, int] = field(default_factory=dict)
    """The offsets at which an engine that starts from this snapshot begins to read, by partition."""
    taken_wall_ms: int = 0
    taken_events: int = 0
    """The time of day (ms since 1970), and the count of events of this engine, at which the snapshot was taken."""
    persist_request: int = 0
    """The number of the persist request that the snapshot is for; 0: none."""
    target_url: str = ""
    """The URL of the store that receives the snapshot; "": the group's own store."""
    keep_max: int = 0
    """The maximum of the group's snapshots that remain in the store `target_url` once this one is confirmed; 0: all."""
    bytes: int = 0
    """The size of the snapshot in its store; 0 until it is written."""
    shifts: Mapping[str, int] = field(default_factory=dict)
    """By stream, the shifts (`HeldStream.shift`) that were not 0 when the snapshot was taken."""

    @property
    def is_in_group_store(self) -> bool:
        """Whether the candidate is in the group's own store."""
        return not self.target_url


@dataclass(slots=True, eq=False)
class StoreJob:
    """A job on the store for one snapshot. Jobs are compared by identity."""

    kind: StoreJobKind
    candidate: Candidate
    last_progress_ms: int
    """When the job began, or last reported progress."""


@dataclass(frozen=True, slots=True)
class StoreJobResult:
    """The result of a job. `failure` is "" after a success. `bytes`: the size of a written snapshot; 0 for other jobs."""

    job: StoreJob
    failure: str = ""
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class StoreLoad:
    """A summary of the store's jobs at one moment, for decisions."""

    is_writing: bool = False
    is_updating: bool = False
    """Whether a job other than a write is running."""
    oldest_ms: int | None = None
    """The earliest `last_progress_ms` of the running jobs; None if no job runs."""
    stuck: int = 0
    """The count of jobs that were given up and have not ended."""


_NO_LOAD = StoreLoad()


@dataclass(slots=True)
class StoreJobs:
    """The jobs on the store. Background threads append to `ended`; only one thread at a time may use the rest."""

    running: list[StoreJob] = field(default_factory=list)
    stuck: list[StoreJob] = field(default_factory=list)
    ended: deque[StoreJobResult] = field(default_factory=deque)

    @property
    def current_load(self) -> StoreLoad:
        if not self.running and not self.stuck:
            return _NO_LOAD
        works = [job.kind for job in self.running]
        return StoreLoad(
            is_writing=StoreJobKind.WRITE in works,
            is_updating=any(work is not StoreJobKind.WRITE for work in works),
            oldest_ms=min((job.last_progress_ms for job in self.running), default=None),
            stuck=len(self.stuck),
        )

    def take_ended(self) -> StoreJobResult | None:
        """Removes and returns the next result, and removes its job from `running` or `stuck`; None if no job has ended."""
        if not self.ended:
            return None
        done = self.ended.popleft()
        for jobs in (self.running, self.stuck):
            if done.job in jobs:
                jobs.remove(done.job)
        return done

    def mark_stuck(self, heard_ms: int) -> list[StoreJob]:
        """Moves the running jobs without progress since `heard_ms` to `stuck`, and returns them."""
        late = [job for job in self.running if job.last_progress_ms <= heard_ms]
        self.running = [job for job in self.running if job not in late]
        self.stuck += late
        return late
