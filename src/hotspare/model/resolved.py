"""A project as it runs: each window with its full schema and its inputs, in evaluation order (`projects.resolve` makes it)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from hotspare.model.cascades import StreamOf
from hotspare.model.code import Module
from hotspare.model.failover_rules import effective_quality
from hotspare.model.project import Project, Window, WindowId
from hotspare.model.quality import Quality
from hotspare.model.types import Schema
from hotspare.model.window_type import Given, type_of


@dataclass(frozen=True)
class ResolvedWindow:
    """A window with its full schema and its inputs in the order of their edges, each with the edge's role. `slots`: those of the
    same edges, EVERY_SLOT where the source splits nothing. `modules`: those that its code asks for, in order.
    `forwarded`: of a source window, those whose outputs come in, too. `asked_by`: of one that enters by answers, the window whose
    outputs ask for them; it has no inputs. `idle_us`: how long after its newest event the window's event time goes on by itself,
    0 if it does not: the longest time that one of its sources says, where all of them say one."""

    id: WindowId
    window: Window
    schema: Schema
    inputs: tuple[tuple[WindowId, str], ...]
    slots: tuple[int, ...] = ()
    modules: tuple[Module, ...] = ()
    forwarded: tuple[WindowId, ...] = ()
    asked_by: WindowId | None = None
    idle_us: int = 0

    @property
    def above(self) -> tuple[WindowId, ...]:
        """The windows whose outputs come in, by edges or forwarded."""
        return (*(source for source, _ in self.inputs), *self.forwarded)


@dataclass(frozen=True)
class Resolved:
    """`windows` in evaluation order (inputs first; ties by place in the project). `sources` and `streams` are sorted by
    WindowId: the index in `sources` is the index of an inbound topic, everywhere. `streams` is never empty."""

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
        """That of the window's output stream."""
        return effective_quality(self.window(window_id).window)

    def reads(self, window_id: WindowId) -> StreamOf | None:
        """The stream of another project that is the topic of this source window; None where the topic is its own."""
        window = self.window(window_id).window
        return StreamOf.parse(type_of(window).reads(window))

    def schema(self, window_id: WindowId) -> Schema:
        return self.window(window_id).schema

    def given(self, window: ResolvedWindow) -> list[Given]:
        """The window's inputs as its type sees them, in the order of their edges."""
        return [Given(self.schema(source), role, source.window) for source, role in window.inputs]
