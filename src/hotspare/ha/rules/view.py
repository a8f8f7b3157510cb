"""What one engine knows at one moment: the whole input of `decide`, frozen, so that a decision can be repeated from it."""

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
    Leadership,
    Lease,
    Membership,
    Persisting,
    Projects,
    Publishing,
    Rounds,
    Snapshots,
    Standing,
    StreamFacts,
    Warming,
)
from hotspare.ha.rules.settings import GroupSettings
from hotspare.model.quality import PRECISE, Quality


class PeerStatus(Enum):
    """What a connection to the holder of the role says. CLOSED may be wrong; a mistake costs delay only."""

    CONNECTED = "connected"
    CLOSED = "closed"
    """There was a connection to the holder, and it cannot be had again."""
    ENDED = "ended"
    """The holder's process is seen to have ended: certain."""
    UNKNOWN = "unknown"


class PeerPort(Protocol):
    """Watches one leader at a time."""

    def watch(self, leader: Leader) -> None:
        """From now on `status` is about this holder; UNKNOWN until something is known. A holder of "" is nobody."""

    def status(self) -> PeerStatus: ...


@dataclass(frozen=True, slots=True)
class StreamView:
    """One output stream: what is known of it, its quality, and which outputs are held: those after `base_sequence`, up to and
    including `last_sequence`, in `bytes` of memory and disk."""

    facts: StreamFacts = field(default_factory=StreamFacts)
    quality: Quality = PRECISE
    was_changed: bool = False
    """Its quality was changed while the group ran."""
    base_sequence: int = 0
    last_sequence: int = 0
    bytes: int = 0
    shift: int = 0
    """By how much the numbers of its outputs are greater here than where they are computed; it changes when it is placed."""
    is_behind: bool = False
    """It is unplaced, and this engine has not computed all that the input makes up to its newest committed output."""


@dataclass(frozen=True, slots=True)
class CommitUnderWay:
    """The transaction that is being committed since `begun_ms`, and the newest output of each stream in it."""

    begun_ms: int
    is_over: bool
    sent: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CoreView:
    """How far the core is. `holding_up`: the partitions that an event elsewhere waits for. `order` rises with the input positions.
    `is_whole`: it stands between two batches."""

    order: int = 0
    is_whole: bool = True
    holding_up: Collection[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class View:
    """`commit_rows`, `commit_bytes`: how much the next transaction takes. `own_digests`: by other engines that differ from what is
    committed, this engine's digest at the very output, as far as it knows it. `wall_ms`: the time of day, for schedules alone."""

    now_ms: int
    settings: GroupSettings
    engine: str
    standing: Standing
    shard: Shard = WHOLE
    leadership: Leadership = field(default_factory=Leadership)
    lease: Lease = field(default_factory=Lease)
    contacts: Contacts = field(default_factory=Contacts)
    membership: Membership = field(default_factory=Membership)
    rounds: Rounds = field(default_factory=Rounds)
    intake: Intake = field(default_factory=Intake)
    inbound: tuple[InboundFacts, ...] = ()
    publishing: Publishing = field(default_factory=Publishing)
    streams: Mapping[str, StreamView] = field(default_factory=dict)
    snapshots: Snapshots = field(default_factory=Snapshots)
    persisting: Persisting = field(default_factory=Persisting)
    projects: Projects = field(default_factory=Projects)
    warming: Warming | None = None
    # read beside the records
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
