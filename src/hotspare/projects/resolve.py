"""Derives the full schemas, evaluation order, inbound topics and output streams of a project. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from hotspare.base.errors import ProjectError
from hotspare.model.cascades import StreamRef
from hotspare.model.code import Language, Module, ModuleUse
from hotspare.model.code_imports import needed_modules
from hotspare.model.project import EVERY_SLOT, Project, Window, WindowId
from hotspare.model.resolved import Resolved, ResolvedWindow
from hotspare.model.window_type import RowOrigin, type_of
from hotspare.projects.analysis import Analysis, analyse


def projects_read(project: Project) -> frozenset[str]:
    """Returns the names of the other projects whose streams the project's source windows read."""
    windows = (window for query in project.queries for window in query.windows)
    streams = (StreamRef.parse(type_of(window).reads(window)) for window in windows)
    return frozenset(stream.project for stream in streams if stream is not None)


def resolve(project: Project) -> Resolved:
    """Returns the resolved project. Raises ProjectError with every mistake that can be found without compiling expressions."""
    analysis = analyse(project)
    if analysis.found:
        raise ProjectError(project.name, analysis.found.mistakes)
    return resolved_from(project, analysis)


def resolved_from(project: Project, analysis: Analysis) -> Resolved:
    """Returns the resolved project from `analysis`, which must have found no mistake in the windows of its `order`."""
    idle_us: dict[WindowId, int] = {}
    for i in analysis.order:
        own = type_of(analysis.windows[i]).idle_us(analysis.windows[i])
        above = [idle_us[each] for each in (*(source for source, _ in analysis.inputs[i]), *analysis.forwarding_windows.get(i, ()))]
        idle_us[i] = max(above, default=own) if all(above) else 0
    windows = tuple(_window(project, analysis, i, idle_us[i]) for i in analysis.order)
    sources = tuple(sorted(w.id for w in windows if not w.inputs))
    return Resolved(project, windows, sources, analysis.streams)


def _window(project: Project, analysis: Analysis, window_id: WindowId, idle_us: int) -> ResolvedWindow:
    window, inputs = analysis.windows[window_id], tuple(analysis.inputs[window_id])
    is_asked = type_of(window).row_origin is RowOrigin.ANSWERS
    return ResolvedWindow(
        window_id,
        window,
        analysis.schemas[window_id],
        () if is_asked else inputs,
        () if is_asked else tuple(_slots(analysis, window_id)),
        _modules(project, window),
        tuple(analysis.forwarding_windows.get(window_id, ())),
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
            found |= dict.fromkeys(needed_modules(script.language, text, project.modules))
    return tuple(found)


def _slots(analysis: Analysis, target: WindowId) -> Iterator[int]:
    for (source, _), slot in zip(analysis.inputs[target], analysis.slots[target], strict=True):
        yield EVERY_SLOT if analysis.windows[source].splitter is None else slot
