"""What one engine keeps in memory about one group; it belongs to that group and never to the process (DESIGN section 3, Scale).

What acts and takes note (`perform`, `driver`, and the parts that they call) changes it; `view_of` freezes it for `decide`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from hotspare.bus.contract import Partition, Producer, Progress
from hotspare.coordination.contract import Leader, Member
from hotspare.engine.rows.batch import NextInput
from hotspare.engine.rows.chunk import EXTRA_ROWS_MAX
from hotspare.ha.calls.store_jobs import Candidate as Candidate
from hotspare.ha.calls.store_jobs import StoreJobs
from hotspare.ha.calls.underway import Recheck
from hotspare.ha.clock_skew import ClockSkew
from hotspare.ha.core import Core
from hotspare.ha.outputs.blocks import MessageSizes
from hotspare.ha.outputs.commit_budget import CommitBudget, Lesson
from hotspare.ha.outputs.held import HeldOutputs
from hotspare.ha.outputs.progress_points import ProgressPoints
from hotspare.ha.outputs.qualities import Qualities
from hotspare.ha.outputs.transaction import Transaction
from hotspare.ha.ports import Ports
from hotspare.ha.rules.roles import Reason, Role, Step
from hotspare.ha.rules.settings import GroupSettings, GroupTopics
from hotspare.ha.rules.view import CandidateView, Contact, Difference, InboundView, OtherMember, Vacancy, View
from hotspare.model.quality import QualityKind
from hotspare.step_size import PART_ROWS_MIN, STEP_ROWS_MAX, STEP_ROWS_MIN, StepSize

LONG_AGO_MS = -(10**12)
"""Before every clock: what never happened is due."""


@dataclass(slots=True)
class InboundState:
    """One inbound partition: when it last moved, and how far its clock is from this machine's."""

    topic_index: int
    partition: Partition
    arrived_ms: int = LONG_AGO_MS
    ticked_ms: int = LONG_AGO_MS
    ticked_offset: int = -1
    """Of the newest tick that this engine appended."""
    skew: ClockSkew = field(default_factory=ClockSkew)


@dataclass(frozen=True, slots=True)
class MemberNews:
    """Another engine's newest description, as far as decisions need it."""

    engine: str
    role: str
    rank: int
    evidence: Difference | None
    order: int = -1
    """How far its input positions are; -1 where it does not say."""
    confirmed_order: int = -1
    """Of the newest snapshot that it confirmed itself."""
    lesson: Lesson | None = None
    """What it learned of how much the bus takes at once (`CommitBudget`)."""
    held: tuple[int, int] | None = None
    """The epoch that it is active under, and for how long it was when it said so."""
    sequences: Mapping[str, int] = field(default_factory=dict)
    """Per stream, the newest output that it has computed."""


@dataclass(frozen=True, slots=True)
class NewestSnapshot:
    """The newest confirmed snapshot that this engine knows of: who confirmed it, and when this engine learned of it."""

    order: int = -1
    engine: str = ""
    seen_ms: int = 0


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


@dataclass(slots=True)
class Marks:
    """When the stages of the newest promotion took place, to report how long its parts took."""

    noticed_ms: int = 0
    won_ms: int = 0
    fenced_ms: int = 0
    active_ms: int = 0
    is_first_commit_due: bool = False


