"""The demands of a project on how long its inbound topics keep messages (SPEC H9-H11, Z7). Pure.

An engine that joins is rebuilt from a snapshot and the messages after it, or, without a snapshot, from all that a topic holds. So
the oldest snapshot that may be restored must still be replayable, and without one a topic must reach as far back as the windows
remember. Time by a field of the events is assumed to advance as the bus's clock does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from hotspare.model.durations import format_duration
from hotspare.model.project import WindowId
from hotspare.model.resolved import Resolved, ResolvedWindow
from hotspare.model.window_type import HorizonMeasure as HorizonMeasure
from hotspare.model.window_type import StateHorizon, type_of

_FOR_EVER = "keeps its rows for ever"
_RETENTION = "retention: {bytime_sliding: 1 hour}"
_HOLDS = "holds its outputs until the next pulse"


@dataclass(frozen=True, slots=True)
class RowFacts:
    """Facts about the rows of a plan's windows. `with_rows`: the windows that remember rows. `insert_only`: the windows that emit
    only inserts, so that evicting their rows evicts none downstream. `tables`: by window, the inputs in which it looks up rows by
    key. `only_tables`: the windows that keep rows of their tables and no others."""

    with_rows: frozenset[WindowId]
    insert_only: frozenset[WindowId]
    tables: Mapping[WindowId, tuple[WindowId, ...]]
    only_tables: frozenset[WindowId]


@dataclass(frozen=True, slots=True)
class RetentionNeed:
    """A demand: `window` remembers events from the topic of `source`. `extent`: how many, in microseconds if `measure` is TIME, in
    events if it is COUNT, else 0.
    """

    source: WindowId
    window: WindowId
    measure: HorizonMeasure
    extent: int
    what: str
    by_field: str = ""
    remedy: str = ""
    """`what`, `by_field` and `remedy` as in `StateHorizon`."""


class Severity(Enum):
    NOTE = "note"
    """Information: nothing is wrong, and no setting of the topic would change the fact."""
    WARNING = "warning"
    """Engines can join as long as a snapshot exists."""
    REFUSAL = "refusal"
    """The engine does not start with such a topic, because no engine could join again."""


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.message} (hint: {self.hint})" if self.hint else self.message


@dataclass(frozen=True, slots=True)
class SnapshotSchedule:
    """The schedule of snapshots. `interval_ms`: time between two, 0: snapshots are off, None: the schedule is not by time.
    `kept_count`: the number of confirmed snapshots that are retained; the oldest is restored if all newer ones are damaged.
    """

    interval_ms: int | None
    kept_count: int

    @property
    def oldest_ms(self) -> int:
        """The greatest age in ms of the oldest retained snapshot, while the next one is being written; 0 if snapshots are off, or
        not by time.
        """
        return (self.kept_count + 1) * (self.interval_ms or 0)


def retention_needs(resolved: Resolved, keeping: RowFacts) -> tuple[RetentionNeed, ...]:
    """Returns the needs of all windows, in order of evaluation. A stateless window has none.

    `keeping` is that of the project's plan.
    """
    sources_of: dict[WindowId, tuple[WindowId, ...]] = {}
    looking_up = _looking_up(resolved, keeping)
    evicting: set[WindowId] = set()
    """The windows that delete every row that they emit."""
    needs: list[RetentionNeed] = []
    for window in resolved.windows:
        above = window.upstream_windows
        own = () if window.inputs else (window.id,)
        sources = tuple(dict.fromkeys((*own, *(source for each in above for source in sources_of[each]))))
        keeps = window.id in keeping.with_rows
        remembered = list(type_of(window.window).state_horizons(window.window))
        if interval_us := window.window.emission.pulse_interval_us(resolved.project.heartbeat_interval_us):
            remembered.append(StateHorizon(HorizonMeasure.TIME, interval_us, _HOLDS))
        forgets = list(type_of(window.window).row_horizons(window.window)) if keeps else []
        kept = keeping.tables[window.id] if window.id in keeping.only_tables else above
        if (forgets or (window.inputs and evicting.issuperset(above))) and window.id not in keeping.insert_only:
            evicting.add(window.id)
        if keeps and not forgets and not (window.inputs and evicting.issuperset(kept)):
            remedy = _remedy(resolved, window, [each for each in kept if each not in evicting], keeping, looking_up)
            what = f"keeps rows of {' and '.join(map(str, kept))} for ever" if window.id in keeping.only_tables else _FOR_EVER
            forgets.append(StateHorizon(HorizonMeasure.EVERYTHING, 0, what, remedy=remedy))
        needs += [
            RetentionNeed(source, window.id, each.measure, each.extent, each.what, each.by_field, each.remedy)
            for source in sources
            for each in (*remembered, *forgets)
        ]
        sources_of[window.id] = sources
    return tuple(needs)


def _looking_up(resolved: Resolved, keeping: RowFacts) -> Mapping[WindowId, WindowId]:
    """Returns, for each table and each window upstream whose rows become rows of the table, a window that looks up rows in it."""
    found: dict[WindowId, WindowId] = {}
    for window in reversed(resolved.windows):
        if window.id in found and len(window.inputs) == 1 and not type_of(window.window).needs_rows:
            found.update(dict.fromkeys(window.upstream_windows, found[window.id]))
        found.update(dict.fromkeys(keeping.tables.get(window.id, ()), window.id))
    return found


def _remedy(
    resolved: Resolved,
    window: ResolvedWindow,
    unbounded: Sequence[WindowId],
    keeping: RowFacts,
    looking_up: Mapping[WindowId, WindowId],
) -> str:
    """Returns the change to the project that makes a window evict rows that it keeps for ever; for the rows of a table, the advice
    to delete them. `unbounded`: the window's inputs that do not evict all their rows. `looking_up`: the result of `_looking_up`.
    """
    if window.id in looking_up and _takes_retention(window):
        return f"delete rows that are no longer needed; retention would delete rows that {looking_up[window.id]} looks up"
    if getattr(window.window, "retention", None) is not None:
        return "leave `by` out of its retention"
    if _takes_retention(window):
        found, takes_inserts = f"add {_RETENTION}", keeping.insert_only.issuperset(window.upstream_windows or (window.id,))
    else:
        tables = [str(i) for i in unbounded if i in looking_up and not type_of(resolved.window(i).window).needs_rows]
        own = [str(each) for each in unbounded if each in keeping.with_rows and _takes_retention(resolved.window(each))]
        own = [each for each in own if each not in tables]
        others = [str(each) for each in unbounded if str(each) not in (*own, *tables)]
        ways = [f"add {_RETENTION} to {' and to '.join(own)}"] if own else []
        ways += [f"put a copy window with {_RETENTION} between it and {' and between it and '.join(others)}"] if others else []
        ways += [f"delete rows of {' and of '.join(tables)} that are no longer needed"] if tables else []
        found, takes_inserts = ", and ".join(ways), keeping.insert_only.issuperset(window.upstream_windows)
    has_choice = takes_inserts and not type_of(window.window).needs_rows
    return f"{found}, or keep none with index: empty" if has_choice else found


def _takes_retention(window: ResolvedWindow) -> bool:
    return "retention" in type_of(window.window).yaml_keys and getattr(window.window, "retention", None) is None


@dataclass(frozen=True, slots=True)
class StateBound:
    """The part of the input that determines a project's state (SPEC F10): the newest `span_us` microseconds if `unbounded` is
    empty. Else `unbounded` lists the needs that are not bounded by time. `by_fields`: the needs whose time is a field of the
    events.
    """

    span_us: int
    unbounded: tuple[RetentionNeed, ...]
    by_fields: tuple[RetentionNeed, ...] = ()

    def __str__(self) -> str:
        if growing := [need for need in self.unbounded if need.remedy]:
            return "\n".join(f"window {need.window} {need.what}: {need.remedy}" for need in growing)
        if self.unbounded:
            what = "; ".join(f"window {need.window} {need.what}" for need in self.unbounded)
            return f"every window with rows evicts them, but the state cannot be rebuilt from recent input alone: {what}"
        if self.span_us:
            return f"the state is bounded by time: it is rebuilt from the newest {format_duration(self.span_us)} of the input"
        return "the only state is the position of the input"


def state_bound(resolved: Resolved, keeping: RowFacts) -> StateBound:
    """Returns how far back into the input the state of the project reaches. The span of a window is its own plus the longest span
    of the windows upstream.
    """
    needs: dict[WindowId, dict[str, RetentionNeed]] = {}
    for need in retention_needs(resolved, keeping):
        needs.setdefault(need.window, {}).setdefault(need.what, need)
    spans: dict[WindowId, int] = {}
    unbounded: list[RetentionNeed] = []
    for window in resolved.windows:
        mine = needs.get(window.id, {}).values()
        unbounded += [need for need in mine if need.measure is not HorizonMeasure.TIME]
        own = max((need.extent for need in mine if need.measure is HorizonMeasure.TIME and need.what != _HOLDS), default=0)
        own += sum(need.extent for need in mine if need.what == _HOLDS)
        spans[window.id] = own + max((spans[each] for each in window.upstream_windows), default=0)
    by_fields = tuple(
        need for own in needs.values() for need in own.values() if need.by_field and need.measure is HorizonMeasure.TIME
    )
    return StateBound(max(spans.values(), default=0), tuple(unbounded), by_fields)


def check_retention(
    resolved: Resolved, keeping: RowFacts, retention_ms: Mapping[WindowId, int], snapshots: SnapshotSchedule
) -> tuple[Finding, ...]:
    """Returns the findings for topics that keep messages for `retention_ms`, by source window; other topics keep all."""
    needs = retention_needs(resolved, keeping)
    findings: list[Finding] = []
    for source in resolved.sources:
        if source in retention_ms:
            mine = [need for need in needs if need.source == source]
            findings += _snapshot_findings(source, retention_ms[source], snapshots) if mine else ()
            findings += (
                _need_finding(need, retention_ms[source]) for need in mine if _exceeds_retention(need, retention_ms[source])
            )
    return tuple(findings)


def check_snapshot_age(source: WindowId, retention_ms: int, age_ms: int) -> Finding | None:
    """Returns a warning if the messages after the newest restorable snapshot, written `age_ms` ago, may soon be deleted (rule 1 of
    SPEC H9). None if the topic keeps messages for at least twice the snapshot's age.
    """
    if 2 * age_ms <= retention_ms:
        return None
    left_ms = retention_ms - age_ms
    kept, age = _text(retention_ms), _text(age_ms)
    becomes = f"the messages after it are deleted in {_text(left_ms)}" if left_ms > 0 else "messages after it may be deleted"
    return Finding(
        Severity.WARNING,
        f"the newest snapshot was written {age} ago, and the topic of {source} keeps messages for {kept}: {becomes}",
        f"an engine that is started now catches up; set the topic's retention.ms to {2 * age_ms} or more",
    )


def _exceeds_retention(need: RetentionNeed, retention_ms: int) -> bool:
    return need.measure is not HorizonMeasure.TIME or need.extent > retention_ms * 1000


def _need_finding(need: RetentionNeed, retention_ms: int) -> Finding:
    kept = f"the topic of {need.source} keeps messages for {_text(retention_ms)}"
    if need.measure is HorizonMeasure.TIME:
        needed_ms = -(-need.extent // 1000)
        return Finding(
            Severity.WARNING,
            f"{kept}, but window {need.window} {need.what}: without a snapshot its state cannot be rebuilt from the topic",
            f"set the topic's retention.ms to {needed_ms}, plus the longest time that a replay may take",
        )
    if need.measure is HorizonMeasure.COUNT:
        return Finding(Severity.NOTE, f"{kept}; window {need.window} {need.what}: rebuilt only while the topic holds as many")
    return Finding(Severity.NOTE, f"{kept}; window {need.window} {need.what}: once messages are deleted, a snapshot is needed")


def _snapshot_findings(source: WindowId, retention_ms: int, snapshots: SnapshotSchedule) -> Iterator[Finding]:
    kept = f"the topic of {source} keeps messages for {_text(retention_ms)}"
    if snapshots.interval_ms is None:
        return
    if snapshots.interval_ms == 0:
        yield Finding(
            Severity.WARNING,
            f"{kept} and no snapshots are taken: a spare can join only until the first messages are deleted",
            "take snapshots: --snapshots '10 seconds'",
        )
    elif retention_ms <= snapshots.interval_ms:
        yield Finding(
            Severity.REFUSAL,
            f"{kept}, a snapshot is taken every {_text(snapshots.interval_ms)}: none could be replayed when the next one is taken",
            f"set the topic's retention.ms to {snapshots.oldest_ms} or more",
        )
    elif retention_ms < snapshots.oldest_ms:
        yield Finding(
            Severity.WARNING,
            f"{kept}, but the oldest of the {snapshots.kept_count} snapshots that are kept may be {_text(snapshots.oldest_ms)} old",
            f"set the topic's retention.ms to {snapshots.oldest_ms} or more, plus the longest time that all engines may be down",
        )


def _text(span_ms: int) -> str:
    return format_duration(span_ms * 1000) if span_ms else "0 seconds"
