"""What one engine keeps in memory about one group; it belongs to that group and never to the process (DESIGN section 3, Scale).

What is decided by stands in the records of `rules.facts`. What acts and takes note (`perform`, `cycle`, and the parts that they
call) puts new ones in their places; `view_of` hands the same records to `decide`, with what it reads of the core, the held outputs
and the work under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hotspare.base.step_size import PART_ROWS_MIN, STEP_ROWS_MAX, STEP_ROWS_MIN, StepSize
from hotspare.bus.contract import Partition, Producer
from hotspare.coordination.contract import Member
from hotspare.ha.calls.single_job import SingleJob
from hotspare.ha.calls.store_jobs import StoreJobs
from hotspare.ha.calls.underway import AskedEpoch
from hotspare.ha.core import Core
from hotspare.ha.events import HaEventKind
from hotspare.ha.figures import BadCounts, ClockSkew, Marks, UnknownCounts
from hotspare.ha.outputs.blocks import MessageSizes
from hotspare.ha.outputs.held import HeldOutputs
from hotspare.ha.outputs.progress_points import ProgressPoints
from hotspare.ha.outputs.qualities import Qualities
from hotspare.ha.outputs.transaction import Transaction
from hotspare.ha.ports import Ports
from hotspare.ha.rules import facts, placing
from hotspare.ha.rules.commit_budget import CommitBudget
from hotspare.ha.rules.roles import Reason
from hotspare.ha.rules.settings import GroupSettings, GroupTopics
from hotspare.ha.rules.upgrading import Agreement
from hotspare.ha.rules.view import CommitUnderWay, CoreView, StreamView, View
from hotspare.rows.chunk import EXTRA_ROWS_MAX


@dataclass(slots=True)
class InboundState:
    """One inbound partition: when it last moved, and how far its clock is from this machine's."""

    partition: Partition
    facts: facts.InboundFacts
    skew: ClockSkew = field(default_factory=ClockSkew)


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
    standing: facts.Standing = field(default_factory=facts.Standing)
    leadership: facts.Leadership = field(default_factory=facts.Leadership)
    lease: facts.Lease = field(default_factory=facts.Lease)
    contacts: facts.Contacts = field(default_factory=facts.Contacts)
    membership: facts.Membership = field(default_factory=facts.Membership)
    rounds: facts.Rounds = field(default_factory=facts.Rounds)
    intake: facts.Intake = field(default_factory=facts.Intake)
    publishing: facts.Publishing = field(default_factory=facts.Publishing)
    snapshots: facts.Snapshots = field(default_factory=facts.Snapshots)
    persisting: facts.Persisting = field(default_factory=facts.Persisting)
    projects: facts.Projects = field(default_factory=facts.Projects)
    warming: facts.Warming | None = None
    """Of an engine that makes its state from recent input."""
    streams: dict[str, facts.StreamFacts] = field(init=False)
    """Of every output stream."""
    ended_because: str = ""
    ended_by: Reason | None = None
    namesake: Member | None = None
    """The record of another process under this engine's name, as it was last read."""
    unlike: tuple[str, ...] = ()
    """In what other engines were reported to be unlike this one."""
    producer: Producer | None = None
    ahead: dict[str, ProgressPoints] = field(default_factory=dict)
    """Per stream, progress that was read and that this engine's outputs have not reached."""
    arrivals: dict[str, deque[tuple[int, int]]] = field(default_factory=dict)
    """Per stream that a spare keeps for a time: (sequence, when it was computed), oldest first."""
    step_rows: StepSize = field(default_factory=lambda: StepSize(STEP_ROWS_MIN, STEP_ROWS_MAX))
    """How many rows the core takes at a time."""
    part_rows: StepSize = field(default_factory=lambda: StepSize(PART_ROWS_MIN, EXTRA_ROWS_MAX))
    """How many rows a single one may cause at a time."""
    transaction: Transaction | None = None
    """The one that is under way; there is never another."""
    recheck: AskedEpoch[Agreement | None] | None = None
    """The newest epoch, asked for after the last fence."""
    budget: CommitBudget = field(init=False)
    message_sizes: MessageSizes = field(init=False)
    project_hash: str = ""
    document: str = ""
    """The project's text, which a persisted snapshot brings along."""
    store_id: str = ""
    """Of the store that the group agreed on."""
    store_jobs: StoreJobs = field(default_factory=StoreJobs)
    trim: SingleJob = field(default_factory=SingleJob)
    inbound_check: SingleJob = field(default_factory=SingleJob)
    inbound_findings: deque[str] = field(default_factory=deque)
    """Filled by a background job."""
    marks: Marks = field(default_factory=Marks)
    bad_counts: BadCounts = field(default_factory=BadCounts)
    unknown_counts: UnknownCounts = field(default_factory=UnknownCounts)
    alarms: dict[tuple[HaEventKind, str], int] = field(default_factory=dict)
    """When an alarm of a kind and reason was reported last (`notes.alarm`)."""

    def __post_init__(self) -> None:
        self.streams = {name: facts.StreamFacts() for name in self.held.streams}
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
    def differences(self) -> list[facts.Difference]:
        """By stream."""
        found = ((name, stream.difference) for name, stream in sorted(self.streams.items()))
        return [difference for _, difference in found if difference is not None]


