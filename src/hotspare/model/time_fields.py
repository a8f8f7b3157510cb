"""Which field of each source tells the time of its events, as windows behind it say it. Pure.

Files know no append times, so several of them are merged by these fields (`hotspare replay`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hotspare.model.partitioning import carried_keys
from hotspare.model.project import WindowId
from hotspare.model.resolve import Resolved
from hotspare.model.types import FieldType
from hotspare.model.windows.contract import Given
from hotspare.model.windows.registry import type_of

_TIMES = (FieldType.DATE, FieldType.STAMP)


@dataclass(frozen=True, slots=True)
class TimeFields:
    """By source window its time field, and by source window why that is not known though time matters to what is behind it."""

    fields: Mapping[WindowId, str]
    unknown: Mapping[WindowId, str]


def time_fields(resolved: Resolved) -> TimeFields:
    """A field that windows in between pass on or rename is followed back to the source."""
    above = {source: _behind(resolved, source) for source in resolved.sources}
    asked, unknown = _asked(resolved), _unordered(resolved, above)
    found: dict[WindowId, dict[str, WindowId]] = {source: {} for source in resolved.sources}
    times = {source: [f.name for f in resolved.schema(source).fields if f.type in _TIMES] for source in resolved.sources}
    carried = {
        name: carried_keys(resolved, {source: name for source, names in times.items() if name in names})
        for name in dict.fromkeys(name for names in times.values() for name in names)
    }
    for source, of_time in times.items():
        for window, given, field in asked:
            if given not in above[source]:
                continue
            names = [name for name in of_time if (field == name and given == source) or field in carried[name][given]]
            found[source].update((name, window) for name in names)
            if not names:
                unknown[source] = f"window {window} goes by the time of field {field} of {given}, which is no field of {source}"
    for source, said in found.items():
        if len(said) > 1:
            unknown[source] = "; ".join(f"window {window} goes by the time of its field {name}" for name, window in said.items())
    fields = {source: next(iter(said)) for source, said in found.items() if said and source not in unknown}
    return TimeFields(fields, unknown)


def _asked(resolved: Resolved) -> list[tuple[WindowId, WindowId, str]]:
    """Each window that goes by event time, with an input and the field of it that tells the time."""
    found = []
    for window in resolved.windows:
        given = [Given(resolved.schema(source), role, source.window) for source, role in window.inputs]
        times = type_of(window.window).times(window.window, given)
        found += [(window.id, source, times[source.window]) for source, _ in window.inputs if source.window in times]
    return found


def _unordered(resolved: Resolved, behind: Mapping[WindowId, frozenset[WindowId]]) -> dict[WindowId, str]:
    """Sources with others before a window that goes by the order of events, and by no field of time."""
    found: dict[WindowId, str] = {}
    for window in resolved.windows:
        sources = [source for source in resolved.sources if window.id in behind[source]]
        given = [Given(resolved.schema(source), role, source.window) for source, role in window.inputs]
        type_ = type_of(window.window)
        if type_.goes_by_order and len(sources) > 1 and not type_.times(window.window, given):
            found |= dict.fromkeys(sources, f"window {window.id} goes by the order of events, and names no field of their time")
    return found


def _behind(resolved: Resolved, source: WindowId) -> frozenset[WindowId]:
    """The source, and the windows that its events reach."""
    reached = {source}
    for window in resolved.windows:
        if reached.intersection([*(each for each, _ in window.inputs), *window.forwarded]):
            reached.add(window.id)
    return frozenset(reached)
