"""Collects the metrics and health facts of each group, and publishes them for the parent, which answers requests about them.

A group collects after its due actions, at most once in COLLECT_MS or at a change of its role, in the thread that performed them. So
no thread of the engine waits for a request, and nothing is collected if no parent answers requests. Nothing here is state of the
group, and no decision depends on it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hotspare.adapters.connectors import CONNECTOR_STATES
from hotspare.base.errors import BusError
from hotspare.base.shard import Shard
from hotspare.bus.contract import Partition
from hotspare.coordination.contract import Member
from hotspare.flow.window_meter import WindowMeter, WindowWork
from hotspare.ha.events import HaDuration, HaEvent, HaEventKind
from hotspare.ha.group import GroupStatus
from hotspare.ha.ports import ConnectorFacts
from hotspare.ha.rules.facts import Contact
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import GroupTopics
from hotspare.host.watchdog.published_facts import FactsPublisher, publisher_of_parent
from hotspare.telemetry.metrics import Histogram, Metric, Samples, exposition

COLLECT_MS = 1_000
ENDS_VALID_MS = 5_000
"""The age at which end offsets count as unknown: the bus has not answered since."""
_ROLES = [role.value for role in Role]
WINDOWS_MAX = 500
"""The maximum of windows of a process with samples of their own."""
OTHER = "other"
"""The name under which all other windows are added."""
_CHOOSE_AFTER_NS = 1_000_000_000
"""The busy time of all windows after which the busiest ones are chosen."""
PartitionKey = tuple[int, int]


class ProcessMetrics:
    """Publishes what the groups of this process collected. Thread-safe."""

    def __init__(self, publisher: FactsPublisher, engine: str, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.engine = engine
        self._publisher = publisher
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._groups: dict[str, tuple[Mapping[str, object], Samples]] = {}
        self._published_ns = 0

    def record(self, group: str, facts: Mapping[str, object], samples: Samples) -> None:
        """Replaces the facts and samples of a group. They are published later."""
        with self._lock:
            self._groups[group] = {**facts, "looked_ns": self._clock_ns()}, samples

    def publish_if_due(self) -> None:
        """Publishes as `publish` does, unless that was less than COLLECT_MS ago."""
        if self._clock_ns() - self._published_ns >= COLLECT_MS * 1_000_000:
            self.publish()

    def publish(self) -> None:
        """Publishes the newest facts and samples of all groups. If the facts alone are too long, the publication before remains,
        and ages."""
        with self._lock:
            self._published_ns = self._clock_ns()
            parts = [self._groups[name] for name in sorted(self._groups)]
            facts = {"engine": self.engine, "published_ns": self._published_ns, "groups": [own for own, _ in parts]}
            text = exposition([own for _, own in parts], self._publisher.text_bytes_max(facts), {"engine": self.engine})
            with contextlib.suppress(ValueError):
                self._publisher.publish(facts, text)


def metrics_for_parent(engine: str) -> ProcessMetrics | None:
    """Returns the metrics of this process, an engine with this name; None if no parent answers requests. Call it at most once."""
    publisher = publisher_of_parent()
    return None if publisher is None else ProcessMetrics(publisher, engine)


@dataclass(slots=True)
class GroupInput:
    """The lag of a group behind the ends of its topics, which calls in another thread read: a bus may be slow to answer."""

    topics: GroupTopics
    end_offset: Callable[[Partition], int]
    start_call: Callable[[Callable[[], None]], object]
    clock_ms: Callable[[], int]
    _ends: Mapping[PartitionKey, int] | None = None
    _read_ms: int = 0
    _is_reading: bool = False

    def request_ends(self) -> None:
        """Starts to read the ends of the topics, unless an earlier call is still running."""
        if not self._is_reading:
            self._is_reading = True
            try:
                self.start_call(self._read)
            except RuntimeError:  # no thread can be started
                self._is_reading = False

    def _read(self) -> None:
        try:
            ends = {(index, each.number): self.end_offset(each) for index, each in self.topics.partitions}
        except BusError:
            self._ends = None
        else:
            self._ends, self._read_ms = ends, self.clock_ms()
        finally:
            self._is_reading = False

    def lags(self, next_offsets: Mapping[PartitionKey, int]) -> Mapping[PartitionKey, int] | None:
        """Returns the messages that are left to process in each partition, as of the newest answer of the bus; None if it has not
        answered lately."""
        ends = self._ends
        if ends is None or self.clock_ms() - self._read_ms > ENDS_VALID_MS:
            return None
        return {key: max(0, end - next_offsets.get(key, 0)) for key, end in ends.items()}

    def labels_of(self, key: PartitionKey) -> tuple[str, str]:
        """Returns the topic's name and the partition's number as text."""
        index, number = key
        inbound = self.topics.inbound
        return inbound[index].name if index < len(inbound) else str(index), str(number)


class WindowSamples:
    """The samples of the windows of one group, of which at most `windows_max` are named. Which ones is chosen once: a counter that
    moved to another name would seem to begin again."""

    def __init__(self, meter: WindowMeter, windows_max: int = WINDOWS_MAX) -> None:
        self._meter = meter
        self._windows_max = windows_max
        self._named: frozenset[str] | None = None

    def add(self, samples: Samples, state_bytes: Mapping[str, Mapping[str, int]]) -> None:
        """Adds rows, time, and `state_bytes`, by window and kind."""
        windows = self._meter.by_window()
        if self._named is None:
            self._named = self._chosen(windows)
        named = self._named or frozenset()
        others = [work for name, work in windows.items() if name not in named]
        rows = {name: work for name, work in windows.items() if name in named}
        if others:
            total = (sum(each) for each in zip(*((o.rows_in, o.rows_out, o.busy_ns) for o in others), strict=True))
            rows[OTHER] = WindowWork(*total)
        for name, work in rows.items():
            samples.add(Metric.WINDOW_EVENTS, work.rows_in, name, "in")
            samples.add(Metric.WINDOW_EVENTS, work.rows_out, name, "out")
            samples.add(Metric.WINDOW_BUSY, work.busy_ns / 1e9, name)
        for name, sizes in sorted(state_bytes.items()):
            if name in named or name not in windows:
                for kind, size in sorted(sizes.items()):
                    samples.add(Metric.WINDOW_STATE, size, name, kind)

    def _chosen(self, windows: Mapping[str, WindowWork]) -> frozenset[str] | None:
        if len(windows) <= self._windows_max:
            return frozenset(windows)
        if sum(work.busy_ns for work in windows.values()) < _CHOOSE_AFTER_NS:
            return None
        return frozenset(sorted(windows, key=lambda name: (-windows[name].busy_ns, name))[: self._windows_max])


_PARTS = {
    "election": "election_ms",
    "fence": "fencing_ms",
    "read": "reading_ms",
    "first_output": "first_output_ms",
    "total": "total_ms",
}
"""The number of the event PROMOTED that each part of a promotion took."""


class GroupDurations:
    """How long parts of batches, commits and promotions of one group took, since the engine's start."""

    def __init__(self) -> None:
        self._by_kind = {HaDuration.PART: Histogram(), HaDuration.COMMIT: Histogram()}
        self._parts = {part: Histogram() for part in _PARTS}

    def observe_ms(self, kind: HaDuration, duration_ms: int) -> None:
        self._by_kind[kind].observe(duration_ms / 1_000)

    def add_promotion(self, numbers: Mapping[str, int]) -> None:
        """Adds the parts of a promotion. `numbers`: those of the event PROMOTED."""
        for part, name in _PARTS.items():
            self._parts[part].observe(numbers[name] / 1_000)

    def add_to(self, samples: Samples) -> None:
        samples.add_histogram(Metric.STEP, self._by_kind[HaDuration.PART])
        samples.add_histogram(Metric.COMMIT, self._by_kind[HaDuration.COMMIT])
        for part, histogram in self._parts.items():
            samples.add_histogram(Metric.FAILOVER, histogram, part)


