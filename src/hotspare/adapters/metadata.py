"""The data about a project that its clients need, on the bus itself, so that adapters start while no engine runs (SPEC B4, I10).

The topic `<prefix>.M` holds a document per project for each change, and a record of the newest one, which outlives the messages'
retention: an engine writes both at its start, and may run for months. Correctness does not depend on this topic, since other topics
and events describe themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hotspare.base.errors import BusError, BusUnavailable, UnknownResult
from hotspare.base.retry import Pauses, Retry
from hotspare.bus.contract import Bus, HeaderGuard, Outgoing, Partition
from hotspare.bus.limits import RECORD_BYTES_MAX
from hotspare.bus.naming import bad_topic, inbound_topic, metadata_topic, outbound_topic
from hotspare.formats.csv.rows import RowPrefix
from hotspare.formats.topic_format import inbound_format, outbound_format
from hotspare.model.events import Opcode
from hotspare.model.partitioning import partition_fields
from hotspare.model.project import KeyOrigin
from hotspare.model.resolved import Resolved
from hotspare.model.row_defaults import RowDefaults
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.model.window_type import type_of
from hotspare.projects.fingerprint import resolved_hash

PROJECT_HEADER = "hotspare-project"
_CONTENDED = Retry(tries_max=50, lasting_s=60.0, pause_s=0.01, pause_max_s=0.5, pauses=Pauses.RANDOM)
_VERSION = 1


@dataclass(frozen=True, slots=True)
class WindowMetadata:
    """Metadata of a window. `inbound` and `outbound` are topic names, "" without such events; formats as in message headers.

    `partition_by`: the field that determines the partition of a row, "" if the project is not divided. `reads`: the stream of
    another project, `project/query/window`, that a source window reads. `rows`: the defaults for a source window's rows without
    opcode or key. `prefix`: the columns that rows of the output stream need before their fields.
    """

    schema: Schema
    inbound: str = ""
    inbound_format: str = ""
    outbound: str = ""
    outbound_format: str = ""
    partition_by: str = ""
    reads: str = ""
    rows: RowDefaults = field(default_factory=RowDefaults, kw_only=True)
    prefix: RowPrefix = field(default=RowPrefix.EVENT, kw_only=True)


@dataclass(frozen=True, slots=True)
class ProjectMetadata:
    """Metadata of a project. `windows` by `query/window`, in evaluation order. `hash` covers everything that determines the
    outputs."""

    project: str
    hash: str
    bad: str
    windows: Mapping[str, WindowMetadata]


def describe(resolved: Resolved, prefix: str, shards: int = 1, prefixes: Mapping[str, RowPrefix] | None = None) -> ProjectMetadata:
    """Returns the metadata of a project that is divided into `shards`. `prefix`: that of the topic names. `prefixes`:
    `Plan.prefixes`, by window; without it all are RowPrefix.EVENT."""
    name, by = resolved.project.name, partition_fields(resolved) if shards > 1 else {}
    windows = {}
    for each in resolved.windows:
        query, window = each.id.query, each.id.window
        reads = resolved.reads(each.id) if each.id in resolved.sources else None
        is_source = each.id in resolved.sources and reads is None
        is_stream = each.id in resolved.streams
        windows[str(each.id)] = WindowMetadata(
            schema=each.schema,
            inbound=inbound_topic(prefix, name, query, window) if is_source else "",
            inbound_format=inbound_format(each.window).header.decode() if is_source else "",
            outbound=outbound_topic(prefix, name, query, window) if is_stream else "",
            outbound_format=outbound_format(each.window).header.decode() if is_stream else "",
            partition_by=by.get(each.id, ""),
            reads="" if reads is None else str(reads),
            rows=type_of(each.window).row_defaults(each.window),
            prefix=(prefixes or {}).get(str(each.id), RowPrefix.EVENT),
        )
    return ProjectMetadata(name, resolved_hash(resolved), bad_topic(prefix, name), windows)


def publish_metadata(bus: Bus, prefix: str, metadata: ProjectMetadata) -> bool:
    """Writes the document if it differs from the newest one of the project. Returns whether it was written. Raises
    BusUnavailable if too many processes write at once."""
    partition = Partition(metadata_topic(prefix))
    if partition.topic not in bus.topics():
        bus.create_topic(partition.topic)
    name = _prefix(metadata.project)
    text = _text(metadata)
    kept = text if len(text) <= RECORD_BYTES_MAX else None
    for _ in _CONTENDED.tries():
        end = bus.end_offset(partition)
        record, newest = bus.record(partition, name), bus.newest_with_header(partition, PROJECT_HEADER, name)
        if record == kept and (newest is None or newest.value == text) and (newest or record):
            return False
        guard = HeaderGuard(PROJECT_HEADER, name, end, record)  # another engine may be about to write the same
        try:
            if bus.append_guarded(partition, [Outgoing(text, ((PROJECT_HEADER, name),))], guard, kept) is not None:
                return True
        except UnknownResult:
            continue  # the next try finds out whether it was written
    raise BusUnavailable(f"too many processes write to topic {partition.topic} at once", detail=f"project {metadata.project}")


def read_metadata(bus: Bus, prefix: str, project: str) -> ProjectMetadata | None:
    """Returns the newest document of a project; None without one. Raises BusError if it cannot be read."""
    partition = Partition(metadata_topic(prefix))
    if partition.topic not in bus.topics():
        return None
    message = bus.newest_with_header(partition, PROJECT_HEADER, _prefix(project))
    if message is not None:
        return _metadata(message.value, f"message {message.offset} of {partition.topic}")
    record = bus.record(partition, _prefix(project))
    return None if record is None else _metadata(record, f"the record of project {project} of {partition.topic}")


def _prefix(project: str) -> bytes:
    """Returns the header's value for a project; none is a prefix of another project's."""
    return project.encode() + b"@"


def _text(metadata: ProjectMetadata) -> bytes:
    windows = [
        {
            "window": name,
            "schema": str(window.schema),
            "inbound": window.inbound,
            "inbound_format": window.inbound_format,
            "outbound": window.outbound,
            "outbound_format": window.outbound_format,
            "partition_by": window.partition_by,
            "reads": window.reads,
            "row_opcode": window.rows.opcode.name,
            "keys": window.rows.keys.name,
            "prefix": window.prefix.name,
        }
        for name, window in metadata.windows.items()
    ]
    document = {
        "version": _VERSION,
        "project": metadata.project,
        "hash": metadata.hash,
        "bad": metadata.bad,
        "windows": windows,
    }
    return json.dumps(document, indent=1).encode()


def _metadata(text: bytes, place: str) -> ProjectMetadata:
    try:
        document = json.loads(text)
        if document["version"] != _VERSION:
            raise _unreadable(place, f"it has version {document['version']}; this release reads version {_VERSION}")
        windows = {str(each["window"]): _window(each) for each in document["windows"]}
        return ProjectMetadata(str(document["project"]), str(document["hash"]), str(document["bad"]), windows)
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(place, f"{type(error).__name__}: {error}") from None


def _window(document: Mapping[str, Any]) -> WindowMetadata:
    names = ("inbound", "inbound_format", "outbound", "outbound_format", "partition_by", "reads")
    rows = RowDefaults(Opcode[document["row_opcode"]], KeyOrigin[document["keys"]])
    texts = (str(document[name]) for name in names)
    return WindowMetadata(_schema(document["schema"]), *texts, rows=rows, prefix=RowPrefix[document["prefix"]])


def _schema(text: str) -> Schema:
    """Parses the short form of `str(Schema)`."""
    fields = []
    for part in text.split(","):
        name, _, type_ = part.partition(":")
        role = KeyRole.KEY if name.endswith("*") else KeyRole.VALUE
        fields.append(Field(name.removesuffix("*"), FieldType(type_), role))
    return Schema(tuple(fields))


def _unreadable(place: str, detail: str) -> BusError:
    return BusError(
        f"{place} cannot be read as the metadata of a project",
        detail=detail,
        hint="name the project's file with --project",
    )
