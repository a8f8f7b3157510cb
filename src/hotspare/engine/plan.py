"""A project made ready to run: one operator per window in evaluation order, and which windows may run in the head."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from hotspare.engine.batch import BAD_STREAM
from hotspare.engine.operators.contract import Inserts, Operator
from hotspare.engine.operators.registry import build_operator
from hotspare.errors import Mistake, ProjectError
from hotspare.model.fingerprint import resolved_hash
from hotspare.model.project import (
    CalculateWindow,
    ComputeWindow,
    CopyWindow,
    FilterWindow,
    FunctionalWindow,
    IndexType,
    KeyOrigin,
    SourceWindow,
    Window,
    WindowId,
)
from hotspare.model.resolve import Resolved, ResolvedWindow
from hotspare.model.types import Field, FieldType, Schema

BAD_SCHEMA = Schema(
    (
        Field("reason", FieldType.STRING),
        Field("message", FieldType.STRING),
        Field("text", FieldType.STRING),
        Field("window", FieldType.STRING),
    )
)
"""Fields of the stream of bad events: a stable code, a sentence, the event as it came, and `query/window`."""


@dataclass(frozen=True)
class Node:
    """A window at its place in the plan. `inputs` are indexes of earlier nodes; a source window has none and `entry` >= 0.

    `in_head`: the head has done this window's work; events enter the core behind it.
    """

    operator: Operator
    inputs: tuple[int, ...]
    entry: int
    in_head: bool

    @property
    def page(self) -> str:
        """Name of its page."""
        return f"{self.operator.id}#0"


@dataclass(frozen=True)
class Plan:
    """`nodes` in evaluation order. `entries[i]`: the node whose output the decoded events of topic i are: the source window's
    input where nothing of it runs in the head, else the output of the last window of `head_chains[i]`.

    `head_chains[i]`: the stateless windows of topic i that the head runs, the source window first; empty if there are none.
    `streams`: output streams by name, with the node that feeds each; the stream of bad events is not among them. `traced`: the
    nodes whose events people want to see, which never run in the head.
    """

    resolved: Resolved
    project_hash: str
    nodes: tuple[Node, ...]
    entries: tuple[int, ...]
    head_chains: tuple[tuple[WindowId, ...], ...]
    streams: tuple[tuple[str, int], ...]
    traced: tuple[int, ...]

    @property
    def entry_schemas(self) -> tuple[Schema, ...]:
        """Schema at which each topic's events enter the core (see `batch.decoded_schema`)."""
        return tuple(self.nodes[i].operator.schema for i in self.entries)

    @property
    def stream_schemas(self) -> dict[str, Schema]:
        """Fields of every output stream, the stream of bad events included."""
        return {**{name: self.nodes[i].operator.schema for name, i in self.streams}, BAD_STREAM: BAD_SCHEMA}

    @property
    def heartbeat_interval_us(self) -> int:
        return self.resolved.project.heartbeat_interval_us


def compile_plan(resolved: Resolved) -> Plan:
    """ProjectError with all mistakes that only compiling its windows shows."""
    traced = {WindowId(query.name, name) for query in resolved.project.queries for name in query.trace}
    chains = tuple(_head_chain(resolved, source, traced) for source in resolved.sources)
    in_head = {window_id for chain in chains for window_id in chain}
    place = {w.id: i for i, w in enumerate(resolved.windows)}
    topic = {window_id: i for i, window_id in enumerate(resolved.sources)}
    leaving: dict[WindowId, _Keys] = {}
    nodes: list[Node] = []
    mistakes: list[Mistake] = []
    for window in resolved.windows:
        try:
            schemas = [resolved.schema(source) for source, _ in window.inputs]
            coming = _coming(window, resolved, leaving)
            operator = build_operator(window, schemas, Inserts.ANY if coming is _Keys.ANY else Inserts.NEW_KEYS)
            leaving[window.id] = _leaving(window, coming, operator)
        except ProjectError as error:
            mistakes += error.mistakes
            continue
        inputs = tuple(place[source] for source, _ in window.inputs)
        nodes.append(Node(operator, inputs, topic.get(window.id, -1), window.id in in_head))
    if mistakes:
        raise ProjectError(resolved.project.name, mistakes)
    return Plan(
        resolved=resolved,
        project_hash=resolved_hash(resolved),
        nodes=tuple(nodes),
        entries=tuple(place[chain[-1] if chain else source] for source, chain in zip(resolved.sources, chains, strict=True)),
        head_chains=chains,
        streams=tuple((str(window_id), place[window_id]) for window_id in resolved.streams),
        traced=tuple(i for i, window in enumerate(resolved.windows) if window.id in traced),
    )


class _Keys(Enum):
    """What is known of the keys of inserts in a changelog."""

    ANY = "any"
    NEW = "new"
    """Never one that is there: the changelog is a relation's."""
    ONCE = "once"
    """Never one that came before: keys are generated, rows are never updated. Dropping rows cannot change that."""


def _coming(window: ResolvedWindow, resolved: Resolved, leaving: Mapping[WindowId, _Keys]) -> _Keys:
    """Of the changelog that a window is given."""
    if isinstance(window.window, SourceWindow):
        return _Keys.ONCE if window.window.key_origin is KeyOrigin.AUTOGENERATED else _Keys.ANY
    ((given, _),) = window.inputs
    keeps_keys = _keeps_keys(window.window, resolved.schema(given), window.schema)
    return leaving.get(given, _Keys.ANY) if keeps_keys else _Keys.ANY


def _leaving(window: ResolvedWindow, coming: _Keys, operator: Operator) -> _Keys:
    """Of the changelog that a window puts out.

    One that lets an insert pass and drops its delete, or puts out an insert where it dropped what came before, ends a relation:
    the key may come again.
    """
    if coming is _Keys.ONCE:
        return coming
    declared = window.window
    if isinstance(declared, SourceWindow | CopyWindow | CalculateWindow) and declared.index is not IndexType.EMPTY:
        return _Keys.NEW
    return _Keys.ANY if operator.can_drop else coming


def _keeps_keys(window: Window, given: Schema, schema: Schema) -> bool:
    """Whether the keys are those of the input, unchanged."""
    keys = {schema.names[i] for i in schema.key_indexes}
    computed: set[str] = set()
    if isinstance(window, FunctionalWindow):
        computed = {name for name, _ in window.functions}
    elif isinstance(window, CalculateWindow):
        computed = {name for _, name in window.output_map}
    return keys == {given.names[i] for i in given.key_indexes} and not keys & computed


def _head_chain(resolved: Resolved, source: WindowId, traced: Collection[WindowId]) -> tuple[WindowId, ...]:
    """The source and the stateless windows that follow it one after another, as far as nobody else looks at them."""
    chain: list[WindowId] = []
    at = source
    while _is_stateless(resolved, at):
        followers = [w.id for w in resolved.windows if any(i == at for i, _ in w.inputs)]
        seen = at in resolved.streams or at in traced
        if seen or len(followers) != 1 or len(resolved.window(followers[0]).inputs) != 1:
            break
        chain.append(at)
        at = followers[0]
    return tuple(chain) if len(chain) > 1 else ()


def _is_stateless(resolved: Resolved, window_id: WindowId) -> bool:
    window = resolved.window(window_id).window
    if isinstance(window, SourceWindow):
        return window.index is IndexType.EMPTY and window.key_origin is KeyOrigin.GIVEN and window.retention is None
    return isinstance(window, ComputeWindow | FilterWindow)
