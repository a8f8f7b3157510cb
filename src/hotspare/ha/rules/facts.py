"""What an engine knows of one group, in records that `GroupState` and `View` share: a new fact is written here and nowhere else.

A record never changes. Who learns something puts a new one in its place, so what `decide` was given stays as it was, and a thread
that looks on sees all of a change or nothing. Times are the engine's own monotonic milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from hotspare.base.inbound import Inbound
from hotspare.bus.contract import OutputId, Progress
from hotspare.coordination.contract import Leader
from hotspare.ha.calls.store_jobs import Candidate
from hotspare.ha.rules.commit_budget import Lesson
from hotspare.ha.rules.makers import Changes, newest_epoch
from hotspare.ha.rules.roles import Reason, Role, Step
from hotspare.ha.rules.upgrading import Agreement
from hotspare.rows.batch import NextInput

LONG_AGO_MS = -(10**12)
"""Before every clock: what never happened is due."""


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
    """Another engine by its newest description, as far as decisions need it."""

    engine: str
    role: str
    rank: int
    evidence: Difference | None = None
    """That its outputs are not those committed."""
    order: int = -1
    """How far its input positions are; -1 where it does not say."""
    confirmed_order: int = -1
    """Of the newest snapshot that it confirmed itself."""
    lesson: Lesson | None = None
    """What it learned of how much the bus takes at once (`CommitBudget`)."""
    snapshot_priority: int = 1
    """Those with the greatest take the snapshots; 0: it takes none."""
    held: tuple[int, int] | None = None
    """The epoch that it is active under, and for how long it was when it said so."""
    sequences: Mapping[str, int] = field(default_factory=dict)
    """Per stream, the newest output that it has computed."""
    project: int = 0
    """The number of the one that it runs (`rules.upgrading.Version`)."""
    moves: int = 0
    """How many of the group's moves it knows of."""

    def is_of(self, project: int) -> bool:
        return self.project == project

    @property
    def differs(self) -> bool:
        return self.evidence is not None


@dataclass(frozen=True, slots=True)
class NewestSnapshot:
    """The newest confirmed snapshot that this engine knows of: who confirmed it, and when this engine learned of it."""

    order: int = -1
    engine: str = ""
    seen_ms: int = 0
    seen_wall_ms: int = 0
    seen_events: int = 0
    """Likewise by the time of day, and by how many events this engine had taken."""


@dataclass(frozen=True, slots=True)
class Oversized:
    """Output `sequence` alone makes a message of `bytes`, which its topic does not take; tried again at `retry_ms`."""

    sequence: int
    bytes: int
    topic: str
    retry_ms: int

    @property
    def sentence(self) -> str:
        return f"output {self.sequence} makes a message of {self.bytes} bytes, which topic {self.topic} does not take"


@dataclass(frozen=True, slots=True)
class Standing:
    """What this engine is in its group, and what was asked of it."""

    role: Role = Role.JOINING
    role_since_ms: int = 0
    step: Step = Step.NONE
    step_ms: int = LONG_AGO_MS
    """When the promotion began, or came on by a step."""
    epoch: int = 0
    """The newest that it won."""
    gave_up_epoch: int = -1
    overrules: bool = False
    """It takes over although its outputs differ from what is committed."""
    stop_asked: bool = False
    refusal: str = ""
    """Why it cannot take part; "" where it can."""


