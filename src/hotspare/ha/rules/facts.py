"""Defines the records of what an engine knows of one group, shared by `GroupState` and `View`: a new fact is added here and nowhere
else.

Records are immutable. A change replaces the record, so the input of a decision stays as it was, and another thread sees all of a
change or nothing. Times are the engine's own monotonic milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from hotspare.base.call_place import CallPlace, Decision, HangCause
from hotspare.base.choices import EventPolicy
from hotspare.base.inbound_role import InboundRole
from hotspare.bus.contract import OutputId, Partition, Progress
from hotspare.coordination.contract import Leader
from hotspare.ha.calls.store_jobs import Candidate
from hotspare.ha.rules.commit_budget import CommitSizes
from hotspare.ha.rules.project_changes import Changes, newest_change_epoch
from hotspare.ha.rules.roles import Reason, Role, Step
from hotspare.ha.rules.upgrading import Agreement
from hotspare.rows.batch import NextInput

LONG_AGO_MS = -(10**12)
"""A time before every clock value: periodic work that never ran is due."""


class Contact(Enum):
    """The result of the last call to coordination."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Difference:
    """Evidence that an engine's outputs differ from those committed under `epoch`: the engine's own `digest` at a committed
    `sequence`.

    Two engines with the same digest at the same sequence computed the same outputs. `seen_ms`: when this engine detected its
    difference; 0 in the evidence of another engine.
    """

    stream: str
    sequence: int
    digest: int
    epoch: int
    seen_ms: int


@dataclass(frozen=True, slots=True)
class Vacancy:
    """The vacancy of the role: it was last held under `epoch`, and this engine may regard it as free since `since_ms`, for
    `reason`."""

    epoch: int
    reason: Reason
    since_ms: int


@dataclass(frozen=True, slots=True)
class OtherMember:
    """Another engine as its newest description reports it, as far as decisions need that."""

    engine: str
    role: str
    rank: int
    evidence: Difference | None = None
    """The difference from what is committed that the engine reports; None without one."""
    order: int = -1
    """The sum of the engine's input positions; -1 if not reported."""
    confirmed_order: int = -1
    """The order of the newest snapshot that the engine itself confirmed; -1 without one."""
    commit_sizes: CommitSizes | None = None
    """The transaction sizes that the engine found the bus to accept (`CommitBudget`); None if not reported."""
    snapshot_priority: int = 1
    """The engine's snapshot priority: spares with the greatest one take the snapshots; with 0 the engine takes none."""
    active_epoch_age: tuple[int, int] | None = None
    """(Epoch under which the engine is active, milliseconds for which it was active when it reported so); None if it is not
    active."""
    sequences: Mapping[str, int] = field(default_factory=dict)
    """The newest sequence that the engine has computed, by stream."""
    project: int = 0
    """The number of the project that the engine runs (`rules.upgrading.ProjectVersion`)."""
    cut_overs: int = 0
    """The count of the group's cut-over steps that the engine has read."""

    def is_of(self, project: int) -> bool:
        return self.project == project

    @property
    def is_differing(self) -> bool:
        return self.evidence is not None


@dataclass(frozen=True, slots=True)
class NewestSnapshot:
    """The newest confirmed snapshot that this engine knows of: its order, the engine that confirmed it, and when this engine
    learned of it."""

    order: int = -1
    engine: str = ""
    seen_ms: int = 0
    seen_wall_ms: int = 0
    seen_events: int = 0
    """The time of day, and the count of events that this engine had processed, when it learned of the snapshot."""


@dataclass(frozen=True, slots=True)
class Oversized:
    """An output that alone makes a message larger than its topic accepts: its sequence, the size of the message, the topic, and
    when to retry."""

    sequence: int
    bytes: int
    topic: str
    retry_ms: int

    @property
    def sentence(self) -> str:
        return f"output {self.sequence} makes a message of {self.bytes} bytes, which topic {self.topic} does not accept"


@dataclass(frozen=True, slots=True)
class RoleState:
    """This engine's role in its group, and what users or errors require of the engine."""

    role: Role = Role.JOINING
    role_since_ms: int = 0
    step: Step = Step.NONE
    step_ms: int = LONG_AGO_MS
    """The time at which the promotion began or last advanced by a step."""
    epoch: int = 0
    """The newest epoch that this engine won; 0 before the first."""
    gave_up_epoch: int = -1
    is_overruling: bool = False
    """Whether this engine continues after what is committed although its own outputs differ."""
    is_stop_requested: bool = False
    refusal: str = ""
    """The reason why this engine has to leave its group; "" if it may take part."""