@dataclass(slots=True)
class GroupMetrics:
    """The metrics of one group of this process. The group calls `after_actions` while it holds its lock."""

    process: ProcessMetrics
    group: str
    shard: Shard
    member: Member
    input: GroupInput
    status: Callable[[], GroupStatus]
    connectors: Callable[[], Mapping[str, ConnectorFacts]]
    has_caught_up: Callable[[], bool]
    windows: WindowSamples
    durations: GroupDurations = field(default_factory=GroupDurations)
    wall_us: Callable[[], int] = lambda: time.time_ns() // 1_000
    _collected_ms: int | None = None
    _role: tuple[Role, int] | None = None
    _role_changes: dict[str, int] = field(default_factory=dict)
    """The count of changes of role, by reason."""

    def record_event(self, event: HaEvent) -> None:
        if event.kind is HaEventKind.ROLE_CHANGED:
            self._role_changes[event.reason] = self._role_changes.get(event.reason, 0) + 1
        elif event.kind is HaEventKind.PROMOTED:
            self.durations.add_promotion(event.numbers)

    def after_actions(self, role: Role, epoch: int) -> None:
        """Collects and publishes if that is due, or if role or epoch are others than before."""
        now_ms, is_changed = self.input.clock_ms(), (role, epoch) != self._role
        if not is_changed and self._collected_ms is not None and now_ms - self._collected_ms < COLLECT_MS:
            return
        self._collected_ms, self._role = now_ms, (role, epoch)
        status = self.status()
        lags = self.input.lags(status.next_offsets)
        self.input.request_ends()
        self.process.record(self.group, self._facts(status, lags), self._samples(status, lags))
        if is_changed:
            self.process.publish()
        else:
            self.process.publish_if_due()

    def _facts(self, status: GroupStatus, lags: Mapping[PartitionKey, int] | None) -> Mapping[str, object]:
        return {
            "group": self.group,
            "role": status.role.value,
            "role_age_ms": status.role_age_ms,
            "epoch": status.epoch,
            "caught_up": self.has_caught_up(),
            "lag": None if lags is None else sum(lags.values()),
            "held": sum(stream.held for stream in status.streams.values()),
            "differs": status.differs,
            "ended_because": status.ended_because,
        }

    def _samples(self, status: GroupStatus, lags: Mapping[PartitionKey, int] | None) -> Samples:
        labels = {"engine": self.process.engine, "group": self.group}
        samples = Samples(labels if self.shard.is_whole else {**labels, "shard": str(self.shard.number)})
        self._add_role(samples, status)
        self._add_input(samples, status, lags)
        _add_outputs(samples, status)
        _add_snapshots(samples, status)
        _add_connectors(samples, self.connectors())
        self.durations.add_to(samples)
        self.windows.add(samples, status.memory_by_window)
        for kind, size in sorted(status.memory_by_kind.items()):
            samples.add(Metric.MEMORY, size, kind)
        return samples

    def _add_role(self, samples: Samples, status: GroupStatus) -> None:
        samples.add_state(Metric.ROLE, status.role.value, _ROLES)
        samples.add(Metric.ROLE_AGE, status.role_age_ms / 1_000)
        samples.add(Metric.EPOCH, status.epoch)
        for reason, count in sorted(self._role_changes.items()):
            samples.add(Metric.ROLE_CHANGES, count, reason)
        samples.add(Metric.INFO, 1, self.member.versions, self.member.project_hash, self.member.cpu)
        samples.add(Metric.CAUGHT_UP, int(self.has_caught_up()))
        if status.lease_left_ms is not None:
            samples.add(Metric.LEASE_LEFT, status.lease_left_ms / 1_000)
        samples.add(Metric.COORDINATION_UP, int(status.coordination == Contact.CONNECTED.value))
        samples.add(Metric.BUS_UP, int(status.is_bus_up))

    def _add_input(self, samples: Samples, status: GroupStatus, lags: Mapping[PartitionKey, int] | None) -> None:
        for key, lag in sorted((lags or {}).items()):
            samples.add(Metric.LAG_MESSAGES, lag, *self.input.labels_of(key))
        if lags is not None and status.time_us > 0:
            late_us = self.wall_us() - status.time_us if any(lags.values()) else 0
            samples.add(Metric.LAG_SECONDS, max(0, late_us) / 1_000_000)
        for key, offset in sorted(status.next_offsets.items()):
            samples.add(Metric.INPUT_OFFSET, offset, *self.input.labels_of(key))
        samples.add(Metric.INPUT_STALLED, status.stalled_ms / 1_000)
        samples.add(Metric.WAITING_ROWS, status.waiting_rows)
        for key, ahead_ms in sorted(status.ahead_ms.items()):
            samples.add(Metric.CLOCK_AHEAD, ahead_ms / 1_000, *self.input.labels_of(key))