@dataclass(frozen=True, slots=True)
class Projects:
    """Which projects the group runs, as far as this engine knows, and which one made what is committed. `own`: the number of this
    engine's; `known` None: nothing was ever decided about another one."""

    own: int = 0
    known: Agreement | None = None
    told: int = 0
    """How many moves another engine knows of."""
    read_ms: int = LONG_AGO_MS
    changes: Changes = ()
    changes_epoch: int = 0
    """The newest change that the numbers of this engine's outputs take account of."""
    answered: tuple[OutputId, ...] = ()
    """Of each partition the newest output that another project made, as far as was ever read."""
    lacked: frozenset[str] = frozenset()
    """`lacking` while there were two."""

    @property
    def moves(self) -> int:
        return 0 if self.known is None else self.known.moves

    @property
    def are_two(self) -> bool:
        return self.known is not None and self.known.other is not None

    @property
    def lacking(self) -> frozenset[str]:
        """The streams of this engine's project that the other one does not have, or did not while there were two."""
        return self.known.lacking(self.own) if self.known is not None and self.are_two else self.lacked

    @property
    def leading(self) -> int:
        """The number of the one whose engines go first."""
        return self.own if self.known is None else self.known.leading.number

    @property
    def newest_change(self) -> int:
        return newest_epoch(self.changes)


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who holds the role, as coordination says. `leader` is None when it must be read before anything follows from it."""

    leader: Leader | None = None
    leader_read_ms: int = LONG_AGO_MS
    leader_epoch: int = -1
    """The newest epoch that was read, and when it was first, or since when its holder said that it is active."""
    leader_since_ms: int = LONG_AGO_MS
    told_epoch: int = -1
    """Under which the holder said it: that is heard once, as two clocks never run alike."""
    free_epoch: int = -1
    free_since_ms: int = 0
    vacancy: Vacancy | None = None
    predecessor: Leader | None = None
    predecessor_lease_end_ms: int = 0
    switchover: str | None = None
    """To whom a switch-over is asked for: "" is anyone, None nobody."""


@dataclass(frozen=True, slots=True)
class Lease:
    """What keeps this engine's lease."""

    renewed_ms: int = LONG_AGO_MS
    """When the newest renewal that succeeded was asked for: a watcher's lease began no earlier."""
    has_moved: bool = False
    """A batch or a commit passed since."""
    committing_since_ms: int | None = None
    """Since when this engine tries to commit what comes next; None after one that succeeded."""
    fruitless_since_ms: int | None = None
    """Since when commits of this epoch fail one after the other, each followed by a fence; None after one that took place."""


@dataclass(frozen=True, slots=True)
class Contacts:
    """How coordination and bus answered last. `.._retry_ms`: the earliest next call after a failure."""

    contact: Contact = Contact.CONNECTED
    failing_since_ms: int = LONG_AGO_MS
    """The first of the newest failures of coordination that followed each other closely."""
    failed_ms: int = LONG_AGO_MS
    """The last of them."""
    coordination_retry_ms: int = LONG_AGO_MS
    bus_retry_ms: int = LONG_AGO_MS
    lock_holder: tuple[int, int] | None = None
    """Process id and start of who held the bus's lock when it was in the way last, if that is known."""
    locked_since_ms: int | None = None
    """Since when each call that writes to the bus found it locked; None after one that did not."""
    trouble: str = ""
    """What bus or coordination could not do last, and why."""
    trouble_ms: int = LONG_AGO_MS


@dataclass(frozen=True, slots=True)
class Membership:
    """The other engines by their descriptions, and how far this one is by its own of the same time."""

    rank: int = 0
    others: tuple[OtherMember, ...] = ()
    awaited_ms: int = LONG_AGO_MS
    """When another spare had yet to compute an output at which this engine differs."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """When what is done again and again was done last."""

    member_refreshed_ms: int = LONG_AGO_MS
    switchover_read_ms: int = LONG_AGO_MS
    qualities_read_ms: int = LONG_AGO_MS
    progress_read_ms: int = LONG_AGO_MS
    inbound_checked_ms: int = 0
    trimmed_ms: int = LONG_AGO_MS


@dataclass(frozen=True, slots=True)
class Intake:
    """How input comes to this engine."""

    next_input: NextInput = NextInput.AWAITED
    stalled_ms: int = 0
    """For how long input is known to be there that the runner does not bring, as far as this was watched."""
    reads_only: tuple[int, int] | None = None
    """While too many rows wait in the core: the partition that they wait for, which alone is read."""
    events_taken: int = 0
    """Since this engine started; counted where snapshots go by it."""


@dataclass(frozen=True, slots=True)
class InboundFacts:
    """One inbound partition, by its topic's index and its number."""

    topic_index: int
    number: int
    arrived_ms: int = LONG_AGO_MS
    ticked_ms: int = LONG_AGO_MS
    ticked_offset: int = -1
    """Of the newest tick that this engine appended."""
    kind: Inbound = Inbound.EVENTS
    """Who writes there: to another project's topic nothing is written, no tick either."""


