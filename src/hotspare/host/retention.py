"""Compares how long a bus keeps a project's input with what the project and its newest snapshot need (SPEC H9, H10, Z7)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from hotspare.base.errors import BusError, StoreError, TopicMissing
from hotspare.bus.contract import Bus
from hotspare.flow.plan import Plan
from hotspare.ha.rules.settings import GroupSettings
from hotspare.host.topics import source_topic
from hotspare.model.project import WindowId
from hotspare.model.resolved import Resolved
from hotspare.model.retention_needs import Finding, Severity, SnapshotReach, check_retention, check_snapshot_age
from hotspare.stores.contract import SnapshotStatus, Store
from hotspare.telemetry.log import Log, LogEvent


def topic_retentions(bus: Bus, prefix: str, resolved: Resolved) -> dict[WindowId, int]:
    """After how many milliseconds the topic of each source window forgets; without those that do not, or do not exist yet."""
    found: dict[WindowId, int] = {}
    for source in resolved.sources:
        try:
            retention_ms = bus.retention_ms(source_topic(resolved, prefix, source))
        except TopicMissing:
            continue
        if retention_ms is not None:
            found[source] = retention_ms
    return found


def snapshot_reach(settings: GroupSettings) -> SnapshotReach:
    return SnapshotReach(settings.snapshot_gap_ms, settings.confirmed_snapshots_max)


def check_newest_snapshot(store: Store, group: str, retention_ms: Mapping[WindowId, int], now_us: int) -> tuple[Finding, ...]:
    """What is to be said of the newest snapshot that may be restored; nothing where there is none."""
    if not retention_ms:
        return ()
    written = [info.written_time_us for info in store.list(group) if info.status is SnapshotStatus.CONFIRMED]
    if not written:
        return ()
    age_ms = max(0, now_us - max(written)) // 1000
    findings = (check_snapshot_age(source, limit_ms, age_ms) for source, limit_ms in retention_ms.items())
    return tuple(finding for finding in findings if finding is not None)


def check_at_start(
    bus: Bus, store: Store, prefix: str, plan: Plan, settings: GroupSettings, log: Log, groups: Sequence[str]
) -> None:
    """Log what an operator should know of the topics, and of the snapshots of these groups.

    BusError where a topic keeps its messages so short that no engine could join again.

    A bus or a store that does not answer stops nobody: whether the messages that this engine needs are there is checked apart.
    """
    resolved = plan.resolved
    try:
        retentions = topic_retentions(bus, prefix, resolved)
        now_us = time.time_ns() // 1000
        age = [finding for group in groups for finding in check_newest_snapshot(store, group, retentions, now_us)]
    except (BusError, StoreError) as error:
        log.event(LogEvent.RETENTION_WARNING, f"the retention of the topics was not compared with anything: {error.message}")
        return
    for finding in (*check_retention(resolved, plan.keeping, retentions, snapshot_reach(settings)), *age):
        if finding.severity is Severity.REFUSAL:
            raise BusError(finding.message, hint=finding.hint)
        if finding.severity is Severity.WARNING:
            log.event(LogEvent.RETENTION_WARNING, str(finding))