@dataclass(frozen=True, slots=True)
class Projects:
    """The projects that the group runs, as far as this engine knows, and which project made which commits.

    `own`: the number of this engine's project. `group_agreement` None: the group has only ever had its first project. `changes`:
    the epochs in which another project than before began to publish.
    """

    own: int = 0
    group_agreement: Agreement | None = None
    reported_cut_overs: int = 0
    """The greatest count of cut-over steps that other engines reported."""
    read_ms: int = LONG_AGO_MS
    changes: Changes = ()
    changes_epoch: int = 0
    """The epoch of the newest change that the shifts of this engine's streams take into account."""
    other_project_outputs: tuple[OutputId, ...] = ()
    """For each input partition, the id of the newest committed output that another project made, as far as this engine has read."""
    own_only_before: frozenset[str] = frozenset()
    """The value of `own_only_streams` when there last were two projects."""

    @property
    def cut_overs(self) -> int:
        return 0 if self.group_agreement is None else self.group_agreement.cut_overs

    @property
    def has_two(self) -> bool:
        return self.group_agreement is not None and self.group_agreement.other is not None

    @property
    def own_only_streams(self) -> frozenset[str]:
        """The streams of this engine's project that the other project lacks; once one project is left, those that it lacked."""
        return (
            self.group_agreement.streams_only_in(self.own)
            if self.group_agreement is not None and self.has_two
            else self.own_only_before
        )

    @property
    def leading(self) -> int:
        """The number of the leading project, whose engines go first."""
        return self.own if self.group_agreement is None else self.group_agreement.leading.number

    @property
    def newest_change(self) -> int:
        return newest_change_epoch(self.changes)


@dataclass(frozen=True, slots=True)
class Leadership:
    """The holder of the role as coordination reports it. `leader` is None if it has to be read before any decision. `free_epoch`,
    `free_since_ms`: the epoch whose role was last read as released, and when first. `predecessor`: the holder before this engine
    won."""

    leader: Leader | None = None
    leader_read_ms: int = LONG_AGO_MS
    leader_epoch: int = -1
    """The newest epoch that was read; `leader_since_ms` is when it was first read, or since when its holder reports to be active,
    if earlier."""
    leader_since_ms: int = LONG_AGO_MS
    reported_epoch: int = -1
    """The epoch whose holder's report changed `leader_since_ms`. Used once per epoch, as clocks run at different rates."""
    free_epoch: int = -1
    free_since_ms: int = 0
    vacancy: Vacancy | None = None
    predecessor: Leader | None = None
    predecessor_lease_end_ms: int = 0
    switchover: str | None = None
    """The requested successor of a switch-over; "" for any engine, None if no switch-over is requested."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The facts that determine whether this engine renews its lease."""

    renewed_ms: int = LONG_AGO_MS
    """The time at which the newest successful renewal was requested; for other engines the lease began then or later."""
    has_progressed: bool = False
    """Whether a part of a batch was computed, or outputs were committed, since the last renewal."""
    committing_since_ms: int | None = None
    """The time since which this engine has tried to commit its next outputs; None after a success."""
    fruitless_since_ms: int | None = None
    """The time since which all commits of this epoch fail, each followed by a fence; None after a success."""


@dataclass(frozen=True, slots=True)
class Contacts:
    """The last contacts with coordination and bus. `coordination_retry_ms`, `bus_retry_ms`: no call is made before these times,
    after a failure."""

    contact: Contact = Contact.CONNECTED
    failing_since_ms: int = LONG_AGO_MS
    """The time of the first failure in the newest series of closely spaced failures of coordination."""
    failed_ms: int = LONG_AGO_MS
    """The time of the last failure in that series."""
    coordination_retry_ms: int = LONG_AGO_MS
    bus_retry_ms: int = LONG_AGO_MS
    lock_holder: tuple[int, int] | None = None
    """The (id, start) of the process that held the bus's lock when this engine last needed it; None if unknown."""
    locked_since_ms: int | None = None
    """The time since which every write to the bus has found it locked; None after a write that did not."""
    trouble: str = ""
    """A sentence on the last failure of bus or coordination; `trouble_ms` is its time."""
    trouble_ms: int = LONG_AGO_MS


