"""What follows from a project: full schemas, evaluation order, inbound topics, output streams. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from hotspare.base.errors import ProjectError
from hotspare.model.cascades import StreamOf
from hotspare.model.code import Language, Module, ModuleUse
from hotspare.model.code_imports import needed
from hotspare.model.failover_rules import effective_quality
from hotspare.model.project import EVERY_SLOT, Project, Window, WindowId
from hotspare.model.quality import Quality
from hotspare.model.types import Schema
from hotspare.model.window_type import EntersBy, Given, type_of
from hotspare.projects.analysis import Analysis, analyse


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


def projects_read(project: Project) -> frozenset[str]:
    """The other projects whose streams its source windows read."""
    windows = (window for query in project.queries for window in query.windows)
    streams = (StreamOf.parse(type_of(window).reads(window)) for window in windows)
    return frozenset(stream.project for stream in streams if stream is not None)


def resolve(project: Project) -> Resolved:
    """Raise ProjectError with every mistake of the project that can be seen without its expressions."""
    analysis = analyse(project)
    if analysis.found:
        raise ProjectError(project.name, analysis.found.mistakes)
    return resolved_from(project, analysis)


def resolved_from(project: Project, analysis: Analysis) -> Resolved:
    """`analysis` is that of `project`, and found no mistake about the windows in its order."""
    idle_us: dict[WindowId, int] = {}
    for i in analysis.order:
        own = type_of(analysis.windows[i]).idle_us(analysis.windows[i])
        above = [idle_us[each] for each in (*(source for source, _ in analysis.inputs[i]), *analysis.forwarded.get(i, ()))]
        idle_us[i] = max(above, default=own) if all(above) else 0
    windows = tuple(_window(project, analysis, i, idle_us[i]) for i in analysis.order)
    sources = tuple(sorted(w.id for w in windows if not w.inputs))
    return Resolved(project, windows, sources, analysis.streams)


def _window(project: Project, analysis: Analysis, window_id: WindowId, idle_us: int) -> ResolvedWindow:
    window, inputs = analysis.windows[window_id], tuple(analysis.inputs[window_id])
    is_asked = type_of(window).enters_by is EntersBy.ANSWERS
    return ResolvedWindow(
        window_id,
        window,
        analysis.schemas[window_id],
        () if is_asked else inputs,
        () if is_asked else tuple(_slots(analysis, window_id)),
        _modules(project, window),
        tuple(analysis.forwarded.get(window_id, ())),
        inputs[0][0] if is_asked else None,
        idle_us,
    )


def _modules(project: Project, window: Window) -> tuple[Module, ...]:
    known = {module.name: module for module in project.modules if module.use is ModuleUse.MODULE}
    found: dict[Module, None] = {}
    for script in type_of(window).scripts(window):
        found |= dict.fromkeys(known[name] for name in script.modules)
        own = [known[name].code.text for name in script.modules] if script.language is Language.LUA else []
        for text in (script.code.text, *own):
            found |= dict.fromkeys(needed(script.language, text, project.modules))
    return tuple(found)


def _slots(analysis: Analysis, target: WindowId) -> Iterator[int]:
    for (source, _), slot in zip(analysis.inputs[target], analysis.slots[target], strict=True):
        yield EVERY_SLOT if analysis.windows[source].splitter is None else slot
