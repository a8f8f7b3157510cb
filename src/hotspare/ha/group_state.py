"""The memory of one engine about one group; it belongs to that group and never to the process.

Facts that decisions use are in the records of `rules.facts`. The modules that act and record results (`perform`, `ha_loop`, and
those that they call) replace these records. `view_of` passes the same records to `decide`, together with facts about the core, the
held outputs and the calls under way. `ClockSkew` and the counts are figures of this process for users: no snapshot contains them,
and no decision depends on them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from hotspare.base.step_size import PART_ROWS_MIN, STEP_ROWS_MAX, STEP_ROWS_MIN, StepSize
from hotspare.bus.contract import Partition, Producer
from hotspare.coordination.contract import Member
from hotspare.flow.head.unknown_members import UnknownMember, merged
from hotspare.ha.calls.pending_call import EpochRequest
from hotspare.ha.calls.single_job import SingleJob
from hotspare.ha.calls.store_jobs import StoreJobs
from hotspare.ha.core import Core
from hotspare.ha.events import HaEventKind
from hotspare.ha.outputs.blocks import MessageSizes
from hotspare.ha.outputs.held import HeldOutputs
from hotspare.ha.outputs.progress_points import ProgressPoints
from hotspare.ha.outputs.qualities import Qualities
from hotspare.ha.outputs.transaction import Transaction
from hotspare.ha.ports import Ports
from hotspare.ha.rules import facts, renumbering
from hotspare.ha.rules.commit_budget import CommitBudget
from hotspare.ha.rules.roles import Reason
from hotspare.ha.rules.settings import GroupSettings, GroupTopics
from hotspare.ha.rules.upgrading import Agreement
from hotspare.ha.rules.view import CommitUnderWay, CoreView, StreamView, View
from hotspare.rows.chunk import EXTRA_ROWS_MAX

_BY = ["window", "reason"]


class BadCounts:
    """Counts the bad events that an engine computed since it started, by window and reason. Not thread-safe.

    The counted rows are those of the stream of bad events (`flow.plan.BAD_SCHEMA`). Engines may differ in these counts, but agree
    on the stream itself.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, outputs: pa.RecordBatch | None) -> None:
        """Counts the rows of a batch of the stream of bad events; None counts as empty."""
        if outputs is None or not outputs.num_rows:
            return
        counted = pa.Table.from_batches([outputs]).select(_BY).group_by(_BY).aggregate([([], "count_all")])
        names, counts = zip(counted["window"].to_pylist(), counted["reason"].to_pylist(), strict=True), counted["count_all"]
        for (window, reason), count in zip(names, counts.to_pylist(), strict=True):
            key = window or "", reason or ""
            self._counts[key] = self._counts.get(key, 0) + count

    def largest(self, count_max: int) -> list[tuple[str, str, int]]:
        """Returns at most `count_max` rows (window, reason, count), the greatest counts first."""
        rows = sorted(self._counts.items(), key=lambda each: (-each[1], each[0]))
        return [(window, reason, count) for (window, reason), count in rows[:count_max]]


_NAMES_MAX = 100
"""The maximum of different (window, member) pairs that `UnknownCounts` counts; pairs found later are ignored."""


class UnknownCounts:
    """Counts the events since the engine started that have members which no field has, by source window and member. Not
    thread-safe.

    Only events that the head examines are counted (`flow.head.unknown_members`).
    """

    def __init__(self) -> None:
        self._found: list[UnknownMember] = []

    def add(self, found: Sequence[UnknownMember]) -> dict[str, list[UnknownMember]]:
        """Counts the unknown members `found` in a batch. Returns, by window, those of windows that had no unknown members
        before."""
        if not found:
            return {}
        known = {each.window for each in self._found}
        self._found = merged([*self._found, *found])[:_NAMES_MAX]
        first: dict[str, list[UnknownMember]] = {}
        for each in merged(found):
            if each.window not in known:
                first.setdefault(each.window, []).append(each)
        return first

    def largest(self, count_max: int) -> list[tuple[str, str, str, int]]:
        """Returns at most `count_max` rows (window, member, the similar field that may be meant or "", count of events), the
        greatest counts first."""
        rows = sorted(self._found, key=lambda each: (-each.events, each.window, each.name))
        return [(each.window, each.name, each.near, each.events) for each in rows[:count_max]]


SKEW_WINDOW_MS = 10_000
"""The length of the time windows of `ClockSkew`, in milliseconds."""


