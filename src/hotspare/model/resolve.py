"""What follows from a project: full schemas, evaluation order, inbound topics, output streams. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hotspare.model.project import Project, Window, WindowId
from hotspare.model.types import Schema


@dataclass(frozen=True)
class ResolvedWindow:
    """A window with its full schema and its inputs in the order of their edges, each with the edge's role."""

    id: WindowId
    window: Window
    schema: Schema
    inputs: tuple[tuple[WindowId, str], ...]


@dataclass(frozen=True)
class Resolved:
    """`windows` in evaluation order (inputs first; ties by place in the project). `sources` and `streams` are sorted by
    WindowId: the index in `sources` is the index of an inbound topic, everywhere."""

    project: Project
    windows: tuple[ResolvedWindow, ...]
    sources: tuple[WindowId, ...]
    streams: tuple[WindowId, ...]

    def window(self, window_id: WindowId) -> ResolvedWindow:
        return next(w for w in self.windows if w.id == window_id)

    def schema(self, window_id: WindowId) -> Schema:
        return self.window(window_id).schema


def resolve(project: Project) -> Resolved:
    """Raise ProjectError with every mistake of the project that can be seen without its expressions."""
    raise NotImplementedError
