"""The knowledge of one engine at one moment: the whole input of `decide`, frozen, so that a decision can be repeated from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from hotspare.base.shard import WHOLE, Shard
from hotspare.coordination.contract import Leader
from hotspare.ha.calls.store_jobs import StoreLoad
from hotspare.ha.rules.facts import (
    Contacts,
    Difference,
    InboundFacts,
    Intake,
    LastRuns,
    Leadership,
    Lease,
    Membership,
    Persisting,
    Projects,
    Publishing,
    RoleState,
    Snapshots,
    StreamFacts,
    Warming,
)
from hotspare.ha.rules.settings import GroupSettings
from hotspare.model.quality import PRECISE, Quality


class PeerStatus(Enum):
    """The evidence of a connection to the holder of the role. CLOSED may be wrong; an error costs only delay."""

    CONNECTED = "connected"
    CLOSED = "closed"
    """There was a connection to the holder, and it cannot be re-established."""
    ENDED = "ended"
    """The holder's process is seen to have ended: certain."""
    UNKNOWN = "unknown"


class PeerPort(Protocol):
    """Watches one leader at a time."""

    def watch(self, leader: Leader) -> None:
        """Makes `status` report on this holder from now on, UNKNOWN at first. A holder of "" is not watched."""

    def status(self) -> PeerStatus: ...


@dataclass(frozen=True, slots=True)
class StreamView:
    """An output stream: its facts, its quality, and the held outputs, after `base_sequence` through `last_sequence`.

    `bytes`: their size in memory and on disk.
    """

    facts: StreamFacts = field(default_factory=StreamFacts)
    quality: Quality = PRECISE
    was_changed: bool = False
    """Whether its quality was changed while the group ran."""
    base_sequence: int = 0
    last_sequence: int = 0
    bytes: int = 0
    shift: int = 0
    """How much greater its outputs' numbers are here than in the core; it changes when the shift becomes known."""
    is_behind: bool = False
    """Whether its shift is unknown, and this engine has yet to compute outputs of input up to its newest committed output."""


@dataclass(frozen=True, slots=True)
class CommitUnderWay:
    """The transaction under way since `begun_ms`, and the newest output of each stream in it."""

    begun_ms: int
    is_over: bool
    sent: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CoreView:
    """The position of the core. `order` rises with the input positions. `is_between_batches`: it is between two batches.

    `blocking_partitions`: the partitions that an event elsewhere waits for.
    """

    order: int = 0
    is_between_batches: bool = True
    blocking_partitions: Collection[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class View:
    """The whole input of one decision. `commit_rows`, `commit_bytes`: the size of the next transaction. `wall_ms`: the time of day,
    only for schedules.

    `own_digests`: for each other engine that differs from what is committed, this engine's digest at that output, as far as known.
    """

    now_ms: int
    settings: GroupSettings
    engine: str
    role_state: RoleState
    shard: Shard = WHOLE
    leadership: Leadership = field(default_factory=Leadership)
    lease: Lease = field(default_factory=Lease)
    contacts: Contacts = field(default_factory=Contacts)
    membership: Membership = field(default_factory=Membership)
    last_runs: LastRuns = field(default_factory=LastRuns)
    intake: Intake = field(default_factory=Intake)
    inbound: tuple[InboundFacts, ...] = ()
    publishing: Publishing = field(default_factory=Publishing)
    streams: Mapping[str, StreamView] = field(default_factory=dict)
    snapshots: Snapshots = field(default_factory=Snapshots)
    persisting: Persisting = field(default_factory=Persisting)
    projects: Projects = field(default_factory=Projects)
    warming: Warming | None = None
    # read separately from the records
    peer: PeerStatus = PeerStatus.UNKNOWN
    core: CoreView = field(default_factory=CoreView)
    under_way: CommitUnderWay | None = None
    commit_rows: int = 1
    commit_bytes: int = 1
    store: StoreLoad = field(default_factory=StoreLoad)
    own_digests: Mapping[str, int] = field(default_factory=dict)
    wall_ms: int = 0

    @property
    def difference(self) -> Difference | None:
        """The evidence of the first stream by name that differs from what is committed."""
        found = [name for name, stream in self.streams.items() if stream.facts.difference is not None]
        return self.streams[min(found)].facts.difference if found else None