@dataclass(slots=True)
class ClockSkew:
    """An estimate of how far an engine's clock is ahead of the bus's, from the messages of one inbound partition.

    A message is read some time after it was appended. So the difference of the clocks is at most the least lag between a message's
    append time and the reader's clock. The estimate is the least lag in the present time window and the one before. Only messages
    that were read as they arrived may be added.
    """

    _least_us: int | None = None
    _before_us: int | None = None
    _since_ms: int = 0

    def add_sample(self, now_ms: int, read_time_us: int, append_time_us: int) -> None:
        """Records a message, appended at `append_time_us` by the bus's clock and read at `read_time_us` by this engine's. `now_ms`
        is monotonic."""
        late_us = read_time_us - append_time_us
        if self._least_us is None or now_ms - self._since_ms >= SKEW_WINDOW_MS:
            self._before_us = self._least_us if now_ms - self._since_ms < 2 * SKEW_WINDOW_MS else None
            self._least_us, self._since_ms = late_us, now_ms
        self._least_us = min(self._least_us, late_us)

    @property
    def ahead_ms(self) -> int | None:
        """The upper bound of the milliseconds by which this engine's clock is ahead; if negative, the bus's clock is ahead. None
        without samples."""
        if self._least_us is None:
            return None
        least_us = self._least_us if self._before_us is None else min(self._least_us, self._before_us)
        return least_us // 1000


@dataclass(slots=True)
class PromotionTimes:
    """The times at which the stages of the newest promotion ended, to report how long each took."""

    vacancy_ms: int = 0
    campaign_ms: int = 0
    won_ms: int = 0
    fenced_ms: int = 0
    read_ms: int = 0
    active_ms: int = 0
    publish_ms: int = 0


@dataclass(slots=True)
class InboundState:
    """An inbound partition with its facts and the estimated difference of the clocks."""

    partition: Partition
    facts: facts.InboundFacts
    skew: ClockSkew = field(default_factory=ClockSkew)


@dataclass
class GroupState:
    """The state of one engine in one group. Times are monotonic milliseconds of this process (`Ports.clock_ms`)."""

    group: str
    identity: Member
    settings: GroupSettings
    topics: GroupTopics
    core: Core
    held: HeldOutputs
    inbound: list[InboundState]
    qualities: Qualities = field(default_factory=lambda: Qualities({}))
    role_state: facts.RoleState = field(default_factory=facts.RoleState)
    leadership: facts.Leadership = field(default_factory=facts.Leadership)
    lease: facts.Lease = field(default_factory=facts.Lease)
    contacts: facts.Contacts = field(default_factory=facts.Contacts)
    membership: facts.Membership = field(default_factory=facts.Membership)
    last_runs: facts.LastRuns = field(default_factory=facts.LastRuns)
    intake: facts.Intake = field(default_factory=facts.Intake)
    publishing: facts.Publishing = field(default_factory=facts.Publishing)
    snapshots: facts.Snapshots = field(default_factory=facts.Snapshots)
    persisting: facts.Persisting = field(default_factory=facts.Persisting)
    projects: facts.Projects = field(default_factory=facts.Projects)
    warming: facts.Warming | None = None
    """The progress of an engine that makes its state from recent input; None for any other."""
    hung_calls: facts.HungCalls = field(default_factory=facts.HungCalls)
    streams: dict[str, facts.StreamFacts] = field(init=False)
    """The facts of every output stream."""
    ended_because: str = ""
    ended_by: Reason | None = None
    namesake: Member | None = None
    """The member record of another process under this engine's name, as last read; None without one."""
    version_differences: tuple[str, ...] = ()
    """Sentences on engines with other versions or processors than this engine, as last reported."""
    producer: Producer | None = None
    points_ahead: dict[str, ProgressPoints] = field(default_factory=dict)
    """By stream, the committed progress that was read and that this engine's outputs have not reached."""
    arrivals: dict[str, deque[tuple[int, int]]] = field(default_factory=dict)
    """By stream, pairs (sequence, time computed), oldest first; only for streams of which a spare retains a span of time."""
    step_rows: StepSize = field(default_factory=lambda: StepSize(STEP_ROWS_MIN, STEP_ROWS_MAX))
    """The count of input rows that the core computes in one step."""
    part_rows: StepSize = field(default_factory=lambda: StepSize(PART_ROWS_MIN, EXTRA_ROWS_MAX))
    """The count of rows that one input row may cause in one part."""
    transaction: Transaction | None = None
    """The transaction under way, of which there is at most one; None without one."""
    epoch_request: EpochRequest[Agreement | None] | None = None
    """The request for the newest epoch, made after the last fence."""
    budget: CommitBudget = field(init=False)
    message_sizes: MessageSizes = field(init=False)
    project_hash: str = ""
    document: str = ""
    """The project's text, which a persisted snapshot contains."""
    store_id: str = ""
    """The id of the store that the group agreed on."""
    store_jobs: StoreJobs = field(default_factory=StoreJobs)
    trim: SingleJob = field(default_factory=SingleJob)
    inbound_check: SingleJob = field(default_factory=SingleJob)
    inbound_findings: deque[str] = field(default_factory=deque)
    """Sentences on inbound topics with another partition count, appended by a background job."""
    promotion_times: PromotionTimes = field(default_factory=PromotionTimes)
    bad_counts: BadCounts = field(default_factory=BadCounts)
    unknown_counts: UnknownCounts = field(default_factory=UnknownCounts)
    alarms: dict[tuple[HaEventKind, str], int] = field(default_factory=dict)
    """The time of the last report of an alarm, by kind and reason (`recording.alarm`)."""

    def __post_init__(self) -> None:
        self.streams = {name: facts.StreamFacts() for name in self.held.streams}
        self.message_sizes = MessageSizes(self.settings.message_rows_max)
        self.budget = CommitBudget(self.settings.commit_rows_max, self.settings.commit_bytes_max)

    @property
    def engine(self) -> str:
        return self.identity.engine

    @property
    def order(self) -> int:
        """The sum of the next offsets of all inbound partitions; it rises with the input and orders snapshots."""
        return sum(self.core.next_offsets.values())

    @property
    def differences(self) -> list[facts.Difference]:
        """The differences between this engine's outputs and the committed ones, at most one per stream, sorted by stream."""
        found = ((name, stream.difference) for name, stream in sorted(self.streams.items()))
        return [difference for _, difference in found if difference is not None]