@dataclass(frozen=True, slots=True)
class Membership:
    """The other engines as their descriptions report them, and this engine's own rank at the time of that read."""

    rank: int = 0
    others: tuple[OtherMember, ...] = ()
    awaited_ms: int = LONG_AGO_MS
    """The last time at which another spare might still have agreed with this engine, as it had yet to compute an output at which
    this one differs."""


@dataclass(frozen=True, slots=True)
class LastRuns:
    """The times at which each kind of periodic work last ran."""

    member_refreshed_ms: int = LONG_AGO_MS
    switchover_read_ms: int = LONG_AGO_MS
    qualities_read_ms: int = LONG_AGO_MS
    progress_read_ms: int = LONG_AGO_MS
    inbound_checked_ms: int = 0
    lifts_read_ms: int = LONG_AGO_MS
    trimmed_ms: int = LONG_AGO_MS


@dataclass(frozen=True, slots=True)
class Intake:
    """The state of this engine's input."""

    next_input: NextInput = NextInput.AWAITED
    stalled_ms: int = 0
    """The milliseconds for which the runner has not delivered pending input, as far as this engine was awake to observe it."""
    only_partition: tuple[int, int] | None = None
    """The only partition to read, because too many rows in the core wait for it; None: all are read."""
    events_taken: int = 0
    """The count of events that this engine has processed since it started; counted only if snapshots depend on it."""


@dataclass(frozen=True, slots=True)
class InboundFacts:
    """An inbound partition, identified by its topic's index and its number, with the times of its last arrival and its last
    tick."""

    topic_index: int
    number: int
    arrived_ms: int = LONG_AGO_MS
    ticked_ms: int = LONG_AGO_MS
    ticked_offset: int = -1
    """The offset of the newest tick that this engine appended."""
    kind: InboundRole = InboundRole.EVENTS
    """The kind of the topic. An engine writes nothing to another project's output topic, not even ticks."""


@dataclass(frozen=True, slots=True)
class HungCalls:
    """The facts about calls of user code that did not end. `policy`: the group's, for events that cause such calls. `versions`: the
    version of each window with user code (`Plan.window_versions`); empty without user code."""

    versions: Mapping[str, str] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()
    """The decisions on the bus, as far as read, by number."""
    places: Mapping[CallPlace, HangCause] = field(default_factory=dict)
    """The places before which the core stops: read when the engine joined, and chosen by an active engine to lift quarantines."""
    ends: Mapping[Partition, int] = field(default_factory=dict)
    """The end offset of each partition when an active engine last looked for a place at which to lift a quarantine."""
    reported: CallPlace | None = None
    """The place of the newest report that the core has stopped."""
    policy: EventPolicy = EventPolicy.BAD_EVENT

    @property
    def has_user_code(self) -> bool:
        return bool(self.versions)


@dataclass(frozen=True, slots=True)
class Publishing:
    """The state of publishing between this engine's transactions."""

    published_ms: int = LONG_AGO_MS
    """The time of this engine's newest commit."""
    is_first_commit_due: bool = False
    """Whether this engine has committed no output since its promotion."""
    cut_stream: str = ""
    """The first stream of which the newest commit, at its size limit, left outputs for the next one; "" if none."""


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """The facts that an engine knows of one output stream, apart from the held outputs."""

    committed: Progress | None = None
    """The newest progress known to be committed; None without any."""
    verified: int = 0
    """The highest committed sequence at which this engine's digest was found equal, or which this engine overruled."""
    is_unproven: bool = False
    """Whether this engine overruled a difference, and since then no commit was equal to one of its own outputs."""
    difference: Difference | None = None
    sent: int = 0
    """The newest sequence that this engine committed under its present epoch; the committed progress may lag behind it."""
    unrecorded_since_ms: int | None = None
    """The time of the first commit of an output that progress does not cover; None if progress covers all."""
    may_repeat: bool = False
    """Whether no output was committed since this engine read progress for its promotion: its next outputs may already be on the
    topic."""
    unrecorded: Progress | None = None
    """The progress to write for a stream that has no progress record: the one found in its topic, or sequence 0. None if the record
    exists.

    It is written before any further output; until then, spares release nothing.
    """
    oversized: Oversized | None = None
    """The next output, if the bus refused it as too large: it waits for a retry, and the other streams continue."""
    is_shift_unknown: bool = False
    """Whether the shift is unknown: this engine's outputs have other numbers on their topic, as another project numbered the
    earlier ones.

    The shift becomes known when this engine takes over, or finds one of its own outputs committed.
    """
    is_unadopted: bool = False
    """Whether this engine, which makes its state from recent input, has yet to adopt the sequences and digests of the stream
    (`Warming`)."""
    adoption_target: Progress | None = None
    """The committed output that a warming engine has to find among its own once it has processed the input that caused it; None
    without one."""
    lost: int = 0
    """The count of outputs that are never published, because a spare that took over had released them."""
    lost_before: int = 0

    @property
    def committed_sequence(self) -> int:
        return self.committed.sequence if self.committed is not None else 0