@dataclass
class GroupState:
    """Times are the engine's monotonic milliseconds."""

    group: str
    identity: Member
    settings: GroupSettings
    topics: GroupTopics
    core: Core
    held: HeldOutputs
    inbound: list[InboundState]
    qualities: Qualities = field(default_factory=lambda: Qualities({}))
    role: Role = Role.JOINING
    role_since_ms: int = 0
    step: Step = Step.NONE
    step_ms: int = LONG_AGO_MS
    """When the promotion began, or came on by a step."""
    epoch: int = 0
    stop_asked: bool = False
    refusal: str = ""
    ended_because: str = ""
    ended_by: Reason | None = None
    contact: Contact = Contact.CONNECTED
    coordination_retry_ms: int = LONG_AGO_MS
    leader: Leader | None = None
    leader_read_ms: int = LONG_AGO_MS
    leader_epoch: int = -1
    """The newest epoch that was read, and when it was first, or since when its holder said that it is active."""
    leader_since_ms: int = LONG_AGO_MS
    told_epoch: int = -1
    """Under which the holder said it: that is heard once, as two clocks never run alike."""
    free_since_ms: int = 0
    free_epoch: int = -1
    gave_up_epoch: int = -1
    vacancy: Vacancy | None = None
    rank: int = 0
    news: tuple[MemberNews, ...] = ()
    namesake: Member | None = None
    """The record of another process under this engine's name, as it was last read."""
    unlike: tuple[str, ...] = ()
    """In what other engines were reported to be unlike this one."""
    switchover: str | None = None
    switchover_read_ms: int = LONG_AGO_MS
    renewed_ms: int = LONG_AGO_MS
    """When the newest renewal of the lease that succeeded was asked for: a watcher's lease began no earlier."""
    has_moved: bool = False
    member_refreshed_ms: int = LONG_AGO_MS
    producer: Producer | None = None
    bus_retry_ms: int = LONG_AGO_MS
    lock_holder: tuple[int, int] | None = None
    locked_since_ms: int | None = None
    """Since when each call that writes to the bus found it locked; None after one that did not."""
    predecessor: Leader | None = None
    predecessor_lease_end_ms: int = 0
    progress_read_ms: int = LONG_AGO_MS
    committed: dict[str, Progress] = field(default_factory=dict)
    ahead: dict[str, ProgressPoints] = field(default_factory=dict)
    """Per stream, progress that was read and that this engine's outputs have not reached."""
    verified: dict[str, int] = field(default_factory=dict)
    """Per stream, the highest committed sequence at which this engine's digest was compared and equal, or was overruled."""
    unproven: set[str] = field(default_factory=set)
    """Streams of which this engine overruled what is committed, and nothing was committed since that it computed too."""
    next_input: NextInput = NextInput.AWAITED
    step_rows: StepSize = field(default_factory=lambda: StepSize(STEP_ROWS_MIN, STEP_ROWS_MAX))
    """How many rows the core takes at a time."""
    part_rows: StepSize = field(default_factory=lambda: StepSize(PART_ROWS_MIN, EXTRA_ROWS_MAX))
    """How many rows a single one may cause at a time."""
    published_ms: int = LONG_AGO_MS
    """When this engine last committed something."""
    committing_since_ms: int | None = None
    """Since when this engine tries to commit what comes next; None after one that succeeded."""
    fruitless_since_ms: int | None = None
    """Since when commits of this epoch fail one after the other, each followed by a fence; None after one that took place."""
    transaction: Transaction | None = None
    """The one that is under way; there is never another."""
    recheck: Recheck | None = None
    """The newest epoch, asked for after the last fence."""
    budget: CommitBudget = field(init=False)
    message_sizes: MessageSizes = field(init=False)
    oversized: dict[str, Oversized] = field(default_factory=dict)
    """Per stream whose next output the bus does not take: it waits, and the other streams go on."""
    cut: str = ""
    """The stream of which the newest commit left some outputs for the next one; "" where it had them all."""
    sent: dict[str, int] = field(default_factory=dict)
    """Per stream, the newest sequence that this engine committed under its epoch; progress may lag behind it."""
    unrecorded_since_ms: dict[str, int] = field(default_factory=dict)
    """Per stream, when the first output was committed that is not in its progress."""
    may_repeat: set[str] = field(default_factory=set)
    """Streams of which no output was committed since progress was read: what follows it may have come before."""
    unrecorded: dict[str, Progress] = field(default_factory=dict)
    """Progress of streams without a record: what was found in the topic, or nothing. It is recorded before any output follows;
    until then, spares let go of nothing."""
    arrivals: dict[str, deque[tuple[int, int]]] = field(default_factory=dict)
    """Per stream that a spare keeps for a time: (sequence, when it was computed), oldest first."""
    lost: dict[str, int] = field(default_factory=dict)
    """Per stream, outputs that were never published because a spare that took over no longer held them."""
    lost_before: dict[str, int] = field(default_factory=dict)
    qualities_read_ms: int = LONG_AGO_MS
    differences: dict[str, Difference] = field(default_factory=dict)
    awaited_ms: int = LONG_AGO_MS
    """When another spare had yet to compute an output at which this engine differs."""
    overrules: bool = False
    candidates: list[Candidate] = field(default_factory=list)
    store_id: str = ""
    """Of the store that the group agreed on."""
    store_jobs: StoreJobs = field(default_factory=StoreJobs)
    snapshot_ms: int = LONG_AGO_MS
    snapshot_order: int = -1
    snapshots_confirmed: int = 0
    confirmed_order: int = -1
    newest_snapshot: NewestSnapshot = field(default_factory=NewestSnapshot)
    reads_only: tuple[int, int] | None = None
    """While too many rows wait in the core: the partition that they wait for, which alone is read."""
    trimmed_ms: int = LONG_AGO_MS
    is_trim_running: bool = False
    inbound_checked_ms: int = 0
    is_inbound_check_running: bool = False
    inbound_findings: deque[str] = field(default_factory=deque)
    """Filled by a background job."""
    stalled_ms: int = 0
    """For how long input is known to be there that the runner does not bring, as far as this was watched."""
    marks: Marks = field(default_factory=Marks)

    def __post_init__(self) -> None:
        self.message_sizes = MessageSizes(self.settings.message_rows_max)
        self.budget = CommitBudget(self.settings.commit_rows_max, self.settings.commit_bytes_max)

    @property
    def engine(self) -> str:
        return self.identity.engine

    @property
    def order(self) -> int:
        """Rises with the input positions."""
        return sum(self.core.next_offsets.values())

    @property
    def is_snapshot_running(self) -> bool:
        return self.store_jobs.is_writing