@dataclass(frozen=True, slots=True)
class Publishing:
    """How this engine's transactions follow one another."""

    published_ms: int = LONG_AGO_MS
    """When it last committed something."""
    is_first_commit_due: bool = False
    """It was promoted, and nothing is committed since."""
    cut: str = ""
    """The stream of which the newest commit left some outputs for the next one; "" where it had them all."""


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """One output stream, beside the outputs that are held of it."""

    committed: Progress | None = None
    """The newest that is known."""
    verified: int = 0
    """The highest committed sequence at which this engine's digest was compared and equal, or was overruled."""
    is_unproven: bool = False
    """This engine overruled what is committed, and nothing was committed since that it computed too."""
    difference: Difference | None = None
    sent: int = 0
    """The newest sequence that this engine committed under its epoch; progress may lag behind it."""
    unrecorded_since_ms: int | None = None
    """When the first output was committed that is not in its progress; None where all are."""
    may_repeat: bool = False
    """No output was committed since progress was read: what follows it may have come before."""
    unrecorded: Progress | None = None
    """Of a stream without a record of its progress: what was found in the topic, or nothing. It is recorded before any output
    follows; until then, spares let go of nothing."""
    oversized: Oversized | None = None
    """The next output, which the bus does not take: it waits, and the other streams go on."""
    is_unplaced: bool = False
    """Its outputs have other numbers here than on their topic, as another project of the group numbered those before: by how much
    is known when this engine takes over, or finds one of its own outputs committed."""
    is_unadopted: bool = False
    """This engine makes its state from recent input and does not know yet which numbers its outputs have (`warming`)."""
    awaited: Progress | None = None
    """Likewise, the committed output that it looks for among its own when it gets there."""
    lost: int = 0
    """Outputs that were never published because a spare that took over no longer held them."""
    lost_before: int = 0

    @property
    def committed_sequence(self) -> int:
        return self.committed.sequence if self.committed is not None else 0


@dataclass(frozen=True, slots=True)
class Warming:
    """Of an engine that makes its state from recent input. `until_us`: from this system time on nothing matters that came before it
    began to read; `span_us` is how long anything may. `matches_min`: of committed records, before it is eligible."""

    until_us: int
    span_us: int
    begun: Mapping[tuple[int, int], int]
    """Where it began to read; once it is warm, where the outputs begin that count."""
    matches_min: int = 1
    is_warm: bool = False
    tick_gap_us: int = 1 << 62
    """Ticks of a partition that are farther apart let rows stay for longer than their time."""
    ticked: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """The append time of the newest tick of each partition."""
    refused: int = 0
    """Bad events so far."""
    moved_by: str = ""
    """Why `until_us` moved the last time."""
    matched: int = 0
    mismatch: str = ""
    """Why its state is not the group's; "" where nothing shows that."""


@dataclass(frozen=True, slots=True)
class Snapshots:
    """This engine's snapshots, and the group's newest."""

    candidates: tuple[Candidate, ...] = ()
    snapshot_ms: int = LONG_AGO_MS
    snapshot_order: int = -1
    """Of the newest that was written or is being written; -1 where that failed."""
    written_wall_ms: int = 0
    written_events: int = 0
    """When the newest that was written was taken: by the time of day, and after how many events of this engine's."""
    snapshots_confirmed: int = 0
    confirmed_order: int = -1
    """Of the newest that this engine confirmed itself."""
    failure: str = ""
    """Why the group's store did not take what was written or confirmed last; "" where it did."""
    refused: tuple[str, ...] = ()
    """Which snapshots this engine refused since it started, and why; the newest few, oldest first."""
    newest: NewestSnapshot = field(default_factory=NewestSnapshot)


@dataclass(frozen=True, slots=True)
class PersistRequest:
    """Somebody asks for a snapshot: to the store `to`, "" for the group's own, by the engine `by`, "" for whose turn it is. `keep`:
    how many of the group's stay there; 0: all."""

    to: str = ""
    by: str = ""
    keep: int = 0

    def is_for_another(self, engine: str) -> bool:
        return self.by not in ("", engine)


@dataclass(frozen=True, slots=True)
class PersistOutcome:
    """What came of a request: `failure` is "", or says why there is no snapshot."""

    engine: str
    name: str = ""
    order: int = 0
    bytes: int = 0
    took_ms: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Persisting:
    """The request that is worked on, if any: number `number + 1`, as `number` are done. `claims`: who undertook it, one after the
    other; the last one counts."""

    number: int = 0
    request: PersistRequest | None = None
    claims: tuple[str, ...] = ()
    persist_read_ms: int = LONG_AGO_MS
    looks: int = 0
    """How often it was looked what came of it."""
    since_ms: int = 0
    """When this engine learned of the request, or of the last claim."""
    is_begun: bool = False
    """This engine has undertaken it and writes, or waits for what it wrote to be confirmed."""
    begun_ms: int = 0
    outcome: PersistOutcome | None = None
    """What came of this engine's work; it is told to the group next."""

    @property
    def owner(self) -> str:
        return self.claims[-1] if self.claims else ""
