"""Records of what an engine knows of one group, shared by `GroupState` and `View`: a new fact is added here and nowhere else.

A record never changes. A change replaces it, so what `decide` was given stays as it was, and another thread sees all of a change or
nothing. Times are the engine's own monotonic milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from hotspare.base.inbound_role import InboundRole
from hotspare.bus.contract import OutputId, Progress
from hotspare.coordination.contract import Leader
from hotspare.ha.calls.store_jobs import Candidate
from hotspare.ha.rules.commit_budget import CommitSizes
from hotspare.ha.rules.project_changes import Changes, newest_change_epoch
from hotspare.ha.rules.roles import Reason, Role, Step
from hotspare.ha.rules.upgrading import Agreement
from hotspare.rows.batch import NextInput

LONG_AGO_MS = -(10**12)
"""A time before every clock: an action that was never done is due."""


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
class Vacancy:
    """Since when the role, last held under `epoch`, is free for this engine to campaign for."""

    epoch: int
    reason: Reason
    since_ms: int


@dataclass(frozen=True, slots=True)
class OtherMember:
    """Another engine as its newest description has it, as far as decisions need it."""

    engine: str
    role: str
    rank: int
    evidence: Difference | None = None
    """The evidence that its outputs are not those committed."""
    order: int = -1
    """The sum of its input positions; -1 if not reported."""
    confirmed_order: int = -1
    """The order of the newest snapshot that it confirmed itself."""
    commit_sizes: CommitSizes | None = None
    """Its experience of the transaction sizes that the bus takes (`CommitBudget`)."""
    snapshot_priority: int = 1
    """Engines with the greatest priority take the snapshots; 0: it takes none."""
    active_epoch_age: tuple[int, int] | None = None
    """The epoch that it is active under, and since how many milliseconds it was when it reported so."""
    sequences: Mapping[str, int] = field(default_factory=dict)
    """The newest output that it has computed, by stream."""
    project: int = 0
    """The number of the project that it runs (`rules.upgrading.ProjectVersion`)."""
    cut_overs: int = 0
    """The count of the group's cut-over steps that it knows of."""

    def is_of(self, project: int) -> bool:
        return self.project == project

    @property
    def is_differing(self) -> bool:
        return self.evidence is not None


@dataclass(frozen=True, slots=True)
class NewestSnapshot:
    """The newest confirmed snapshot that this engine knows of: the engine that confirmed it, and when this engine learned of it."""

    order: int = -1
    engine: str = ""
    seen_ms: int = 0
    seen_wall_ms: int = 0
    seen_events: int = 0
    """When this engine learned of it: by the time of day, and by the count of events that it had taken."""


@dataclass(frozen=True, slots=True)
class Oversized:
    """Output `sequence` alone makes a message of `bytes`, which its topic does not take; tried again at `retry_ms`."""

    sequence: int
    bytes: int
    topic: str
    retry_ms: int

    @property
    def sentence(self) -> str:
        return f"output {self.sequence} makes a message of {self.bytes} bytes, which topic {self.topic} does not accept"


@dataclass(frozen=True, slots=True)
class RoleState:
    """This engine's role in its group, and what was requested of it."""

    role: Role = Role.JOINING
    role_since_ms: int = 0
    step: Step = Step.NONE
    step_ms: int = LONG_AGO_MS
    """When the promotion began, or last advanced by a step."""
    epoch: int = 0
    """The newest epoch that it won."""
    gave_up_epoch: int = -1
    is_overruling: bool = False
    """Whether this engine takes over although its outputs differ from what is committed."""
    is_stop_requested: bool = False
    refusal: str = ""
    """The reason why this engine cannot take part; "" if it can."""


@dataclass(frozen=True, slots=True)
class Projects:
    """The projects that the group runs, as far as this engine knows, and which one made what is committed.

    `own`: the number of this engine's project. `group_agreement` None: no other project was ever decided on.
    """

    own: int = 0
    group_agreement: Agreement | None = None
    reported_cut_overs: int = 0
    """The greatest count of cut-over steps that another engine reported."""
    read_ms: int = LONG_AGO_MS
    changes: Changes = ()
    changes_epoch: int = 0
    """The epoch of the newest change that the numbers of this engine's outputs take into account."""
    other_project_outputs: tuple[OutputId, ...] = ()
    """The newest output of each partition that another project made, as far as was ever read."""
    own_only_before: frozenset[str] = frozenset()
    """The value of `own_only_streams` while there were two projects."""

    @property
    def cut_overs(self) -> int:
        return 0 if self.group_agreement is None else self.group_agreement.cut_overs

    @property
    def has_two(self) -> bool:
        return self.group_agreement is not None and self.group_agreement.other is not None

    @property
    def own_only_streams(self) -> frozenset[str]:
        """The streams of this engine's project that the other one does not have, or did not have while there were two."""
        return (
            self.group_agreement.streams_only_in(self.own)
            if self.group_agreement is not None and self.has_two
            else self.own_only_before
        )

    @property
    def leading(self) -> int:
        """The number of the project whose engines go first."""
        return self.own if self.group_agreement is None else self.group_agreement.leading.number

    @property
    def newest_change(self) -> int:
        return newest_change_epoch(self.changes)


