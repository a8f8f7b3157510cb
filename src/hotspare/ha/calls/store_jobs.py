"""Work on the store under way in the background: what was begun, what ended, and what was given up because no answer came.

A call to a store may hang for ever. It costs a thread then and nothing else: it no longer counts as under way, and other work may
begin as long as few are stuck.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from hotspare.bus.contract import Partition


class StoreWork(Enum):
    WRITE = "write"
    CONFIRM = "confirm"
    DISCARD = "discard"
    TIDY = "tidy up after"
    """Discard what a newly confirmed snapshot makes useless."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A snapshot of this engine's that is written but not confirmed."""

    name: str
    order: int
    sequences: Mapping[str, int]
    taken_ms: int = 0
    needed: Mapping[Partition, int] = field(default_factory=dict)
    """From where on input is read by who starts from it."""
    taken_wall_ms: int = 0
    taken_events: int = 0
    """When it was taken by the time of day, and after how many events of this engine's."""
    persist: int = 0
    """The number of the request that it is for; 0: none, it was due by itself."""
    to: str = ""
    """The store that it is in; "": the group's own."""
    keep: int = 0
    """How many of the group's stay in that other store when it is confirmed; 0: all."""
    bytes: int = 0
    """How many it has in its store, once it is written."""
    shifts: Mapping[str, int] = field(default_factory=dict)
    """Of streams whose outputs have other numbers here than where they are computed, by how much when it was taken."""

    @property
    def is_own(self) -> bool:
        """Whether it is in the group's store."""
        return not self.to


@dataclass(slots=True, eq=False)
class StoreJob:
    """Work for one snapshot, known by its identity."""

    work: StoreWork
    candidate: Candidate
    heard_ms: int
    """When it began, or, as far as its thread tells, went on."""


@dataclass(frozen=True, slots=True)
class StoreDone:
    """`failure` is "" where the work was done. `bytes`: what a write wrote for."""

    job: StoreJob
    failure: str = ""
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class StoreLoad:
    """What is under way at one moment, as decisions need it."""

    is_writing: bool = False
    is_marking: bool = False
    """Anything but a write is under way."""
    oldest_ms: int | None = None
    """When that work under way was heard of last of which that is longest ago."""
    stuck: int = 0
    """How much was given up and has not ended."""


@dataclass(slots=True)
class StoreJobs:
    """`ended` is filled by background threads; everything else has one thread at a time."""

    running: list[StoreJob] = field(default_factory=list)
    stuck: list[StoreJob] = field(default_factory=list)
    ended: deque[StoreDone] = field(default_factory=deque)

    @property
    def load(self) -> StoreLoad:
        works = [job.work for job in self.running]
        return StoreLoad(
            is_writing=StoreWork.WRITE in works,
            is_marking=any(work is not StoreWork.WRITE for work in works),
            oldest_ms=min((job.heard_ms for job in self.running), default=None),
            stuck=len(self.stuck),
        )

    def take_ended(self) -> StoreDone | None:
        """The next result, also of work that was given up."""
        if not self.ended:
            return None
        done = self.ended.popleft()
        for jobs in (self.running, self.stuck):
            if done.job in jobs:
                jobs.remove(done.job)
        return done

    def give_up(self, heard_ms: int) -> list[StoreJob]:
        """Count as stuck what was not heard of after `heard_ms`."""
        late = [job for job in self.running if job.heard_ms <= heard_ms]
        self.running = [job for job in self.running if job not in late]
        self.stuck += late
        return late
