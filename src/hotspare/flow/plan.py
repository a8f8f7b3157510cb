"""Compiles a project to a plan: one operator per window in evaluation order, and the windows that may run in the head."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from hotspare.base.call_place import CallPlace
from hotspare.base.errors import Mistake, ProjectError
from hotspare.formats.csv.rows import RowPrefix
from hotspare.model.code import Module, Script
from hotspare.model.project import EVERY_SLOT, Emit, WindowId
from hotspare.model.resolved import Resolved, ResolvedWindow
from hotspare.model.retention_needs import RowFacts
from hotspare.model.types import Field, FieldType, Schema
from hotspare.model.window_type import type_of
from hotspare.projects.fingerprint import resolved_hash, window_version
from hotspare.rows.batch import BAD_STREAM, TRACE_PREFIX
from hotspare.rows.changelog import DISTINCT, PUBLISHED, Changelog, Keys, Opcodes
from hotspare.rows.chunk import Chunk
from hotspare.scripting.languages import compile_shared
from hotspare.scripting.shared import InitialSharedState
from hotspare.stages.beats import BeatsOperator
from hotspare.stages.delivery import DeliveryOperator
from hotspare.stages.emission import EmissionOperator
from hotspare.stages.splitter import SplitterOperator
from hotspare.table.lanes import OutputForm
from hotspare.table.multi_index import MultiIndex
from hotspare.table.relation import Relation
from hotspare.windows.shared.contract import Operator, OperatorInput, build_operator
from hotspare.windows.shared.keyed import has_row_index
from hotspare.windows.shared.merging import EntryOperator, ForwardedOperator
from hotspare.windows.shared.stateless import Chain, HeadWindow

BAD_SCHEMA = Schema(
    (
        Field("reason", FieldType.STRING),
        Field("message", FieldType.STRING),
        Field("text", FieldType.STRING),
        Field("window", FieldType.STRING),
    )
)
"""Fields of the stream of bad events: a stable reason code, a sentence, the event's text as received, and the window
(`query/window`)."""
BAD_KEY = (BAD_SCHEMA.fields[3],)
"""The message key of a bad event: the window that refused it."""


class Stage(Enum):
    """The part of a window that a node computes. The value is part of the name of the node's page."""

    ENTRY = "entry"
    """A source window that others forward to: the events of its topic."""
    FORWARDED = "forwarded"
    """The input of a source window that others forward to: the events of its topic, merged with the forwarded events."""
    WINDOW = "0"
    EMISSION = "emission"
    """Runs after the window: decides which of its outputs are emitted, and when."""
    DELIVERY = "delivery"
    """Runs between the window and its output stream: publishes updates as one row, or drops deletes of retention, as a connector
    requests (`stages.delivery`)."""
    BEATS = "beats"
    """Adds beats to the output stream, which report the time that the window has reached."""
    SPLITTER = "splitter"


class Arc(NamedTuple):
    """An edge from node number `node`. It passes the outputs of that node's `slot`; EVERY_SLOT passes all outputs."""

    node: int
    slot: int = EVERY_SLOT


@dataclass(frozen=True)
class Node:
    """A window, or a stage of a window, in the plan. `inputs`: the edges into the node, in the project's order. `entry`: the index
    of the topic whose events the node receives, -1 if it has inputs instead. `in_head`: the head already runs this window, so
    events enter the core after the node.
    """

    operator: Operator
    inputs: tuple[Arc, ...]
    entry: int
    in_head: bool
    stage: Stage = Stage.WINDOW

    @cached_property
    def window(self) -> str:
        return str(self.operator.id)

    @cached_property
    def page(self) -> str:
        """The name of the node's page, `query/window#stage`."""
        return f"{self.window}#{self.stage.value}"

    @cached_property
    def empty_inputs(self) -> tuple[Chunk, ...]:
        """An empty chunk per input, for calls of the operator without rows. Decoded events count as one input."""
        schemas = [each.schema for each in self.operator.inputs] or [self.operator.schema]
        return tuple(Chunk.empty(len(schema)) for schema in schemas)


@dataclass(frozen=True)
class Outlet:
    """An output stream or a trace. `node`: the number of the node that feeds it; `form`: the form of its outputs. `has_beats`:
    whether beats are among the outputs.
    """

    name: str
    node: int
    form: OutputForm
    has_beats: bool = False