def stream_views(state: GroupState) -> dict[str, StreamView]:
    qualities = state.qualities
    unplaced = any(stream.is_shift_unknown for stream in state.streams.values())
    next_offsets = state.core.next_offsets if unplaced else {}
    is_whole = not unplaced or state.core.is_between_batches  # within a batch, outputs of input already taken are still missing
    reads = {(each.facts.topic_index, each.facts.number) for each in state.inbound} if unplaced else ()
    return {
        name: StreamView(
            facts=state.streams[name],
            quality=qualities.stream_quality(name),
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
    before = renumbering.other_outputs_before(state.projects, stream)
    return renumbering.is_behind(state.streams[stream], next_offsets, reads, before)


def view_of(state: GroupState, ports: Ports) -> View:
    core, transaction = state.core, state.transaction
    under_way = None
    if transaction is not None:
        under_way = CommitUnderWay(transaction.begun_ms, transaction.call.is_over, transaction.content.sent)
    return View(
        now_ms=ports.clock_ms(),
        settings=state.settings,
        engine=state.engine,
        role_state=state.role_state,
        shard=state.topics.shard,
        leadership=state.leadership,
        lease=state.lease,
        contacts=state.contacts,
        membership=state.membership,
        last_runs=state.last_runs,
        intake=state.intake,
        inbound=tuple(each.facts for each in state.inbound),
        publishing=state.publishing,
        streams=stream_views(state),
        snapshots=state.snapshots,
        persisting=state.persisting,
        projects=state.projects,
        warming=state.warming,
        hung_calls=state.hung_calls,
        peer=ports.peers.status(),
        core=CoreView(
            state.order,
            core.is_between_batches,
            tuple(core.blocking_partitions),
            core.stopped_at,
            tuple(core.missing_decisions),
        ),
        under_way=under_way,
        commit_rows=state.budget.rows,
        commit_bytes=state.budget.bytes,
        store=state.store_jobs.current_load,
        own_digests=_own_digests(state),
        wall_ms=ports.wall_us() // 1_000,
    )


def _own_digests(state: GroupState) -> Mapping[str, int]:
    """Returns, by engine, this engine's digest of the output at which that engine differs from what is committed.

    Only for streams in which this engine differs too, and digests that it still has: equal digests show that two engines agree.
    """
    found = {}
    for other in state.membership.others:
        evidence = other.evidence
        if evidence is None or evidence.stream not in state.streams or state.streams[evidence.stream].difference is None:
            continue
        digest = state.held.streams[evidence.stream].digest_at(evidence.sequence)
        if digest is not None:
            found[other.engine] = digest
    return found
