"""A changed project that continues with the state of the previous one, for laws: its input, and an aggregate that starts in it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pyarrow as pa

from hotspare.base.errors import ProjectError
from hotspare.flow.carry_over import carried_over
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan
from hotspare.flow.seeding import upstream_rows
from hotspare.flow.upgrade import Fate, Past, Upgrade, compare
from hotspare.model.types import KeyRole
from hotspare.rows.changelog import Opcodes
from tests.laws.any_changelogs import Given, raw_messages
from tests.laws.any_expressions import OVER_ROWS
from tests.laws.any_graphs import Graph
from tests.laws.core_scripts import joined
from tests.laws.graph_laws import same

NEW = "zzy", "zzz"
"""Aggregates that the changed project has in addition."""


def fed(plan: Plan, pipeline: Pipeline, raw: list[pa.RecordBatch]) -> dict[str, pa.Table]:
    head = Head.from_plan(plan)
    return joined([pipeline.feed(head.decode(each)) for each in raw])


def only(outputs: dict[str, pa.Table], names: list[str]) -> dict[str, pa.Table]:
    return {name: table for name, table in outputs.items() if name in names}


def unread(raw: pa.RecordBatch, following: dict[tuple[int, int], int]) -> pa.RecordBatch:
    topic, offset = raw.column("topic").to_pylist(), raw.column("offset").to_pylist()
    return raw.filter(pa.array([o >= following.get((t, 0), 0) for t, o in zip(topic, offset, strict=True)], pa.bool_()))


def lacks_rows(found: Upgrade) -> bool:
    """Whether an upgrade is refused because a window needs rows that no window stores (docs/upgrade.md, "Refused aggregates").
    Raises AssertionError for any other refusal: laws draw no change that has one."""
    assert all("would have to begin with rows that no window stores" in refusal for refusal in found.refusals), found.refusals
    return bool(found.refusals)


def begins_otherwise(graph: Graph, script: Sequence[Given], random: Random) -> str | None:
    """Returns the difference between new aggregates over existing rows of any two windows, and those that processed all events.
    None: there is none, or such an aggregate cannot be built."""
    try:
        summed = _summed(_summed(graph, random, NEW[0]), random, NEW[1])
        before, after = graph.plan(), summed.plan()
    except ProjectError:
        return None
    found = compare(before, after, Past.CUT)
    fates = {each.window.window: each.fate for each in found.windows}
    begin = [name for name in NEW if fates[name] is Fate.FILLED and not _has_inserts_alone(after, name)]
    if found.refusals or not begin:
        return None
    raw = raw_messages(script, len(before.entries))
    cut = random.randrange(len(raw) + 1)
    old, always = Pipeline.fresh(before), Pipeline.fresh(after)
    fed(before, old, raw[:cut])
    fed(after, always, raw[:cut])
    frozen = old.freeze()
    new = Pipeline.restore(after, *carried_over(before, after, frozen.header, dict(frozen.pages())))
    following = dict(old.next_offsets)
    rest = [left for each in raw if (left := unread(each, following)).num_rows]
    streams = [f"q/{name}" for name in begin]
    made, expected = (only(fed(after, each, given), streams) for each, given in ((new, rest), (always, raw[cut:])))
    try:
        same("an aggregate that begins", _unnumbered(made), _unnumbered(expected))
    except AssertionError as error:
        return f"{error}\n{summed.text}"
    return None


def _summed(graph: Graph, random: Random, named: str) -> Graph:
    """Returns the graph with an aggregate of that name over one of its windows, with functions of the rows alone. Raises
    ProjectError if that is invalid."""
    sums = [name for name, window in graph.windows.items() if window["type"] == "aggregate"]
    behind = random.choice(random.choice((list(graph.windows), sums, sums)) or list(graph.windows))
    schema = graph.resolved().schema(next(each.id for each in graph.resolved().windows if each.id.window == behind))
    chosen = [f for f in schema.fields if f.name in OVER_ROWS and f.role is not KeyRole.KEY]
    groups = [f.name for f in random.sample(chosen, min(len(chosen), random.choice((1, 1, 2))))]
    text = ",".join(f"{f.name}{'*' if f.name in groups else ''}:{f.type.value}" for f in chosen)
    outputs = {f.name: random.choice(OVER_ROWS[f.name]) for f in chosen if f.name not in groups}
    return graph.with_window(named, {"type": "aggregate", "schema": text, "outputs": outputs}, [(behind, named, "")])


def _has_inserts_alone(plan: Plan, window: str) -> bool:
    """Whether some upstream rows of this window can never be retracted, so that it does not start with them."""
    ahead = upstream_rows(plan, frozenset(node.page for node in plan.nodes if node.operator.id.window not in NEW))
    left = [i for i, node in enumerate(plan.nodes) if node.operator.id.window == window]
    while left:
        at = left.pop()
        node = plan.nodes[at]
        if node.operator.id.window != window and at in ahead[at].readable_nodes:
            continue
        if node.operator.output_changelog.opcodes is not Opcodes.RESOLVED or not node.inputs:
            return True
        left += [arc.node for arc in node.inputs]
    return False


def _unnumbered(outputs: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Returns outputs without their place and digest in the stream: the new one has no earlier outputs."""
    return {name: table.drop_columns(["hs:sequence", "hs:digest"]) for name, table in outputs.items()}
