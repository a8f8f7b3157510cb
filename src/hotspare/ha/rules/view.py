"""What one engine knows at one moment: the whole input of `decide`, frozen, so that a decision can be repeated from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from hotspare.coordination.contract import Leader
from hotspare.ha.rules.roles import Reason, Role, Step
from hotspare.ha.rules.settings import GroupSettings


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


class Contact(Enum):
    """How coordination last answered."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Difference:
    """Evidence that this engine's outputs are not those committed under `epoch`: its own digest at a committed sequence.

    Two engines that have the same digest at the same sequence computed the same outputs.
    """

    stream: str
    sequence: int
    digest: int
    epoch: int
    seen_ms: int


@dataclass(frozen=True, slots=True)
class OtherMember:
    """Another engine by its newest description. `differs`: its outputs are not those committed; `agrees`: just as this engine's."""

    engine: str
    role: str
    rank: int
    agrees: bool
    differs: bool = False


@dataclass(frozen=True, slots=True)
class Vacancy:
    """Since when the role, last held under `epoch`, is free for this engine to campaign for."""

    epoch: int
    reason: Reason
    since_ms: int


@dataclass(frozen=True, slots=True)
class InboundView:
    """One inbound partition. `held_up`: an event elsewhere waits for a later head here."""

    index: int
    arrived_ms: int
    ticked_ms: int
    held_up: bool


@dataclass(frozen=True, slots=True)
class CandidateView:
    """A snapshot of this engine's that waits: `settled` once committed progress has reached it and agrees, of every stream that may
    lose nothing; `due_ms`, when it has waited for the others long enough."""

    name: str
    settled: bool
    due_ms: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """Times are the engine's own monotonic milliseconds. `leader` is None when it must be read before anything follows from it.

    `step_ms`: when a promotion began, or came on by a step. `leader_since_ms`: when this engine first read of the newest epoch,
    or since when its holder says that it is active.
    `rank` and `others` are from the same reading of descriptions. `retry`: earliest next call after a failure, 0 for at once.
    `publish_due_ms`: when held outputs that are not known to be committed have to be published; None if there are none.
    `fruitless_since_ms`: since when commits of this epoch fail one after the other; None after one that succeeded.
    `oversized_retry_ms`: when outputs that are too large for the bus are tried again; None if there are none.
    `await_due_ms`: when what came of the transaction under way is taken note of; None if none is under way.
    `progress_due_ms`: when progress of outputs that are on the topic already has to be written; None if none is owed.
    `store_begun_ms`: when the oldest work on the store under way began; `store_stuck`: how much was given up and has not ended.
    `newest_snapshot_ms`: when this engine learned of the newest confirmed snapshot, which `newest_snapshot_by` confirmed.
    `stalled_ms`: for how long the runner has not brought input that is known to be there.
    `lock_holder`: process id and start of who held the bus's lock when it was in the way last, if that is known.
    `locked_since_ms`: when it came into the way; it was all the time since.
    `awaited_ms`: when another spare had yet to compute an output at which this engine differs from what is committed.
    `committed_ahead`: this engine's state begins after what is committed, so it can never bring out what lies between.
    """

    now_ms: int
    settings: GroupSettings
    engine: str
    role: Role
    step: Step = Step.NONE
    step_ms: int = 0
    epoch: int = 0
    stop_asked: bool = False
    refusal: str = ""
    # coordination
    coordination_retry_ms: int = 0
    leader: Leader | None = None
    leader_read_ms: int = 0
    leader_since_ms: int = 0
    free_since_ms: int = 0
    gave_up_epoch: int = 0
    peer: PeerStatus = PeerStatus.UNKNOWN
    vacancy: Vacancy | None = None
    rank: int = 0
    others: tuple[OtherMember, ...] = ()
    switchover: str | None = None
    switchover_read_ms: int = 0
    renewed_ms: int = 0
    has_moved: bool = False
    member_refreshed_ms: int = 0
    qualities_read_ms: int = 0
    # bus
    bus_retry_ms: int = 0
    lock_holder: tuple[int, int] | None = None
    locked_since_ms: int = 0
    predecessor: Leader | None = None
    predecessor_lease_end_ms: int = 0
    publish_due_ms: int | None = None
    progress_due_ms: int | None = None
    await_due_ms: int | None = None
    fruitless_since_ms: int | None = None
    oversized_retry_ms: int | None = None
    progress_read_ms: int = 0
    inbound: tuple[InboundView, ...] = ()
    inbound_checked_ms: int = 0
    trimmed_ms: int = 0
    # outputs and snapshots
    difference: Difference | None = None
    awaited_ms: int = 0
    overrules: bool = False
    committed_ahead: str = ""
    candidates: tuple[CandidateView, ...] = ()
    snapshot_ms: int = 0
    is_snapshot_running: bool = False
    is_store_marking: bool = False
    store_begun_ms: int | None = None
    store_stuck: int = 0
    newest_snapshot_ms: int = 0
    newest_snapshot_by: str = ""
    has_new_state: bool = False
    # the runner
    stalled_ms: int = 0
