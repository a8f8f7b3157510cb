"""Resolves what Spark's tables need about a project on a bus: the bus URL, and the description of a window."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from hotspare.adapters.metadata import WindowMetadata, describe, read_metadata
from hotspare.base.errors import UsageError
from hotspare.base.places import absolute_url, has_named_file, named_path
from hotspare.bus.contract import Bus
from hotspare.bus.naming import checked_name, checked_prefix
from hotspare.host.project import checked_project
from hotspare.model.names import nearest_names_hint


class WindowName(NamedTuple):
    """The parts of a window's full name PROJECT/CQ/WINDOW."""

    project: str
    query: str
    window: str

    @classmethod
    def parse(cls, text: str) -> WindowName:
        parts = text.split("/")
        if len(parts) != 3:
            raise UsageError(f"{text!r}: not a window", hint="write PROJECT/CQ/WINDOW")
        return cls(*map(checked_name, parts))


def checked_bus(given: str) -> str:
    """Returns the URL `given` with absolute paths. Raises UsageError for a memory bus, which exists in one process only, and for a
    file that does not exist.
    """
    url = absolute_url(given)
    if url.startswith("memory://"):
        raise UsageError(f"{url} is in one process only, and Spark has several", hint="use a sqlite:///... or kafka://... bus")
    if not has_named_file(url):
        raise UsageError(
            f"no bus is at {url}", detail=f"there is no file {named_path(url)}", hint="check the name; an engine creates the file"
        )
    return url


def window_on_bus(bus: Bus, prefix: str, name: WindowName, file: Path | None, shards: int = 1) -> WindowMetadata:
    """Returns the description of a window. The source is the project's file, or without one the metadata that an engine published
    on the bus. Raises UsageError if the source lacks the window.
    """
    found: Mapping[str, WindowMetadata]
    if file is not None:
        found = describe(checked_project(file, {}, name=name.project).resolved, checked_prefix(prefix), shards).windows
    else:
        metadata = read_metadata(bus, checked_prefix(prefix), name.project)
        if metadata is None:
            hint = "start an engine, or name the project's file"
            raise UsageError(f"the bus has no project {name.project} under prefix {prefix}", hint=hint)
        found = metadata.windows
    wanted = f"{name.query}/{name.window}"
    if wanted not in found:
        raise UsageError(f"project {name.project} has no window {wanted}", hint=nearest_names_hint(wanted, list(found)))
    return found[wanted]
