"""A project made ready to run: one operator per window in evaluation order, and which windows may run in the head."""

from __future__ import annotations

from dataclasses import dataclass

from hotspare.engine.batch import BAD_STREAM
from hotspare.engine.operators.contract import Operator
from hotspare.engine.operators.registry import build_operator
from hotspare.errors import Mistake, ProjectError
from hotspare.model.fingerprint import resolved_hash
from hotspare.model.project import (
    ComputeWindow,
    FilterWindow,
    IndexType,
    KeyOrigin,
    SourceWindow,
    WindowId,
)
from hotspare.model.resolve import Resolved
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
    `streams`: output streams by name, with the node that feeds each; the stream of bad events is not among them.
    """

    resolved: Resolved
    project_hash: str
    nodes: tuple[Node, ...]
    entries: tuple[int, ...]
    head_chains: tuple[tuple[WindowId, ...], ...]
    streams: tuple[tuple[str, int], ...]

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
    chains = tuple(_head_chain(resolved, source) for source in resolved.sources)
    in_head = {window_id for chain in chains for window_id in chain}
    place = {w.id: i for i, w in enumerate(resolved.windows)}
    topic = {window_id: i for i, window_id in enumerate(resolved.sources)}
    nodes: list[Node] = []
    mistakes: list[Mistake] = []
    for window in resolved.windows:
        try:
            operator = build_operator(window, [resolved.schema(source) for source, _ in window.inputs])
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
    )


def _head_chain(resolved: Resolved, source: WindowId) -> tuple[WindowId, ...]:
    """The source and the stateless windows that follow it one after another, as far as nobody else looks at them."""
    chain: list[WindowId] = []
    at = source
    while _is_stateless(resolved, at):
        followers = [w.id for w in resolved.windows if any(i == at for i, _ in w.inputs)]
        if at in resolved.streams or len(followers) != 1 or len(resolved.window(followers[0]).inputs) != 1:
            break
        chain.append(at)
        at = followers[0]
    return tuple(chain) if len(chain) > 1 else ()


def _is_stateless(resolved: Resolved, window_id: WindowId) -> bool:
    window = resolved.window(window_id).window
    if isinstance(window, SourceWindow):
        return window.index is IndexType.EMPTY and window.key_origin is KeyOrigin.GIVEN and window.retention is None
    return isinstance(window, ComputeWindow | FilterWindow)
