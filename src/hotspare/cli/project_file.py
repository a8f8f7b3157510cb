"""Loads the project that a command names, and finds in it the window that another option names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hotspare.adapters.connector_options import home_properties
from hotspare.cli.values import properties, window_path
from hotspare.errors import UsageError
from hotspare.model.load import LoadedProject, load_project
from hotspare.model.project import WindowId
from hotspare.model.resolve import Resolved
from hotspare.model.types import Schema


def loaded_project(file: Path, texts: Sequence[str] | None, home: Path | None = None) -> LoadedProject:
    """The project with `--set` texts; @ESP_PROJECT_HOME@ is `home`, by default the folder of the file."""
    return load_project(file, {**home_properties(file, home), **properties(texts or ())})


def source_schema(file: Path | None, texts: Sequence[str] | None, window: str) -> Schema | None:
    """Schema of the source window `PROJECT/CQ/WINDOW`; None without a file, UsageError where it has no such source window."""
    if file is None:
        return None
    resolved = loaded_project(file, texts).resolved
    return _schema(resolved, resolved.sources, file, window, "source window")


def stream_schema(file: Path | None, texts: Sequence[str] | None, window: str) -> Schema | None:
    """Schema of the published window `PROJECT/CQ/WINDOW`; None without a file, UsageError where it publishes no such window."""
    if file is None:
        return None
    resolved = loaded_project(file, texts).resolved
    return _schema(resolved, resolved.streams, file, window, "output stream")


def _schema(resolved: Resolved, windows: Sequence[WindowId], file: Path, window: str, what: str) -> Schema:
    path = window_path(window)
    wanted = WindowId(path.query, path.window)
    if path.project != resolved.project.name or wanted not in windows:
        names = ", ".join(f"{resolved.project.name}/{each}" for each in windows)
        raise UsageError(f"project file {file} has no {what} {window}", hint=f"it has {names}")
    return resolved.schema(wanted)
