"""The metrics of an engine process: a closed list, each with its type, labels and meaning, and their text for Prometheus.

Every sample has the labels `engine` and `group` (and `shard`, if the project is divided) before those of its metric. The parent
writes some metrics itself (`MetricWriter.PARENT`), which have no such labels. This module imports only the standard library,
because the parent keeps it in memory as long as the engine runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The type of the text, for HTTP."""
SECONDS_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of the buckets of durations, in seconds; one more bucket takes all greater ones."""


class MetricType(Enum):
    """The types of Prometheus' exposition format that are used here."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricWriter(Enum):
    """The process that writes a metric."""

    ENGINE = "engine"
    PARENT = "parent"


_COUNTER, _GAUGE, _HISTOGRAM = MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM
_PLACE = ("topic", "partition")


class Metric(Enum):
    """Every metric: its name, type, own labels, and meaning, the most important ones first. Names are stable.

    If a text would be too long, the last metrics of this list are omitted (`exposition`).
    """

    ROLE = "hotspare_engine_role", _GAUGE, ("role",), "1 for the role that the engine has in its group, 0 for all others"
    ROLE_AGE = "hotspare_engine_role_age_seconds", _GAUGE, (), "time since the engine has its role"
    EPOCH = "hotspare_engine_epoch", _GAUGE, (), "newest epoch that the engine won, 0 before the first"
    ROLE_CHANGES = "hotspare_engine_role_changes_total", _COUNTER, ("reason",), "changes of role since the engine's start"
    INFO = (
        "hotspare_engine_info",
        _GAUGE,
        ("versions", "project_hash", "cpu"),
        "always 1; its labels are what engines of a group compare",
    )
    CAUGHT_UP = (
        "hotspare_engine_caught_up",
        _GAUGE,
        (),
        "whether the engine has read what its topics held when it joined (0 or 1)",
    )
    LEASE_LEFT = "hotspare_lease_left_seconds", _GAUGE, (), "time until the lease of the active engine ends, at most 0 if it has"
    COORDINATION_UP = "hotspare_coordination_up", _GAUGE, (), "whether the last call to coordination succeeded (0 or 1)"
    BUS_UP = "hotspare_bus_up", _GAUGE, (), "0 while the engine waits before it tries the bus again after a failure, else 1"
    OUTPUTS_DIFFER = (
        "hotspare_outputs_differ",
        _GAUGE,
        (),
        "whether outputs of the engine differ from those committed (0 or 1)",
    )
    LAG_MESSAGES = "hotspare_input_lag_messages", _GAUGE, _PLACE, "messages of a partition that the engine has still to process"
    LAG_SECONDS = (
        "hotspare_input_lag_seconds",
        _GAUGE,
        (),
        "age of the newest message that the engine has processed, by append time; 0 if no more messages are there",
    )
    INPUT_OFFSET = "hotspare_input_offset", _GAUGE, _PLACE, "offset of the next message that the engine processes"
    INPUT_STALLED = (
        "hotspare_input_stalled_seconds",
        _GAUGE,
        (),
        "time for which the runner has delivered no input although input is pending",
    )
    WAITING_ROWS = "hotspare_input_waiting_rows", _GAUGE, (), "rows that were read and wait for those of other partitions"
    CLOCK_AHEAD = (
        "hotspare_clock_ahead_seconds",
        _GAUGE,
        _PLACE,
        "upper bound of the time by which the engine's clock is ahead of the bus's; negative if the bus's is ahead",
    )
    OUTPUT_SEQUENCE = "hotspare_output_sequence", _GAUGE, ("stream",), "sequence of the newest output that the engine computed"
    COMMITTED_SEQUENCE = (
        "hotspare_output_committed_sequence",
        _GAUGE,
        ("stream",),
        "sequence of the newest output that the engine knows to be committed",
    )
    HELD_OUTPUTS = (
        "hotspare_held_outputs",
        _GAUGE,
        ("stream",),
        "outputs that the engine holds until they are known to be committed",
    )
    HELD_BYTES = "hotspare_held_bytes", _GAUGE, ("place",), "size of the held outputs, in memory and on disk"
    BAD_EVENTS = "hotspare_bad_events_total", _COUNTER, ("window", "reason"), "bad events that the engine computed since its start"
    SNAPSHOT_AGE = (
        "hotspare_snapshot_age_seconds",
        _GAUGE,
        (),
        "time since the engine learned of the group's newest confirmed snapshot; missing before the first",
    )
    SNAPSHOTS_WAITING = "hotspare_snapshots_waiting", _GAUGE, (), "snapshots of the engine that are not confirmed yet"
    SNAPSHOTS_CONFIRMED = "hotspare_snapshots_confirmed_total", _COUNTER, (), "snapshots that the engine confirmed since its start"
    SNAPSHOT_FAILING = (
        "hotspare_snapshot_failing",
        _GAUGE,
        (),
        "whether the last write or confirmation of a snapshot failed (0 or 1)",
    )
    FAILOVER = (
        "hotspare_failover_seconds",
        _HISTOGRAM,
        ("part",),
        "duration of each part of the engine's promotions: `election`, from noticing that no engine is active; `fence`; `read`; "
        "`first_output`, until it is committed; `total` is all of them",
    )
    STEP = "hotspare_step_seconds", _HISTOGRAM, (), "time to compute a part of a batch, in whole milliseconds"
    COMMIT = (
        "hotspare_commit_seconds",
        _HISTOGRAM,
        (),
        "time of a successful transaction of outputs and progress, in whole milliseconds",
    )
    CONNECTOR_STATE = (
        "hotspare_connector_state",
        _GAUGE,
        ("connector", "state"),
        "1 for the state that a connector of the active engine has, 0 for all others",
    )
    CONNECTOR_EVENTS = (
        "hotspare_connector_events_total",
        _COUNTER,
        ("connector",),
        "rows that a connector has moved since it was started on this engine",
    )
    MEMORY = "hotspare_state_bytes", _GAUGE, ("kind",), "memory of the windows' state by kind, if it has a budget (--memory)"
    OMITTED = "hotspare_metrics_omitted", _GAUGE, (), "metrics that are missing because the text would be too long"
    WINDOW_EVENTS = (
        "hotspare_window_events_total",
        _COUNTER,
        ("window", "direction"),
        "events that a window received (`in`) and emitted (`out`) since the engine's start",
    )
    WINDOW_BUSY = (
        "hotspare_window_busy_seconds_total",
        _COUNTER,
        ("window",),
        "time for which a window computed since the engine's start, without what the head computes",
    )
    WINDOW_STATE = (
        "hotspare_window_state_bytes",
        _GAUGE,
        ("window", "kind"),
        "state of a window by kind, if it has a budget (--memory) and its rows may be evicted",
    )
    ENGINE_UP = "hotspare_engine_up", _GAUGE, (), "whether the parent has an engine process now (0 or 1)", MetricWriter.PARENT
    ENGINE_STARTS = (
        "hotspare_engine_starts_total",
        _COUNTER,
        (),
        "starts of the engine process by its parent",
        MetricWriter.PARENT,
    )
    METRICS_AGE = (
        "hotspare_metrics_age_seconds",
        _GAUGE,
        (),
        "time since the engine published the other metrics; missing before the first time",
        MetricWriter.PARENT,
    )
    PROCESS_CPU = (
        "process_cpu_seconds_total",
        _COUNTER,
        (),
        "processor time of the engine process, of user and system",
        MetricWriter.PARENT,
    )
    PROCESS_MEMORY = "process_resident_memory_bytes", _GAUGE, (), "resident memory of the engine process", MetricWriter.PARENT
    PROCESS_START = (
        "process_start_time_seconds",
        _GAUGE,
        (),
        "time at which the engine process started, in seconds since 1970",
        MetricWriter.PARENT,
    )

    def __init__(
        self, label: str, type_: MetricType, labels: Sequence[str], meaning: str, writer: MetricWriter = MetricWriter.ENGINE
    ) -> None:
        self.label = label
        self.type = type_
        self.labels = tuple(labels)
        self.meaning = meaning
        self.writer = writer

    @property
    def head(self) -> str:
        """The lines that precede the metric's samples."""
        return f"# HELP {self.label} {_escaped_help(self.meaning)}\n# TYPE {self.label} {self.type.value}\n"


