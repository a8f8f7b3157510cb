"""What an engine checks of the streams of other projects that its project reads, as far as the bus tells of those (SPEC K10)."""

from __future__ import annotations

from collections.abc import Iterator

from hotspare.adapters.metadata import ProjectMetadata, read_metadata
from hotspare.base.errors import BusError, BusLocked, BusUnavailable, UsageError
from hotspare.bus.contract import Bus
from hotspare.model.cascades import StreamOf
from hotspare.model.project import WindowId
from hotspare.model.resolved import Resolved
from hotspare.model.types import Schema


def check_streams_read(bus: Bus, prefix: str, resolved: Resolved) -> None:
    """UsageError where a stream has other fields than the window that reads it, where its project does not put it out, and where
    projects read each other in a ring. A project of which the bus tells nothing is passed over. BusUnavailable, BusLocked."""
    for source in resolved.sources:
        read = resolved.reads(source)
        if read is not None and (said := _told(bus, prefix, read.project)) is not None:
            _check_stream(said, read, source, resolved.schema(source))
    ring = next(_rings(bus, prefix, resolved), None)
    if ring is not None:
        what = "projects read each other in a ring: " + ", which reads ".join(ring)
        raise UsageError(what, hint="each would wait for the other to tell the time: let one of them read events of its own alone")


def _check_stream(said: ProjectMetadata, read: StreamOf, source: WindowId, schema: Schema) -> None:
    window = said.windows.get(f"{read.query}/{read.window}")
    if window is None or not window.outbound:
        streams = ", ".join(f"{said.project}/{name}" for name, each in said.windows.items() if each.outbound)
        what = f"window {source} reads {read}, which project {said.project} does not put out"
        raise UsageError(what, hint=f"its streams are: {streams or 'none'}")
    own, theirs = _fields(schema), _fields(window.schema)
    if own != theirs:
        raise UsageError(
            f"window {source} has other fields than {read}, which it reads",
            detail=f"it has {own}, the stream has {theirs}",
            hint="give it the same fields in the same order, and forget what the group knows with: hotspare reset",
        )


def _fields(schema: Schema) -> str:
    """Names and types; what is a key, each project says for itself."""
    return ",".join(f"{field.name}:{field.type.value}" for field in schema.fields)


def _rings(bus: Bus, prefix: str, resolved: Resolved) -> Iterator[list[str]]:
    """Ways from this project along what each reads that lead back to it."""
    own, known = resolved.project.name, set[str]()
    reads = (resolved.reads(source) for source in resolved.sources)
    ways = [[own, project] for project in dict.fromkeys(read.project for read in reads if read is not None)]
    while ways:
        way = ways.pop(0)
        if way[-1] == own:
            yield way
        elif way[-1] not in known:
            known.add(way[-1])
            said = _told(bus, prefix, way[-1])
            ways += [[*way, project] for project in (_projects_read(said) if said is not None else ())]


def _projects_read(said: ProjectMetadata) -> dict[str, None]:
    streams = (StreamOf.parse(window.reads) for window in said.windows.values() if window.reads)
    return dict.fromkeys(stream.project for stream in streams if stream is not None)


def _told(bus: Bus, prefix: str, project: str) -> ProjectMetadata | None:
    """None where there is nothing, or nothing that this version can read."""
    try:
        return read_metadata(bus, prefix, project)
    except (BusUnavailable, BusLocked):
        raise
    except BusError:
        return None
