"""Defines the view of one engine at one moment: the complete and immutable input of `decide`, so that a decision can be repeated
from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from hotspare.base.call_place import CallPlace, Decision
from hotspare.base.shard import WHOLE, Shard
from hotspare.coordination.contract import Leader
from hotspare.ha.calls.store_jobs import StoreLoad
from hotspare.ha.rules.facts import (
    Contacts,
    Difference,
    HungCalls,
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
    """The evidence about the role's holder from a connection to it. CLOSED may be wrong; such an error costs only delay."""

    CONNECTED = "connected"
    CLOSED = "closed"
    """The spare had a connection to the holder, which cannot be re-established."""
    ENDED = "ended"
    """The holder's process has certainly ended."""
    UNKNOWN = "unknown"


class PeerPort(Protocol):
    """Watches the connection to one leader at a time."""

    def watch(self, leader: Leader) -> None:
        """Makes `status` report on the holder in `leader` from now on. The status is UNKNOWN at first, and stays UNKNOWN if the
        holder is ""."""

    def status(self) -> PeerStatus: ...


@dataclass(frozen=True, slots=True)
class StreamView:
    """An output stream: its facts, its quality, and its held outputs, which are those after `base_sequence` up to `last_sequence`.

    `bytes`: the size of the held outputs in memory and on disk.
    """

    facts: StreamFacts = field(default_factory=StreamFacts)
    quality: Quality = PRECISE
    was_changed: bool = False
    """Whether the stream's quality was changed while the group ran."""
    base_sequence: int = 0
    last_sequence: int = 0
    bytes: int = 0
    shift: int = 0
    """The sequence of an output here less its sequence in the core; it changes when an unknown shift becomes known."""
    is_behind: bool = False
    """Whether the shift is unknown and this engine has yet to compute outputs of input up to the newest committed output."""


@dataclass(frozen=True, slots=True)
class CommitUnderWay:
    """The transaction under way since `begun_ms`. `is_over`: its result is available. `sent`: the newest output of each stream in
    it."""

    begun_ms: int
    is_over: bool
    sent: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CoreView:
    """The position of the core. `order`: the sum of its input positions. `is_between_batches`: all parts of the last batch are
    computed.

    `blocking_partitions`: the partitions for which an event of another partition may be waiting.
    """

    order: int = 0
    is_between_batches: bool = True
    blocking_partitions: Collection[tuple[int, int]] = ()
    stopped_at: CallPlace | None = None
    """The place before which the core has stopped, until it is decided or may be passed."""
    missing_decisions: tuple[Decision, ...] = ()
    """The decisions about positions that the state has passed without them."""


@dataclass(frozen=True, slots=True)
class View:
    """The complete input of one decision. `commit_rows`, `commit_bytes`: the size of the next transaction. `wall_ms`: the time of
    day, only for schedules.

    `own_digests`: for each other engine that reports a difference from what is committed, this engine's digest of that output, as
    far as known.
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
    hung_calls: HungCalls = field(default_factory=HungCalls)
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
        """The difference of the first stream, by name, in which this engine differs from what is committed; None without any."""
        found = [name for name, stream in self.streams.items() if stream.facts.difference is not None]
        return self.streams[min(found)].facts.difference if found else None
