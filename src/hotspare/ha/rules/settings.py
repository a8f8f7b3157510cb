"""What can be set about one group: its timing and limits, and the topics that it reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hotspare.base.choices import OnDivergence as OnDivergence
from hotspare.base.choices import OnPoison as OnPoison
from hotspare.base.choices import OtherStore
from hotspare.base.choices import SnapshotForm as SnapshotForm
from hotspare.base.errors import UsageError
from hotspare.base.inbound import Inbound
from hotspare.base.shard import WHOLE, Shard
from hotspare.bus.contract import Partition
from hotspare.ha.rules.cron import parse_cron
from hotspare.model.quality import PRECISE, Quality
from hotspare.model.retention_needs import SnapshotReach
from hotspare.model.types import Field
from hotspare.rows.batch import MessageFormat


@dataclass(frozen=True, slots=True)
class InboundTopic:
    """A topic of input events; its place in `GroupTopics.inbound` is its index in positions (`Resolved.sources`).

    `partitions`: how many it has, whether the group reads all of them or its shard's alone. `partition_by`: the field that says in
    which a row belongs, where the project is divided. `kind`: who writes to it."""

    name: str
    partitions: int = 1
    partition_by: str = ""
    kind: Inbound = Inbound.EVENTS


@dataclass(frozen=True, slots=True)
class OutputStream:
    """An output stream (`query/window`, or `rows.batch.BAD_STREAM`) and the topic that it is published to. `has_beats`:
    other projects may read it. `message_key`: if each output is a message of its own, the fields of which that has its key; none if
    messages are blocks of outputs."""

    stream: str
    topic: str
    quality: Quality = PRECISE
    format: MessageFormat = MessageFormat.ARROW
    has_beats: bool = False
    message_key: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupTopics:
    """What a group reads and writes: of a shard its partition of every topic; else all inbound partitions, and the first of output
    topics. UsageError where an inbound topic has not a partition for each shard."""

    inbound: tuple[InboundTopic, ...]
    outbound: tuple[OutputStream, ...]
    shard: Shard = WHOLE

    def __post_init__(self) -> None:
        for topic in () if self.shard.is_whole else self.inbound:
            if topic.partitions != self.shard.count:
                raise UsageError(f"topic {topic.name} has {topic.partitions} partitions, the project {self.shard.count} shards")

    @property
    def partitions(self) -> tuple[tuple[int, Partition], ...]:
        """(index of the topic, partition) of every inbound partition that the group reads, in order."""
        return tuple((i, Partition(t.name, n)) for i, t in enumerate(self.inbound) for n in self._numbers(t))

    @property
    def own_partitions(self) -> tuple[tuple[int, Partition], ...]:
        """Those of its own topics: nothing is written to the others, and nothing forgotten there."""
        return tuple(each for each in self.partitions if self.inbound[each[0]].kind is not Inbound.OUTPUTS)

    @property
    def signs(self) -> frozenset[tuple[int, int]]:
        """(index of the topic, number) of the partitions that hold signs of life alone: they are read whatever else is not."""
        found = (each for each in self.partitions if self.inbound[each[0]].kind is Inbound.TICKS)
        return frozenset((index, partition.number) for index, partition in found)

    def _numbers(self, topic: InboundTopic) -> Sequence[int]:
        return range(topic.partitions) if self.shard.is_whole else (self.shard.number,)

    @property
    def output_topics(self) -> tuple[str, ...]:
        return tuple(o.topic for o in self.outbound)

    def output_partition(self, topic: str) -> Partition:
        """The one of an output topic that the group publishes to."""
        return Partition(topic, self.shard.number)


TICKS_WITHIN_SKEW = 4
"""A partition that is ticked as it should be never looks as if its clock had leapt, though a few ticks are late."""
_MAY_BE_0 = (
    "recent_span_us",
    "persist_poll_ms",
    "snapshot_interval_ms",
    "snapshot_events",
    "snapshot_priority",
    "bus_retention_ms",
    "candidate_wait_ms",
    "first_start_wait_ms",
    "divergence_wait_ms",
    "commit_wait_ms",
    "pipeline_stall_ms",
)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Timing in milliseconds, limits in what their names say. UsageError where they contradict each other.

    `lease_ms`               how long an active engine may give no sign that its pipeline moves
    `promotion_step_ms`      how long a promotion keeps its lease without finishing a step, and an active engine without finishing a
                             commit, while the bus answers it; more than a call of the bus takes
    `heartbeat_ms`           the project's heartbeat interval: the longest time between two ticks
    `candidate_wait_ms`      how long a lower ranked candidate lets a better one go first
    `first_start_wait_ms`    how long a shard that nobody ever had waits for engines that start together, each to get its share
    `skew_max_ms`            how far an append time is believed without proof (`rows.partition_clock`): a fact of the group
    `waiting_rows_max`       rows that wait for another partition; beyond it only that partition is read
    `waiting_bytes_max`      the same by the memory that they take
    `merge_wait_ms`          how long an idle partition may hold up the merge, where there is more than one
    `read_interval_ms`       how often the bus is read at most, where little comes
    `spare_interval_ms`      the same of a standby beside an active that is there: it reads what came in between all at once
    `leader_poll_ms`         how often who leads is read
    `switchover_poll_ms`     how often it is read whether a switch-over is asked for
    `progress_poll_ms`       how often a standby reads what is committed, to let held outputs go
    `member_refresh_ms`      how often an engine describes itself and reads the others' descriptions
    `inbound_check_ms`       how often it is looked whether inbound topics have the partitions that the group reads
    `bus_retention_ms`       how long messages that nobody needs stay on a bus that forgets nothing by itself; 0: for ever
    `trim_interval_ms`       how often what is older is forgotten
    `quality_poll_ms`        how often it is read whether another quality of service is asked for
    `project_poll_ms`        how often it is read, while two projects take part, what is decided about them
    `persist_poll_ms`        how often it is read whether a snapshot is asked for; 0: never. Slow calls take
                             from the time for input
    `persist_turn_ms`        how long an engine lets one that goes before it undertake to persist a snapshot
    `snapshot_interval_ms`   time between two snapshots of a group; 0: none because of time
    `snapshot_events`        events between two snapshots of a group; 0: none because of events
    `snapshot_cron`          times at which one is taken (`cron.py`); "": none
    `snapshot_priority`      the spares with the greatest take the snapshots; 0: this engine takes none
    `snapshot_form`          how much of each is written
    `retry_ms`               pause after a bus that did not answer
    `coordination_retry_ms`  pause after a coordination service that did not answer; publishing goes on meanwhile
    `divergence_wait_ms`     how long a spare that differs waits for another one that agrees with it, or that can take over; and a
                             snapshot for streams that may lose outputs
    `store_wait_ms`          how long one call to the store may take, and of a snapshot some pages; then it is given up, and other
                             work may begin
    `pipeline_stall_ms`      how long a runner may not bring input that is known to be there; then the engine ends. 0: for ever
    `oversized_retry_ms`     pause before an output that was larger than its topic takes is tried again; its stream waits
    `held_bytes_max`         memory for held outputs; beyond it they spill to disk
    `commit_wait_ms`         while more input is at hand, how long outputs are collected for one publishing transaction; 0: no time
    `commit_rows_max`        rows of all streams in one publishing transaction; they take about `commit_bytes_max` of memory at most
    `message_rows_max`       rows in one message
    `recent_span_us`         how far back anything in the state goes: the engine makes its state from so much input, and not from a
                             snapshot; 0: as ever
    `recent_tick_gap_us`     how far apart ticks of a partition may be, or rows stay for longer than `recent_span_us` says
    `recent_matches`         so many committed records have to match before such an engine is eligible
    `on_poison`              what is done about an event on which the engine fails; None: what the group does already
    """

    lease_ms: int = 1_000
    promotion_step_ms: int = 6_000
    heartbeat_ms: int = 1_000
    candidate_wait_ms: int = 150
    first_start_wait_ms: int = 1_000
    skew_max_ms: int = 5_000
    waiting_rows_max: int = 500_000
    waiting_bytes_max: int = 256 << 20
    merge_wait_ms: int = 50
    read_interval_ms: int = 10
    spare_interval_ms: int = 200
    leader_poll_ms: int = 100
    switchover_poll_ms: int = 250
    progress_poll_ms: int = 100
    member_refresh_ms: int = 500
    inbound_check_ms: int = 5_000
    bus_retention_ms: int = 0
    trim_interval_ms: int = 1_000
    quality_poll_ms: int = 1_000
    project_poll_ms: int = 1_000
    persist_poll_ms: int = 3_000
    persist_turn_ms: int = 3_000
    snapshot_interval_ms: int = 5_000
    snapshot_events: int = 0
    snapshot_cron: str = ""
    snapshot_priority: int = 1
    snapshot_form: SnapshotForm = SnapshotForm.INCREMENTAL
    retry_ms: int = 10
    coordination_retry_ms: int = 100
    divergence_wait_ms: int = 2_000
    store_wait_ms: int = 300_000
    oversized_retry_ms: int = 10_000
    pipeline_stall_ms: int = 300_000
    held_bytes_max: int = 256 << 20
    commit_wait_ms: int = 400
    commit_rows_max: int = 400_000
    commit_bytes_max: int = 24 << 20
    message_rows_max: int = 10_000
    confirmed_snapshots_max: int = 3
    candidate_snapshots_max: int = 2
    on_divergence: OnDivergence = OnDivergence.STOP
    other_store: OtherStore = OtherStore.REFUSE
    on_poison: OnPoison | None = None
    recent_span_us: int = 0
    recent_tick_gap_us: int = 2_000_000
    recent_matches: int = 3

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value, least = getattr(self, name), 0 if name in _MAY_BE_0 else 1
            if isinstance(value, int) and value < least:
                raise UsageError(f"setting {name} is {value}", hint=f"{name} must be {least} or more")
        if self.snapshot_cron:
            parse_cron(self.snapshot_cron)
        if self.lease_ms < 4:
            raise UsageError(f"setting lease_ms is {self.lease_ms}", hint="a lease is renewed four times while it lasts: 4 or more")
        if self.skew_max_ms < TICKS_WITHIN_SKEW * self.tick_interval_ms:
            raise UsageError(
                f"setting skew_max_ms is {self.skew_max_ms}, while ticks come every {self.tick_interval_ms} ms",
                hint=f"it must be {TICKS_WITHIN_SKEW * self.tick_interval_ms} or more, or every tick would look like a wrong time",
            )

    @property
    def snapshot_gap_ms(self) -> int | None:
        """The longest time between two snapshots; 0: none is taken by itself; None: it cannot be told."""
        known = [self.snapshot_interval_ms] if self.snapshot_interval_ms else []
        known += [parse_cron(self.snapshot_cron).longest_ms()] if self.snapshot_cron else []
        return min(known) if known else None if self.snapshot_events else 0

    @property
    def snapshot_reach(self) -> SnapshotReach:
        return SnapshotReach(self.snapshot_gap_ms, self.confirmed_snapshots_max)

    @property
    def renew_interval_ms(self) -> int:
        return self.lease_ms // 4

    @property
    def commit_patience_ms(self) -> int:
        """How long a transaction may be under way while the engine computes on, and keeps its lease by that."""
        return self.lease_ms // 2

    @property
    def tick_interval_ms(self) -> int:
        """As frequent as the lease needs: a renewal asks for a batch, and a tick makes one where no event comes."""
        return min(self.heartbeat_ms, self.lease_ms // 4)

    @property
    def member_stale_ms(self) -> int:
        """A description that is this much older than the newest one no longer counts."""
        return 3 * self.member_refresh_ms
