"""A project ready to run: each window with its full schema and its inputs, in evaluation order (`projects.resolve` builds it)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from hotspare.model.cascades import StreamRef
from hotspare.model.code import Module
from hotspare.model.failover_rules import effective_quality
from hotspare.model.project import Project, Window, WindowId
from hotspare.model.quality import Quality
from hotspare.model.types import Schema
from hotspare.model.window_type import WindowInput, type_of


@dataclass(frozen=True)
class ResolvedWindow:
    """A window with its full schema and its inputs in the order of their edges, each with the edge's role.

    `slots`: the slots of the same edges, EVERY_SLOT if the source has no splitter. `modules`: the modules that its code needs, in
    order. `forwarding_windows`: for a source window, the windows that forward their outputs to it. `requesting_window`: for a
    window whose events are answers, the window whose outputs request them; the window then has no inputs. `idle_us`: how long after
    its newest event the window's event time advances by itself, 0 if it does not: the longest such time of its sources if all
    define one.
    """

    id: WindowId
    window: Window
    schema: Schema
    inputs: tuple[tuple[WindowId, str], ...]
    slots: tuple[int, ...] = ()
    modules: tuple[Module, ...] = ()
    forwarding_windows: tuple[WindowId, ...] = ()
    requesting_window: WindowId | None = None
    idle_us: int = 0

    @property
    def upstream_windows(self) -> tuple[WindowId, ...]:
        """The windows whose outputs this window reads, by edges or forwarded."""
        return (*(source for source, _ in self.inputs), *self.forwarding_windows)


@dataclass(frozen=True)
class Resolved:
    """A project that is ready to run. `windows` in evaluation order (inputs first; ties by place in the project). `sources` and
    `streams` are sorted by WindowId: the index in `sources` is the index of an inbound topic, everywhere. `streams` is never empty.
    """

    project: Project
    windows: tuple[ResolvedWindow, ...]
    sources: tuple[WindowId, ...]
    streams: tuple[WindowId, ...]

    @cached_property
    def _by_id(self) -> Mapping[WindowId, ResolvedWindow]:
        return {w.id: w for w in self.windows}

    def window(self, window_id: WindowId) -> ResolvedWindow:
        return self._by_id[window_id]

    def quality(self, window_id: WindowId) -> Quality:
        """Returns the quality of the window's output stream."""
        return effective_quality(self.window(window_id).window)

    def reads(self, window_id: WindowId) -> StreamRef | None:
        """Returns the stream of another project that this source window reads as its topic; None if it has its own topic."""
        window = self.window(window_id).window
        return StreamRef.parse(type_of(window).reads(window))

    def schema(self, window_id: WindowId) -> Schema:
        return self.window(window_id).schema

    def window_inputs(self, window: ResolvedWindow) -> list[WindowInput]:
        """Returns the window's inputs as its type sees them, in the order of their edges."""
        return [WindowInput(self.schema(source), role, source.window) for source, role in window.inputs]