def committed_sequence(state: GroupState, stream: str) -> int:
    progress = state.committed.get(stream)
    return progress.sequence if progress is not None else 0


def sent_sequence(state: GroupState, stream: str) -> int:
    """The newest output that this engine knows to be on the topic, or that can no longer be brought there."""
    return max(state.sent.get(stream, 0), committed_sequence(state, stream), state.held.streams[stream].base.sequence)


def has_pending(state: GroupState) -> bool:
    """Whether outputs are held that are not known to be committed and not under way, and that the bus takes."""
    return any(_pending_rows(state, name) for name in state.held.streams)


def held_through(state: GroupState, stream: str) -> int:
    """The newest held output that the bus takes, as far as is known."""
    waiting = state.oversized.get(stream)
    return state.held.streams[stream].last_sequence if waiting is None else waiting.sequence - 1


def _pending_rows(state: GroupState, stream: str) -> int:
    under_way = 0 if state.transaction is None else state.transaction.content.sent.get(stream, 0)
    return max(0, held_through(state, stream) - max(sent_sequence(state, stream), under_way))


def publish_due_ms(state: GroupState) -> int | None:
    """When held outputs have to be published; None if there are none. While more input is at hand they wait for those that come of
    it: a transaction takes its time however little is in it. The first of a promotion never wait, nor those that a hand-over waits
    for, nor any of which a spare may hold less than this engine."""
    if not has_pending(state):
        return None
    is_leaving = state.stop_asked or state.switchover is not None
    is_urgent = state.next_input is NextInput.AWAITED or is_leaving or state.marks.is_first_commit_due
    if is_urgent or _fills_a_commit(state) or any(not state.qualities.of(s).holds_all for s in state.held.streams):
        return LONG_AGO_MS
    return state.published_ms + state.settings.commit_wait_ms


