"""Defines the settings of one group: its timing and limits, and the topics that it reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hotspare.base.choices import EventPolicy as EventPolicy
from hotspare.base.choices import OnDivergence as OnDivergence
from hotspare.base.choices import OtherStore
from hotspare.base.choices import SnapshotForm as SnapshotForm
from hotspare.base.errors import UsageError
from hotspare.base.inbound_role import InboundRole
from hotspare.base.shard import WHOLE, Shard
from hotspare.bus.contract import Partition
from hotspare.ha.rules.cron import parse_cron
from hotspare.model.quality import PRECISE, Quality
from hotspare.model.retention_needs import SnapshotSchedule
from hotspare.model.types import Field
from hotspare.rows.batch import MessageFormat


@dataclass(frozen=True, slots=True)
class InboundTopic:
    """An inbound topic. Its index in `GroupTopics.inbound` is the topic index in positions (`Resolved.sources`).

    `partitions`: the count of all its partitions, even if the group reads only its shard's. `partition_by`: in a divided project,
    the field that determines a row's partition. `kind`: the kind of its writer.
    """

    name: str
    partitions: int = 1
    partition_by: str = ""
    kind: InboundRole = InboundRole.EVENTS


@dataclass(frozen=True, slots=True)
class OutputStream:
    """An output stream (`query/window`, or `rows.batch.BAD_STREAM`) and the topic that it is published to.

    `has_beats`: other projects may read the stream. `message_key`: the key fields if each output is a message of its own; empty if
    messages are blocks of outputs.
    """

    stream: str
    topic: str
    quality: Quality = PRECISE
    format: MessageFormat = MessageFormat.ARROW
    has_beats: bool = False
    message_key: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupTopics:
    """The topics that a group reads and writes. A shard reads and writes its own partition of every topic. An undivided project
    reads all inbound partitions, and writes to the first partition of each output topic.

    Raises UsageError if an inbound topic of a divided project does not have one partition per shard.
    """

    inbound: tuple[InboundTopic, ...]
    outbound: tuple[OutputStream, ...]
    shard: Shard = WHOLE

    def __post_init__(self) -> None:
        for topic in () if self.shard.is_whole else self.inbound:
            if topic.partitions != self.shard.count:
                raise UsageError(f"topic {topic.name} has {topic.partitions} partitions, the project has {self.shard.count} shards")

    @property
    def partitions(self) -> tuple[tuple[int, Partition], ...]:
        """The inbound partitions that the group reads, as (topic index, partition), in order."""
        return tuple((i, Partition(t.name, n)) for i, t in enumerate(self.inbound) for n in self._numbers(t))

    @property
    def own_partitions(self) -> tuple[tuple[int, Partition], ...]:
        """The inbound partitions of the project's own topics. An engine writes to no others, and expires no messages there."""
        return tuple(each for each in self.partitions if self.inbound[each[0]].kind is not InboundRole.OUTPUTS)

    @property
    def tick_only_partitions(self) -> frozenset[tuple[int, int]]:
        """The inbound partitions, as (topic index, number), that hold only ticks; these are always read."""
        found = (each for each in self.partitions if self.inbound[each[0]].kind is InboundRole.TICKS)
        return frozenset((index, partition.number) for index, partition in found)

    def _numbers(self, topic: InboundTopic) -> Sequence[int]:
        return range(topic.partitions) if self.shard.is_whole else (self.shard.number,)

    @property
    def output_topics(self) -> tuple[str, ...]:
        return tuple(o.topic for o in self.outbound)

    def output_partition(self, topic: str) -> Partition:
        """Returns the partition of output topic `topic` that the group publishes to."""
        return Partition(topic, self.shard.number)