@dataclass(frozen=True, slots=True)
class Warming:
    """The progress of an engine that makes its state from recent input.

    `until_us`: the system time from which on the state is complete, as it depends on no input before `begin_offsets`. `span_us`:
    how long an input may affect the state. `matches_min`: the committed progress records that have to match before the engine is
    eligible.
    """

    until_us: int
    span_us: int
    begin_offsets: Mapping[tuple[int, int], int]
    """The offsets at which the engine began to read; once it is warm, those from which on its outputs count."""
    matches_min: int = 1
    is_warm: bool = False
    tick_gap_us: int = 1 << 62
    """The longest permitted gap between ticks of a partition, by append time; during a longer gap rows stay beyond their time."""
    ticked: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """The append time of the newest tick, by partition."""
    refused_events: int = 0
    """The count of bad events that the engine has computed."""
    extended_because: str = ""
    """A sentence on why `until_us` was last moved; "" if it never was."""
    matched: int = 0
    mismatch: str = ""
    """The evidence that this engine's state is not the group's; "" without any."""


@dataclass(frozen=True, slots=True)
class Snapshots:
    """The snapshots of this engine, and the newest of its group. `candidates` are written, but not confirmed. `snapshot_ms`: when
    this engine last began one."""

    candidates: tuple[Candidate, ...] = ()
    snapshot_ms: int = LONG_AGO_MS
    snapshot_order: int = -1
    """The order of this engine's newest snapshot, written or being written (at first, of the state with which it joined); -1 if
    writing it failed."""
    written_wall_ms: int = 0
    written_events: int = 0
    """The time of day, and the count of processed events, at which this engine's newest written snapshot was taken."""
    snapshots_confirmed: int = 0
    confirmed_order: int = -1
    """The order of the newest snapshot that this engine confirmed; -1 without one."""
    own_confirmed: Candidate | None = None
    """The newest snapshot in the group's store that this engine confirmed; None without one."""
    failure: str = ""
    """A sentence on why the last write or confirmation in the group's store failed; "" after a success."""
    refused: tuple[str, ...] = ()
    """Sentences on snapshots that this engine refused since it started, with the reasons; only the newest few, oldest first."""
    newest: NewestSnapshot = field(default_factory=NewestSnapshot)


@dataclass(frozen=True, slots=True)
class PersistRequest:
    """A request to persist a snapshot to the store `to` ("": the group's own), by engine `by` ("": the engine whose turn it is).

    `keep`: the maximum of the group's snapshots that remain in that store; 0: all.
    """

    to: str = ""
    by: str = ""
    keep: int = 0

    def is_for_another(self, engine: str) -> bool:
        return self.by not in ("", engine)


@dataclass(frozen=True, slots=True)
class PersistOutcome:
    """The result of a persist request. `failure`: why the snapshot was not persisted, or older ones were not deleted; "" after a
    success."""

    engine: str
    name: str = ""
    order: int = 0
    bytes: int = 0
    took_ms: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Persisting:
    """The state of persist requests: `number` requests are finished, and `request`, if not None, is number `number + 1`.

    `claims`: the engines that undertook it, in order; the last claim counts.
    """

    number: int = 0
    request: PersistRequest | None = None
    claims: tuple[str, ...] = ()
    persist_read_ms: int = LONG_AGO_MS
    result_lookups: int = 0
    """The count of reads of requests since the last one finished."""
    since_ms: int = 0
    """The time at which this engine learned of the request, or of its last claim."""
    is_begun: bool = False
    """Whether this engine has begun the work on the request: it writes the snapshot, or waits for its confirmation."""
    begun_ms: int = 0
    outcome: PersistOutcome | None = None
    """The result of this engine's work, to be reported to the group next; None before the work ends."""

    @property
    def owner(self) -> str:
        return self.claims[-1] if self.claims else ""
