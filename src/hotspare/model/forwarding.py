"""Forwarding (SPEC A37): the outputs of a window also enter source windows of other queries, in the same step.

For the order of evaluation it is an edge like any other, so it may not form a cycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hotspare.model.mistakes import Mistakes
from hotspare.model.names import nearest_names_hint
from hotspare.model.ordering import inputs_first
from hotspare.model.project import NOWHERE, Project, Window, WindowId
from hotspare.model.types import Schema
from hotspare.model.window_type import type_of

ForwardingSources = Mapping[WindowId, Sequence[WindowId]]
"""The windows that forward to each source window, in the order of the project."""


def forwarding_sources(project: Project, found: Mistakes) -> ForwardingSources:
    """Returns the windows that forward to each existing source window; adds mistakes for all other targets."""
    windows = {WindowId(query.name, window.name): window for query in project.queries for window in query.windows}
    by_target: dict[WindowId, list[WindowId]] = {}
    for window_id, window in windows.items():
        for target in type_of(window).forwards(window):
            if target not in windows:
                hint = nearest_names_hint(str(target), [str(each) for each in windows])
                with found.about(window_id):
                    found.add(window.place, f"window {window.name} forwards to the unknown window {target}", hint)
            elif type_of(windows[target]).inputs.most != 0:
                hint = "forward to a source window; inside a query draw an edge"
                with found.about(window_id):
                    found.add(window.place, f"window {window.name} forwards to {target}, which is not a source window", hint)
            elif window_id not in by_target.setdefault(target, []):
                by_target[target].append(window_id)
    return by_target


def check_forwarded(
    to: ForwardingSources, windows: Mapping[WindowId, Window], schemas: Mapping[WindowId, Schema], found: Mistakes
) -> None:
    """Adds a mistake for each window of `to` that does not have the schema of the source window to which it forwards."""
    for target, sources in to.items():
        for source in sources:
            own, wanted = schemas.get(source), schemas.get(target)
            if own is not None and wanted is not None and own != wanted:
                message = f"window {source} has the schema {own}, but forwards to {target}, which has {wanted}"
                with found.about(source, target):
                    found.add(windows[source].place, message, "give both the same schema")


def order_with_forwarding(
    order: Sequence[WindowId], inputs: Mapping[WindowId, Sequence[tuple[WindowId, str]]], to: ForwardingSources, found: Mistakes
) -> list[WindowId]:
    """Returns the windows ordered so that each follows its inputs and the windows that forward to it; ties keep the given order.
    Adds a mistake for a cycle, whose windows are last."""
    if not to:
        return list(order)
    before = {window: [source for source, _ in inputs[window]] + list(to.get(window, ())) for window in order}
    made, left = inputs_first(order, before)
    if left:
        names = ", ".join(map(str, left))
        with found.about(*left):
            found.add(NOWHERE, f"forwarding leads in a circle: {names}", "forward to a window from which no path leads back")
    return made + left