def _add_outputs(samples: Samples, status: GroupStatus) -> None:
    samples.add(Metric.OUTPUTS_DIFFER, int(status.differs))
    for name, stream in sorted(status.streams.items()):
        samples.add(Metric.OUTPUT_SEQUENCE, stream.sequence, name)
        samples.add(Metric.COMMITTED_SEQUENCE, stream.committed, name)
        samples.add(Metric.HELD_OUTPUTS, stream.held, name)
    samples.add(Metric.HELD_BYTES, status.held_memory_bytes, "memory")
    samples.add(Metric.HELD_BYTES, status.held_spilled_bytes, "disk")
    for window, reason, count in status.bad_events:
        samples.add(Metric.BAD_EVENTS, count, window, reason)


def _add_snapshots(samples: Samples, status: GroupStatus) -> None:
    if status.snapshot_age_ms is not None:
        samples.add(Metric.SNAPSHOT_AGE, status.snapshot_age_ms / 1_000)
    samples.add(Metric.SNAPSHOTS_WAITING, status.snapshots_waiting)
    samples.add(Metric.SNAPSHOTS_CONFIRMED, status.snapshots_confirmed)
    samples.add(Metric.SNAPSHOT_FAILING, int(bool(status.snapshot_failure)))


def _add_connectors(samples: Samples, connectors: Mapping[str, ConnectorFacts]) -> None:
    for name, facts in sorted(connectors.items()):
        samples.add_state(Metric.CONNECTOR_STATE, facts.state, CONNECTOR_STATES, name)
        samples.add(Metric.CONNECTOR_EVENTS, facts.rows, name)
