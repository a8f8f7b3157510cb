"""Replaces the published windows of a project, for runs over recorded input."""

from __future__ import annotations

import dataclasses
from collections.abc import Set

from hotspare.model.project import Project, Publication, WindowId


def with_published_windows(project: Project, wanted: Set[WindowId]) -> Project:
    """Returns the project with exactly the windows in `wanted` published."""
    queries = []
    for query in project.queries:
        windows = []
        for window in query.windows:
            is_wanted = WindowId(query.name, window.name) in wanted
            windows.append(dataclasses.replace(window, publication=Publication.PUBLISHED if is_wanted else Publication.UNWANTED))
        queries.append(dataclasses.replace(query, windows=tuple(windows)))
    return dataclasses.replace(project, queries=tuple(queries))
