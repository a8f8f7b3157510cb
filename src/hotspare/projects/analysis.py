"""Analyses a whole project once: finds every mistake, derives schemas and evaluation order, and determines the
published windows.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from hotspare.base.errors import Place
from hotspare.model.cascades import check_beats, check_not_own_stream
from hotspare.model.code_rules import check_modules, check_required
from hotspare.model.connector_groups import check_groups
from hotspare.model.connector_rules import PROPERTY_VALUE_LENGTH_MAX, check_connectors
from hotspare.model.delivery import check_delivery
from hotspare.model.durations import format_duration
from hotspare.model.failover_rules import check_failover
from hotspare.model.forwarding import ForwardingSources, check_forwarded, forwarding_sources, order_with_forwarding
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import NAME, NAME_LENGTH_MAX, PROPERTY_NAME, first_unprintable, nearest_names_hint, one_of, repeated
from hotspare.model.ordering import inputs_first
from hotspare.model.project import (
    EVERY_SLOT,
    ConnectorDirection,
    ContinuousQuery,
    Edge,
    Emit,
    Project,
    Publication,
    Singletons,
    Window,
    WindowId,
)
from hotspare.model.statedb import RecordKeeping, check_declarations, check_requesting_stream
from hotspare.model.types import Schema
from hotspare.model.window_rules import check_expression, check_initialization, check_schema
from hotspare.model.window_type import INPUT_ROLES, Newness, RowOrigin, SchemaOrigin, StreamNeed, WindowInput, type_of
from hotspare.windows.registry import WINDOW_TYPES

QUERIES_MAX = 100
WINDOWS_MAX = 1_000
EDGES_MAX = 10_000
REFUSED_ROLES = {
    "request": "what a window computes with is in the project, and the same in every engine from the first event on",
    "model": "models come in forms that only the software of their vendor reads",
}
"""The roles of edges that SAS has and hotspare does not support, each with the reason."""
HEARTBEAT_US_MIN = 1_000
HEARTBEAT_US_MAX = 86_400_000_000


@dataclass
class Analysis:
    """The result of analysing a project: `found` has its mistakes and warnings; the other fields are complete only without a
    mistake.

    `order`: the windows in order of evaluation. `inputs`: (source window, role) of the edges into each window. `streams`: the
    published windows. `forwarding_windows`: the windows that forward events to each source window.
    """

    found: Mistakes
    order: list[WindowId] = field(default_factory=list)
    windows: dict[WindowId, Window] = field(default_factory=dict)
    schemas: dict[WindowId, Schema] = field(default_factory=dict)
    inputs: dict[WindowId, list[tuple[WindowId, str]]] = field(default_factory=dict)
    slots: dict[WindowId, list[int]] = field(default_factory=dict)
    """For each window, the slots of its edges in `inputs`, in the same order."""
    window_inputs: dict[WindowId, list[WindowInput]] = field(default_factory=dict)
    """For each window, the inputs that the methods of its type receive: their number is valid even if that of the edges is not."""
    streams: tuple[WindowId, ...] = ()
    forwarding_windows: ForwardingSources = field(default_factory=dict)


def analyse(project: Project, unreadable: frozenset[WindowId] = frozenset()) -> Analysis:
    """Returns the analysis, with every mistake that can be found without compiling expressions.

    `unreadable`: windows in the text that could not be read, whose mistakes are already known. Mistakes that only follow from them
    are not reported.
    """
    analysis = Analysis(Mistakes())
    _check_project(project, unreadable, analysis.found)
    check_groups(project, unreadable, analysis.found)
    scripted = [WindowId(q.name, w.name) for q in project.queries for w in q.windows if any(type_of(w).scripts(w))]
    with analysis.found.about(*scripted):
        check_modules(project.modules, analysis.found)
    analysis.forwarding_windows = forwarding_sources(project, analysis.found)
    for query in project.queries:
        for window in query.windows:
            with analysis.found.about(WindowId(query.name, window.name)):
                for script in type_of(window).scripts(window):
                    check_required(window, script, project.modules, analysis.found)
        _analyse_query(project.name, query, unreadable, analysis)
    check_forwarded(analysis.forwarding_windows, analysis.windows, analysis.schemas, analysis.found)
    analysis.order = order_with_forwarding(analysis.order, analysis.inputs, analysis.forwarding_windows, analysis.found)
    analysis.streams = output_streams(project, frozenset(analysis.inputs))
    _check_qualities(analysis)
    check_declarations(_record_writers(analysis), analysis.found)
    for window_id, window in analysis.windows.items():
        with analysis.found.about(window_id):
            check_beats(window_id, window, analysis.streams, analysis.found)
            check_not_own_stream(project.name, window_id, window, type_of(window).reads(window), analysis.found)
    if not analysis.streams and not analysis.found and not unreadable:
        analysis.found.add(
            project.place,
            f"project {project.name} publishes nothing",
            "publish a window, connect a subscriber, or include source windows without edges (singletons, or include-singletons)",
        )
    return analysis


def output_streams(project: Project, taking_part: frozenset[WindowId]) -> tuple[WindowId, ...]:
    """Returns the windows of `taking_part` that are published by the rule of `Publication`, sorted."""
    present = {WindowId(q.name, w.name): w for q in project.queries for w in q.windows if WindowId(q.name, w.name) in taking_part}
    subscribed = {i for i, w in present.items() if any(c.direction is ConnectorDirection.SUBSCRIBE for c in w.connectors)}
    read_on = {WindowId(q.name, e.source) for q in project.queries for e in q.edges}
    needed = subscribed | {i for i, w in present.items() if type_of(w).stream_need is StreamNeed.ALWAYS}
    needed |= {WindowId(q.name, source) for q in project.queries for source in _requesting_edges(q)}
    derived = needed if subscribed else needed | (present.keys() - read_on)
    streams = {
        Publication.PUBLISHED: present.keys(),
        Publication.DERIVED: derived,
        Publication.NEEDED: needed,
        Publication.HIDDEN: frozenset[WindowId](),
        Publication.UNWANTED: frozenset[WindowId](),
    }
    return tuple(sorted(i for i, w in present.items() if i in streams[w.publication]))


def _requesting_edges(query: ContinuousQuery) -> Mapping[str, Sequence[Edge]]:
    """Returns the windows whose outputs request answers, each with its edges to the windows whose events are the answers."""
    answered = {window.name for window in query.windows if type_of(window).row_origin is RowOrigin.ANSWERS}
    asking: dict[str, list[Edge]] = {}
    for edge in query.edges:
        if edge.target in answered:
            asking.setdefault(edge.source, []).append(edge)
    return asking


def _check_project(project: Project, unreadable: frozenset[WindowId], found: Mistakes) -> None:
    _check_name("project", project.name, project.place, found)
    if not HEARTBEAT_US_MIN <= project.heartbeat_interval_us <= HEARTBEAT_US_MAX:
        found.add(project.place, "the heartbeat interval is not between a millisecond and a day", "write one such as 1 second")
    if not project.queries and not unreadable:
        found.add(
            project.place, f"project {project.name} has no continuous query", "add one under queries, with at least a source window"
        )
    if len(project.queries) > QUERIES_MAX:
        found.add(
            project.place,
            f"project {project.name} has {len(project.queries)} queries; the limit is {QUERIES_MAX}",
            "split the project",
        )
    windows = sum(len(q.windows) for q in project.queries)
    if windows > WINDOWS_MAX:
        found.add(project.place, f"project {project.name} has {windows} windows; the limit is {WINDOWS_MAX}", "split the project")
    for window in (w for q in project.queries for w in q.windows if 0 < w.emission.pulse_us < project.heartbeat_interval_us):
        pulse = format_duration(window.emission.pulse_us)
        message = f"window {window.name} has a pulse each {pulse}, but time passes at heartbeats"
        found.warn(window.place, message, f"shorten the heartbeat, which is {format_duration(project.heartbeat_interval_us)}")
    for name in repeated(q.name for q in project.queries):
        same = [query for query in project.queries if query.name == name]
        with found.about(*(WindowId(name, window.name) for query in same for window in query.windows)):
            found.add(same[1].place, f"project {project.name} has two queries {name}", "give one of them another name")
    for name in repeated(n for n, _ in project.properties):
        found.add(project.place, f"project {project.name} has two properties {name}", "leave one of them out")
    for name, value in project.properties:
        if not PROPERTY_NAME.fullmatch(name):
            found.add(project.place, f"project property name {name!r} cannot be used", "use letters, digits, '_', '-' and '.'")
        if first_unprintable(value) or len(value) > PROPERTY_VALUE_LENGTH_MAX:
            found.add(
                project.place,
                f"project property {name} is too long or contains a control character",
                "shorten it to printable text",
            )
    for text in (project.description, *(part for pair in project.metadata for part in pair)):
        _check_words(f"project {project.name}", text, project.place, found)


def _analyse_query(project: str, query: ContinuousQuery, unreadable: frozenset[WindowId], analysis: Analysis) -> None:
    found = analysis.found
    _check_name("query", query.name, query.place, found)
    lost = {w.window for w in unreadable if w.query == query.name}
    windows = _named_windows(query, found)
    if not windows and not lost:
        found.add(query.place, f"query {query.name} has no window", "add a source window")
    inputs = _inputs(query, windows, lost, found)
    for name in query.trace:
        if name not in windows and name not in lost:
            found.add(query.place, f"query {query.name} traces the unknown window {name!r}", nearest_names_hint(name, windows))
    excluded = _excluded(query, windows) - {to.window for to in analysis.forwarding_windows if to.query == query.name}
    for name in _evaluation_order(query, windows, inputs, found):
        window, window_id = windows[name], WindowId(query.name, name)
        with found.about(window_id):
            given = _given(query, window, inputs[name], lost, analysis)
            _check_window(window, given, found)
            check_connectors(window, type_of(window).connectors, found)
            check_failover(project, query.name, window, found)
            check_delivery(window, found)
        if name in excluded:
            message = f"source window {name} takes no part in query {query.name}: no edge leaves it"
            found.warn(window.place, message, "connect it by an edge, include singletons, or leave the window out")
            continue
        schema = type_of(window).schema(window, given)
        if schema is not None:
            analysis.schemas[window_id] = schema
        analysis.order.append(window_id)
        analysis.windows[window_id] = window
        analysis.window_inputs[window_id] = given
        analysis.inputs[window_id] = [(WindowId(query.name, e.source), e.role) for e in inputs[name]]
        analysis.slots[window_id] = [e.slot for e in inputs[name]]
    _check_slots(query, windows, found)
    for name, edges in _requesting_edges(query).items():
        if name not in windows:
            continue
        check_requesting_stream(windows[name], dict.fromkeys(edge.target for edge in edges), found)
        for edge in edges:
            if edge.slot != EVERY_SLOT and windows[name].splitter is not None:
                what = f"window {edge.target} needs every output of {name}, not only those of a slot"
                found.add(edge.place, what, "leave the slot out")


def _check_slots(query: ContinuousQuery, windows: Mapping[str, Window], found: Mistakes) -> None:
    """Checks splitters, and adds a warning for a slot without a splitter and for a splitter whose window has no edge with a
    slot."""
    used = {edge.source for edge in query.edges if edge.slot != EVERY_SLOT}
    for edge in query.edges:
        source = windows.get(edge.source)
        if edge.slot != EVERY_SLOT and source is not None and source.splitter is None:
            message = f"slot {edge.slot} of the edge to {edge.target} has no effect: window {edge.source} has no splitter"
            found.warn(edge.place, message, "give the window a splitter, or leave the slot out")
    for name, window in windows.items():
        if window.splitter is None:
            continue
        with found.about(WindowId(query.name, name)):
            check_expression(window, window.splitter, found)
            check_initialization(window, window.splitter_initialization, found)
        if name not in used:
            found.warn(window.place, f"the splitter of window {name} has no effect: no edge has a slot", "give edges slots")


def _excluded(query: ContinuousQuery, windows: Mapping[str, Window]) -> set[str]:
    """Returns the source windows that are not part of the running project (SPEC A41): those without an edge, unless the query
    includes singletons. In a query without any edge, windows with connectors take part, or all windows if none has a connector.
    """
    if query.singletons is Singletons.INCLUDED:
        return set()
    touched = {name for edge in query.edges for name in (edge.source, edge.target)}
    if not query.edges:
        touched = {name for name, window in windows.items() if window.connectors} or set(windows)
    return {name for name, window in windows.items() if type_of(window).inputs.most == 0 and name not in touched}


def _check_qualities(analysis: Analysis) -> None:
    for window_id, window in analysis.windows.items():
        if window.quality is not None and window_id not in analysis.streams:
            message = f"window {window_id} has the quality {window.quality}, but its outputs are not published"
            analysis.found.warn(window.place, message, "publish the window, or leave its quality out")


def _record_writers(analysis: Analysis) -> dict[WindowId, tuple[Window, RecordKeeping]]:
    """Returns the windows that write records, in the order of the project."""
    found = {}
    for window_id, window in analysis.windows.items():
        schema = analysis.schemas.get(window_id)
        kept = None if schema is None else type_of(window).record_keeping(window, schema)
        if kept is not None and window_id in analysis.streams:
            found[window_id] = window, kept
    return found


def _named_windows(query: ContinuousQuery, found: Mistakes) -> dict[str, Window]:
    windows: dict[str, Window] = {}
    for window in query.windows:
        _check_name("window", window.name, window.place, found)
        _check_words(f"window {window.name}", window.description, window.place, found)
        if window.name in windows:
            first = windows[window.name].place
            where = f", the first in line {first.line}" if first.line else ""
            with found.about(WindowId(query.name, window.name)):
                found.add(window.place, f"query {query.name} has two windows {window.name}{where}", "give one of them another name")
        windows.setdefault(window.name, window)
    return windows


def _inputs(query: ContinuousQuery, windows: Mapping[str, Window], lost: set[str], found: Mistakes) -> dict[str, list[Edge]]:
    """Returns the valid edges into each window, in order, without edges from windows in `lost`, which could not be read. Adds a
    mistake for each invalid edge."""
    by_source: dict[str, dict[str, Edge]] = {name: {} for name in windows}
    edges = query.edges
    if len(edges) > EDGES_MAX:
        found.add(query.place, f"query {query.name} has {len(edges)} edges; the limit is {EDGES_MAX}", "split the query")
        edges = ()
    for edge in edges:
        with found.about(WindowId(query.name, edge.target)):
            if _is_input(edge, windows, lost, by_source, found):
                by_source[edge.target][edge.source] = edge
    return {name: list(inputs.values()) for name, inputs in by_source.items()}


def _is_input(
    edge: Edge, windows: Mapping[str, Window], lost: set[str], by_source: Mapping[str, Container[str]], found: Mistakes
) -> bool:
    """Whether the edge is a valid input of its target; adds a mistake if it is not. `by_source`: for each window, the sources of
    earlier edges."""
    if unknown := [name for name in dict.fromkeys((edge.source, edge.target)) if name not in windows]:
        for name in (name for name in unknown if name not in lost):
            hint = nearest_names_hint(name, {**windows, **dict.fromkeys(lost)})
            found.add(edge.place, f"an edge names the unknown window {name!r}", hint)
        return False
    if edge.source in by_source[edge.target]:
        found.add(edge.place, f"there are two edges from {edge.source} to {edge.target}", "remove one of them")
        return False
    if edge.role in REFUSED_ROLES:
        message = f"edge role {edge.role!r} cannot be supported: {REFUSED_ROLES[edge.role]}"
        found.add(edge.place, message, "leave the edge out")
        return False
    wanted = type_of(windows[edge.target]).inputs
    if edge.role not in wanted.roles:
        roles = sorted(wanted.roles - {""})
        hint = "leave the role out" if wanted.roles == INPUT_ROLES or not roles else one_of(roles)
        found.add(edge.place, f"edge role {edge.role!r} is not a role of an input of window {edge.target}", hint)
    if wanted.most == 0:
        found.add(edge.place, f"an edge leads into the {type_of(windows[edge.target]).name} window {edge.target}", wanted.hint)
        return False
    return True


def _evaluation_order(
    query: ContinuousQuery, windows: Mapping[str, Window], inputs: Mapping[str, list[Edge]], found: Mistakes
) -> list[str]:
    """Returns the windows, each after its inputs, ties in the order of the text. Windows on or downstream of a cycle are last, and
    the cycle is a mistake."""
    order, left = inputs_first(list(windows), {name: [edge.source for edge in edges] for name, edges in inputs.items()})
    if left:
        cycle = _cycle(left, inputs)
        edge = next(e for e in inputs[cycle[1]] if e.source == cycle[0])
        found.add(
            edge.place if edge.place.line else query.place,
            "windows form a cycle: " + " -> ".join(cycle),
            "remove one of these edges",
        )
    return order + left


def _cycle(left: list[str], inputs: Mapping[str, list[Edge]]) -> list[str]:
    """Returns the names along one cycle; the first name is also the last one. Every window of `left` must have an input in
    `left`."""
    stuck = set(left)
    path: list[str] = [left[0]]
    while path[-1] not in path[:-1]:
        path.append(next(e.source for e in inputs[path[-1]] if e.source in stuck))
    return path[path.index(path[-1]) :][::-1]


def _given(query: ContinuousQuery, window: Window, edges: list[Edge], lost: set[str], analysis: Analysis) -> list[WindowInput]:
    """Returns the window's inputs, as many as its type allows. If the number of edges is invalid, adds a mistake and returns inputs
    without schemas instead, so that the type's checks can run.
    """
    wanted = type_of(window).inputs
    given = [WindowInput(analysis.schemas.get(WindowId(query.name, e.source)), e.role, e.source) for e in edges]
    given += [WindowInput(None, e.role, e.source) for e in query.edges if e.target == window.name and e.source in lost]
    if wanted.least <= len(given) and (wanted.most is None or len(given) <= wanted.most):
        return given
    hidden = any(e.target == window.name and e.source in lost for e in query.edges)
    unknown = any(e.target == window.name and e not in edges for e in query.edges)
    sources = ", ".join(e.source for e in edges)
    if wanted.most is not None and len(edges) > wanted.most > 0:
        analysis.found.add(window.place, f"window {window.name} has {len(edges)} inputs: {sources}", wanted.hint)
    elif not edges and not hidden and not unknown:
        analysis.found.add(window.place, f"window {window.name} has no input", "add an edge that leads to it")
    elif not hidden and not unknown:
        analysis.found.add(window.place, f"window {window.name} has one input: {sources}", wanted.hint)
    return [WindowInput(None)] * wanted.least


def _check_window(window: Window, given: list[WindowInput], found: Mistakes) -> None:
    """Checks a window by the rules of its type. A schema that is None but has a place could not be read: its mistake is already
    reported."""
    window_type = type_of(window)
    if window.emission.emit is Emit.NEW and window_type.newness is Newness.NONE:
        emitting = ", ".join(sorted(name for name, each in WINDOW_TYPES.items() if each.newness is not Newness.NONE))
        message = f"window {window.name} has emit: new, which windows of type {window_type.name} do not support"
        found.add(window.place, message, f"these types do: {emitting}")
    if window.schema is not None:
        check_schema(window, window.schema, found)
    elif not window.schema_place.line and window_type.schema_origin is SchemaOrigin.WRITTEN:
        found.add(window.place, f"window {window.name} has no schema", "give it one, such as id*:int64,x:double")
    window_type.check(window, given, found)


def _check_words(whose: str, text: str, place: Place, found: Mistakes) -> None:
    """Adds a mistake for an unprintable character in a text without effect, because such texts are stored and written again."""
    if odd := first_unprintable(text):
        found.add(place, f"the description or metadata of {whose} contains the character {odd!r}", "remove the character")


def _check_name(what: str, name: str, place: Place, found: Mistakes) -> None:
    if not NAME.fullmatch(name):
        found.add(place, f"{what} name {name!r} cannot be part of a topic name", "use letters, digits, '_' and '-'")
    elif len(name) > NAME_LENGTH_MAX:
        found.add(place, f"{what} name {name[:20]}... has {len(name)} characters; the limit is {NAME_LENGTH_MAX}", "shorten it")
