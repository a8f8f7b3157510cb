"""Checks the topics on the bus when an engine starts, and reports or refuses those that do not meet its needs.

The retention of input is compared with the needs of the project and its newest snapshot (SPEC H9, H10, Z7). Settings are compared
with those that exactness requires (SPEC B9, Z20, Z21), and sizes with the smallest message of a stream (SPEC B13). Streams of other
projects, as far as the bus describes them, are compared with the windows that read them (SPEC K10).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from hotspare.adapters.metadata import ProjectMetadata, read_metadata
from hotspare.base.choices import CreateTime
from hotspare.base.errors import RESET_HINT, BusError, BusLocked, BusUnavailable, StoreError, TopicMissing, UsageError
from hotspare.bus.contract import Bus
from hotspare.bus.naming import records_topic
from hotspare.flow.plan import Plan
from hotspare.formats import arrow_block
from hotspare.ha.outputs.message import output_message, row_messages
from hotspare.ha.rules.settings import GroupSettings, OutputStream
from hotspare.host.topics import source_topic
from hotspare.model.cascades import StreamRef
from hotspare.model.project import WindowId
from hotspare.model.resolved import Resolved
from hotspare.model.retention_needs import Finding, Severity, check_retention, check_snapshot_age
from hotspare.model.types import Schema
from hotspare.rows.batch import output_schema
from hotspare.stores.contract import SnapshotStatus, Store
from hotspare.telemetry.log import Log, LogEvent

_EPOCH = 1


def topic_retentions(bus: Bus, prefix: str, resolved: Resolved) -> dict[WindowId, int]:
    """Returns the retention in ms of each source window's topic, without topics that have no retention or do not exist yet."""
    found: dict[WindowId, int] = {}
    for source in resolved.sources:
        try:
            retention_ms = bus.retention_ms(source_topic(resolved, prefix, source))
        except TopicMissing:
            continue
        if retention_ms is not None:
            found[source] = retention_ms
    return found


def check_newest_snapshot(store: Store, group: str, retention_ms: Mapping[WindowId, int], now_us: int) -> tuple[Finding, ...]:
    """Returns findings about the age of the newest snapshot that may be restored; none if the store has no such snapshot."""
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
    """Logs warnings about the retention of the topics, and about the snapshots of these groups.

    Raises BusError if a topic's retention is so short that no engine could join again.

    A bus or a store that does not answer does not stop the engine: whether the messages that it needs exist is checked separately.
    """
    resolved = plan.resolved
    try:
        retentions = topic_retentions(bus, prefix, resolved)
        now_us = time.time_ns() // 1000
        age = [finding for group in groups for finding in check_newest_snapshot(store, group, retentions, now_us)]
    except (BusError, StoreError) as error:
        log.event(LogEvent.RETENTION_WARNING, f"the retention of the topics could not be checked: {error.message}")
        return
    for finding in (*check_retention(resolved, plan.windows_with_rows, retentions, settings.snapshot_reach), *age):
        if finding.severity is Severity.REFUSAL:
            raise BusError(finding.message, hint=finding.hint)
        if finding.severity is Severity.WARNING:
            log.event(LogEvent.RETENTION_WARNING, str(finding))


def check_settings(bus: Bus, inbound: Sequence[str], outbound: Sequence[str], create_time: CreateTime, log: Log) -> None:
    """Logs one line for each topic setting that differs from the value that hotspare wants. Raises UsageError if an inbound topic
    is unusable as it is. A bus that does not report its settings does not stop the engine."""
    try:
        found = bus.deviations([*inbound, *outbound, *(records_topic(topic) for topic in inbound)])
    except BusError as error:
        log.event(LogEvent.TOPIC_WARNING, f"the settings of the topics could not be read: {error.message}")
        return
    for deviation in found:
        if deviation.blocks_start and deviation.topic in inbound and create_time is CreateTime.REFUSE:
            raise UsageError(
                f"inbound topic {deviation.topic} cannot be used: its {deviation.setting} is {deviation.value}",
                detail=deviation.consequence,
                hint=f"set it to {deviation.wanted} (kafka-configs.sh --alter), or write `create-time: accept` in "
                "the engines' settings file; or, under "
                "another --prefix, publish its events with `hotspare publish --topic` or a kafka connector that names it",
            )
        log.event(LogEvent.TOPIC_WARNING, str(deviation), topic=deviation.topic, setting=deviation.setting)


