"""Loads the project that a command names, and finds the window that another option names."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hotspare.base.errors import UsageError
from hotspare.cli.shared.values import parse_properties, window_path
from hotspare.model.project import WindowId
from hotspare.model.row_defaults import RowDefaults

if TYPE_CHECKING:
    from hotspare.adapters.metadata import WindowMetadata
    from hotspare.bus.contract import Bus
    from hotspare.formats.csv.rows import RowPrefix
    from hotspare.model.resolved import Resolved
    from hotspare.model.types import Schema
    from hotspare.projects.load import LoadedProject

_DIVIDED = 2
"""A placeholder for the unknown number of shards: any number above one makes `describe` return partitioning fields."""


def loaded_project(file: Path, texts: Sequence[str] | None, home: Path | None = None, name: str = "") -> LoadedProject:
    """Returns the checked project with the properties of the `--set` texts; @ESP_PROJECT_HOME@ is `home`, by default the folder of
    the file. `name` selects one of several projects. Raises UsageError or ProjectError if the project cannot be loaded."""
    from hotspare.host.project import checked_project  # half of the imports of a command without a project

    return checked_project(file, parse_properties(texts or ()), home, name)


class Side(Enum):
    """Selects the inbound topic of a source window, or the outbound topic of an output stream."""

    SOURCE = "source window"
    STREAM = "output stream"


def window_schema(bus: Bus, prefix: str, file: Path | None, texts: Sequence[str] | None, window: str, side: Side) -> Schema | None:
    """Returns the schema of the window; None if it is unknown. Raises UsageError as `window_facts`."""
    facts = window_facts(bus, prefix, file, texts, window, side)
    return None if facts is None else facts.schema


def window_facts(
    bus: Bus, prefix: str, file: Path | None, texts: Sequence[str] | None, window: str, side: Side
) -> WindowMetadata | None:
    """Returns the facts of the window `PROJECT/CQ/WINDOW` from the project file, else from the metadata on the bus (SPEC B4).

    None without a file and without metadata. Raises UsageError if neither has this source window or output stream. With a project
    file, `partition_by` is the field that determines a row's partition if the topic has several, and `prefix` is unset: call
    `row_prefix` for it.
    """
    from hotspare.adapters.metadata import describe, read_metadata

    path = window_path(window)
    if file is not None:
        resolved = loaded_project(file, texts, name=path.project).resolved
        wanted = _wanted(resolved, resolved.sources if side is Side.SOURCE else resolved.streams, file, window, side.value)
        return describe(resolved, prefix, _DIVIDED).windows[str(wanted)]
    metadata = read_metadata(bus, prefix, path.project)
    if metadata is None:
        return None
    found = metadata.windows.get(f"{path.query}/{path.window}")
    if found is None or not (found.inbound if side is Side.SOURCE else found.outbound):
        names = [n for n, w in metadata.windows.items() if (w.inbound if side is Side.SOURCE else w.outbound)]
        hint = f"it has {', '.join(f'{path.project}/{name}' for name in names)}"
        raise UsageError(f"project {path.project} under prefix {prefix} has no {side.value} {window}", hint=hint)
    return found


class SourceRows(NamedTuple):
    """Facts about the rows of a source window. `schema`: None if unknown. `defaults`: opcode and keys of rows without them.
    `partition_by`: the field that determines a row's partition, "" if unknown."""

    schema: Schema | None
    defaults: RowDefaults
    partition_by: str


def source_rows(bus: Bus, prefix: str, file: Path | None, texts: Sequence[str] | None, window: str) -> SourceRows:
    """Returns the facts about rows of the source window `PROJECT/CQ/WINDOW` from the project file, else from the bus. Raises
    UsageError as `window_facts`."""
    facts = window_facts(bus, prefix, file, texts, window, Side.SOURCE)
    return SourceRows(None, RowDefaults(), "") if facts is None else SourceRows(facts.schema, facts.rows, facts.partition_by)


def row_prefix(bus: Bus, prefix: str, file: Path | None, texts: Sequence[str] | None, window: str) -> RowPrefix:
    """Returns the columns that rows of an output stream need before their fields. Raises UsageError as `window_facts`, and if no
    project file is given and the bus does not know the stream."""
    from hotspare.formats.csv.rows import RowPrefix

    if file is None:
        facts = window_facts(bus, prefix, None, texts, window, Side.STREAM)
        if facts is None:
            hint = "wait until `hotspare status` shows an active engine, or name the project's file with --project"
            raise UsageError(f"no engine has described window {window} yet, so the columns of its rows are not known", hint=hint)
        return facts.prefix
    from hotspare.flow.plan import compile_plan

    path = window_path(window)
    plan = compile_plan(loaded_project(file, texts, name=path.project).resolved)
    return plan.prefixes.get(f"{path.query}/{path.window}", RowPrefix.EVENT)


def _wanted(resolved: Resolved, windows: Sequence[WindowId], file: Path, window: str, what: str) -> WindowId:
    path = window_path(window)
    wanted = WindowId(path.query, path.window)
    if path.project != resolved.project.name or wanted not in windows:
        names = ", ".join(f"{resolved.project.name}/{each}" for each in windows)
        raise UsageError(f"project file {file} has no {what} {window}", hint=f"it has {names}")
    return wanted