@dataclass(frozen=True)
class Plan:
    """A compiled project. `nodes` are in evaluation order.

    `head_chains[i]`: the stateless windows of topic i that the head runs, beginning with the source window; empty if the head only
    decodes. `entries[i]`: the node whose outputs are the decoded events of topic i: the last window of `head_chains[i]`, or the
    source window if that chain is empty. `streams`: the name of each output stream and the node that feeds it, without the stream
    of bad events. `traced`: the nodes of traced windows. `shared`: the state that user code shares between windows; None without
    such code.
    """

    resolved: Resolved
    project_hash: str
    nodes: tuple[Node, ...]
    entries: tuple[int, ...]
    head_chains: tuple[tuple[WindowId, ...], ...]
    streams: tuple[tuple[str, int], ...]
    traced: tuple[int, ...]
    shared: InitialSharedState | None = None

    @property
    def entry_schemas(self) -> tuple[Schema, ...]:
        """The schema with which each topic's events enter the core (`rows.batch.decoded_schema`)."""
        return tuple(self.nodes[i].operator.schema for i in self.entries)

    @cached_property
    def topic_of(self) -> dict[int, int]:
        """The index of the topic whose decoded events each entry node receives, by node number."""
        return {node: topic for topic, node in enumerate(self.entries)}

    @cached_property
    def outlets(self) -> tuple[Outlet, ...]:
        """The output streams, without that of bad events, each with its node and its form."""
        nodes = [(name, i, self.nodes[i]) for name, i in self.streams]
        return tuple(Outlet(name, i, OutputForm(each.operator.schema), each.stage is Stage.BEATS) for name, i, each in nodes)

    @cached_property
    def traces(self) -> tuple[Outlet, ...]:
        found = [(self.nodes[i], i) for i in self.traced]
        return tuple(Outlet(f"{TRACE_PREFIX}{node.window}", i, OutputForm(node.operator.schema)) for node, i in found)

    @cached_property
    def followers(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The edges that start at each node, as (number of the receiving node, number of that node's input)."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        for i, node in enumerate(self.nodes):
            for number, arc in enumerate(node.inputs):
                found[arc.node].append((i, number))
        return tuple(map(tuple, found))

    @cached_property
    def window_nodes(self) -> Mapping[str, int]:
        """The number of the node that computes each window of the core, without its other stages, by window."""
        return {each.window: i for i, each in enumerate(self.nodes) if each.stage is Stage.WINDOW and not each.in_head}

    @cached_property
    def window_versions(self) -> Mapping[str, str]:
        """A name for the meaning of each window in `window_nodes`, with all code that it calls: 12 hexadecimal digits, equal for
        equal meanings."""
        versions = {str(w.id): window_version(w) for w in self.resolved.windows}
        return {window: versions[window] for window in self.window_nodes}

    def node_of(self, place: CallPlace) -> int | None:
        """Returns the number of the node whose calls `place` names; None if the project has no such window, or changed it."""
        if self.window_versions.get(place.window) != place.version:
            return None
        return self.window_nodes[place.window]

    @cached_property
    def code_nodes(self) -> frozenset[int]:
        """The numbers of the nodes that call user code."""
        windows = (w for w in self.resolved.windows if any(True for _ in type_of(w.window).scripts(w.window)))
        return frozenset(self.window_nodes[str(w.id)] for w in windows)

    @property
    def code_versions(self) -> Mapping[str, str]:
        """The version (`window_versions`) of each window that calls user code, by window."""
        windows = (self.nodes[i].window for i in sorted(self.code_nodes))
        return {window: self.window_versions[window] for window in windows}

    def head_chain(self, topic: int) -> Chain | None:
        """Returns the operators that the head runs on the events of topic number `topic`; None if the head only decodes them."""
        operators = [node.operator for node in self.nodes if node.in_head and node.operator.id in self.head_chains[topic]]
        if not operators:
            return None
        given = [operators[0].schema, *(operator.schema for operator in operators)]
        windows = []
        for operator, schema in zip(operators, given, strict=False):
            work = operator.head_function
            assert work is not None
            windows.append(HeadWindow(str(operator.id), schema, work))
        return Chain(tuple(windows), operators[-1].schema)

    @property
    def stream_schemas(self) -> dict[str, Schema]:
        """The fields of every output stream, including that of bad events."""
        return {**{name: self.nodes[i].operator.schema for name, i in self.streams}, BAD_STREAM: BAD_SCHEMA}

    @property
    def prefixes(self) -> dict[str, RowPrefix]:
        """The columns before the fields that a reader needs to restore the rows, by stream. RowPrefix.NONE if the window emits only
        inserts, EVENT (with flags) if updates may be partial, else OPCODE."""
        known = {name: self.nodes[i].operator.output_changelog for name, i in self.streams}
        return {name: _prefix_of(changelog) for name, changelog in known.items()}

    @property
    def windows_with_rows(self) -> RowFacts:
        """The windows that store rows, not counting rows that wait for a pulse; the windows that emit only inserts; the table
        inputs of each window; and the windows that store only tables."""
        windows = [node.operator for node in self.nodes if node.stage is Stage.WINDOW]
        leaving = {node.operator.id: node.operator.output_changelog for node in self.nodes}  # the last stage's
        return RowFacts(
            frozenset(operator.id for operator in windows if _remembers_rows(operator)),
            frozenset(window_id for window_id, changelog in leaving.items() if changelog.opcodes is Opcodes.INSERTS),
            {operator.id: _tables(self.resolved, operator) for operator in windows if operator.table_inputs},
            frozenset(operator.id for operator in windows if operator.keeps_only_tables),
        )

    @property
    def heartbeat_interval_us(self) -> int:
        return self.resolved.project.heartbeat_interval_us


def _remembers_rows(operator: Operator) -> bool:
    parts = operator.open().parts.items()
    return any(isinstance(part, Relation | MultiIndex) for name, part in parts if name not in operator.non_row_parts)


def _tables(resolved: Resolved, operator: Operator) -> tuple[WindowId, ...]:
    inputs = resolved.window(operator.id).inputs
    return tuple(inputs[number][0] for number in operator.table_inputs)


def _prefix_of(changelog: Changelog) -> RowPrefix:
    if changelog.opcodes is Opcodes.INSERTS:
        return RowPrefix.NONE
    return RowPrefix.EVENT if changelog.needs_rows else RowPrefix.OPCODE


def compile_plan(resolved: Resolved) -> Plan:
    """Returns the plan of a resolved project. Raises ProjectError with all mistakes that only compiling finds."""
    shared = compile_shared(_scripts(resolved))
    stages, mistakes = _operators(resolved)
    if mistakes:
        raise ProjectError(resolved.project.name, mistakes)
    chains = tuple(_head_chain(resolved, source, stages) for source in resolved.sources)
    in_head = {window_id for chain in chains for window_id in chain}
    topic = {window_id: i for i, window_id in enumerate(resolved.sources)}
    nodes: list[Node] = []
    place: dict[WindowId, int] = {}
    """The first node of each window."""
    last: dict[WindowId, int] = {}
    """The node that emits each window's outputs."""
    for w in resolved.windows:
        inputs = tuple(Arc(last[source], slot) for (source, _), slot in zip(w.inputs, w.slots, strict=True))
        place[w.id] = len(nodes)
        if w.forwarding_windows:
            nodes += _before_forwarded(w, topic[w.id], len(nodes), [last[source] for source in w.forwarding_windows])
            inputs = (Arc(len(nodes) - 1),)
        for stage, operator in stages[w.id].items():
            is_first = stage is Stage.WINDOW
            entry = topic.get(w.id, -1) if is_first and not w.forwarding_windows else -1
            arcs = inputs if is_first else (Arc(len(nodes) - 1),)
            nodes.append(Node(operator, arcs, entry, is_first and w.id in in_head, stage))
        last[w.id] = len(nodes) - 1
    streams = tuple((str(window_id), _outlet(resolved, window_id, last[window_id], nodes)) for window_id in resolved.streams)
    traced = _traced(resolved)
    return Plan(
        resolved=resolved,
        project_hash=resolved_hash(resolved),
        nodes=tuple(nodes),
        entries=tuple(place[chain[-1] if chain else source] for source, chain in zip(resolved.sources, chains, strict=True)),
        head_chains=chains,
        streams=streams,
        traced=tuple(last[window.id] for window in resolved.windows if window.id in traced),
        shared=shared,
    )


def operator_mistakes(resolved: Resolved, mistaken: Collection[WindowId]) -> Sequence[Mistake]:
    """Returns every mistake that only compiling finds, except in the windows `mistaken` (`projects.load.OperatorCheck`). If code
    that windows share does not compile, returns its mistakes alone."""
    try:
        compile_shared(_scripts(resolved))
    except ProjectError as error:
        return error.mistakes
    return _operators(resolved, mistaken)[1]


def _scripts(resolved: Resolved) -> dict[Script, Sequence[Module]]:
    return {script: w.modules for w in resolved.windows for script in type_of(w.window).scripts(w.window)}


def _before_forwarded(window: ResolvedWindow, topic: int, first: int, sources: Sequence[int]) -> tuple[Node, Node]:
    """Returns the nodes, numbered from `first`, that precede a source window to which the nodes `sources` forward."""
    arcs = (Arc(first), *map(Arc, sources))
    together = ForwardedOperator(window, [OperatorInput(window.schema, PUBLISHED)] * len(arcs))
    entry = Node(EntryOperator(window, ()), (), topic, in_head=False, stage=Stage.ENTRY)
    return entry, Node(together, arcs, -1, in_head=False, stage=Stage.FORWARDED)


def _outlet(resolved: Resolved, window: WindowId, last: int, nodes: list[Node]) -> int:
    """Returns the number of the node whose outputs are the window's stream. Appends stages for delivery and beats to `nodes` if the
    window needs them. `last`: the window's last node so far."""
    given, stages = [OperatorInput(resolved.schema(window), nodes[last].operator.output_changelog)], []
    delivery, beats = (made(resolved.window(window), given) for made in (DeliveryOperator, BeatsOperator))
    if not delivery.is_passthrough:
        stages.append((Stage.DELIVERY, delivery))
    if not beats.is_passthrough:
        stages.append((Stage.BEATS, beats))
    for stage, operator in stages:
        nodes.append(Node(operator, (Arc(last),), -1, in_head=False, stage=stage))
        last = len(nodes) - 1
    return last


Stages = Mapping[Stage, Operator]
"""The operators of one window by stage, in the order in which they run."""


def _operators(resolved: Resolved, mistaken: Collection[WindowId] = ()) -> tuple[dict[WindowId, Stages], list[Mistake]]:
    """Returns the stages of all windows except `mistaken`, and every mistake found. Downstream of a mistaken window, mistakes that
    only follow from that window's mistake are not reported."""
    stages: dict[WindowId, Stages] = {}
    leaving: dict[WindowId, Changelog] = {}
    mistakes: list[Mistake] = []
    for window in (each for each in resolved.windows if each.id not in mistaken):
        given = [
            OperatorInput(resolved.schema(source), leaving.get(source, DISTINCT), role, source.window)
            for source, role in window.inputs
        ]
        if repeats := _repeated_keys(window, leaving, resolved):
            mistakes.append(repeats)
        try:
            stages[window.id] = found = _stages(window, given, resolved)
            leaving[window.id] = list(found.values())[-1].output_changelog
        except ProjectError as error:
            mistakes += error.mistakes
    return stages, mistakes


def _repeated_keys(window: ResolvedWindow, leaving: Mapping[WindowId, Changelog], resolved: Resolved) -> Mistake | None:
    """Returns a mistake if the window has an index, which refuses repeated keys, and its input may insert one key repeatedly; else
    None."""
    for source, _ in window.inputs:
        given = leaving.get(source, DISTINCT)
        emits_new = resolved.window(source).window.emission.emit is Emit.NEW
        if emits_new and given.keys is Keys.ANY and type_of(window.window).preserves_key and has_row_index(window.window, given):
            message = f"window {window.id} has an index, but window {source} has emit: new, so it may insert one key repeatedly"
            hint = "give the window `index: empty`, or put a remove-state window before it, which numbers the rows"
            return Mistake(window.window.place, message, hint)
    return None


def _stages(window: ResolvedWindow, given: Sequence[OperatorInput], resolved: Resolved) -> Stages:
    operator = build_operator(window, given)
    found: dict[Stage, Operator] = {Stage.WINDOW: operator}
    project, made = resolved.project, OperatorInput(window.schema, operator.output_changelog)
    emission = EmissionOperator(window, [made], project.heartbeat_interval_us, project.retention_tracking)
    if not emission.is_passthrough:
        found[Stage.EMISSION] = emission
    if window.window.splitter is not None:
        found[Stage.SPLITTER] = SplitterOperator(window, [OperatorInput(window.schema, list(found.values())[-1].output_changelog)])
    return found


def _traced(resolved: Resolved) -> frozenset[WindowId]:
    return frozenset(WindowId(query.name, name) for query in resolved.project.queries for name in query.trace)


def _head_chain(resolved: Resolved, source: WindowId, stages: Mapping[WindowId, Stages]) -> tuple[WindowId, ...]:
    """Returns the source window and the windows downstream of it, as far as they form a chain that the head can run; empty if the
    head can run no window after the source. The outputs of the last one enter the core, so only the last may be traced or
    published."""
    if resolved.window(source).forwarding_windows:
        return ()
    chain: list[WindowId] = []
    watched = _traced(resolved).union(resolved.streams)
    at = source
    while stages[at][Stage.WINDOW].head_function is not None:
        chain.append(at)
        followers = [w.id for w in resolved.windows if any(i == at for i, _ in w.inputs)]
        if len(stages[at]) > 1 or at in watched or len(followers) != 1 or len(resolved.window(followers[0]).inputs) != 1:
            break
        at = followers[0]
    return tuple(chain) if len(chain) > 1 else ()
