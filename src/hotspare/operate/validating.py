"""Checks a project before it runs: its windows, topics and shards, the retention that it needs, and the age of its snapshots."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass

from hotspare.base.shard import shards_of
from hotspare.bus.naming import bad_topic, checked_prefix, group_name, outbound_topic
from hotspare.flow.plan import Plan, compile_plan
from hotspare.ha.rules.settings import GroupSettings
from hotspare.host.topics import source_topic
from hotspare.model.partitioning import partition_fields, refused_shards
from hotspare.model.recent_input import RecentInput, recent_input
from hotspare.model.resolved import Resolved
from hotspare.model.retention_needs import Finding, Severity, StateBound, check_retention, state_bound
from hotspare.model.window_type import type_of
from hotspare.operate.groups import ServiceUrls, existing_bus, existing_coordination, existing_snapshots
from hotspare.projects.load import LoadedProject
from hotspare.rows.batch import BAD_STREAM
from hotspare.stores.open import bus_store_url


@dataclass(frozen=True, slots=True)
class ValidationRequest:
    """A loaded project, and where it is to run. `topic_retention_ms`: the time for which topics keep messages, None: as the bus
    reports it. Without a bus, the age of snapshots is not checked."""

    loaded: LoadedProject
    prefix: str
    shards: int
    settings: GroupSettings
    urls: ServiceUrls
    topic_retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class WindowFacts:
    """A window of a project: `window` is QUERY/WINDOW, and `inputs` are the windows whose outputs it reads."""

    window: str
    type: str
    index: str
    inputs: tuple[str, ...]
    schema: str


@dataclass(frozen=True, slots=True)
class ProjectTopic:
    """A topic of a project. `kind`: `input`, `output` or `bad events`; `window`: QUERY/WINDOW, or the stream of bad events."""

    kind: str
    window: str
    topic: str


@dataclass(frozen=True, slots=True)
class Validation:
    """The facts of a valid project. `windows` are in order of evaluation. `partition_fields`: by source window of a divided project
    the field that determines the shard of a row. `shard_dependent`: windows of a divided project whose eviction follows the newest
    row of any key in their shard."""

    project: str
    groups: tuple[str, ...]
    findings: tuple[Finding, ...]
    windows: tuple[WindowFacts, ...]
    topics: tuple[ProjectTopic, ...]
    bound: StateBound
    recent: RecentInput
    partition_fields: dict[str, str]
    shard_dependent: tuple[str, ...]

    @property
    def warning_count(self) -> int:
        """The count of findings other than notes."""
        return sum(finding.severity is not Severity.NOTE for finding in self.findings)


def validate(request: ValidationRequest) -> Validation:
    """Returns the facts of a project that has loaded. Raises UsageError for an invalid prefix, or if a named bus or store does not
    exist; ProjectError if the project cannot be divided."""
    loaded, prefix = request.loaded, checked_prefix(request.prefix)
    resolved, plan = loaded.resolved, compile_plan(loaded.resolved)
    if (refusal := refused_shards(resolved, request.shards)) is not None:
        raise refusal
    groups = tuple(group_name(prefix, loaded.project.name, shard) for shard in shards_of(request.shards))
    is_divided = request.shards > 1
    return Validation(
        project=loaded.project.name,
        groups=groups,
        findings=_retention(request, plan, groups),
        windows=_windows(resolved),
        topics=_topics(resolved, prefix),
        bound=state_bound(resolved, plan.windows_with_rows),
        recent=recent_input(resolved, plan.windows_with_rows),
        partition_fields={str(source): field for source, field in partition_fields(resolved).items()} if is_divided else {},
        shard_dependent=tuple(str(n.operator.id) for n in plan.nodes if is_divided and n.operator.clock.has_event_time),
    )


def _windows(resolved: Resolved) -> tuple[WindowFacts, ...]:
    return tuple(
        WindowFacts(
            window=str(window.id),
            type=type_of(window.window).name,
            index=window.window.index.value,
            inputs=tuple(str(source) for source, _ in window.inputs),
            schema=str(window.schema),
        )
        for window in resolved.windows
    )


def _topics(resolved: Resolved, prefix: str) -> tuple[ProjectTopic, ...]:
    name = resolved.project.name
    inbound = (ProjectTopic("input", str(w), source_topic(resolved, prefix, w)) for w in resolved.sources)
    outbound = (ProjectTopic("output", str(w), outbound_topic(prefix, name, w.query, w.window)) for w in resolved.streams)
    return (*inbound, *outbound, ProjectTopic("bad events", BAD_STREAM, bad_topic(prefix, name)))


def _retention(request: ValidationRequest, plan: Plan, groups: tuple[str, ...]) -> tuple[Finding, ...]:
    """Returns the findings about the retention of topics, and about the age of the newest snapshot in the store."""
    resolved, urls, reach = plan.resolved, request.urls, request.settings.snapshot_reach
    given = {} if request.topic_retention_ms is None else dict.fromkeys(resolved.sources, request.topic_retention_ms)
    if not urls.bus:
        return check_retention(resolved, plan.windows_with_rows, given, reach)
    from hotspare.host.topic_checks import check_newest_snapshot, topic_retentions  # a third of the imports, needless without a bus

    with ExitStack() as stack:
        opened = existing_bus(stack, urls.bus)
        retentions = {**topic_retentions(opened, request.prefix, resolved), **given}
        findings = check_retention(resolved, plan.windows_with_rows, retentions, reach)
        if not retentions or not (urls.coordination or urls.store or bus_store_url(urls.bus)):
            return findings
        kept = existing_snapshots(stack, urls.store, urls.bus, existing_coordination(stack, urls.coordination, urls.bus))
        if kept is None:
            return findings
        now_us = time.time_ns() // 1000
        ages = (check_newest_snapshot(kept, group, retentions, now_us) for group in groups)
        return (*findings, *(finding for each in ages for finding in each))
