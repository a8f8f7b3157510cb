"""Loads the project that a command names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hotspare.cli.shared.values import parse_properties
from hotspare.operate.window_rows import ProjectFile

if TYPE_CHECKING:
    from hotspare.projects.load import LoadedProject


def loaded_project(file: Path, texts: Sequence[str] | None, home: Path | None = None, name: str = "") -> LoadedProject:
    """Returns the checked project with the properties of the `--set` texts; @ESP_PROJECT_HOME@ is `home`, by default the folder of
    the file. `name` selects one of several projects. Raises UsageError or ProjectError if the project cannot be loaded."""
    from hotspare.host.project import checked_project  # half of the imports of a command without a project

    return checked_project(file, parse_properties(texts or ()), home, name)


def named_project(file: Path | None, texts: Sequence[str] | None) -> ProjectFile | None:
    """Returns the project file with the properties of the `--set` texts; None without a file. Raises UsageError for an invalid
    text."""
    return None if file is None else ProjectFile(file, parse_properties(texts or ()))