def _fills_a_commit(state: GroupState) -> bool:
    """Whether what is pending is as much as one transaction takes, over all streams."""
    rows = bytes_ = 0
    for stream, held in state.held.streams.items():
        pending = _pending_rows(state, stream)
        rows += pending
        bytes_ += (held.memory_bytes + held.spilled_bytes) * pending // max(1, held.rows)
    return rows >= state.budget.rows or bytes_ >= min(state.budget.bytes, state.settings.held_bytes_max // 2)


def await_due_ms(state: GroupState) -> int | None:
    """When what came of the transaction under way is taken note of, and waited for if need be; None if none is under way.

    Publishing is part of the pipeline: behind a commit that takes long the engine does not go on, and gives no sign of life.
    Nor does it where the next transaction is full, or the role is to be handed over.
    """
    transaction = state.transaction
    if transaction is None:
        return None
    is_leaving = state.stop_asked or state.switchover is not None
    if transaction.call.is_over or is_leaving or _fills_a_commit(state):
        return LONG_AGO_MS
    return transaction.begun_ms + state.settings.commit_patience_ms


def progress_due_ms(state: GroupState) -> int | None:
    """When progress has to be written of what is on the topic already; None while all of it is recorded."""
    if state.unrecorded:
        return LONG_AGO_MS
    due = [progress_due_of_ms(state, name) for name in state.sent if state.sent[name] > committed_sequence(state, name)]
    return min(due, default=None)


def progress_due_of_ms(state: GroupState, stream: str) -> int:
    """When the progress of a stream has to be written that lags behind its outputs; at once before the role is handed over."""
    quality, since_ms = state.qualities.of(stream), state.unrecorded_since_ms.get(stream)
    is_leaving = state.stop_asked or state.switchover is not None
    if quality.kind is not QualityKind.TRIMMED or since_ms is None or is_leaving:
        return LONG_AGO_MS
    return since_ms + quality.progress_ms


def view_of(state: GroupState, ports: Ports) -> View:
    now_ms = ports.clock_ms()
    difference = min(state.differences.values(), key=lambda d: d.stream) if state.differences else None
    return View(
        now_ms=now_ms,
        settings=state.settings,
        engine=state.engine,
        role=state.role,
        step=state.step,
        step_ms=state.step_ms,
        epoch=state.epoch,
        stop_asked=state.stop_asked,
        refusal=state.refusal,
        coordination_retry_ms=state.coordination_retry_ms,
        leader=state.leader,
        leader_read_ms=state.leader_read_ms,
        leader_since_ms=state.leader_since_ms,
        free_since_ms=state.free_since_ms,
        gave_up_epoch=state.gave_up_epoch,
        peer=ports.peers.status(),
        vacancy=state.vacancy,
        rank=state.rank,
        others=tuple(OtherMember(n.engine, n.role, n.rank, _agrees(state, n.evidence), n.evidence is not None) for n in state.news),
        switchover=state.switchover,
        switchover_read_ms=state.switchover_read_ms,
        renewed_ms=state.renewed_ms,
        has_moved=state.has_moved,
        member_refreshed_ms=state.member_refreshed_ms,
        bus_retry_ms=state.bus_retry_ms,
        lock_holder=state.lock_holder,
        locked_since_ms=state.locked_since_ms if state.locked_since_ms is not None else now_ms,
        predecessor=state.predecessor,
        predecessor_lease_end_ms=state.predecessor_lease_end_ms,
        publish_due_ms=publish_due_ms(state) if state.role is Role.ACTIVE else None,
        progress_due_ms=progress_due_ms(state) if state.role is Role.ACTIVE else None,
        await_due_ms=await_due_ms(state) if state.role is Role.ACTIVE else None,
        fruitless_since_ms=state.fruitless_since_ms,
        oversized_retry_ms=min((each.retry_ms for each in state.oversized.values()), default=None),
        qualities_read_ms=state.qualities_read_ms,
        progress_read_ms=state.progress_read_ms,
        inbound=_inbound_views(state),
        inbound_checked_ms=state.inbound_checked_ms,
        trimmed_ms=state.trimmed_ms,
        difference=difference,
        awaited_ms=state.awaited_ms,
        overrules=state.overrules,
        committed_ahead=_begins_ahead(state),
        candidates=tuple(CandidateView(c.name, _is_settled(state, c), _confirm_due_ms(state, c)) for c in state.candidates),
        snapshot_ms=state.snapshot_ms,
        is_snapshot_running=state.is_snapshot_running,
        is_store_marking=state.store_jobs.is_marking,
        store_begun_ms=state.store_jobs.oldest_ms,
        store_stuck=len(state.store_jobs.stuck),
        newest_snapshot_ms=state.newest_snapshot.seen_ms,
        newest_snapshot_by=state.newest_snapshot.engine,
        stalled_ms=state.stalled_ms,
        has_new_state=state.core.is_whole and state.order != state.snapshot_order,
    )


def _agrees(state: GroupState, evidence: Difference | None) -> bool:
    """Whether another engine's evidence against what is committed is this engine's own output too."""
    if evidence is None or evidence.stream not in state.differences:
        return False
    return state.held.streams[evidence.stream].digest_at(evidence.sequence) == evidence.digest


def is_awaited(state: GroupState) -> bool:
    """Whether another spare may agree with this engine once it comes to where this one differs from what is committed."""
    return any(
        n.role == Role.STANDBY.value and n.evidence is None and n.sequences.get(d.stream, 0) < d.sequence
        for d in state.differences.values()
        for n in state.news
    )


def _inbound_views(state: GroupState) -> tuple[InboundView, ...]:
    """A partition holds up the merge while an event elsewhere is not older than what is believed of its newest message."""
    holding_up = state.core.holding_up
    return tuple(
        InboundView(index, own.arrived_ms, own.ticked_ms, (own.topic_index, own.partition.number) in holding_up)
        for index, own in enumerate(state.inbound)
    )


def _is_settled(state: GroupState, candidate: Candidate) -> bool:
    """Streams of which nothing may be lost are waited for, however long it takes."""
    waited_for = {s: n for s, n in candidate.sequences.items() if state.qualities.of(s).holds_all}
    return all(state.verified.get(s, 0) >= sequence and s not in state.unproven for s, sequence in waited_for.items())


def _confirm_due_ms(state: GroupState, candidate: Candidate) -> int:
    """The others are waited for so long that a state that differs in them alone is noticed; what is lost of them never comes."""
    others = {s: n for s, n in candidate.sequences.items() if not state.qualities.of(s).holds_all}
    is_compared = all(_is_compared(state, stream, sequence) for stream, sequence in others.items())
    return LONG_AGO_MS if is_compared else candidate.taken_ms + state.settings.divergence_wait_ms


def _is_compared(state: GroupState, stream: str, sequence: int) -> bool:
    """Whether an output was compared with what is committed, as far as this engine still can."""
    done = committed_sequence(state, stream)
    return state.verified.get(stream, 0) >= sequence or sequence <= done <= state.held.streams[stream].last_sequence


def _begins_ahead(state: GroupState) -> str:
    for name, held in state.held.streams.items():
        committed = committed_sequence(state, name)
        if held.base.sequence > committed and not state.qualities.may_have_lost(name):
            return f"state begins after output {held.base.sequence} of stream {name}, but only {committed} are committed"
    return ""