class Histogram:
    """Counts observed values by bucket. Not thread-safe; a reader may see a value in the count but not yet in the sum."""

    def __init__(self, bounds: Sequence[float] = SECONDS_BOUNDS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        """The count of values in each bucket alone; the last one is of values greater than all bounds."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Samples:
    """The samples of one group, or of a process, as finished lines by metric."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        """`labels`: those of every sample, by name."""
        self._base = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
        self.lines: dict[Metric, list[str]] = {}

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        """Adds a sample. `labels`: the values of `metric.labels`, in their order."""
        own = ",".join(f'{name}="{_escaped(label)}"' for name, label in zip(metric.labels, labels, strict=True))
        self._add_line(metric, metric.label, own, value)

    def add_state(self, metric: Metric, state: str, states: Iterable[str], *labels: str) -> None:
        """Adds a sample for each of `states`: 1 for `state`, 0 for all others. The state is the metric's last label."""
        for each in states:
            self.add(metric, 1 if each == state else 0, *labels, each)

    def add_histogram(self, metric: Metric, histogram: Histogram, *labels: str) -> None:
        own = [f'{name}="{_escaped(label)}"' for name, label in zip(metric.labels, labels, strict=True)]
        total = 0
        for bound, count in zip((*histogram.bounds, float("inf")), list(histogram.counts), strict=True):
            total += count
            self._add_line(metric, f"{metric.label}_bucket", ",".join([*own, f'le="{_number(bound)}"']), total)
        self._add_line(metric, f"{metric.label}_sum", ",".join(own), histogram.sum)
        self._add_line(metric, f"{metric.label}_count", ",".join(own), total)

    def _add_line(self, metric: Metric, name: str, own: str, value: float) -> None:
        labels = f"{self._base},{own}" if self._base and own else self._base or own
        line = f"{name}{{{labels}}} {_number(value)}\n" if labels else f"{name} {_number(value)}\n"
        self.lines.setdefault(metric, []).append(line)


def exposition(parts: Sequence[Samples], bytes_max: int, labels: Mapping[str, str]) -> bytes:
    """Returns the text of all samples, in the order of `Metric`, at most `bytes_max` bytes.

    If it would be longer, the metrics that do not fit are omitted, the last ones first. Their count is a metric itself, with
    `labels`.
    """
    families: list[bytes] = []
    for metric in Metric:
        lines = [line for part in parts for line in part.lines.get(metric, ())]
        if lines:
            families.append((metric.head + "".join(lines)).encode())
    kept = _count_that_fits(families, bytes_max - len(_omitted_text(len(families), labels)))
    return b"".join(families[:kept]) + _omitted_text(len(families) - kept, labels)


def _count_that_fits(families: Sequence[bytes], bytes_max: int) -> int:
    total = 0
    for count, family in enumerate(families):
        total += len(family)
        if total > bytes_max:
            return count
    return len(families)


def _omitted_text(count: int, labels: Mapping[str, str]) -> bytes:
    own = Samples(labels)
    own.add(Metric.OMITTED, count)
    return (Metric.OMITTED.head + own.lines[Metric.OMITTED][0]).encode()


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return repr(value)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
