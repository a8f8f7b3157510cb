"""What a project asks of how long its inbound topics keep messages (SPEC H9-H11, Z7). Pure.

An engine that joins is made from a snapshot and the messages behind it, or, where there is no snapshot, from all that a topic
holds. So the oldest snapshot that may be restored must still be replayable, and without one a topic must reach as far back as the
windows remember. Time by a field of the events is taken to run as the bus's clock does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from hotspare.model.durations import format_duration
from hotspare.model.project import (
    CalculateWindow,
    CopyWindow,
    FunctionalWindow,
    KeyOrigin,
    Retention,
    RetentionKind,
    SourceWindow,
    WindowId,
)
from hotspare.model.resolve import Resolved, ResolvedWindow

_COUNTER = re.compile(r"\beventcounter\s*\(", re.IGNORECASE)
_LENGTH = "windowLength"
_BY_FIRST_EVENT = (RetentionKind.BYCOUNT_JUMPING, RetentionKind.BYTIME_JUMPING)


class Memory(Enum):
    """How far back the input goes that a window's state is made of."""

    TIME = "time"
    COUNT = "count"
    EVERYTHING = "everything"


@dataclass(frozen=True, slots=True)
class Need:
    """`window` remembers what came through the topic of `source`; `extent` is microseconds for TIME, events for COUNT, else 0."""

    source: WindowId
    window: WindowId
    memory: Memory
    extent: int
    what: str


class Severity(Enum):
    NOTE = "note"
    """Nothing is wrong, and no number of the topic's would change it."""
    WARNING = "warning"
    """Works as long as there is a snapshot."""
    REFUSAL = "refusal"
    """No engine could join again: an engine does not start with such a topic."""


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.message} (hint: {self.hint})" if self.hint else self.message


@dataclass(frozen=True, slots=True)
class SnapshotReach:
    """How snapshots are taken: `interval_ms` 0 is never; `kept` confirmed ones may be restored, the oldest if newer are damaged."""

    interval_ms: int
    kept: int

    @property
    def oldest_ms(self) -> int:
        """How old the oldest one that is kept may be, the one that is being written counted."""
        return (self.kept + 1) * self.interval_ms


def retention_needs(resolved: Resolved, keeping: Collection[WindowId]) -> tuple[Need, ...]:
    """What each window asks of the topic that its events come from, in order of evaluation. Stateless windows ask nothing.

    `keeping`: the windows that remember rows (`engine.plan.Plan.keeping`).
    """
    source_of: dict[WindowId, WindowId] = {}
    bounded: dict[WindowId, bool] = {}
    needs: list[Need] = []
    for window in resolved.windows:
        above = window.inputs[0][0] if window.inputs else None
        source = source_of[window.id] = window.id if above is None else source_of[above]
        is_input_bounded = above is not None and bounded[above]
        needs += [replace(need, source=source) for need in (*_of_numbers(window), *_of_rows(window, keeping))]
        bounded[window.id] = is_input_bounded or (window.id in keeping and _retention(window) is not None)
        if window.id in keeping and not bounded[window.id]:
            needs.append(Need(source, window.id, Memory.EVERYTHING, 0, "keeps its rows for ever"))
    return tuple(needs)


def check_retention(
    resolved: Resolved, keeping: Collection[WindowId], retention_ms: Mapping[WindowId, int], snapshots: SnapshotReach
) -> tuple[Finding, ...]:
    """What is to be said of topics that forget messages after `retention_ms`, by source window; others forget nothing."""
    needs = retention_needs(resolved, keeping)
    findings: list[Finding] = []
    for source in resolved.sources:
        if source in retention_ms:
            mine = [need for need in needs if need.source == source]
            findings += _of_snapshots(source, retention_ms[source], snapshots) if mine else ()
            findings += (_of_need(need, retention_ms[source]) for need in mine if _asks_more(need, retention_ms[source]))
    return tuple(findings)


def check_snapshot_age(source: WindowId, retention_ms: int, age_ms: int) -> Finding | None:
    """Rule 1 (H9) for the newest snapshot that may be restored, written `age_ms` ago: how long it can still be replayed."""
    if 2 * age_ms <= retention_ms:
        return None
    left_ms = retention_ms - age_ms
    kept, age = _text(retention_ms), _text(age_ms)
    becomes = f"the messages behind it are forgotten in {_text(left_ms)}" if left_ms > 0 else "messages behind it may be forgotten"
    return Finding(
        Severity.WARNING,
        f"the newest snapshot was written {age} ago, and the topic of {source} keeps messages for {kept}: {becomes}",
        f"an engine that is started now catches up; set the topic's retention.ms to {2 * age_ms} or more",
    )


