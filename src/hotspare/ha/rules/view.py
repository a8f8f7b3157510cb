"""Defines the view of one engine at one moment: the complete and immutable input of `decide`, so that a decision can be repeated
from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

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

T = TypeVar("T")


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


_EMPTY: Mapping[str, Any] = MappingProxyType({})


class StreamView(NamedTuple):
    """An output stream: its facts, its quality, and its held outputs, which are those after `base_sequence` up to `last_sequence`.

    `bytes`: the size of the held outputs in memory and on disk.
    """

    facts: StreamFacts = StreamFacts()
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


class CommitUnderWay(NamedTuple):
    """The transaction under way since `begun_ms`. `is_over`: its result is available. `sent`: the newest output of each stream in
    it."""

    begun_ms: int
    is_over: bool
    sent: Mapping[str, int]


class CoreView(NamedTuple):
    """The state of the core's input. `is_between_batches`: all parts of the last batch are computed.

    `blocking_partitions`: the partitions for which an event of another partition may be waiting.
    """

    is_between_batches: bool = True
    blocking_partitions: Collection[tuple[int, int]] = ()


class View(NamedTuple):
    """The complete input of one decision. `commit_rows`, `commit_bytes`: the size of the next transaction. `wall_ms`: the time of
    day, only for schedules.

    `difference`: that of the first stream, by name, in which this engine differs from what is committed; None without any.
    `own_digests`: for each other engine that reports such a difference, this engine's digest of that output, as far as known.
    `has_new_state`: whether the core has processed input since the state of this engine's newest snapshot.
    """

    now_ms: int
    settings: GroupSettings
    engine: str
    role_state: RoleState
    shard: Shard = WHOLE
    leadership: Leadership = Leadership()
    lease: Lease = Lease()
    contacts: Contacts = Contacts()
    membership: Membership = Membership()
    last_runs: LastRuns = LastRuns()
    intake: Intake = Intake()
    inbound: tuple[InboundFacts, ...] = ()
    arrivals_ms: tuple[int, ...] = ()
    """The time of the last arrival in each of `inbound`."""
    publishing: Publishing = Publishing()
    streams: Mapping[str, StreamView] = _EMPTY
    difference: Difference | None = None
    snapshots: Snapshots = Snapshots()
    persisting: Persisting = Persisting()
    projects: Projects = Projects()
    warming: Warming | None = None
    # read separately from the records
    peer: PeerStatus = PeerStatus.UNKNOWN
    core: CoreView = CoreView()
    has_new_state: bool = False
    under_way: CommitUnderWay | None = None
    commit_rows: int = 1
    commit_bytes: int = 1
    store: StoreLoad = StoreLoad()
    own_digests: Mapping[str, int] = _EMPTY
    wall_ms: int = 0

    def evaluate(self, rule: Callable[[View], T]) -> T:
        """Returns `rule(self)`."""
        return rule(self)


class RuleEvaluator(Protocol):
    """Evaluates rules on the facts of one moment: a `View`, or a `RememberedView`, which does only what is necessary."""

    @property
    def now_ms(self) -> int: ...

    def evaluate(self, rule: Callable[[View], T]) -> T:
        """Returns `rule(view)`. A rule that yields its result is evaluated whole, or as it is iterated."""