def stream_views(state: GroupState) -> dict[str, StreamView]:
    qualities = state.qualities
    unplaced = any(stream.is_unplaced for stream in state.streams.values())
    next_offsets = state.core.next_offsets if unplaced else {}
    is_whole = not unplaced or state.core.is_whole  # in mid-batch, outputs of input that is taken are still to come
    reads = {(each.facts.topic_index, each.facts.number) for each in state.inbound} if unplaced else ()
    return {
        name: StreamView(
            facts=state.streams[name],
            quality=qualities.of(name),
            was_changed=name in qualities.changed,
            base_sequence=held.base.sequence,
            last_sequence=held.last_sequence,
            bytes=held.memory_bytes + held.spilled_bytes,
            shift=held.shift,
            is_behind=unplaced and (not is_whole or _is_behind(state, name, next_offsets, reads)),
        )
        for name, held in state.held.streams.items()
    }


def _is_behind(
    state: GroupState, stream: str, next_offsets: Mapping[tuple[int, int], int], reads: Collection[tuple[int, int]]
) -> bool:
    before = placing.answered_before(state.projects, stream)
    return placing.is_behind(state.streams[stream], next_offsets, reads, before)


def view_of(state: GroupState, ports: Ports) -> View:
    core, transaction = state.core, state.transaction
    under_way = None
    if transaction is not None:
        under_way = CommitUnderWay(transaction.begun_ms, transaction.call.is_over, transaction.content.sent)
    return View(
        now_ms=ports.clock_ms(),
        settings=state.settings,
        engine=state.engine,
        standing=state.standing,
        shard=state.topics.shard,
        leadership=state.leadership,
        lease=state.lease,
        contacts=state.contacts,
        membership=state.membership,
        rounds=state.rounds,
        intake=state.intake,
        inbound=tuple(each.facts for each in state.inbound),
        publishing=state.publishing,
        streams=stream_views(state),
        snapshots=state.snapshots,
        persisting=state.persisting,
        projects=state.projects,
        warming=state.warming,
        peer=ports.peers.status(),
        core=CoreView(state.order, core.is_whole, tuple(core.holding_up)),
        under_way=under_way,
        commit_rows=state.budget.rows,
        commit_bytes=state.budget.bytes,
        store=state.store_jobs.load,
        own_digests=_own_digests(state),
        wall_ms=ports.wall_us() // 1_000,
    )


def _own_digests(state: GroupState) -> Mapping[str, int]:
    """By other engines that differ from what is committed, where this one does, too: its digest at the very output."""
    found = {}
    for other in state.membership.others:
        evidence = other.evidence
        if evidence is None or evidence.stream not in state.streams or state.streams[evidence.stream].difference is None:
            continue
        digest = state.held.streams[evidence.stream].digest_at(evidence.sequence)
        if digest is not None:
            found[other.engine] = digest
    return found
