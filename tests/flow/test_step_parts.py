"""Rows flow between windows of several inputs in order, bounded, and by slots (SPEC A34, A35)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline, joined_parts
from hotspare.flow.plan import Arc, Node, Plan, compile_plan
from hotspare.flow.step import Dataflow
from hotspare.projects.load import load_text
from hotspare.rows.chunk import Chunk, Int64s, Timeline
from hotspare.table.pages import Page
from hotspare.table.strings import StringTable
from hotspare.windows.shared.contract import Clock, Operator, OperatorResult
from tests.flow.changelogs import raw

TEXT = """
project: p
queries:
  q:
    windows:
      given: {{type: source, index: empty, opcodes: insert-only, schema: "id*:int64,x:int64"}}
      a: {{type: copy, index: empty}}
      b: {{type: copy, index: empty}}
      one: {{type: union, index: empty, publish: true}}
      two: {{type: union, index: empty, publish: true}}
    edges: [given -> a, given -> b, {edges}]
"""
ALIKE = "a -> one, b -> one, a -> two, b -> two"
CROSSED = "a -> one, b -> one, b -> two, a -> two"


class Standing(Operator):
    """Replaces another operator."""

    def __init__(self, instead: Operator) -> None:
        self.id, self.schema, self.inputs, self.output_changelog = (
            instead.id,
            instead.schema,
            instead.inputs,
            instead.output_changelog,
        )
        self.calls = 0


class Many(Standing):
    """Emits each row seven times, with the number in x, as far as the part allows. The operator keeps the rest."""

    left: Chunk | None = None

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        self.calls += 1
        if self.left is None:
            rows = np.repeat(np.arange(len(inputs[0])), 7)
            self.left = inputs[0].copied_rows(rows)
            self.left.lanes[:, 1] = np.arange(len(rows)) % 7 + 10 * (str(self.id) == "q/b")
        made, rest = self.left.between(0, timeline.extra_rows_max), self.left.since(timeline.extra_rows_max)
        self.left = rest if len(rest) else None
        return OperatorResult(made, until=int(rest.rank[0]) if len(rest) else None)


class Split(Standing):
    """Emits odd keys by slot 1, even ones by slot 0."""

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        slots: Int64s = inputs[0].lanes[:, 0] % 2
        return OperatorResult(inputs[0], slots=slots)


def plan_of(edges: str, change: Callable[[Node], Node]) -> Plan:
    plan = compile_plan(load_text(TEXT.format(edges=edges)).resolved)
    nodes = [replace(node, in_head=False) for node in plan.nodes]
    return replace(plan, nodes=tuple(map(change, nodes)), entries=(0,), head_chains=((),))


def many(node: Node) -> Node:
    return replace(node, operator=Many(node.operator)) if str(node.operator.id) in ("q/a", "q/b") else node


def out_of(plan: Plan, extra_rows_max: int, rows: int = 3) -> tuple[dict[str, list[tuple[int, int]]], int]:
    """Returns (key, x) of each stream's outputs, and the count of parts."""
    decoded = Head.from_plan(plan).decode(raw([f"i,n,{i},0" for i in range(rows)]))
    parts = list(Pipeline.fresh(plan, extra_rows_max=extra_rows_max).compute_parts(decoded))
    made = joined_parts(parts)
    columns = {name: (batch.column("id").to_pylist(), batch.column("x").to_pylist()) for name, batch in made.items()}
    return {name: list(zip(*pair, strict=True)) for name, pair in columns.items()}, len(parts)


@pytest.mark.parametrize("edges", [ALIKE, CROSSED])
def test_inputs_are_taken_in_the_order_of_the_edges_however_small_the_parts(edges: str) -> None:
    """Also if two windows read two inputs in opposite orders, so that rows have to wait."""
    first = [(key, x) for key in range(3) for x in (*range(7), *range(10, 17))]
    other = [(key, x) for key in range(3) for x in (*range(10, 17), *range(7))]
    for extra_rows_max in (1, 2, 5, 1000):
        made, parts = out_of(plan_of(edges, many), extra_rows_max)
        assert made == {"q/one": first, "q/two": other if edges is CROSSED else first}
        assert parts > 1 or extra_rows_max == 1000


def test_what_waits_on_an_edge_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that would only add to waiting rows waits."""
    most = 0
    next_part = Dataflow.next_part

    def watched(flow: Dataflow) -> object:
        nonlocal most
        part = next_part(flow)
        most = max(most, *(len(chunk) for chunks in flow._waiting for chunk in chunks if chunk is not None), 0)
        return part

    monkeypatch.setattr(Dataflow, "next_part", watched)
    made, parts = out_of(plan_of(ALIKE, many), 2, rows=40)
    assert len(made["q/one"]) == 40 * 14
    assert parts > 100
    assert most <= 4


def test_rows_leave_by_their_slots() -> None:
    """An edge takes the rows of its slot, or all."""

    def split(node: Node) -> Node:
        name = node.operator.id.window
        if name == "a":
            return replace(node, operator=Split(node.operator))
        inputs = {"one": (Arc(1, 1), Arc(2)), "two": (Arc(1, 0),)}.get(name, node.inputs)
        if name == "two":
            node.operator.inputs = node.operator.inputs[:1]
        return replace(node, inputs=inputs)

    made, _ = out_of(plan_of(ALIKE, split), 1000, rows=4)
    assert [key for key, _ in made["q/one"]] == [0, 1, 1, 2, 3, 3]
    assert [key for key, _ in made["q/two"]] == [0, 2]


@pytest.mark.parametrize(("clock", "calls"), [(Clock.NONE, 1), (Clock.EVENT_TIME, 1), (Clock.TICKS, 3)])
def test_a_window_is_called_when_rows_come_or_when_it_needs_the_time(clock: Clock, calls: int) -> None:
    operators: list[Many] = []

    def counting(node: Node) -> Node:
        if node.operator.id.window != "a":
            return node
        operators.append(Many(node.operator))
        operators[0].clock = clock
        return replace(node, operator=operators[0])

    plan = plan_of(ALIKE, counting)
    pipeline, head = Pipeline.fresh(plan), Head.from_plan(plan)
    pipeline.feed(head.decode(raw(["i,n,1,0"])))
    for first in (1, 2):
        rows = raw([""], first)
        tick = rows.set_column(rows.schema.get_field_index("tick"), "tick", pa.array([True]))
        pipeline.feed(head.decode(tick.cast(rows.schema)))
    assert operators[0].calls == calls
