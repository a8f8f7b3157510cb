"""Facts about the rows of a window, for publishers and subscribers: from a project file, else from the metadata on the bus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hotspare.base.errors import UsageError
from hotspare.model.project import WindowId
from hotspare.model.row_defaults import RowDefaults
from hotspare.operate.inbound import Target, WindowPath, refuse_missing

if TYPE_CHECKING:
    from hotspare.adapters.metadata import WindowMetadata
    from hotspare.bus.contract import Bus
    from hotspare.formats.csv.rows import RowPrefix
    from hotspare.model.resolved import Resolved
    from hotspare.model.types import Schema
    from hotspare.projects.load import LoadedProject

_DIVIDED = 2
"""A placeholder for the unknown number of shards: any number above one makes `describe` return partitioning fields."""


class ProjectFile(NamedTuple):
    """A project file, and values of the project's properties."""

    path: Path
    properties: Mapping[str, str]


class Side(Enum):
    """Selects the inbound topic of a source window, or the outbound topic of an output stream."""

    SOURCE = "source window"
    STREAM = "output stream"


def window_schema(bus: Bus, prefix: str, project: ProjectFile | None, path: WindowPath, side: Side) -> Schema | None:
    """Returns the schema of the window; None if it is unknown. Raises UsageError as `window_facts`."""
    facts = window_facts(bus, prefix, project, path, side)
    return None if facts is None else facts.schema


def window_facts(bus: Bus, prefix: str, project: ProjectFile | None, path: WindowPath, side: Side) -> WindowMetadata | None:
    """Returns the facts of the window from the project file, else from the metadata on the bus.

    None without a file and without metadata. Raises UsageError if neither has this source window or output stream. With a project
    file, `partition_by` is the field that determines a row's partition if the topic has several, and `prefix` is unset: call
    `row_prefix` for it.
    """
    from hotspare.adapters.metadata import describe, read_metadata

    if project is not None:
        resolved = _loaded(project, path).resolved
        wanted = _wanted(resolved, resolved.sources if side is Side.SOURCE else resolved.streams, project.path, path, side.value)
        return describe(resolved, prefix, _DIVIDED).windows[str(wanted)]
    metadata = read_metadata(bus, prefix, path.project)
    if metadata is None:
        return None
    found = metadata.windows.get(f"{path.query}/{path.window}")
    if found is None or not (found.inbound if side is Side.SOURCE else found.outbound):
        names = [n for n, w in metadata.windows.items() if (w.inbound if side is Side.SOURCE else w.outbound)]
        hint = f"it has {', '.join(f'{path.project}/{name}' for name in names)}"
        raise UsageError(f"project {path.project} under prefix {prefix} has no {side.value} {path}", hint=hint)
    return found


class SourceRows(NamedTuple):
    """Facts about the rows of a source window. `schema`: None if unknown. `defaults`: opcode and keys of rows without them.
    `partition_by`: the field that determines a row's partition, "" if unknown."""

    schema: Schema | None
    defaults: RowDefaults
    partition_by: str


def source_rows(bus: Bus, prefix: str, project: ProjectFile | None, path: WindowPath) -> SourceRows:
    """Returns the facts about rows of a source window from the project file, else from the bus. Raises UsageError as
    `window_facts`."""
    facts = window_facts(bus, prefix, project, path, Side.SOURCE)
    return SourceRows(None, RowDefaults(), "") if facts is None else SourceRows(facts.schema, facts.rows, facts.partition_by)


def resolve_target(bus: Bus, target: Target, known: SourceRows) -> Target:
    """Returns the target with the field that determines a row's partition. Raises UsageError if the window's schema is unknown, and
    its topic is missing and may not be created."""
    if known.schema is None:
        refuse_missing(bus, target)
    return replace(target, partition_by=known.partition_by)


def resolve_source_rows(bus: Bus, target: Target, project: ProjectFile | None) -> tuple[Target, SourceRows]:
    """Returns the target of `resolve_target`, and the facts about the window's rows from the project file, else from the bus.
    Raises UsageError also for an unknown source window."""
    known = source_rows(bus, target.prefix, project, target.window)
    return resolve_target(bus, target, known), known


def row_prefix(bus: Bus, prefix: str, project: ProjectFile | None, path: WindowPath) -> RowPrefix:
    """Returns the columns that rows of an output stream need before their fields. Raises UsageError as `window_facts`, and if no
    project file is given and the bus does not know the stream."""
    from hotspare.formats.csv.rows import RowPrefix

    if project is None:
        facts = window_facts(bus, prefix, None, path, Side.STREAM)
        if facts is None:
            hint = "wait until `hotspare status` shows an active engine, or name the project's file with --project"
            raise UsageError(f"no engine has described window {path} yet, so the columns of its rows are not known", hint=hint)
        return facts.prefix
    from hotspare.flow.plan import compile_plan

    plan = compile_plan(_loaded(project, path).resolved)
    return plan.prefixes.get(f"{path.query}/{path.window}", RowPrefix.EVENT)


def _loaded(project: ProjectFile, path: WindowPath) -> LoadedProject:
    from hotspare.host.project import checked_project  # half of the imports of a command without a project

    return checked_project(project.path, project.properties, name=path.project)


def _wanted(resolved: Resolved, windows: Sequence[WindowId], file: Path, path: WindowPath, what: str) -> WindowId:
    wanted = WindowId(path.query, path.window)
    if path.project != resolved.project.name or wanted not in windows:
        names = ", ".join(f"{resolved.project.name}/{each}" for each in windows)
        raise UsageError(f"project file {file} has no {what} {path}", hint=f"it has {names}")
    return wanted