TICKS_WITHIN_SKEW = 4
"""The minimum of tick intervals within `skew_max_ms`: even if some ticks are late, a partition with regular ticks never looks as if
its clock had leapt."""
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
    """The timing in milliseconds and the limits of one group. Raises UsageError if they contradict each other.

    `lease_ms`               how long an active engine may compute no batch and commit no outputs
    `promotion_step_ms`      how long a promotion keeps its lease without finishing a step, and an active engine without finishing a
                             commit, while the bus answers it; more than a call of the bus takes
    `heartbeat_ms`           the project's heartbeat interval: the longest time between two ticks
    `candidate_wait_ms`      how long a lower ranked candidate lets a better one go first
    `first_start_wait_ms`    how long a shard that was never held waits for engines that start together, so that each gets its share
    `skew_max_ms`            how far an append time may leap without proof (`rows.partition_clock`): a fact of the group
    `waiting_rows_max`       rows that wait for another partition; beyond it only that partition is read
    `waiting_bytes_max`      the same limit on the memory of these rows
    `merge_wait_ms`          how long an idle partition may hold up the merge of several
    `read_interval_ms`       minimum time between two reads of the bus while little input arrives
    `spare_interval_ms`      the same for a standby while an active engine lives; each read gets all input since the last one
    `leader_poll_ms`         how often the leader is read
    `switchover_poll_ms`     how often the active engine reads whether a switch-over is requested
    `progress_poll_ms`       how often a standby reads what is committed, to release held outputs
    `member_refresh_ms`      how often an engine describes itself and reads the others' descriptions
    `inbound_check_ms`       how often the partition counts of inbound topics are compared with what the group reads
    `bus_retention_ms`       how long unneeded messages stay on a bus without a retention of its own; 0: for ever
    `trim_interval_ms`       how often older messages are expired
    `quality_poll_ms`        how often an engine reads whether another quality of service is requested
    `project_poll_ms`        how often decisions about the projects are read while two take part
    `persist_poll_ms`        how often an engine reads whether a snapshot is requested; 0: never. Slow reads
                             delay the processing of input
    `persist_turn_ms`        how long an engine waits for each engine whose turn is earlier to undertake a persist request
    `snapshot_interval_ms`   time between two snapshots of a group; 0: none because of time
    `snapshot_events`        events between two snapshots of a group; 0: none because of events
    `snapshot_cron`          the schedule at whose times a snapshot is taken (`cron.py`); "": none
    `snapshot_priority`      the spares with the greatest priority take the snapshots; 0: this engine takes none
    `snapshot_form`          whether a snapshot shares unchanged content with the one before, or is written in full
    `retry_ms`               pause after a call that the bus did not answer
    `coordination_retry_ms`  pause after a call that coordination did not answer; publishing continues meanwhile
    `divergence_wait_ms`     how long a spare that differs waits for another one that agrees with it, or that can take over; and how
                             long a snapshot waits for progress of streams that may lose outputs
    `store_wait_ms`          how long a job on the store may report no progress; then it is given up, and other jobs may begin
    `pipeline_stall_ms`      how long a runner may fail to deliver pending input before the engine ends; 0: for ever
    `oversized_retry_ms`     pause before an output that was larger than its topic takes is retried; its stream waits
    `held_bytes_max`         memory for held outputs; beyond it they spill to disk
    `commit_wait_ms`         how long outputs are collected for one transaction while more input is at hand; 0: not at all
    `commit_rows_max`        rows of all streams in one transaction; `commit_bytes_max`: about their maximum in memory
    `message_rows_max`       rows in one message
    `recent_span_us`         how long an input may affect the state: the engine makes its state from that much recent input; 0: from
                             a snapshot
    `recent_tick_gap_us`     the longest gap between ticks of a partition; a longer gap extends the warming
    `recent_matches`         committed progress records that have to match before such an engine is eligible
    `on_poison`              the policy for an event on which the engine fails; None: the group's
    `on_hang`                the policy for an event for which user code does not end; None: the group's
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
    on_poison: EventPolicy | None = None
    on_hang: EventPolicy | None = None
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
            raise UsageError(f"setting lease_ms is {self.lease_ms}", hint="write 4 or more: a lease is renewed four times")
        if self.skew_max_ms < TICKS_WITHIN_SKEW * self.tick_interval_ms:
            raise UsageError(
                f"setting skew_max_ms is {self.skew_max_ms}, but ticks are appended every {self.tick_interval_ms} ms",
                hint=f"write {TICKS_WITHIN_SKEW * self.tick_interval_ms} or more, or every tick would count as a wrong time",
            )

    @property
    def snapshot_gap_ms(self) -> int | None:
        """The longest time between two snapshots. 0: none is taken without a request; None: unknown, as only events trigger
        them."""
        known = [self.snapshot_interval_ms] if self.snapshot_interval_ms else []
        known += [parse_cron(self.snapshot_cron).longest_ms()] if self.snapshot_cron else []
        return min(known) if known else None if self.snapshot_events else 0

    @property
    def snapshot_reach(self) -> SnapshotSchedule:
        return SnapshotSchedule(self.snapshot_gap_ms, self.confirmed_snapshots_max)

    @property
    def renew_interval_ms(self) -> int:
        return self.lease_ms // 4

    @property
    def commit_patience_ms(self) -> int:
        """The milliseconds for which a transaction may be under way while the engine computes on, which keeps its lease."""
        return self.lease_ms // 2

    @property
    def tick_interval_ms(self) -> int:
        """The interval between ticks that the lease needs: a renewal needs a batch, and without events only a tick makes one."""
        return min(self.heartbeat_ms, self.lease_ms // 4)

    @property
    def member_stale_ms(self) -> int:
        """The age, relative to the newest description of the group, from which on a description no longer counts."""
        return 3 * self.member_refresh_ms