@dataclass(frozen=True, slots=True)
class Leadership:
    """The holder of the role as coordination reports it. `leader` is None if it must be read again before any decision."""

    leader: Leader | None = None
    leader_read_ms: int = LONG_AGO_MS
    leader_epoch: int = -1
    """The newest epoch that was read. `leader_since_ms` is when it was first read, or since when its holder reports to be
    active."""
    leader_since_ms: int = LONG_AGO_MS
    reported_epoch: int = -1
    """The epoch of that report. It counts once per epoch, as no two clocks run alike."""
    free_epoch: int = -1
    free_since_ms: int = 0
    vacancy: Vacancy | None = None
    predecessor: Leader | None = None
    predecessor_lease_end_ms: int = 0
    switchover: str | None = None
    """The requested successor of a switch-over: "" is any engine, None: no switch-over is requested."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The facts that keep this engine's lease."""

    renewed_ms: int = LONG_AGO_MS
    """When the newest successful renewal was requested: in a watcher's view the lease began no earlier."""
    has_progressed: bool = False
    """Whether a batch or a commit passed since."""
    committing_since_ms: int | None = None
    """Since when this engine tries to commit its next outputs; None after a success."""
    fruitless_since_ms: int | None = None
    """Since when all commits of this epoch fail, each followed by a fence; None after a success."""


@dataclass(frozen=True, slots=True)
class Contacts:
    """The newest answers of coordination and bus. `coordination_retry_ms`, `bus_retry_ms`: the time of the earliest
    next call after a failure."""

    contact: Contact = Contact.CONNECTED
    failing_since_ms: int = LONG_AGO_MS
    """The first of the newest series of closely spaced failures of coordination."""
    failed_ms: int = LONG_AGO_MS
    """The last failure of that series."""
    coordination_retry_ms: int = LONG_AGO_MS
    bus_retry_ms: int = LONG_AGO_MS
    lock_holder: tuple[int, int] | None = None
    """The id and start of the process that last held the bus's lock when this engine needed it, if known."""
    locked_since_ms: int | None = None
    """Since when every call that writes to the bus finds it locked; None after one that does not."""
    trouble: str = ""
    """The last failure of bus or coordination, with its reason."""
    trouble_ms: int = LONG_AGO_MS


@dataclass(frozen=True, slots=True)
class Membership:
    """The other engines by their descriptions, and this engine's own rank at the same time."""

    rank: int = 0
    others: tuple[OtherMember, ...] = ()
    awaited_ms: int = LONG_AGO_MS
    """The last time at which another spare had yet to compute an output at which this engine differs."""


@dataclass(frozen=True, slots=True)
class LastRuns:
    """The last times of periodic work."""

    member_refreshed_ms: int = LONG_AGO_MS
    switchover_read_ms: int = LONG_AGO_MS
    qualities_read_ms: int = LONG_AGO_MS
    progress_read_ms: int = LONG_AGO_MS
    inbound_checked_ms: int = 0
    trimmed_ms: int = LONG_AGO_MS


@dataclass(frozen=True, slots=True)
class Intake:
    """The arrival of input at this engine."""

    next_input: NextInput = NextInput.AWAITED
    stalled_ms: int = 0
    """The time for which the runner has not delivered pending input, as far as this was watched."""
    only_partition: tuple[int, int] | None = None
    """The partition that alone is read, because too many rows in the core wait for it; None otherwise."""
    events_taken: int = 0
    """The count of events since this engine started; counted only if snapshots depend on it."""


@dataclass(frozen=True, slots=True)
class InboundFacts:
    """An inbound partition, by its topic's index and its number."""

    topic_index: int
    number: int
    arrived_ms: int = LONG_AGO_MS
    ticked_ms: int = LONG_AGO_MS
    ticked_offset: int = -1
    """The offset of the newest tick that this engine appended."""
    kind: InboundRole = InboundRole.EVENTS
    """The kind of its writer: nothing is written to another project's topic, not even a tick."""


