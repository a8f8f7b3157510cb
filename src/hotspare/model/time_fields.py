"""The field of each source that holds the time of its events, as windows downstream require. Pure.

Files have no append times, so `hotspare replay` merges several of them by these fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hotspare.model.partitioning import carried_keys
from hotspare.model.project import WindowId
from hotspare.model.resolved import Resolved
from hotspare.model.types import TIME_TYPES
from hotspare.model.window_type import type_of


@dataclass(frozen=True, slots=True)
class TimeFields:
    """The fields by which files of sources are merged. `fields`: the time field of each source window that has exactly one.
    `unknown`: for a source window that needs a time field, the reason why none is known.
    """

    fields: Mapping[WindowId, str]
    unknown: Mapping[WindowId, str]


def time_fields(resolved: Resolved) -> TimeFields:
    """Returns the time fields of the sources. Each time field that a window names is followed upstream, through windows that pass
    it on or rename it.
    """
    behind = {source: _reached_windows(resolved, source) for source in resolved.sources}
    asked, unknown = _event_time_inputs(resolved), _unordered(resolved, behind)
    found: dict[WindowId, dict[str, WindowId]] = {source: {} for source in resolved.sources}
    times = {source: [f.name for f in resolved.schema(source).fields if f.type in TIME_TYPES] for source in resolved.sources}
    carried = {
        name: carried_keys(resolved, {source: name for source, names in times.items() if name in names})
        for name in dict.fromkeys(name for names in times.values() for name in names)
    }
    for source, of_time in times.items():
        for window, given, field in asked:
            if given not in behind[source]:
                continue
            names = [name for name in of_time if (field == name and given == source) or field in carried[name][given]]
            found[source].update((name, window) for name in names)
            if not names:
                unknown[source] = f"window {window} uses the time of field {field} of {given}, which is not a field of {source}"
    for source, said in found.items():
        if len(said) > 1:
            unknown[source] = "; ".join(f"window {window} uses the time of its field {name}" for name, window in said.items())
    fields = {source: next(iter(said)) for source, said in found.items() if said and source not in unknown}
    return TimeFields(fields, unknown)


def _event_time_inputs(resolved: Resolved) -> list[tuple[WindowId, WindowId, str]]:
    """Returns (window, input, time field of the input) for each input of a window that uses event time."""
    found = []
    for window in resolved.windows:
        times = type_of(window.window).event_time_fields(window.window, resolved.window_inputs(window))
        found += [(window.id, source, times[source.window]) for source, _ in window.inputs if source.window in times]
    return found


def _unordered(resolved: Resolved, behind: Mapping[WindowId, frozenset[WindowId]]) -> dict[WindowId, str]:
    """Returns the sources whose order of events matters although no time field is named, each with the reason: a window depends on
    the order of events and has several sources.
    """
    found: dict[WindowId, str] = {}
    for window in resolved.windows:
        sources = [source for source in resolved.sources if window.id in behind[source]]
        type_ = type_of(window.window)
        if (
            type_.is_order_dependent
            and len(sources) > 1
            and not type_.event_time_fields(window.window, resolved.window_inputs(window))
        ):
            found |= dict.fromkeys(sources, f"window {window.id} depends on the order of events, and names no field of their time")
    return found


def _reached_windows(resolved: Resolved, source: WindowId) -> frozenset[WindowId]:
    """Returns the source and the windows that its events reach."""
    reached = {source}
    for window in resolved.windows:
        if reached.intersection(window.upstream_windows):
            reached.add(window.id)
    return frozenset(reached)