def check_message_sizes(bus: Bus, streams: Sequence[tuple[OutputStream, Schema]]) -> None:
    """Raises UsageError naming each topic whose size limit is less than one row without values, with the setting to raise."""
    taken = bus.message_bytes_max([output.topic for output, _ in streams])
    found = []
    for output, schema in streams:
        row, limit = smallest_row(schema), taken[output.topic]
        if output.message_key:
            (message,) = row_messages(row, output.format, _EPOCH, output.message_key)
        else:
            message = output_message(row, output.format, _EPOCH, arrow_block)
        needed = message.size_bytes
        if needed > limit:
            found.append(f"topic {output.topic} accepts {limit} bytes; one row of stream {output.stream} needs {needed}")
    if found:
        raise UsageError(
            "an output topic accepts fewer bytes than one row of its stream",
            detail="\n  ".join(found),
            hint="raise the limit: on Kafka max.message.bytes of the topic, and message.max.bytes if the bus's URL sets it",
        )


def smallest_row(schema: Schema) -> pa.RecordBatch:
    """Returns one output with its position columns set and all values null."""
    whole = output_schema(schema)
    place = len(whole) - len(schema.fields)
    columns = [pa.array([0], pa.int64()).cast(each.type) if i < place else pa.nulls(1, each.type) for i, each in enumerate(whole)]
    return pa.RecordBatch.from_arrays(columns, schema=whole)


def check_streams_read(bus: Bus, prefix: str, resolved: Resolved) -> None:
    """Raises UsageError if a stream has other fields than the window that reads it, or its project does not publish it. Raises it
    also if projects read each other in a ring. Skips projects that the bus does not describe. Raises BusUnavailable, BusLocked."""
    for source in resolved.sources:
        read = resolved.reads(source)
        if read is not None and (said := _read_metadata(bus, prefix, read.project)) is not None:
            _check_stream(said, read, source, resolved.schema(source))
    ring = next(_project_cycles(bus, prefix, resolved), None)
    if ring is not None:
        what = "projects read each other in a ring: " + ", which reads ".join(ring)
        raise UsageError(what, hint="each would wait for the time of the other: let one of them read only its own events")


def _check_stream(said: ProjectMetadata, read: StreamRef, source: WindowId, schema: Schema) -> None:
    window = said.windows.get(f"{read.query}/{read.window}")
    if window is None or not window.outbound:
        streams = ", ".join(f"{said.project}/{name}" for name, each in said.windows.items() if each.outbound)
        what = f"window {source} reads {read}, which project {said.project} does not publish"
        raise UsageError(what, hint=f"its streams are: {streams or 'none'}")
    own, theirs = _fields(schema), _fields(window.schema)
    if own != theirs:
        raise UsageError(
            f"window {source} has other fields than {read}, which it reads",
            detail=f"it has {own}, the stream has {theirs}",
            hint=f"give it the same fields in the same order, and {RESET_HINT}",
        )


def _fields(schema: Schema) -> str:
    """Returns the names and types of the fields; each project declares its own keys."""
    return ",".join(f"{field.name}:{field.type.value}" for field in schema.fields)


def _project_cycles(bus: Bus, prefix: str, resolved: Resolved) -> Iterator[list[str]]:
    """Yields the paths of projects, along the streams that each reads, which lead from this project back to it."""
    own, known = resolved.project.name, set[str]()
    reads = (resolved.reads(source) for source in resolved.sources)
    ways = [[own, project] for project in dict.fromkeys(read.project for read in reads if read is not None)]
    while ways:
        way = ways.pop(0)
        if way[-1] == own:
            yield way
        elif way[-1] not in known:
            known.add(way[-1])
            said = _read_metadata(bus, prefix, way[-1])
            ways += [[*way, project] for project in (_projects_read(said) if said is not None else ())]


def _projects_read(said: ProjectMetadata) -> dict[str, None]:
    streams = (StreamRef.parse(window.reads) for window in said.windows.values() if window.reads)
    return dict.fromkeys(stream.project for stream in streams if stream is not None)


def _read_metadata(bus: Bus, prefix: str, project: str) -> ProjectMetadata | None:
    """Returns the metadata of a project; None if the bus has none, or none that this version can read."""
    try:
        return read_metadata(bus, prefix, project)
    except (BusUnavailable, BusLocked):
        raise
    except BusError:
        return None