@dataclass(frozen=True, slots=True)
class Publishing:
    """The sequence of this engine's transactions."""

    published_ms: int = LONG_AGO_MS
    """The time of its newest commit."""
    is_first_commit_due: bool = False
    """Whether this engine was promoted, and has committed nothing since."""
    cut_stream: str = ""
    """The stream of which the newest commit left some outputs for the next one; "" if none."""


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """The facts of one output stream, except for the outputs that are held of it."""

    committed: Progress | None = None
    """The newest known progress."""
    verified: int = 0
    """The highest committed sequence at which this engine's digest was found equal, or was overruled."""
    is_unproven: bool = False
    """Whether this engine overruled what is committed, and no output that it computed too was committed since."""
    difference: Difference | None = None
    sent: int = 0
    """The newest sequence that this engine committed under its epoch; progress may lag behind it."""
    unrecorded_since_ms: int | None = None
    """When the first output was committed that is not in its progress; None if all are."""
    may_repeat: bool = False
    """Whether no output was committed since progress was read: the next outputs may be on the topic already."""
    unrecorded: Progress | None = None
    """The progress to record for a stream that has no record: what was found in its topic, or nothing.

    It is recorded before any output follows; until then, spares release nothing.
    """
    oversized: Oversized | None = None
    """The next output, if the bus does not take it: it waits, and the other streams continue."""
    is_shift_unknown: bool = False
    """Whether its outputs have other numbers here than on their topic, as another project of the group numbered those before.

    The difference is known when this engine takes over, or finds one of its own outputs committed.
    """
    is_unadopted: bool = False
    """Whether this engine makes its state from recent input and does not know its outputs' numbers yet (`Warming`)."""
    adoption_target: Progress | None = None
    """The committed output that an engine with `is_unadopted` will look for among its own once it has taken that input."""
    lost: int = 0
    """The count of outputs never published because a spare that took over no longer held them."""
    lost_before: int = 0

    @property
    def committed_sequence(self) -> int:
        return self.committed.sequence if self.committed is not None else 0


@dataclass(frozen=True, slots=True)
class Warming:
    """An engine that makes its state from recent input.

    `until_us`: from this system time on, nothing from before it began to read matters. `span_us`: how long anything may matter.
    `matches_min`: committed records that have to match before it is eligible.
    """

    until_us: int
    span_us: int
    begin_offsets: Mapping[tuple[int, int], int]
    """The offsets at which it began to read; once it is warm, those from which on its outputs count."""
    matches_min: int = 1
    is_warm: bool = False
    tick_gap_us: int = 1 << 62
    """The longest gap between ticks of a partition; a longer one lets rows stay beyond their time."""
    ticked: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """The append time of the newest tick of each partition."""
    refused_events: int = 0
    """The count of bad events so far."""
    extended_because: str = ""
    """Why `until_us` last moved."""
    matched: int = 0
    mismatch: str = ""
    """The reason why this engine's state is not the group's; "" if nothing shows that."""


@dataclass(frozen=True, slots=True)
class Snapshots:
    """This engine's snapshots, and the group's newest."""

    candidates: tuple[Candidate, ...] = ()
    snapshot_ms: int = LONG_AGO_MS
    snapshot_order: int = -1
    """The order of the newest that was written or is being written; -1 if that failed."""
    written_wall_ms: int = 0
    written_events: int = 0
    """When the newest written one was taken: by the time of day, and by the count of events of this engine."""
    snapshots_confirmed: int = 0
    confirmed_order: int = -1
    """The order of the newest that this engine confirmed itself."""
    failure: str = ""
    """Why the group's store last failed to write or confirm; "" after a success."""
    refused: tuple[str, ...] = ()
    """The snapshots that this engine refused since it started, with the reasons; the newest few, oldest first."""
    newest: NewestSnapshot = field(default_factory=NewestSnapshot)


@dataclass(frozen=True, slots=True)
class PersistRequest:
    """A request for a snapshot, to the store `to` ("": the group's own), by the engine `by` ("": the one whose turn it is).

    `keep`: at most this many of the group's snapshots stay there; 0: all.
    """

    to: str = ""
    by: str = ""
    keep: int = 0

    def is_for_another(self, engine: str) -> bool:
        return self.by not in ("", engine)


@dataclass(frozen=True, slots=True)
class PersistOutcome:
    """The result of a request. `failure`: why there is not a snapshot; "" if there is."""

    engine: str
    name: str = ""
    order: int = 0
    bytes: int = 0
    took_ms: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Persisting:
    """The request being worked on, if any: number `number + 1`, as `number` are done.

    `claims`: the engines that undertook it, in order; the last one counts.
    """

    number: int = 0
    request: PersistRequest | None = None
    claims: tuple[str, ...] = ()
    persist_read_ms: int = LONG_AGO_MS
    result_lookups: int = 0
    """How often its result was looked up."""
    since_ms: int = 0
    """When this engine learned of the request, or of the last claim."""
    is_begun: bool = False
    """Whether this engine has undertaken it and writes, or waits for the confirmation of what it wrote."""
    begun_ms: int = 0
    outcome: PersistOutcome | None = None
    """The result of this engine's work, to be reported to the group next."""

    @property
    def owner(self) -> str:
        return self.claims[-1] if self.claims else ""