def _of_numbers(window: ResolvedWindow) -> Iterator[Need]:
    """What a window remembers beside rows."""
    declared = window.window
    if isinstance(declared, SourceWindow) and declared.key_origin is KeyOrigin.AUTOGENERATED:
        yield _need(window, Memory.EVERYTHING, 0, "counts the keys that it generates")
    if isinstance(declared, FunctionalWindow) and _counts(declared):
        yield _need(window, Memory.EVERYTHING, 0, "counts events")
    if isinstance(declared, CalculateWindow):
        length = dict(declared.parameters).get(_LENGTH, "")
        if length.isdecimal():
            yield _need(window, Memory.COUNT, int(length), f"looks at the newest {length} events")
        else:
            yield _need(window, Memory.EVERYTHING, 0, "sums up everything that came")


def _of_rows(window: ResolvedWindow, keeping: Collection[WindowId]) -> Iterator[Need]:
    """What a retention lets a window remember."""
    retention = _retention(window)
    if retention is None or window.id not in keeping:
        return
    if retention.kind.is_by_count:
        yield _need(window, Memory.COUNT, retention.limit, f"holds {retention.limit} rows")
    else:
        span_us = retention.limit + retention.unit_us  # rows that are looked back to wait for the end of their unit
        by = f" by its field {retention.time_field}" if retention.time_field else ""
        yield _need(window, Memory.TIME, span_us, f"holds rows for {format_duration(span_us)}{by}")
    if retention.kind in _BY_FIRST_EVENT:
        yield _need(window, Memory.EVERYTHING, 0, "jumps at steps that are counted from its first event")


def _need(window: ResolvedWindow, memory: Memory, extent: int, what: str) -> Need:
    return Need(window.id, window.id, memory, extent, what)


def _retention(window: ResolvedWindow) -> Retention | None:
    return window.window.retention if isinstance(window.window, SourceWindow | CopyWindow) else None


def _counts(window: FunctionalWindow) -> bool:
    return any(_COUNTER.search(expression.text) for _, expression in window.functions)


def _asks_more(need: Need, retention_ms: int) -> bool:
    return need.memory is not Memory.TIME or need.extent > retention_ms * 1000


def _of_need(need: Need, retention_ms: int) -> Finding:
    kept = f"the topic of {need.source} keeps messages for {_text(retention_ms)}"
    if need.memory is Memory.TIME:
        needed_ms = -(-need.extent // 1000)
        return Finding(
            Severity.WARNING,
            f"{kept}, but window {need.window} {need.what}: without a snapshot its state cannot be made again from the topic",
            f"set the topic's retention.ms to {needed_ms}, and as much more as a replay may take",
        )
    if need.memory is Memory.COUNT:
        return Finding(Severity.NOTE, f"{kept}; window {need.window} {need.what}: made again only while the topic holds as many")
    return Finding(Severity.NOTE, f"{kept}; window {need.window} {need.what}: once messages are forgotten, a snapshot is needed")


def _of_snapshots(source: WindowId, retention_ms: int, snapshots: SnapshotReach) -> Iterator[Finding]:
    kept = f"the topic of {source} keeps messages for {_text(retention_ms)}"
    if snapshots.interval_ms == 0:
        yield Finding(
            Severity.WARNING,
            f"{kept} and no snapshots are taken: a spare can join only until the first messages are forgotten",
            "take snapshots: --snapshot-interval-ms",
        )
    elif retention_ms <= snapshots.interval_ms:
        yield Finding(
            Severity.REFUSAL,
            f"{kept}, a snapshot is taken every {_text(snapshots.interval_ms)}: none could be replayed when the next one comes",
            f"set the topic's retention.ms to {snapshots.oldest_ms} or more",
        )
    elif retention_ms < snapshots.oldest_ms:
        yield Finding(
            Severity.WARNING,
            f"{kept}, but the oldest of the {snapshots.kept} snapshots that are kept may be {_text(snapshots.oldest_ms)} old",
            f"set the topic's retention.ms to {snapshots.oldest_ms} or more, and as long as all engines may be down",
        )


def _text(span_ms: int) -> str:
    return format_duration(span_ms * 1000) if span_ms else "0 seconds"
