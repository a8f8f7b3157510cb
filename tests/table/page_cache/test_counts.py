"""The budget counts all that windows keep, not only rows, as far as that is cheap, so that rows are evicted in time (SPEC G1)."""

from __future__ import annotations

import copy
from pathlib import Path

import pyarrow as pa
import pytest

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.projects.load import load_text
from hotspare.table.derived_parts import DerivedPart
from hotspare.table.page_cache.budget import Budget
from hotspare.table.relation import Relation
from tests.cases.case import Case, Message, raw_batches

ROWS, STEPS, GROUPS = 3_000, 8, 200

KEPT = """
project: counted
queries:
  q:
    windows:
      source: {type: source, opcodes: any, index: empty, schema: "id*:int64,s:string,value:double"}
      kept: {type: copy}
    edges: [source -> kept]
"""


def plan_of(text: str) -> Plan:
    return compile_plan(load_text(text).resolved)


def put(pipeline: Pipeline, step: int, *topics: tuple[str, list[str]]) -> None:
    """Feeds a message to each of these topics."""
    plan, head = pipeline.plan, Head.from_plan(pipeline.plan)
    messages = tuple(Message(step * 1_000_000 + at, topic, " | ".join(rows)) for at, (topic, rows) in enumerate(topics))
    for raw in raw_batches(Case(plan, messages, ())):
        pipeline.feed(head.decode(raw.set_column(2, "offset", pa.array([step] * raw.num_rows))))


def filled(budget: Budget, text: str) -> Pipeline:
    """Returns a pipeline with rows of such texts, which `{}` makes different."""
    pipeline = Pipeline.fresh(plan_of(KEPT), residence=budget)
    for step in range(STEPS):
        put(pipeline, step, ("source", [f"P,N,{key},{text.format(key)},1" for key in range(step * ROWS, (step + 1) * ROWS)]))
    return pipeline


@pytest.mark.parametrize(("text", "leaves"), [("t", False), ("{}" + 300 * "x", True)])
def test_rows_leave_for_texts(text: str, leaves: bool, tmp_path: Path) -> None:
    budget = Budget(8 << 20, tmp_path)
    pipeline = filled(budget, text)
    assert (budget.counts()["away"] > 0) == leaves
    assert pipeline.memory_by_kind == budget.counts()


def test_texts_count_with_their_letters_and_their_table(tmp_path: Path) -> None:
    counted = []
    for text in ("t", "{}-" + 120 * "x"):
        budget = Budget(1 << 30, tmp_path)
        pipeline = filled(budget, text)
        counted.append(budget.counts())
        table = pipeline._state.strings
    letters, texts = sum(len(f"{key}-") + 120 for key in range(ROWS * STEPS)), ROWS * STEPS
    assert (table.live, table.bytes) == (texts, letters)
    more = sum(counted[1].values()) - sum(counted[0].values())
    assert letters + 33 * texts <= more <= letters + 60 * texts + (1 << 17)


def test_rows_of_small_windows_count(tmp_path: Path) -> None:
    """A window of less than 8 MiB is never evicted, so any number of such windows must count."""
    budget = Budget(1 << 30, tmp_path)
    pipeline = filled(budget, "t")
    counts = budget.counts()
    assert (counts["may_leave"], counts["away"]) == (0, 0)
    assert counts["stays"] >= ROWS * STEPS * (3 * 9 + 8 + 11)
    del pipeline


BESIDE = """
project: beside
queries:
  q:
    windows:
      left: {type: source, opcodes: any, schema: "id*:int64,k:int64,value:double"}
      right: {type: source, opcodes: any, schema: "id*:int64,k:int64,value:double"}
      both: {type: join, kind: inner, index: empty, conditions: {id: id}, outputs: {a: l_value, b: r_value}}
      grouped:
        type: aggregate
        schema: "k*:int64,most:double,middle:double"
        outputs: {most: ESP_aMax(value), middle: median(value)}
      newest: {type: copy, retention: {bycount_sliding: 4, by: [k]}}
    edges: [left -> both, right -> both, left -> grouped, left -> newest]
"""


def test_what_stands_beside_rows_counts(tmp_path: Path) -> None:
    """Lists of both sides of a join, trees of an aggregate, lists of groups that keep their newest rows."""
    budget = Budget(1 << 30, tmp_path)
    pipeline = Pipeline.fresh(plan_of(BESIDE), residence=budget)
    for step in range(4):
        keys = range(step * ROWS, (step + 1) * ROWS)
        rows = [f"P,N,{key},{key % GROUPS},{key}" for key in keys]
        put(pipeline, step, ("left", rows), ("right", rows))
    beside = {
        f"{name}/{at}": (part.pinned_bytes, part.rows.live)
        for name, page in pipeline._state.pages.items()
        for at, part in page.parts.items()
        if isinstance(part, DerivedPart)
    }
    assert len(beside) >= 3
    assert all(size >= 24 * rows > 0 for size, rows in beside.values()), beside
    parts = pipeline._state.pages["q/newest#0"].parts.values()
    (groups,) = (part._groups for part in parts if isinstance(part, Relation))
    assert groups is not None
    assert groups.pinned_bytes >= 32 * 4 * GROUPS
    assert budget.counts()["stays"] >= sum(size for size, _ in beside.values()) + groups.pinned_bytes


CODE = """
project: code
queries:
  q:
    windows:
      given: {type: source, opcodes: any, index: empty, schema: "id*:int64,s:string,value:double"}
      moving: {type: calculate, algorithm: Summary, schema: "id*:int64,a:double", parameters: {windowLength: 100000},
               inputs: {input: value}, outputs: {sumOut: a}}
      seen:
        type: python
        schema: "id*:int64"
        events: create
        state-bytes-max: 10000000
        code: |
          names = {}

          def create(data, context):
              names[data["id"]] = data["s"]
              return {"id": data["id"]}
      known:
        type: lua
        schema: "id*:int64"
        events: create
        state-bytes-max: 10000000
        code: |
          names = {}
          function create(data) names[data.id] = data.s return {id = data.id} end
    edges: [given -> moving, given -> seen, given -> known]
"""


def test_what_code_keeps_and_the_newest_observations_count(tmp_path: Path) -> None:
    """A copy, which is kept while an engine searches for the event on which it fails, counts, too."""
    budget = Budget(64 << 20, tmp_path)
    pipeline = Pipeline.fresh(plan_of(CODE), residence=budget)
    before = budget.counts_by_window()
    assert before["q/moving"]["stays"] > 17 * 100_000
    put(pipeline, 0, ("given", [f"P,N,{key},{key}{50 * 'x'},1" for key in range(ROWS)]))
    counted = budget.counts_by_window()
    for window in ("q/seen", "q/known"):
        assert ROWS * (8 + 50) < counted[window]["stays"] - before[window]["stays"] < ROWS * 1_500
    twin = copy.deepcopy(pipeline._state)
    del pipeline
    assert budget.counts_by_window()["q/moving"]["stays"] >= before["q/moving"]["stays"]
    del twin
